// The primitives of all kernels. The same sources run on a GPU (device.h) and, for tests, on a CPU
// (emulate.h). A kernel takes one structure by value, mirrored in src/device/args.rs.
#pragma once
#include <stdint.h>

// A bfloat16 in memory.
struct bf16 {
    uint16_t bits;
};

// Marks an absent number.
constexpr uint32_t NONE = 0xFFFFFFFF;

// Numbers that are read and written at once.
template <unsigned W> struct alignas(4 * W) Numbers {
    float at[W];
};
using Two = Numbers<2>;
using Four = Numbers<4>;

// The same of words.
struct alignas(8) TwoWords {
    uint32_t at[2];
};
struct alignas(16) FourWords {
    uint32_t at[4];
};

#ifdef __CUDACC__
#include "device.h"
#else
#include "emulate.h"
#endif

KERNELS_BEGIN

DEVICE float wide(float x) { return x; }

// Waits for the launches before this one and permits the next. Its blocks begin when all of this launch have, so
// they take no room from them; and at most two launches share a device, because those before have ended. What they
// fetch before their own wait would be read from memory anyway, and when they wait they issue nothing.
DEVICE void launches_follow() {
    launches_wait();
    launches_permit();
}

// Converts a number to the type that a kernel stores.
template <class T> DEVICE T narrow(float x);
template <> DEVICE float narrow<float>(float x) { return x; }

// The bits of piece numbers that are flipped in a row. Rows that are eight apart have the same.
template <int PIECES> DEVICE unsigned flip(unsigned row) {
    constexpr unsigned SPAN = PIECES < 8 ? PIECES : 8;
    return row / (8 / SPAN) % SPAN;
}

// Number of a 16-byte piece of a row in a tile of rows with PIECES pieces. The pieces are swizzled by
// row, so that copies and matrix loads have no bank conflicts.
template <int PIECES> DEVICE unsigned swizzle(unsigned row, unsigned piece) {
    return row * PIECES + (piece ^ flip<PIECES>(row));
}

DEVICE float silu(float x) { return x / (1.0f + expf(-x)); }

// In its tanh form: x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
DEVICE float gelu(float x) {
    return x / (1.0f + expf(-x * (1.595769f + 0.071354814f * x * x)));
}

// Sum over the 32 lanes of a warp, always in the same order; every lane gets it.
template <class T> DEVICE T warp_sum(T x) {
    for (int lanes = 16; lanes > 0; lanes /= 2) x += shuffle_xor(x, lanes);
    return x;
}

// Sum over a block of up to 32 warps, through `scratch` [warps]; every thread gets it.
template <class T> DEVICE T block_sum(T x, T* scratch) {
    x = warp_sum(x);
    if (thread() % 32 == 0) scratch[thread() / 32] = x;
    sync();
    x = 0;
    for (unsigned warp = 0; warp < threads() / 32; warp++) x += scratch[warp];
    sync();
    return x;
}

// True in the block that ends last of `count` blocks, after what all have written to global memory. `answer` is
// in shared memory; `wait` waits for the threads that call this.
template <class Wait>
DEVICE bool block_ends_last(uint32_t* ended, uint32_t count, uint32_t* answer, Wait wait) {
    fence();
    wait();
    if (thread() == 0) *answer = is_last(ended, count - 1);
    wait();
    if (!*answer) return false;
    fence();
    return true;
}

// The same of all threads, which have read what they need of shared memory: its first bytes are overwritten.
DEVICE bool block_ends_last(uint32_t* ended, uint32_t count) {
    return block_ends_last(ended, count, reinterpret_cast<uint32_t*>(shared_memory()), [] { sync(); });
}

// Largest of all numbers of a warp, in every lane.
DEVICE uint32_t warp_most(uint32_t x) {
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        uint32_t other = shuffle_xor(x, lanes);
        x = other > x ? other : x;
    }
    return x;
}

// Largest of a block of up to 32 warps, as `block_sum`.
DEVICE uint32_t block_most(uint32_t x, uint32_t* scratch) {
    x = warp_most(x);
    if (thread() % 32 == 0) scratch[thread() / 32] = x;
    sync();
    for (unsigned warp = 0; warp < threads() / 32; warp++) x = scratch[warp] > x ? scratch[warp] : x;
    sync();
    return x;
}

KERNELS_END
