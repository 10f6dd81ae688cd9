// The uses of memory by a launch: bytes, races, bank conflicts.
//
// For observed launches kernels.cu is compiled with the instrumentation of ThreadSanitizer but without
// its runtime: observe.cpp defines the functions that the compiler calls at every load and store.
// Collective operations (copies, loads of matrices) report what they do themselves.
//
// An access to shared memory is ordered after another if barriers say so. Every warp has a clock of what of each
// warp is before its next access (a vector clock); barriers join clocks. What a bulk copy writes is ordered
// before those who saw the phase of the barrier complete at which its bytes arrive.
#pragma once
#include <array>
#include <map>
#include <stddef.h>
#include <stdint.h>
#include <unordered_map>
#include <vector>

namespace observe {

// Bytes [start, start + bytes).
struct Span {
    const void* start;
    size_t bytes;

    size_t offset(const void* at) const { return uintptr_t(at) - uintptr_t(start); }
    bool holds(const void* at) const { return offset(at) < bytes; }
};

// Most bytes of shared memory of a block, and blocks of a cluster.
constexpr size_t SHARED = 228 << 10;
constexpr unsigned MOST_BLOCKS = 2;
// Bytes of a word.
constexpr size_t WORD = 4;

// The shared memory of the blocks of a cluster, SHARED bytes from one to the next, of which each has `bytes`.
struct Shared {
    const void* start;
    size_t bytes;

    size_t offset(const void* at) const { return uintptr_t(at) - uintptr_t(start); }
    bool holds(const void* at) const {
        return offset(at) < MOST_BLOCKS * SHARED && offset(at) % SHARED < bytes;
    }
    // True if all bytes are of one block.
    bool holds(const void* at, size_t count) const { return offset(at) % SHARED + count <= bytes; }
};

// An allocation of the device.
struct Range {
    uint64_t start, bytes;
};

// Kinds of access to shared memory.
enum Kind { PLAIN, COPY, MATRIX, KINDS };

// Counts of one direction in global memory, in sectors of 32 bytes, the unit of the caches.
struct Traffic {
    // Distinct sectors of every block, summed over the blocks: what goes through the L2 cache if a
    // block asks for a sector once.
    uint64_t by_blocks;
    // Distinct sectors of all blocks: what comes from or goes to DRAM at least.
    uint64_t distinct;
    // Sectors of every access of a warp.
    uint64_t by_warps;
};

// The result; mirrored in src/device/emulation.rs.
struct Report {
    Traffic read, written;
    // Accesses of warps to shared memory by kind: passes at one per phase, and extra passes because
    // several words are in one bank.
    uint64_t passes[KINDS], conflicts[KINDS];
    // Sectors that threads read before their wait for the launches before.
    uint64_t early;
    uint64_t failures;
    // The first failures, one per line, zero-terminated.
    char text[2048];
};

// The uses of a device's memory by its launches: kernels that write a sector, that read it before their wait for
// the launches before, or that read it as one that no launch writes.
class Step {
  public:
    struct Use {
        const char *writer = nullptr, *early = nullptr, *constant = nullptr;
    };
    Use& at(uint64_t sector) { return all[sector]; }
    void forget(Range range);

  private:
    std::unordered_map<uint64_t, Use> all;
};

// One access of a thread.
struct Access {
    const void* at;
    unsigned bytes;
    bool write;
    // The instruction, by its return address.
    const void* code;
    Kind kind;
};

// Warps of a cluster, and barriers in its shared memory that copies use.
constexpr unsigned WARPS = 32, BARRIERS = 64;

// The events ordered before another: for each warp the number of its barriers, for each barrier that of its
// phases.
struct Clock {
    uint32_t warps[WARPS] = {}, phases[BARRIERS] = {};

