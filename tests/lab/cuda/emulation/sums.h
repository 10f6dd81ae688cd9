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

// Sixteen bf16: their values, and their exponents before normalisation, 128 if one is not finite. A zero is never the
// term with the largest exponent.
struct Numbers {
    float values[16];
    int32_t exponents[16];

    void put(int at, uint32_t bits) {
        uint32_t word = bits << 16;
        memcpy(values + at, &word, 4);
        int biased = bits >> 7 & 0xFF;
        exponents[at] = bits & 0x7FFF ? (biased ? biased : 1) - 127 : -1000;
    }

    bool finite() const {
        int32_t most = 0;
        for (int32_t exponent : exponents) most = exponent > most ? exponent : most;
        return most < 128;
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
    if (fabs(x) >= 0x1p-126) {
        // f32 has 29 fraction bits less.
        uint64_t bits;
        memcpy(&bits, &x, 8);
        bits &= ~0ull << 29;
        memcpy(&x, &bits, 8);
        return float(x);
    }
    float rounded = float(x);
    return fabs(double(rounded)) > fabs(x) ? nextafterf(rounded, 0.0f) : rounded + 0.0f;
}

// The sum of COUNT products in multiples of `unit`, a power of two; what is less than a unit is cut off from each
// product. T holds the products exactly.
template <int COUNT, class T, class Integer>
__attribute__((always_inline)) inline Integer units(const Numbers& x, const Numbers& y, int first, T unit) {
    Integer sum = 0;
    T by = 1 / unit;
    for (int k = first; k < first + COUNT; k++) sum += Integer(T(x.values[k]) * T(y.values[k]) * by);
    return sum;
}

// One fused sum of COUNT products from `first` on and c, with BITS fraction bits.
template <int COUNT, int BITS>
__attribute__((always_inline)) inline float fused(const Numbers& x, const Numbers& y, int first, float c) {
    // The sum before may have overflowed.
    if (!isfinite(c)) return c;
    uint32_t word;
    memcpy(&word, &c, 4);
    int biased = word >> 23 & 0xFF;
    int64_t last = (word & 0x7FFFFF) | (biased ? 0x800000 : 0);
    int exponent = (biased ? biased : 1) - 127, most = -132 - (BITS - 24);
    if (last && exponent > most) most = exponent;
    for (int k = first; k < first + COUNT; k++) {
        int product = x.exponents[k] + y.exponents[k];
        most = product > most ? product : most;
    }
    int below = most - exponent < 63 ? most - exponent : 63;
    last = last << (BITS - 23) >> below;
    // At most 16 * 4 * 2^25 units, below 2^31. A product that f32 does not hold exactly is less than a unit, or not
    // within these exponents.
    double unit = power(most - BITS);
    int64_t products = most > -90 && most < 120 ? units<COUNT, float, int32_t>(x, y, first, float(unit))
                                                : units<COUNT, double, int64_t>(x, y, first, unit);
    int64_t total = products + (word >> 31 ? -last : last);
    return toward_zero(double(total) * unit);
}

// Compiled for AVX2 too, whose vectors have eight numbers.
#if defined(__x86_64__) && defined(__GLIBC__)
#define CLONED __attribute__((target_clones("avx2", "default")))
#else
#define CLONED
#endif

// c plus the sum of sixteen products.
CLONED inline float sum(Sums sums, const Numbers& x, const Numbers& y, float c) {
    if (sums == EXACT || !x.finite() || !y.finite() || !isfinite(c)) {
        double total = c;
        for (int k = 0; k < 16; k++) total += double(x.values[k]) * y.values[k];
        return float(total);
    }
    if (sums == HOPPER) return fused<16, 25>(x, y, 0, c);
    return fused<8, 24>(x, y, 8, fused<8, 24>(x, y, 0, c));
}

} // namespace emulate
