// The primitives of portable.h on a CPU; emulate.cpp runs the threads of a block as fibers.
#pragma once
#include <math.h>
#include <stddef.h>
#include <string.h>

#define DEVICE inline
#define PRIMITIVE __attribute__((always_inline)) inline

namespace emulate {

// Where the running thread is. Constant for a thread, so that the compiler may keep it.
unsigned thread() __attribute__((const, nothrow));
unsigned threads() __attribute__((const, nothrow));
unsigned block(unsigned axis) __attribute__((const, nothrow));
unsigned blocks(unsigned axis) __attribute__((const, nothrow));
unsigned char* shared_memory() __attribute__((const, nothrow));

// Waits for the other threads of the block, or of the warp.
void sync();
void sync_warp();
// Passes `bytes` <= 48 bytes to the lanes of the warp, and copies those of `lane`.
void shuffle(void* words, unsigned bytes, unsigned lane);
uint32_t shuffle_word(uint32_t word, unsigned lane);
uint32_t ballot(bool predicate);
void copy16(void* to, const void* from, bool real);
void copies_commit();
void copies_wait(unsigned newest);
// The wait for the launches before this one.
void launches_wait();
// An observed read of memory that no launch of a step writes.
void constant(const void* from, unsigned bytes);
bool is_last(uint32_t* count, uint32_t last);
// Copies 16 bytes that another block of the launch may have written.
void read_across(void* to, const void* from);
void load_matrices(uint32_t* to, const void* row, bool transposed);
void multiply(float* c, const uint32_t* a, uint32_t b0, uint32_t b1);
void multiply(int32_t* c, const uint32_t* a, uint32_t b0, uint32_t b1);
uint16_t round_bits(float x) __attribute__((const, nothrow));

// A product of a warpgroup, as far as a thread takes part.
struct GroupProduct {
    // [columns / 8][4], in f32 or in integers.
    void* sums;
    bool integers;
    unsigned columns;
    // Tiles; the left operand may be in four registers instead, which are read when the product is computed.
    const unsigned char *left, *right;
    unsigned k;
    const uint32_t* registers;
};
void group_begin();
void group_product(const GroupProduct& product);
void group_commit();
void group_wait(unsigned newest);

// Clusters, barriers in shared memory and bulk copies of groups_device.h.
unsigned cluster_rank() __attribute__((const, nothrow));
void begin_part(unsigned number);
void sync_cluster();
void sync_first(unsigned count);
void barrier_init(uint64_t* barrier, unsigned count);
void barrier_expect(uint64_t* barrier, unsigned bytes);
void barrier_arrive(uint64_t* barrier, unsigned rank);
void barrier_wait(uint64_t* barrier, unsigned parity);
// `blocks`: bit b for block b of the cluster.
void bulk_copy(void* to, const void* map, unsigned inner, unsigned row, uint64_t* barrier,
               unsigned blocks);

// A kernel with its name, the bytes of its argument, the most threads of its blocks and the blocks of a
// cluster.
struct Registered {
    Registered(const char* name, void (*body)(const void*), size_t bytes, unsigned most,
               unsigned cluster, bool observed);
};

} // namespace emulate

// The kernels are compiled twice: for observed launches with instrumentation, for the others without.
// The two have different namespaces, because the linker keeps one of several equal inline functions.
#ifdef ASYNCLANE_OBSERVED
#define KERNELS_BEGIN inline namespace observed {
constexpr bool OBSERVED = true;
#else
#define KERNELS_BEGIN inline namespace plain {
constexpr bool OBSERVED = false;
#endif
#define KERNELS_END }

#define CLUSTER_KERNEL(name, Args, count, blocks, cluster)                                         \
    static void name(const Args& a);                                                               \
    static const emulate::Registered name##_entry(                                                 \
        #name, [](const void* args) { name(*static_cast<const Args*>(args)); }, sizeof(Args),      \
        count, cluster, OBSERVED);                                                                 \
    static void name(const Args& a)
#define KERNEL(name, Args, count) CLUSTER_KERNEL(name, Args, count, 1, 1)
#define ROOMY_KERNEL(name, Args, count) KERNEL(name, Args, count)

