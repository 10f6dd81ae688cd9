// Runs kernels on a CPU: a block's threads are fibers that switch at barriers.
//
// Unspecified behaviour of a GPU is emulated in its extremes: shared memory is poisoned before a
// block; a warp runs to the next barrier before another warp starts, beginning with the first or the
// last warp, and blocks likewise; asynchronous copies complete immediately in some launches, and not
// before the wait in others, and products of warpgroups likewise. A barrier that not all threads reach,
// or an unaligned address, ends the process.
#include "portable.h"
#include "observe.h"
#include "sums.h"
#include <algorithm>
#include <deque>
#include <memory>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <vector>

namespace emulate {

constexpr unsigned MOST_THREADS = 1024;
constexpr size_t STACK = 64 << 10;
constexpr size_t SHARED = 228 << 10;

// A point in a fiber to go back to. The jumps of libc take longer than most steps between two barriers;
// those of the compiler save three registers.
#if defined(__GNUC__) && !defined(__clang__)
using Point = void* [5];
#define SAVE(point) __builtin_setjmp(point)
#define RESUME(point) __builtin_longjmp(point, 1)
#else
using Point = jmp_buf;
#define SAVE(point) _setjmp(point)
#define RESUME(point) _longjmp(point, 1)
#endif

enum class State { Ready, AtWarp, AtBlock, Done };

struct Copy {
    void* to;
    const void* from;
    bool real;

    void make() const {
        if (real) memcpy(to, from, 16);
        else memset(to, 0, 16);
    }
};

struct Fiber {
    Point at;
    State state = State::Done;
    bool begun = false;
    // Index of the exchange area that the next exchange of the warp uses.
    unsigned turn = 0;
    std::deque<std::vector<Copy>> groups;
    std::vector<Copy> open;
    // Products of warpgroups: committed groups, and those since.
    std::deque<std::vector<GroupProduct>> products;
    std::vector<GroupProduct> begun_products;
    // Whether products may begin.
    bool ordered = false;
    std::vector<char> stack;
    uint32_t words[2][12];
};

// The matrices that the lanes of a warp multiply.
struct Operands {
    Numbers rows[16], columns[8];
};

struct Machine {
    void (*body)(const void*) = nullptr;
    const void* args = nullptr;
    unsigned count = 0, block[3] = {}, grid[3] = {}, current = 0, launches = 0;
    Point home;
    std::vector<Fiber> fibers{MOST_THREADS};
    // Two of each warp, in turn.
    std::vector<Operands> operands{2 * MOST_THREADS / 32};
    unsigned char* shared = static_cast<unsigned char*>(aligned_alloc(1024, SHARED));
    Sums sums = HOPPER;
    // Not null: the launch is observed.
    observe::Observer* observer = nullptr;

    ~Machine() { free(shared); }
};

static Machine& machine() {
    thread_local Machine all;
    return all;
}

[[noreturn]] static void fail(const char* what) {
    fprintf(stderr, "emulated kernel: %s\n", what);
    abort();
}

static Fiber& self() { return machine().fibers[machine().current]; }

// Leaves the current fiber until the scheduler resumes it.
static void leave(State state) {
    Fiber& me = self();
    me.state = state;
    if (!SAVE(me.at)) RESUME(machine().home);
}

static void fiber_main() {
    for (;;) {
        machine().body(machine().args);
        leave(State::Done);
    }
}

static void enter(unsigned number) {
    Machine& all = machine();
    Fiber& fiber = all.fibers[number];
    all.current = number;
    if (fiber.stack.empty()) fiber.stack.resize(STACK);
    if (all.observer) all.observer->enter(number, fiber.stack.data(), STACK);
    if (SAVE(all.home)) return;
    if (fiber.begun) RESUME(fiber.at);
    fiber.begun = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fiber.stack.data();
    context.uc_stack.ss_size = STACK;
    context.uc_link = nullptr;
    makecontext(&context, fiber_main, 0);
    setcontext(&context);
}

// Releases the threads `from..to` if all that are not done wait in `state`.
static bool release(State state, unsigned from, unsigned to) {
    auto& fibers = machine().fibers;
    bool some = false;
    for (unsigned i = from; i < to; i++) {
        if (fibers[i].state == State::Done) continue;
        if (fibers[i].state != state) return false;
        some = true;
    }
    for (unsigned i = from; some && i < to; i++)
        if (fibers[i].state == state) fibers[i].state = State::Ready;
    return some;
}

// Runs a warp until it waits at a block barrier.
static void run_warp(unsigned from, bool backwards) {
    Machine& all = machine();
    do {
        for (unsigned i = 0; i < 32; i++) {
            unsigned number = from + (backwards ? 31 - i : i);
            if (all.fibers[number].state == State::Ready) enter(number);
        }
        if (all.observer) all.observer->stop();
    } while (release(State::AtWarp, from, from + 32));
}

static void run_block() {
    Machine& all = machine();
    for (unsigned i = 0; i < all.count; i++) {
        Fiber& fiber = all.fibers[i];
        fiber.state = State::Ready;
        fiber.turn = 0;
        fiber.groups.clear();
        fiber.open.clear();
        fiber.products.clear();
        fiber.begun_products.clear();
        fiber.ordered = false;
    }
    bool backwards = all.launches % 2 == 1, going = true;
    for (unsigned warps = all.count / 32; going; going = release(State::AtBlock, 0, all.count)) {
        for (unsigned w = 0; w < warps; w++)
            run_warp((backwards ? warps - 1 - w : w) * 32, backwards);
        if (all.observer) all.observer->barrier();
    }
    for (unsigned i = 0; i < all.count; i++)
        if (all.fibers[i].state != State::Done) fail("a barrier that not all threads reach");
}

struct Entry {
    const char* name;
    void (*body)(const void*);
    size_t bytes;
    unsigned most;
    // Compiled with instrumentation.
    bool observed;
};

static std::vector<Entry>& entries() {
    static std::vector<Entry> all;
    return all;
}

Registered::Registered(const char* name, void (*body)(const void*), size_t bytes, unsigned most,
                       bool observed) {
    entries().push_back({name, body, bytes, most, observed});
}

static void run(const Entry& entry, const uint32_t* grid, uint32_t count, uint32_t shared) {
    Machine& all = machine();
    if (count > entry.most || count % 32 != 0 || shared > SHARED) fail("a launch out of bounds");
    all.body = entry.body;
    all.count = count;
    all.launches++;
    for (int i = 0; i < 3; i++) all.grid[i] = grid[i];
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned i = 0; i < grid[0]; i++) {
                unsigned x = all.launches % 2 ? grid[0] - 1 - i : i;
                memset(all.shared, 0xFF, shared);
                all.block[0] = x, all.block[1] = y, all.block[2] = z;
                if (all.observer) all.observer->begin_block(all.block);
                run_block();
            }
}

