// The sums of tensor cores, which are fused and truncated.
//
// The terms, the exact products of bf16 and the accumulator, are aligned to the largest exponent of
// a term. What is below its last fraction bit is cut off, the rest is summed exactly, and the sum is
// rounded toward zero to f32. Devices differ in the products per sum and in the fraction bits; the
// model and its constants are those of MMA-Sim (Xie et al.), PyPI's mmasim.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

namespace emulate {

// Mirrored in src/device/emulation.rs.
enum Sums : uint32_t {
    // Compute capability 8: eight products per sum, 24 fraction bits.
    AMPERE = 0,
    // From 9.0 on: sixteen products per sum, 25 fraction bits.
    HOPPER = 1,
    // Exact, rounded once to nearest; no device does this.
    EXACT = 2,
};

// A bf16: significand * 2^(exponent - 7). Not finite with the exponent 128.
struct Number {
    int16_t significand, exponent;

    explicit Number(uint32_t bits) {
        int biased = bits >> 7 & 0xFF, fraction = bits & 0x7F;
        int size = biased ? fraction | 0x80 : fraction;
        significand = bits & 0x8000 ? -size : size;
        // A zero is never the term with the largest exponent.
        exponent = size ? (biased ? biased : 1) - 127 : -1000;
    }
};

// Sixteen bf16.
struct Numbers {
    int32_t significands[16], exponents[16];

    void put(int at, Number number) {
        significands[at] = number.significand;
        exponents[at] = number.exponent;
    }

    bool finite() const {
        int32_t most = 0;
        for (int32_t exponent : exponents) most = exponent > most ? exponent : most;
        return most < 128;
    }

    // Also of numbers that are not finite.
    double value(int at) const {
        if (exponents[at] < 128) return ldexp(significands[at], exponents[at] - 7);
        int size = significands[at] < 0 ? -significands[at] : significands[at];
        return size & 0x7F ? NAN : significands[at] < 0 ? -INFINITY : INFINITY;
    }
};

// 2^exponent, for exponents of normal numbers.
inline double power(int exponent) {
    uint64_t bits = uint64_t(exponent + 1023) << 52;
    double x;
    memcpy(&x, &bits, 8);
    return x;
}

inline float toward_zero(double x) {
    if (fabs(x) >= 0x1p128) return x < 0 ? -INFINITY : INFINITY;
    float rounded = float(x);
    return fabs(double(rounded)) > fabs(x) ? nextafterf(rounded, 0.0f) : rounded + 0.0f;
}

// One fused sum of COUNT products from `first` on and c, with BITS fraction bits.
template <int COUNT, int BITS>
__attribute__((always_inline)) inline float fused(const Numbers& x, const Numbers& y, int first, float c) {
    // The sum before may have overflowed.
    if (!isfinite(c)) return c;
    uint32_t word;
    memcpy(&word, &c, 4);
    int biased = word >> 23 & 0xFF, exponents[COUNT];
    int64_t last = (word & 0x7FFFFF) | (biased ? 0x800000 : 0);
    int exponent = (biased ? biased : 1) - 127, most = -132 - (BITS - 24);
    if (last && exponent > most) most = exponent;
    for (int k = 0; k < COUNT; k++) {
        exponents[k] = x.exponents[first + k] + y.exponents[first + k];
        most = exponents[k] > most ? exponents[k] : most;
    }
    int below = most - exponent < 63 ? most - exponent : 63;
    last = last << (BITS - 23) >> below;
    // At most 16 * 255 * 255 * 2^11, which is below 2^31.
    int32_t products = 0;
    for (int k = 0; k < COUNT; k++) {
        int32_t product = x.significands[first + k] * y.significands[first + k];
        int32_t size = (product < 0 ? -product : product) << (BITS - 14);
        int away = most - exponents[k] < 31 ? most - exponents[k] : 31;
        products += product < 0 ? -(size >> away) : size >> away;
    }
    int64_t total = products + (word >> 31 ? -last : last);
    return toward_zero(double(total) * power(most - BITS));
}

// Compiled for AVX2 too, which has shifts of eight numbers by different counts.
#if defined(__x86_64__) && defined(__GLIBC__)
#define CLONED __attribute__((target_clones("avx2", "default")))
#else
#define CLONED
#endif

// c plus the sum of sixteen products.
CLONED inline float sum(Sums sums, const Numbers& x, const Numbers& y, float c) {
    if (sums == EXACT || !x.finite() || !y.finite() || !isfinite(c)) {
        double total = c;
        for (int k = 0; k < 16; k++) total += x.value(k) * y.value(k);
        return float(total);
    }
    if (sums == HOPPER) return fused<16, 25>(x, y, 0, c);
    return fused<8, 24>(x, y, 8, fused<8, 24>(x, y, 0, c));
}

} // namespace emulate