KERNELS_BEGIN

DEVICE unsigned thread() { return emulate::thread(); }
DEVICE unsigned threads() { return emulate::threads(); }
DEVICE unsigned block_x() { return emulate::block(0); }
DEVICE unsigned block_y() { return emulate::block(1); }
DEVICE unsigned block_z() { return emulate::block(2); }
DEVICE unsigned blocks_x() { return emulate::blocks(0); }
DEVICE unsigned blocks_y() { return emulate::blocks(1); }
DEVICE void sync() { emulate::sync(); }
DEVICE void sync_warp() { emulate::sync_warp(); }
DEVICE unsigned char* shared_memory() { return emulate::shared_memory(); }

template <class T> DEVICE T shuffle(T x, int lane) {
    if constexpr (sizeof x == 4) {
        uint32_t word;
        memcpy(&word, &x, 4);
        word = emulate::shuffle_word(word, unsigned(lane) % 32);
        memcpy(&x, &word, 4);
    } else emulate::shuffle(&x, sizeof x, unsigned(lane) % 32);
    return x;
}
template <class T> DEVICE T shuffle_xor(T x, int lanes) {
    return shuffle(x, int(thread() % 32) ^ lanes);
}
DEVICE uint32_t warp_ballot(bool predicate) { return emulate::ballot(predicate); }
DEVICE int lowest(uint32_t bits) { return __builtin_ctz(bits); }
DEVICE float as_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
DEVICE uint32_t as_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}
// The build lets no compiler fuse them.
DEVICE float rounded_product(float x, float y) { return x * y; }
DEVICE float rounded_sum(float x, float y) { return x + y; }

DEVICE float half_number(uint32_t word) {
    uint32_t sign = (word & 0x8000) << 16, size = word & 0x7FFF;
    // Below the least normal number the exponent is that of the least.
    if (size < 0x400) {
        float x = float(size) / 16777216.0f;
        return sign ? -x : x;
    }
    return as_float(sign | (size < 0x7C00 ? (size << 13) + 0x38000000u : size << 13 | 0x7F800000u));
}
DEVICE float byte_above(uint32_t word, unsigned i) {
    return as_float(0x4B000000u | (word >> 8 * i & 0xFFu));
}
DEVICE uint32_t pick_bytes(uint32_t low, uint32_t high, uint32_t places) {
    uint64_t both = uint64_t(high) << 32 | low;
    uint32_t picked = 0;
    for (unsigned b = 0; b < 4; b++)
        picked |= uint32_t(both >> 8 * (places >> 4 * b & 7) & 0xFF) << 8 * b;
    return picked;
}
DEVICE uint32_t high_bits(uint32_t word) { return (word >> 7 & 0x01010101u) * 0xFFu; }

template <class T> PRIMITIVE T read_only(const T* from) {
    if (OBSERVED) emulate::constant(from, sizeof *from);
    return *from;
}

DEVICE float wide(bf16 x) { return as_float(uint32_t(x.bits) << 16); }
DEVICE float power2(float x) { return x < -126.0f ? 0.0f : exp2f(x); }
DEVICE uint32_t pack(float low, float high) {
    return emulate::round_bits(low) | uint32_t(emulate::round_bits(high)) << 16;
}
template <class T> DEVICE T narrow(float x);
template <> DEVICE bf16 narrow<bf16>(float x) { return bf16{emulate::round_bits(x)}; }

// Inlined at every call, so that observe.cpp knows the instruction by its return address.
PRIMITIVE void copy16(void* to, const void* from, bool real) { emulate::copy16(to, from, real); }
DEVICE void copies_commit() { emulate::copies_commit(); }
template <int NEWEST> DEVICE void copies_wait() { emulate::copies_wait(NEWEST); }

DEVICE void launches_wait() { emulate::launches_wait(); }
DEVICE void launches_permit() {}