unsigned thread() { return machine().current; }
unsigned threads() { return machine().count; }
unsigned block(unsigned axis) { return machine().block[axis]; }
unsigned blocks(unsigned axis) { return machine().grid[axis]; }
unsigned char* shared_memory() { return machine().shared; }

void sync() { leave(State::AtBlock); }
void sync_warp() {
    leave(State::AtWarp);
    if (machine().observer) machine().observer->order_warp(machine().current);
}

// Passes `bytes` bytes to the warp's other lanes.
static unsigned exchange(const void* words, unsigned bytes) {
    Fiber& me = self();
    unsigned turn = me.turn++ % 2;
    memcpy(me.words[turn], words, bytes);
    leave(State::AtWarp);
    return turn;
}

static const uint32_t* lane_words(unsigned lane, unsigned turn) {
    return machine().fibers[machine().current / 32 * 32 + lane].words[turn];
}

void shuffle(void* words, unsigned bytes, unsigned lane) {
    unsigned turn = exchange(words, bytes);
    memcpy(words, lane_words(lane, turn), bytes);
}

uint32_t ballot(bool predicate) {
    uint32_t mine = predicate, bits = 0;
    unsigned turn = exchange(&mine, sizeof mine);
    for (unsigned lane = 0; lane < 32; lane++) bits |= *lane_words(lane, turn) << lane;
    return bits;
}

uint16_t round_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (x != x) return 0x7FFF;
    return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

void copy16(void* to, const void* from, bool real) {
    if (uintptr_t(to) % 16 || (real && uintptr_t(from) % 16)) fail("a copy not aligned");
    Machine& all = machine();
    if (all.observer) all.observer->copy(to, real ? from : nullptr, __builtin_return_address(0));
    Copy copy{to, from, real};
    if (all.launches / 2 % 2) copy.make();
    self().open.push_back(copy);
}

void copies_commit() {
    Fiber& me = self();
    me.groups.push_back(std::move(me.open));
    me.open.clear();
}

void copies_wait(unsigned newest) {
    Machine& all = machine();
    Fiber& me = self();
    for (; me.groups.size() > newest; me.groups.pop_front())
        for (const Copy& copy : me.groups.front()) {
            if (all.launches / 2 % 2 == 0) copy.make();
            if (all.observer) all.observer->copied(copy.to);
        }
}

bool is_last(uint32_t* count, uint32_t last) {
    uint32_t old = *count;
    *count = old >= last ? 0 : old + 1;
    return old == last;
}

void read_across(void* to, const void* from) {
    if (machine().observer) machine().observer->across(from, __builtin_return_address(0));
    memcpy(to, from, 16);
}

void load_matrices(uint32_t* to, const void* row, bool transposed) {
    if (uintptr_t(row) % 16) fail("a row of a matrix not aligned");
    if (machine().observer) machine().observer->matrix(row, __builtin_return_address(0));
    unsigned lane = machine().current % 32, turn = exchange(&row, sizeof row);
    auto from = [&](unsigned number) {
        const unsigned char* at;
        memcpy(&at, lane_words(number, turn), sizeof at);
        return at;
    };
    for (unsigned i = 0; i < 4; i++) {
        if (!transposed) {
            memcpy(to + i, from(8 * i + lane / 4) + lane % 4 * 4, 4);
            continue;
        }
        uint16_t pair[2];
        for (unsigned j = 0; j < 2; j++)
            memcpy(pair + j, from(8 * i + 2 * (lane % 4) + j) + lane / 4 * 2, 2);
        to[i] = pair[0] | uint32_t(pair[1]) << 16;
    }
}

