// The primitives of portable.h on a CPU: a block's threads are fibers that switch at barriers.
//
// Unspecified behaviour of a GPU is emulated in its extremes: shared memory is poisoned before a
// block; a warp runs to the next barrier before another warp starts, beginning with the first or the
// last warp, and blocks likewise; asynchronous copies complete immediately in some launches, and not
// before the wait in others. A barrier that not all threads reach, or an unaligned address, ends the
// process.
#pragma once
#include <algorithm>
#include <deque>
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <vector>

#define DEVICE inline

namespace emulate {

constexpr unsigned MOST_THREADS = 1024;
constexpr size_t STACK = 64 << 10;
constexpr size_t SHARED = 228 << 10;

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
    jmp_buf at;
    State state = State::Done;
    bool begun = false;
    // Index of the exchange area that the next exchange of the warp uses.
    unsigned turn = 0;
    std::deque<std::vector<Copy>> groups;
    std::vector<Copy> open;
    std::vector<char> stack;
    uint32_t words[2][8];
};

struct Machine {
    void (*body)(const void*) = nullptr;
    const void* args = nullptr;
    unsigned count = 0, block[3] = {}, grid[3] = {}, current = 0, launches = 0;
    jmp_buf home;
    std::vector<Fiber> fibers{MOST_THREADS};
    unsigned char* shared = static_cast<unsigned char*>(aligned_alloc(128, SHARED));
};

inline Machine& machine() {
    thread_local Machine all;
    return all;
}

[[noreturn]] inline void fail(const char* what) {
    fprintf(stderr, "emulated kernel: %s\n", what);
    abort();
}

inline Fiber& self() { return machine().fibers[machine().current]; }

// Leaves the current fiber until the scheduler resumes it.
inline void leave(State state) {
    Fiber& me = self();
    me.state = state;
    if (!_setjmp(me.at)) _longjmp(machine().home, 1);
}

inline void fiber_main() {
    for (;;) {
        machine().body(machine().args);
        leave(State::Done);
    }
}

inline void enter(unsigned number) {
    Machine& all = machine();
    Fiber& fiber = all.fibers[number];
    all.current = number;
    if (_setjmp(all.home)) return;
    if (fiber.begun) _longjmp(fiber.at, 1);
    fiber.begun = true;
    fiber.stack.resize(STACK);
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fiber.stack.data();
    context.uc_stack.ss_size = STACK;
    context.uc_link = nullptr;
    makecontext(&context, fiber_main, 0);
    setcontext(&context);
}