    void join(const Clock& other);
};

// The uses of a byte of shared memory, or of all bytes of a word if it was always used as a whole.
struct Cell {
    // By a thread, after a number of its barriers; or by a copy, in a phase of a barrier.
    struct Use {
        uint32_t order = 0;
        uint16_t thread = 0;
    };
    // Marks a copy in `thread`, beside the number of the barrier.
    static constexpr uint16_t COPIED = 0x8000;
    // More than the warps of a block that share a stage.
    static constexpr int READERS = 10;
    // The readers since, those that there are first.
    Use writer, readers[READERS];
    // Not 0: an asynchronous copy is on its way, issued by thread `pending` - 1.
    uint16_t pending = 0;
    // For a word: true if its bytes have cells of their own.
    bool written = false, apart = false;
};

// Observes one launch. Threads run one after the other.
class Observer {
  public:
    // `shared`: bytes of shared memory of a block.
    Observer(const char* kernel, size_t shared, Span args, Report& report, Step& step,
             std::vector<Range> ranges);
    // The first block of a cluster, blocks of the cluster, and threads of a block.
    void begin_cluster(const unsigned (&number)[3], unsigned blocks, unsigned threads, const void* memory);
    // A thread starts or goes on, on this stack; threads of a cluster are numbered.
    void enter(unsigned thread, const char* stack, size_t bytes);
    // All threads of a warp stopped.
    void stop();
    // A thread goes on with a part of the launch, which is counted as a block of its own.
    void part(unsigned thread, unsigned number) { parts[thread] = number; }
    // The threads `from..to` reached a barrier.
    void barrier(unsigned from, unsigned to);
    // The running thread left a barrier of its warp.
    void order_warp(unsigned thread) { orders[thread]++; }
    // A load or store of the running thread.
    void access(const Access& one);
    // The running thread starts to copy 16 bytes to shared memory, or zeros if `from` is null.
    void copy(const void* to, const void* from, const void* code);
    // The running thread reads 16 bytes of global memory that another block may have written before.
    // Nothing orders blocks here, so it is counted and not checked for races.
    void across(const void* from, const void* code);
    // A thread has waited for the launches before; the running one ends and has not.
    void launches_waited(unsigned thread) { waits[thread] = true; }
    void never_waited();
    // The running thread reads memory that no launch may write; it counts in global memory.
    void constant(const void* from, unsigned bytes);
    void counted(const void* count);
    // A copy of the running thread is complete.
    void copied(const void* to);
    // A thread arrives at a barrier in shared memory; its phase is complete; a thread saw that; a thread waits
    // for it forever.
    void arrive(const void* barrier, unsigned thread);
    void complete(const void* barrier);
    void waited(const void* barrier, unsigned thread);
    void stuck(unsigned thread, const void* barrier);
    // The running thread uses a barrier of a block of the cluster that has ended.
    void ended(unsigned rank);
    // The running thread reads `bytes` bytes of global memory for a bulk copy; it starts to copy to shared
    // memory; such a copy is complete, and its bytes arrive at a barrier.
    void bulk_read(const void* from, unsigned bytes, const void* code);
    void bulk(const void* to, unsigned bytes, const void* barrier);
    void bulk_done(const void* to, unsigned bytes, const void* barrier);
    // The running thread passes a row of a matrix.
    void matrix(const void* row, const void* code);

  private:
    struct Allocation {
        Range range;
        // By byte: 1 + the last block that read or wrote it; the highest bit: several blocks did.
        std::vector<uint32_t> readers, writers;
        // By sector: 1 + the last block that read, or wrote, it.
        std::vector<uint32_t> sectors[2];
    };

    // A lane's part in an access of its warp.
    struct Lane {
        unsigned lane;
        Access access;
    };

    // A barrier in shared memory: its number, its complete phases, what is before its arrivals, and what was
    // when the last phase was complete.
    struct Station {
        unsigned number = 0;
        uint32_t phases = 0;
        Clock arrived, seen;
    };

    Station& station(const void* barrier);
    size_t words_of_block() const { return (shared.bytes + WORD - 1) / WORD; }
    // Calls f(cell, byte) for the cells of bytes of shared memory. `alike`: f leaves the bytes of a word in the same state.
    template <class F> void each_cell(const void* from, size_t bytes, bool alike, F f);
    static const char* writer(const Cell& cell) {
        return cell.writer.thread & Cell::COPIED ? "a copy at barrier" : "thread";
    }
    // The running block, counted from 1, or one for each part of its cluster.
    uint32_t block_number() const {
        unsigned rank = thread / per_block, part = parts[thread];
        return part == NO_PART ? number + rank : PARTS + part * MOST_BLOCKS + rank;
    }
    void use(const Access& one);
    void early(const Allocation& of, const Access& one);
    void ordered_by_launches(const Allocation& of, const Access& one, size_t sector);
    bool moved(Allocation& of, const Access& one);
    void global(Allocation& of, const Access& one);
    void fail(const char* format, ...) __attribute__((format(printf, 2, 3)));
    bool ordered(const Cell::Use& before) const;
    void read_cell(Cell& cell, size_t at);
    void write_cell(Cell& cell, size_t at);
    Allocation* find(const void* at);
    void count(const std::vector<Lane>& lanes);
    void count_shared(const std::vector<Lane>& lanes);
    bool count_together();

    const char* kernel;
    Shared shared;
    Span args, stack{nullptr, 0};
    Report& report;
    Step& step;
    std::vector<Allocation> allocations;
    // The one that was used last.
    Allocation* last = nullptr;
    // By word of the cluster's shared memory; and by byte, of the words that were used in parts.
    std::vector<Cell> words;
    std::unordered_map<size_t, std::array<Cell, WORD>> bytes;
    unsigned block[3] = {}, thread = 0, per_block = 1;
    static constexpr uint32_t NO_PART = 0xFFFFFFFF, PARTS = 1u << 30;
    // By thread.
    uint32_t parts[32 * WARPS] = {};
    // The number of the first block of the cluster, counted from 1.
    uint32_t number = 1, blocks = 0;
    bool waits[32 * WARPS] = {};
    // Barriers of each thread, from 1 on.
    uint32_t orders[32 * WARPS] = {};
    Clock clocks[WARPS];
    std::map<const void*, Station> stations;
    // Accesses of the running warp since it started, by lane.
    std::vector<Access> log[32];
    // The lanes and sectors of the access that is counted.
    std::vector<Lane> lanes;
    std::vector<uintptr_t> sectors;
};

// The observer of the launch on this thread, or null.
extern __thread Observer* current;

} // namespace observe
