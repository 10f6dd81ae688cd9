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

// A bf16: significand * 2^(exponent - 7).
struct Number {
    int32_t significand;
    int16_t exponent;
    bool finite;
};

inline Number number(uint32_t bits) {
    int biased = bits >> 7 & 0xFF, fraction = bits & 0x7F;
    int significand = biased ? fraction | 0x80 : fraction;
    return {bits >> 15 & 1 ? -significand : significand, int16_t((biased ? biased : 1) - 127),
            biased != 0xFF};
}

inline float value(const Number& x) {
    if (!x.finite) return x.significand & 0x7F ? NAN : x.significand < 0 ? -INFINITY : INFINITY;
    return ldexpf(float(x.significand), x.exponent - 7);
}

// x * 2^by, bits below the last one cut off.
inline int64_t shifted(int64_t x, int by) {
    uint64_t size = uint64_t(x < 0 ? -x : x);
    size = by >= 0 ? size << by : by > -64 ? size >> -by : 0;
    return x < 0 ? -int64_t(size) : int64_t(size);
}

inline float toward_zero(double x) {
    if (fabs(x) >= 0x1p128) return x < 0 ? -INFINITY : INFINITY;
    float rounded = float(x);
    return fabs(double(rounded)) > fabs(x) ? nextafterf(rounded, 0.0f) : rounded + 0.0f;
}

// One fused sum of `count` products and c with `bits` fraction bits.
inline float fused(const Number* x, const Number* y, int count, float c, int bits) {
    uint32_t word;
    memcpy(&word, &c, 4);
    int biased = word >> 23 & 0xFF;
    int64_t last = (word & 0x7FFFFF) | (biased ? 0x800000 : 0);
    int exponent = (biased ? biased : 1) - 127, lowest = -132 - (bits - 24);
    int most = last ? exponent : lowest;
    for (int k = 0; k < count; k++)
        if (x[k].significand && y[k].significand && x[k].exponent + y[k].exponent > most)
            most = x[k].exponent + y[k].exponent;
    int64_t total = shifted(word >> 31 ? -last : last, exponent - most + bits - 23);
    for (int k = 0; k < count; k++)
        total += shifted(int64_t(x[k].significand) * y[k].significand,
                         x[k].exponent + y[k].exponent - most + bits - 14);
    return toward_zero(ldexp(double(total), most - bits));
}

// c plus the sum of 16 products.
inline float sum(Sums sums, const Number* x, const Number* y, float c) {
    bool finite = isfinite(c);
    for (int k = 0; k < 16; k++) finite = finite && x[k].finite && y[k].finite;
    if (!finite || sums == EXACT) {
        double total = c;
        for (int k = 0; k < 16; k++) total += double(value(x[k])) * value(y[k]);
        return float(total);
    }
    if (sums == HOPPER) return fused(x, y, 16, c, 25);
    return fused(x + 8, y + 8, 8, fused(x, y, 8, c, 24), 24);
}

} // namespace emulate