// Releases the threads `from..to` if all that are not done wait in `state`.
inline bool release(State state, unsigned from, unsigned to) {
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

inline void run_block() {
    Machine& all = machine();
    for (unsigned i = 0; i < all.count; i++) {
        Fiber& fiber = all.fibers[i];
        fiber.state = State::Ready;
        fiber.turn = 0;
        fiber.groups.clear();
        fiber.open.clear();
    }
    bool backwards = all.launches % 2 == 1;
    auto order = [&](unsigned i, unsigned count) { return backwards ? count - 1 - i : i; };
    for (bool going = true; going; going = release(State::AtBlock, 0, all.count))
        for (unsigned w = 0; w < all.count / 32; w++) {
            unsigned from = order(w, all.count / 32) * 32;
            // Run the warp until it waits at a block barrier.
            do {
                for (unsigned lane = 0; lane < 32; lane++) {
                    unsigned number = from + order(lane, 32);
                    if (all.fibers[number].state == State::Ready) enter(number);
                }
            } while (release(State::AtWarp, from, from + 32));
        }
    for (unsigned i = 0; i < all.count; i++)
        if (all.fibers[i].state != State::Done) fail("a barrier that not all threads reach");
}

struct Entry {
    const char* name;
    void (*body)(const void*);
    unsigned most;
};

inline std::vector<Entry>& entries() {
    static std::vector<Entry> all;
    return all;
}

struct Registered {
    Registered(const char* name, void (*body)(const void*), unsigned most) {
        entries().push_back({name, body, most});
    }
};

inline bool launch(const char* name, const uint32_t* grid, uint32_t count, uint32_t shared,
                   const void* args) {
    Machine& all = machine();
    for (const Entry& entry : entries()) {
        if (strcmp(entry.name, name) != 0) continue;
        if (count > entry.most || count % 32 != 0 || shared > SHARED) fail("a launch out of bounds");
        all.body = entry.body;
        all.args = args;
        all.count = count;
        all.launches++;
        for (int i = 0; i < 3; i++) all.grid[i] = grid[i];
        for (unsigned z = 0; z < grid[2]; z++)
            for (unsigned y = 0; y < grid[1]; y++)
                for (unsigned i = 0; i < grid[0]; i++) {
                    unsigned x = all.launches % 2 ? grid[0] - 1 - i : i;
                    memset(all.shared, 0xFF, shared);
                    all.block[0] = x, all.block[1] = y, all.block[2] = z;
                    run_block();
                }
        return true;
    }
    return false;
}

// Passes `bytes` bytes to the warp's other lanes.
inline unsigned exchange(const void* words, unsigned bytes) {
    Fiber& me = self();
    unsigned turn = me.turn++ % 2;
    memcpy(me.words[turn], words, bytes);
    leave(State::AtWarp);
    return turn;
}

inline const uint32_t* lane_words(unsigned lane, unsigned turn) {
    return machine().fibers[machine().current / 32 * 32 + lane].words[turn];
}

inline float half_word(uint32_t word, unsigned high) {
    uint32_t bits = (high ? word >> 16 : word & 0xFFFF) << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

inline uint16_t round_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (x != x) return 0x7FFF;
    return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

} // namespace emulate

#define KERNEL(name, Args, count)                                                                  \
    static void name(const Args& a);                                                               \
    static const emulate::Registered name##_entry(                                                 \
        #name, [](const void* args) { name(*static_cast<const Args*>(args)); }, count);            \
    static void name(const Args& a)
#define ROOMY_KERNEL(name, Args, count) KERNEL(name, Args, count)

DEVICE unsigned thread() { return emulate::machine().current; }
DEVICE unsigned threads() { return emulate::machine().count; }
DEVICE unsigned block_x() { return emulate::machine().block[0]; }
DEVICE unsigned block_y() { return emulate::machine().block[1]; }
DEVICE unsigned block_z() { return emulate::machine().block[2]; }
DEVICE unsigned blocks_y() { return emulate::machine().grid[1]; }
DEVICE void sync() { emulate::leave(emulate::State::AtBlock); }
DEVICE unsigned char* shared_memory() { return emulate::machine().shared; }

template <class T> DEVICE T shuffle(T x, int lane) {
    unsigned turn = emulate::exchange(&x, sizeof x);
    memcpy(&x, emulate::lane_words(lane, turn), sizeof x);
    return x;
}
template <class T> DEVICE T shuffle_xor(T x, int lanes) {
    return shuffle(x, int(thread() % 32) ^ lanes);
}

DEVICE uint32_t warp_ballot(bool predicate) {
    uint32_t mine = predicate, bits = 0;
    unsigned turn = emulate::exchange(&mine, sizeof mine);
    for (unsigned lane = 0; lane < 32; lane++) bits |= *emulate::lane_words(lane, turn) << lane;
    return bits;
}
DEVICE int lowest(uint32_t bits) { return __builtin_ctz(bits); }
DEVICE float as_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

DEVICE float wide(bf16 x) { return emulate::half_word(x.bits, 0); }
DEVICE uint32_t pack(float low, float high) {
    return emulate::round_bits(low) | uint32_t(emulate::round_bits(high)) << 16;
}
template <class T> DEVICE T narrow(float x);
template <> DEVICE bf16 narrow<bf16>(float x) { return bf16{emulate::round_bits(x)}; }

DEVICE void copy16(void* to, const void* from, bool real) {
    if (uintptr_t(to) % 16 || (real && uintptr_t(from) % 16)) emulate::fail("a copy not aligned");
    emulate::Copy copy{to, from, real};
    if (emulate::machine().launches / 2 % 2) copy.make();
    else emulate::self().open.push_back(copy);
}
DEVICE void copies_commit() {
    emulate::Fiber& me = emulate::self();
    me.groups.push_back(std::move(me.open));
    me.open.clear();
}
template <int NEWEST> DEVICE void copies_wait() {
    emulate::Fiber& me = emulate::self();
    for (; me.groups.size() > size_t(NEWEST); me.groups.pop_front())
        for (const emulate::Copy& copy : me.groups.front()) copy.make();
}

DEVICE void fence() {}
DEVICE bool is_last(uint32_t* count, uint32_t last) {
    uint32_t old = *count;
    *count = old >= last ? 0 : old + 1;
    return old == last;
}
DEVICE Four read_across(const Four* from) { return *from; }

DEVICE void widen(uint32_t (&to)[2], uint32_t bytes) {
    for (int i = 0; i < 4; i += 2)
        to[i / 2] = pack(int8_t(bytes >> 8 * i), int8_t(bytes >> 8 * (i + 1)));
}

DEVICE void load_matrices(uint32_t (&to)[4], const void* row) {
    if (uintptr_t(row) % 16) emulate::fail("a row of a matrix not aligned");
    unsigned lane = thread() % 32, turn = emulate::exchange(&row, sizeof row);
    for (unsigned i = 0; i < 4; i++) {
        const uint32_t* from;
        memcpy(&from, emulate::lane_words(8 * i + lane / 4, turn), sizeof from);
        to[i] = from[lane % 4];
    }
}
DEVICE void load_transposed(uint32_t (&to)[4], const void* row) {
    if (uintptr_t(row) % 16) emulate::fail("a row of a matrix not aligned");
    unsigned lane = thread() % 32, turn = emulate::exchange(&row, sizeof row);
    for (unsigned i = 0; i < 4; i++) {
        to[i] = 0;
        for (unsigned j = 0; j < 2; j++) {
            const uint16_t* from;
            memcpy(&from, emulate::lane_words(8 * i + 2 * (lane % 4) + j, turn), sizeof from);
            to[i] |= uint32_t(from[lane / 4]) << (16 * j);
        }
    }
}

DEVICE void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    unsigned lane = thread() % 32;
    uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    unsigned turn = emulate::exchange(mine, sizeof mine);
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
        double sum = c[i];
        for (unsigned k = 0; k < 16; k++) {
            // Layout of A: four lanes per row; the lower and upper eight rows and the lower and upper
            // eight inner indices are in separate registers. Layout of B: four lanes per column.
            unsigned four = k % 8 / 2, upper = k / 8;
            uint32_t x = emulate::lane_words(row % 8 * 4 + four, turn)[row / 8 + 2 * upper];
            uint32_t y = emulate::lane_words(column * 4 + four, turn)[4 + upper];
            sum += double(emulate::half_word(x, k % 2)) * emulate::half_word(y, k % 2);
        }
        c[i] = float(sum);
    }
}
