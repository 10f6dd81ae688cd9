// What a launch does with memory: bytes, races, bank conflicts.
//
// For observed launches kernels.cu is compiled with the instrumentation of ThreadSanitizer but without
// its runtime: observe.cpp defines the functions that the compiler calls at every load and store.
// Collective operations (copies, loads of matrices) report what they do themselves.
#pragma once
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
    uint64_t failures;
    // The first failures, one per line, zero-terminated.
    char text[2048];
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

// What happened to a byte of shared memory.
struct Cell {
    struct Use {
        uint32_t epoch = 0, order = 0;
        uint16_t thread = 0;
    };
    static constexpr int READERS = 4;
    Use writer, readers[READERS];
    // Not 0: an asynchronous copy is on its way, issued by thread `pending` - 1.
    uint16_t pending = 0;
    bool written = false;
};

// Observes one launch. Threads run one after the other.
class Observer {
  public:
    Observer(const char* kernel, Span shared, Span args, Report& report,
             std::vector<Range> ranges);
    void begin_block(const unsigned (&number)[3]);
    // A thread starts or goes on, on this stack.
    void enter(unsigned thread, const char* stack, size_t bytes);
    // All threads of a warp stopped.
    void stop();
    // All threads of the block reached a barrier.
    void barrier() { epoch++; }
    // The running thread left a barrier of its warp.
    void order_warp(unsigned thread) { orders[thread]++; }
    // A load or store of the running thread.
    void access(const Access& one);
    // The running thread starts to copy 16 bytes to shared memory, or zeros if `from` is null.
    void copy(const void* to, const void* from, const void* code);
    // The running thread reads 16 bytes of global memory that another block may have written before.
    // Nothing orders blocks here, so it is counted and not checked for races.
    void across(const void* from, const void* code);
    // A copy of the running thread is complete.
    void copied(const void* to);
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

    void use(const Access& one);
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
    Span shared, args, stack{nullptr, 0};
    Report& report;
    std::vector<Allocation> allocations;
    std::vector<Cell> cells;
    unsigned block[3] = {}, thread = 0;
    uint32_t number = 0, epoch = 0;
    uint32_t orders[1024] = {};
    // Accesses of the running warp since it started, by lane.
    std::vector<Access> log[32];
};

// The observer of the launch on this thread, or null.
extern __thread Observer* current;

} // namespace observe
