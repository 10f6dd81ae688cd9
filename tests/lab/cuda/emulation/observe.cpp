#include "observe.h"
#include <algorithm>
#include <map>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <tuple>

namespace observe {

constexpr unsigned BANKS = 32, SECTOR = 32;
constexpr uint32_t SEVERAL = 1u << 31;
// Failures with a text.
constexpr uint64_t TOLD = 8;

__thread Observer* current = nullptr;

void Clock::join(const Clock& other) {
    for (unsigned i = 0; i < WARPS; i++) warps[i] = std::max(warps[i], other.warps[i]);
    for (unsigned i = 0; i < BARRIERS; i++) phases[i] = std::max(phases[i], other.phases[i]);
}

void Step::forget(Range range) {
    if (all.empty()) return;
    for (uint64_t at = range.start / SECTOR; at <= (range.start + range.bytes - 1) / SECTOR; at++) all.erase(at);
}

Observer::Observer(const char* kernel, size_t shared, Span args, Report& report, Step& step,
                   std::vector<Range> ranges)
    : kernel(kernel), shared{nullptr, shared}, args(args), report(report), step(step) {
    for (const Range& range : ranges) allocations.push_back({range, {}, {}, {}});
}

void Observer::begin_cluster(const unsigned (&at)[3], unsigned count, unsigned threads, const void* memory) {
    std::copy(at, at + 3, block);
    shared.start = memory;
    std::fill(waits, waits + 32 * WARPS, false);
    words.assign(count * words_of_block(), Cell());
    bytes.clear();
    std::fill(orders, orders + 32 * WARPS, 1);
    std::fill(clocks, clocks + WARPS, Clock());
    std::fill(parts, parts + 32 * WARPS, NO_PART);
    stations.clear();
    number += blocks, blocks = count, per_block = threads;
}

void Observer::barrier(unsigned from, unsigned to) {
    Clock joint;
    for (unsigned i = from; i < to; i++) {
        if (i % 32 == 0) joint.join(clocks[i / 32]);
        joint.warps[i / 32] = std::max(joint.warps[i / 32], orders[i]++);
    }
    for (unsigned warp = from / 32; warp < to / 32; warp++) clocks[warp] = joint;
}

Observer::Station& Observer::station(const void* barrier) {
    auto found = stations.find(barrier);
    if (found != stations.end()) return found->second;
    Station& one = stations[barrier];
    one.number = unsigned(stations.size() - 1) % BARRIERS;
    return one;
}

void Observer::arrive(const void* barrier, unsigned by) {
    Station& to = station(barrier);
    to.arrived.join(clocks[by / 32]);
    // The other lanes of the warp are ordered up to their last barrier with this one.
    uint32_t& own = to.arrived.warps[by / 32];
    own = std::max(own, orders[by] - 1);
}

void Observer::complete(const void* barrier) {
    Station& of = station(barrier);
    of.phases++;
    of.seen = of.arrived;
}

void Observer::waited(const void* barrier, unsigned by) {
    const Station& of = station(barrier);
    Clock& mine = clocks[by / 32];
    mine.join(of.seen);
    mine.phases[of.number] = std::max(mine.phases[of.number], of.phases);
}

void Observer::stuck(unsigned by, const void* barrier) {
    thread = by;
    fail("waits forever for the barrier at shared byte %zu", shared.offset(barrier) % SHARED);
}

void Observer::never_waited() { fail("ends without a wait for the launches before"); }

// The rules of an access to a sector by the order of launches: no launch writes a sector that any reads before its
// wait, or as a constant; and none writes before its wait.
void Observer::ordered_by_launches(const Allocation& of, const Access& one, size_t sector) {
    size_t byte = uintptr_t(one.at) - of.range.start;
    Step::Use& use = step.at(of.range.start / SECTOR + sector);
    if (!waits[thread] && one.write)
        return fail("writes byte %zu of an allocation before its wait for the launches before", byte);
    if (!waits[thread]) {
        report.early += use.early != kernel;
        use.early = kernel;
        if (use.writer) fail("reads byte %zu of an allocation before its wait, which %s writes", byte, use.writer);
    } else if (one.write) {
        use.writer = kernel;
        const char* reader = use.early ? use.early : use.constant;
        if (reader)
            fail("writes byte %zu of an allocation, which %s reads %s", byte, reader,
                 use.early ? "before its wait" : "as a constant");
    }
}

void Observer::constant(const void* from, unsigned bytes) {
    Allocation* of = find(from);
    if (!of) return;
    size_t first = uintptr_t(from) - of->range.start;
    for (size_t at = first / SECTOR; at <= (first + bytes - 1) / SECTOR; at++) {
        Step::Use& use = step.at(of->range.start / SECTOR + at);
        use.constant = kernel;
        if (use.writer) return fail("reads byte %zu as a constant, which %s writes", first, use.writer);
    }
}

void Observer::counted(const void* count) {
    if (Allocation* of = find(count))
        ordered_by_launches(*of, {count, 4, true, nullptr, PLAIN}, (uintptr_t(count) - of->range.start) / SECTOR);
}

void Observer::ended(unsigned rank) { fail("uses a barrier of block %u, which has ended", rank); }

void Observer::bulk_read(const void* from, unsigned bytes, const void* code) {
    uint64_t before = report.read.by_blocks;
    use({from, bytes, false, code, COPY});
    // No cache of a multiprocessor has what it asks for again, and no warp takes part.
    uint64_t sectors = (uintptr_t(from) % SECTOR + bytes + SECTOR - 1) / SECTOR;
    report.read.by_blocks = before + sectors;
    report.read.by_warps += sectors;
}

void Observer::bulk(const void* to, unsigned bytes, const void*) {
    if (!shared.holds(to, bytes)) return fail("copies to more shared memory than it has");
    uint64_t failures = report.failures;
    each_cell(to, bytes, true, [&](Cell& cell, size_t at) {
        if (failures == report.failures) write_cell(cell, at);
        cell.pending = uint16_t(thread + 1);
    });
    report.passes[COPY] += bytes / (BANKS * WORD);
}

void Observer::bulk_done(const void* to, unsigned bytes, const void* barrier) {
    const Station& of = station(barrier);
    if (!shared.holds(to, bytes)) return;
    each_cell(to, bytes, true, [&](Cell& cell, size_t) {
        cell.pending = 0;
        cell.writer = {of.phases + 1, uint16_t(Cell::COPIED | of.number)};
    });
}

void Observer::enter(unsigned running, const char* from, size_t bytes) {
    thread = running;
    stack = {from, bytes};
}

void Observer::fail(const char* format, ...) {
    if (report.failures++ >= TOLD) return;
    size_t used = strlen(report.text), room = sizeof report.text - used;
    auto put = [&](int length) {
        used = std::min(used + std::max(length, 0), sizeof report.text - 1);
        room = sizeof report.text - used;
    };
    put(snprintf(report.text + used, room, "%s, block (%u, %u, %u): thread %u ", kernel,
                 block[0] + thread / per_block, block[1], block[2], thread % per_block));
    va_list list;
    va_start(list, format);
    put(vsnprintf(report.text + used, room, format, list));
    va_end(list);
    put(snprintf(report.text + used, room, "\n"));
}

// True if an earlier use of a cell is ordered before the running thread's.
bool Observer::ordered(const Cell::Use& before) const {
    const Clock& mine = clocks[thread / 32];
    if (before.thread & Cell::COPIED)
        return before.order <= mine.phases[before.thread & ~Cell::COPIED];
    if (before.thread == thread || before.order == 0) return true;
    unsigned warp = before.thread / 32;
    return warp == thread / 32 ? before.order < orders[thread] : before.order <= mine.warps[warp];
}

void Observer::read_cell(Cell& cell, size_t at) {
    if (cell.pending)
        return fail("reads shared byte %zu before the copy of thread %u is complete", at,
                    cell.pending - 1);
    if (!cell.written) return fail("reads shared byte %zu, which nothing was written to", at);
    if (!ordered(cell.writer))
        return fail("reads shared byte %zu, which %s %u wrote, without a barrier", at, writer(cell),
                    cell.writer.thread % per_block);
    // A later write is unordered with one of these readers if it is with any: those that are ordered before
    // this one, and of a warp all but the latest, are not needed. Of more warps than there is room for, some
    // are enough, because barriers of the whole block order them.
    Cell::Use* to = nullptr;
    for (Cell::Use& reader : cell.readers) {
        if (reader.order == orders[thread] && reader.thread == thread) return;
        if (!to && (reader.order == 0 || ordered(reader))) to = &reader;
        if (reader.order == 0) break;
    }
    if (!to) {
        unsigned same = 0;
        for (const Cell::Use& reader : cell.readers) same += reader.thread / 32 == thread / 32;
        if (same == 0) to = &cell.readers[Cell::READERS - 1];
    }
    if (to) *to = {orders[thread], uint16_t(thread)};
}

void Observer::write_cell(Cell& cell, size_t at) {
    if (cell.pending)
        return fail("writes shared byte %zu before the copy of thread %u is complete", at,
                    cell.pending - 1);
    if (cell.written && !ordered(cell.writer))
        return fail("writes shared byte %zu, which %s %u wrote, without a barrier", at, writer(cell),
                    cell.writer.thread % per_block);
    for (const Cell::Use& reader : cell.readers)
        if (!ordered(reader))
            return fail("writes shared byte %zu, which thread %u of block %u read, without a barrier", at,
                        reader.thread % per_block, reader.thread / per_block);
    // A use ordered after this one is ordered after its readers too.
    cell = Cell();
    cell.writer = {orders[thread], uint16_t(thread)};
    cell.written = true;
}

template <class F> void Observer::each_cell(const void* from, size_t count, bool alike, F f) {
    size_t rank = shared.offset(from) / SHARED, at = shared.offset(from) % SHARED, end = at + count;
    while (at < end) {
        size_t number = rank * words_of_block() + at / WORD, stop = std::min(end, (at / WORD + 1) * WORD);
        bool whole = stop - at == WORD;
        Cell& word = words[number];
        if (whole && !word.apart) {
            f(word, at);
            at = stop;
            continue;
        }
        auto& own = bytes[number];
        if (!word.apart) own.fill(word);
        word.apart = true;
        for (; at < stop; at++) f(own[at % WORD], at);
        if (whole && alike) {
            word = own[0];
            bytes.erase(number);
        }
    }
}

Observer::Allocation* Observer::find(const void* at) {
    uint64_t address = uintptr_t(at);
    if (last && address - last->range.start < last->range.bytes) return last;
    auto after = std::upper_bound(
        allocations.begin(), allocations.end(), address,
        [](uint64_t address, const Allocation& one) { return address < one.range.start; });
    if (after == allocations.begin()) return nullptr;
    Allocation& one = *(after - 1);
    return address - one.range.start < one.range.bytes ? last = &one : nullptr;
}

// Counts sectors of global memory; false if the access is not within the allocation.
bool Observer::moved(Allocation& of, const Access& one) {
    size_t first = uintptr_t(one.at) - of.range.start;
    if (first + one.bytes > of.range.bytes)
        return fail("accesses %u bytes across the end of an allocation", one.bytes), false;
    if (of.readers.empty()) {
        of.readers.resize(of.range.bytes), of.writers.resize(of.range.bytes);
        for (auto& sectors : of.sectors) sectors.resize(of.range.bytes / SECTOR + 1);
    }
    Traffic& traffic = one.write ? report.written : report.read;
    for (size_t at = first / SECTOR; at <= (first + one.bytes - 1) / SECTOR; at++) {
        uint32_t& seen = of.sectors[one.write][at];
        if (!waits[thread] || (one.write && seen != block_number())) ordered_by_launches(of, one, at);
        traffic.distinct += seen == 0, traffic.by_blocks += seen != block_number();
        seen = block_number();
    }
    return true;
}

void Observer::global(Allocation& of, const Access& one) {
    if (!moved(of, one)) return;
    size_t first = uintptr_t(one.at) - of.range.start;
    uint32_t mine = block_number(), others = 0;
    const uint32_t *readers = of.readers.data() + first, *writers = of.writers.data() + first;
    // Not 0: another block used the byte.
    auto other = [&](unsigned i) {
        uint32_t used = (one.write ? readers[i] : 0) | writers[i];
        return used ? used ^ mine : 0;
    };
    // Loops without a branch, which the compiler vectorizes.
    for (unsigned i = 0; i < one.bytes; i++) others |= other(i);
    for (unsigned i = 0; others && i < one.bytes; i++)
        if (other(i))
            return fail("%s byte %zu of an allocation, which another block %s",
                        one.write ? "writes" : "reads", first + i, one.write ? "uses" : "writes");
    uint32_t* seen = (one.write ? of.writers : of.readers).data() + first;
    for (unsigned i = 0; i < one.bytes; i++)
        seen[i] = mine | (seen[i] && seen[i] != mine ? SEVERAL : 0);
}

void Observer::use(const Access& one) {
    if (shared.holds(one.at)) {
        if (!shared.holds(one.at, one.bytes)) return fail("accesses more shared memory than it has");
        // One failure for each access.
        uint64_t failures = report.failures;
        each_cell(one.at, one.bytes, one.write, [&](Cell& cell, size_t at) {
            if (failures == report.failures) one.write ? write_cell(cell, at) : read_cell(cell, at);
        });
    } else if (Allocation* of = find(one.at)) {
        global(*of, one);
    } else {
        fail("%s an address outside of every allocation", one.write ? "writes" : "reads");
    }
}

void Observer::access(const Access& one) {
    // A GPU holds arguments in a cache of constants, and these variables in registers.
    if (stack.holds(one.at) || args.holds(one.at)) return;
    log[thread % 32].push_back(one);
    use(one);
}

void Observer::copy(const void* to, const void* from, const void* code) {
    if (from) access({from, 16, false, code, COPY});
    access({to, 16, true, code, COPY});
    if (!shared.holds(to, 16)) return;
    each_cell(to, 16, true, [&](Cell& cell, size_t) { cell.pending = uint16_t(thread + 1); });
}

void Observer::copied(const void* to) {
    if (!shared.holds(to, 16)) return;
    each_cell(to, 16, true, [&](Cell& cell, size_t) {
        cell.pending = 0;
        cell.writer = {orders[thread], uint16_t(thread)};
    });
}

void Observer::across(const void* from, const void* code) {
    Access one{from, 16, false, code, PLAIN};
    log[thread % 32].push_back(one);
    Allocation* of = find(from);
    if (!of) return fail("reads an address outside of every allocation");
    moved(*of, one);
}

void Observer::matrix(const void* row, const void* code) {
    access({row, 16, false, code, MATRIX});
}

// Passes of the threads of one access to shared memory: threads whose words are in different banks,
// or in the same word, are served in one.
void Observer::count_shared(const std::vector<Lane>& lanes) {
    const Access& one = lanes.front().access;
    // Eight bytes of half a warp, or sixteen of a quarter, are served at a time.
    unsigned together = one.bytes > 8 ? 8 : one.bytes > 4 ? 16 : 32;
    for (size_t next = 0; next < lanes.size();) {
        size_t banks[BANKS][BANKS];
        unsigned used[BANKS] = {}, most = 0, phase = lanes[next].lane / together;
        for (; next < lanes.size() && lanes[next].lane / together == phase; next++) {
            const Access& access = lanes[next].access;
            size_t from = shared.offset(access.at);
            for (size_t at = from / WORD; at <= (from + access.bytes - 1) / WORD; at++) {
                size_t* words = banks[at % BANKS];
                unsigned& count = used[at % BANKS];
                if (std::find(words, words + count, at) == words + count) words[count++] = at;
                most = std::max(most, count);
            }
        }
        report.passes[one.kind]++;
        report.conflicts[one.kind] += most - 1;
    }
}

// Counts an access of a warp; lanes are in ascending order.
void Observer::count(const std::vector<Lane>& lanes) {
    const Access& one = lanes.front().access;
    if (shared.holds(one.at)) return count_shared(lanes);
    sectors.clear();
    for (const Lane& lane : lanes) {
        uintptr_t from = uintptr_t(lane.access.at);
        for (uintptr_t at = from / SECTOR; at <= (from + lane.access.bytes - 1) / SECTOR; at++)
            if (sectors.empty() || sectors.back() != at) sectors.push_back(at);
    }
    std::sort(sectors.begin(), sectors.end());
    size_t distinct = std::unique(sectors.begin(), sectors.end()) - sectors.begin();
    (one.write ? report.written : report.read).by_warps += distinct;
}

// Counts the accesses if all lanes went the same way.
bool Observer::count_together() {
    for (unsigned lane = 1; lane < 32; lane++) {
        if (log[lane].size() != log[0].size()) return false;
        for (size_t i = 0; i < log[0].size(); i++) {
            const Access &one = log[0][i], &other = log[lane][i];
            if (one.code != other.code || one.write != other.write ||
                shared.holds(one.at) != shared.holds(other.at))
                return false;
        }
    }
    lanes.resize(32);
    for (size_t i = 0; i < log[0].size(); i++) {
        for (unsigned lane = 0; lane < 32; lane++) lanes[lane] = {lane, log[lane][i]};
        count(lanes);
    }
    return true;
}

void Observer::stop() {
    // The n-th time that lanes reach an instruction since they ran together is one access.
    using Place = std::tuple<const void*, bool, bool, unsigned>;
    std::map<Place, std::vector<Lane>> accesses;
    bool counted = count_together();
    for (unsigned lane = 0; lane < 32; lane++) {
        std::map<Place, unsigned> times;
        for (const Access& one : log[lane]) {
            if (counted) break;
            Place place{one.code, one.write, shared.holds(one.at), 0};
            std::get<3>(place) = times[place]++;
            accesses[place].push_back({lane, one});
        }
        log[lane].clear();
    }
    for (const auto& entry : accesses) count(entry.second);
}

} // namespace observe