DEVICE void fence() {}
// In emulate.cpp, which is not instrumented: blocks share the counter and the numbers on purpose.
DEVICE bool is_last(uint32_t* count, uint32_t last) { return emulate::is_last(count, last); }
PRIMITIVE Four read_across(const Four* from) {
    Four to;
    emulate::read_across(&to, from);
    return to;
}

DEVICE void widen(uint32_t (&to)[2], uint32_t word) {
    constexpr unsigned SIZES[4] = {0, 16, 8, 24}, SIGNS[4] = {15, 31, 23, 7};
    float all[4];
    for (int i = 0; i < 4; i++) {
        float size = float(word >> SIZES[i] & 0x7F) / 64.0f;
        all[i] = word >> SIGNS[i] & 1 ? -size : size;
    }
    to[0] = pack(all[0], all[1]), to[1] = pack(all[2], all[3]);
}

DEVICE void widen_bytes(uint32_t (&to)[2], uint32_t word) {
    float all[4];
    for (int i = 0; i < 4; i++) all[i] = int8_t(word >> 8 * i);
    to[0] = pack(all[0], all[1]), to[1] = pack(all[2], all[3]);
}

PRIMITIVE void load_matrices(uint32_t (&to)[4], const void* row) {
    emulate::load_matrices(to, row, false);
}
PRIMITIVE void load_transposed(uint32_t (&to)[4], const void* row) {
    emulate::load_matrices(to, row, true);
}

DEVICE void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    emulate::multiply(c, a, b0, b1);
}
DEVICE void multiply(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    emulate::multiply(c, a, b0, b1);
}

// Products of warpgroups, as groups_device.h defines them. A product is computed when it begins, or not
// before the wait for it.
#define WARPGROUPS

DEVICE void group_begin() { emulate::group_begin(); }
DEVICE void group_commit() { emulate::group_commit(); }
template <int NEWEST> DEVICE void group_wait() { emulate::group_wait(NEWEST); }
template <class T, int COUNT> DEVICE void group_done(T (&)[COUNT][4]) {}

// `Map` of emulate.cpp.
struct TensorMap {
    uint64_t words[16];
};
DEVICE void begin_part(unsigned number) { emulate::begin_part(number); }
template <int C> DEVICE unsigned cluster_rank() { return C == 1 ? 0 : emulate::cluster_rank(); }
template <int C> DEVICE void sync_cluster() { emulate::sync_cluster(); }
template <int COUNT> DEVICE void sync_first() { emulate::sync_first(COUNT); }
template <int COUNT> DEVICE void fewer_registers() {}
template <int COUNT> DEVICE void more_registers() {}
DEVICE void barriers_ready() {}
DEVICE void barrier_init(uint64_t& barrier, unsigned count) { emulate::barrier_init(&barrier, count); }
DEVICE void barrier_expect(uint64_t& barrier, unsigned bytes) {
    emulate::barrier_expect(&barrier, bytes);
}
template <int C> DEVICE void barrier_arrive(uint64_t& barrier, unsigned rank) {
    emulate::barrier_arrive(&barrier, C == 1 ? emulate::cluster_rank() : rank);
}
DEVICE void barrier_wait(uint64_t& barrier, unsigned parity) {
    emulate::barrier_wait(&barrier, parity);
}
template <int C>
DEVICE void bulk_copy(unsigned char* to, const TensorMap& map, unsigned inner, unsigned row,
                      uint64_t& barrier) {
    unsigned blocks = C == 1 ? 1u << emulate::cluster_rank() : (1u << C) - 1;
    emulate::bulk_copy(to, &map, inner, row, &barrier, blocks);
}
DEVICE void copies_visible() {}

template <int N, class T>
DEVICE void group_multiply(T (&sums)[N / 8][4], const unsigned char* x, const unsigned char* w,
                           unsigned k) {
    emulate::group_product({sums, __is_same(T, int32_t), N, x, w, k, nullptr});
}
template <int N>
DEVICE void group_multiply_left(float (&sums)[N / 8][4], const uint32_t (&w)[4], const unsigned char* x,
                                unsigned k) {
    emulate::group_product({sums, false, N, nullptr, x, k, w});
}

KERNELS_END