void multiply(float* c, const uint32_t* a, uint32_t b0, uint32_t b1) {
    Machine& all = machine();
    Fiber& me = self();
    unsigned lane = all.current % 32, row = lane / 4, column = 2 * (lane % 4);
    Operands& of = all.operands[2 * (all.current / 32) + me.turn++ % 2];
    // Two numbers of each word, the lower bits first.
    auto put = [&](Numbers& numbers, unsigned k, uint32_t word) {
        numbers.put(k, Number(word & 0xFFFF));
        numbers.put(k + 1, Number(word >> 16));
    };
    // Layout of A: four lanes per row; the lower and upper eight rows and the lower and upper eight
    // inner indices are in separate registers. Layout of B: four lanes per column.
    for (unsigned upper = 0; upper < 2; upper++) {
        unsigned k = 8 * upper + 2 * (lane % 4);
        put(of.rows[row], k, a[2 * upper]);
        put(of.rows[row + 8], k, a[2 * upper + 1]);
        put(of.columns[row], k, upper ? b1 : b0);
    }
    leave(State::AtWarp);
    for (unsigned i = 0; i < 4; i++)
        c[i] = sum(all.sums, of.rows[row + 8 * (i / 2)], of.columns[column + i % 2], c[i]);
}

void multiply(int32_t* c, const uint32_t* a, uint32_t b0, uint32_t b1) {
    const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    unsigned lane = machine().current % 32, turn = exchange(mine, sizeof mine);
    // Four lanes have a row's or a column's words, each of the first and of the last sixteen integers.
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = lane / 4, column = 2 * (lane % 4) + i % 2;
        for (unsigned part = 0; part < 8; part++) {
            uint32_t x = lane_words(4 * row + part % 4, turn)[i / 2 + part / 4 * 2];
            uint32_t w = lane_words(4 * column + part % 4, turn)[4 + part / 4];
            for (unsigned byte = 0; byte < 4; byte++)
                c[i] += int32_t(int8_t(x >> 8 * byte)) * int8_t(w >> 8 * byte);
        }
    }
}

void group_begin() { self().ordered = true; }

void group_product(const GroupProduct& product) {
    Machine& all = machine();
    Fiber& me = self();
    if (!me.ordered) fail("a product of a warpgroup without group_begin");
    // A tile begins at a multiple of 1024 bytes.
    for (const unsigned char* tile : {product.left, product.right})
        if (uintptr_t(tile) % 1024) fail("a tile of a product not aligned");
    // Every second pair of launches: immediately.
    if (all.launches / 2 % 2) product.run(product);
    me.begun_products.push_back(product);
}

void group_commit() {
    Fiber& me = self();
    me.products.push_back(std::move(me.begun_products));
    me.begun_products.clear();
    me.ordered = false;
}

void group_wait(unsigned newest) {
    Fiber& me = self();
    while (me.products.size() > newest) {
        std::vector<GroupProduct> group = std::move(me.products.front());
        me.products.pop_front();
        if (machine().launches / 2 % 2 == 0)
            for (const GroupProduct& product : group) product.run(product);
    }
}

} // namespace emulate

// How a kernel is run; mirrored in src/device/emulation.rs.
struct Options {
    // As Sums.
    uint32_t sums;
    // The allocations of the device, in ascending order, if the launch is observed.
    const observe::Range* ranges;
    uint64_t count;
    // Null: the launch is not observed.
    observe::Report* report;
};

// Runs a kernel on the calling thread; false if no kernel has this name.
extern "C" bool asynclane_emulate(const char* name, const uint32_t* grid, uint32_t threads,
                                  uint32_t shared, const void* args, const Options* options) {
    using namespace emulate;
    bool observed = options->report;
    for (const Entry& entry : entries()) {
        if (entry.observed != observed || strcmp(entry.name, name) != 0) continue;
        Machine& all = machine();
        all.args = args;
        all.sums = Sums(options->sums);
        std::unique_ptr<observe::Observer> observer;
        if (observed)
            observer = std::make_unique<observe::Observer>(
                name, observe::Span{all.shared, shared}, observe::Span{args, entry.bytes},
                *options->report,
                std::vector<observe::Range>(options->ranges, options->ranges + options->count));
        all.observer = observer.get();
        observe::current = observer.get();
        run(entry, grid, threads, shared);
        all.observer = observe::current = nullptr;
        return true;
    }
    return false;
}

// The sum of c and the products of 16 pairs of bf16, as a tensor core makes it.
extern "C" float asynclane_tensor_sum(uint32_t sums, const uint16_t* a, const uint16_t* b, float c) {
    emulate::Numbers x, y;
    for (int k = 0; k < 16; k++) x.put(k, emulate::Number(a[k])), y.put(k, emulate::Number(b[k]));
    return emulate::sum(emulate::Sums(sums), x, y, c);
}