// The functions that compilers call with -fsanitize=thread.
#define HOOK(name, size, write)                                                                    \
    extern "C" void name(const void* at) {                                                         \
        if (observe::Observer* observer = observe::current)                                        \
            observer->access({at, size, write, __builtin_return_address(0), observe::PLAIN});      \
    }
#define HOOKS(size)                                                                                \
    HOOK(__tsan_read##size, size, false)                                                           \
    HOOK(__tsan_write##size, size, true)                                                           \
    HOOK(__tsan_unaligned_read##size, size, false)                                                 \
    HOOK(__tsan_unaligned_write##size, size, true)
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

// Structures, in words.
static void range(const void* at, size_t bytes, bool write, const void* code) {
    observe::Observer* observer = observe::current;
    if (!observer) return;
    const unsigned char* from = static_cast<const unsigned char*>(at);
    for (size_t done = 0; done < bytes; done += 4)
        observer->access({from + done, unsigned(std::min<size_t>(4, bytes - done)), write, code,
                          observe::PLAIN});
}
extern "C" void __tsan_read_range(const void* at, size_t bytes) {
    range(at, bytes, false, __builtin_return_address(0));
}
extern "C" void __tsan_write_range(const void* at, size_t bytes) {
    range(at, bytes, true, __builtin_return_address(0));
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
