// Row-wise operations between the matrix products.
#pragma once
#include "portable.h"

struct Embed {
    // [tokens, d].
    const void* table;
    // [r].
    const uint32_t* tokens;
    // [r, d].
    float* out;
    uint32_t d;
};

// One block per row.
template <class T> DEVICE void embed(const Embed& a) {
    launches_follow();
    const T* from = static_cast<const T*>(a.table) + size_t(a.tokens[block_x()]) * a.d;
    float* to = a.out + size_t(block_x()) * a.d;
#pragma unroll 4
    for (unsigned i = thread(); i < a.d; i += threads()) to[i] = wide(from[i]);
}
KERNEL(embed_f32, Embed, 256) { embed<float>(a); }
KERNEL(embed_bf16, Embed, 256) { embed<bf16>(a); }

struct Norm {
    // [.., d].
    const float* x;
    // [d].
    const float* weight;
    // Row of x for row i of the result; null: row i.
    const uint32_t* gather;
    // Rows of `stride` elements; and their factors in int8.
    void* out;
    float* scales;
    uint32_t d, stride;
    float eps;
};

// Numbers of a row that a thread loads before it uses the first: loads one after the other would take
// most of the time.
constexpr unsigned HELD = 16;

// Loads x[first], x[first + threads], .. below `d`, and zeros.
template <class T>
DEVICE void load_held(float (&to)[HELD], const T* x, unsigned first, unsigned d) {
#pragma unroll
    for (unsigned j = 0; j < HELD; j++) {
        unsigned i = first + j * threads();
        to[j] = i < d ? wide(x[i]) : 0.0f;
    }
}

// The factor of numbers that are rounded to int8, as src/gemm/encode.rs has it, and its inverse.
struct Factor {
    float scale, inverse;
};

// The factor of numbers with this largest size.
DEVICE Factor factor_of(uint32_t most) {
    constexpr float LIMIT = 127.0f, SMALLEST = 1e-30f;
    float largest = as_float(most);
    bool zero = largest < SMALLEST;
    return {zero ? 0.0f : largest / LIMIT, zero ? 0.0f : LIMIT / largest};
}

// The size of a number. As integers, sizes are in order and NaN is the largest.
DEVICE uint32_t size_of(float x) { return as_bits(x) & 0x7FFFFFFFu; }

DEVICE int8_t rounded(float x, float inverse) {
    // 1.5 * 2^23: adding it rounds to nearest even and leaves the whole number in the low bits.
    constexpr float ROUND = 12582912.0f;
    return int8_t(as_bits(rounded_sum(rounded_product(x, inverse), ROUND)));
}

// Rounds a row to int8 with a factor. `each` gives a function the place and the value of every number of the
// thread, twice.
template <class Each> DEVICE void round_row(int8_t* out, float* scale, Each each) {
    uint32_t most = 0;
    each([&](unsigned, float x) {
        uint32_t size = size_of(x);
        most = size > most ? size : most;
    });
    Factor by = factor_of(block_most(most, reinterpret_cast<uint32_t*>(shared_memory())));
    if (thread() == 0) *scale = by.scale;
    each([&](unsigned i, float x) { out[i] = rounded(x, by.inverse); });
}

struct Round {
    // [r, d].
    const void* x;
    // [r, d], rows of `stride` elements; and their factors.
    int8_t* out;
    float* scales;
    uint32_t d, x_stride, stride;
};

// One block per row.
template <class T> DEVICE void round_rows(const Round& a) {
    launches_follow();
    const T* x = static_cast<const T*>(a.x) + size_t(block_x()) * a.x_stride;
    const unsigned span = HELD * threads();
    float held[HELD];
    load_held(held, x, thread(), a.d);
    auto each = [&](auto use) {
        for (unsigned first = thread(); first < a.d; first += span) {
            if (a.d > span) load_held(held, x, first, a.d);
#pragma unroll
            for (unsigned j = 0; j < HELD; j++)
                if (first + j * threads() < a.d) use(first + j * threads(), held[j]);
        }
    };
    round_row(a.out + size_t(block_x()) * a.stride, a.scales + block_x(), each);
}
KERNEL(round_f32, Round, 1024) { round_rows<float>(a); }
KERNEL(round_bf16, Round, 1024) { round_rows<bf16>(a); }

// x / sqrt(mean(x^2) + eps) * weight of one row per block.
template <class T> DEVICE void norm(const Norm& a) {
    launches_follow();
    float* scratch = reinterpret_cast<float*>(shared_memory());
    const float* x = a.x + size_t(a.gather ? a.gather[block_x()] : block_x()) * a.d;
    const unsigned span = HELD * threads();
    float sum = 0.0f, held[HELD] = {}, weights[HELD];
    for (unsigned first = thread(); first < a.d; first += span) {
        load_held(held, x, first, a.d);
#pragma unroll
        for (unsigned j = 0; j < HELD; j++) sum += held[j] * held[j];
    }
    float factor = 1.0f / sqrtf(block_sum(sum, scratch) / float(a.d) + a.eps);
    auto each = [&](auto use) {
        for (unsigned first = thread(); first < a.d; first += span) {
            if (a.d > span) load_held(held, x, first, a.d);
            load_held(weights, a.weight, first, a.d);
#pragma unroll
            for (unsigned j = 0; j < HELD; j++) {
                unsigned i = first + j * threads();
                if (i < a.d) use(i, held[j] * factor * weights[j]);
            }
        }
    };
    T* out = static_cast<T*>(a.out) + size_t(block_x()) * a.stride;
    if constexpr (sizeof(T) == 1) round_row(out, a.scales + block_x(), each);
    else each([&](unsigned i, float value) { out[i] = narrow<T>(value); });
}
KERNEL(norm_f32, Norm, 256) { norm<float>(a); }
KERNEL(norm_bf16, Norm, 256) { norm<bf16>(a); }
KERNEL(norm_int8, Norm, 256) { norm<int8_t>(a); }

struct CopyPages {
    // [layers * 2, pages, words].
    uint32_t* pool;
    // Source and destination of each copy.
    const uint32_t* copies;
    uint32_t count, pages, words;
};

// Each thread makes all copies of one word, in order.
KERNEL(copy_pages, CopyPages, 256) {
    launches_follow();
    uint32_t* pool = a.pool + size_t(block_y()) * a.pages * a.words;
    unsigned word = block_x() * threads() + thread();
    if (word >= a.words) return;
    for (unsigned i = 0; i < a.count; i++)
        pool[size_t(a.copies[2 * i + 1]) * a.words + word] =
            pool[size_t(a.copies[2 * i]) * a.words + word];
}
