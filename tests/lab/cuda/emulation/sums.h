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

// Exponents of zeros, which are never the largest, and of what is not finite, which are always.
constexpr int32_t ZERO = -1000, NOT_FINITE = 10000;
constexpr int ROWS = 16, COLUMNS = 8, INNER = 16;

// Eight numbers, one of each column, at any address of a number.
typedef float Floats __attribute__((vector_size(32), aligned(4)));
typedef int32_t Integers __attribute__((vector_size(32), aligned(4)));
typedef double Doubles __attribute__((vector_size(64), aligned(8)));
typedef int64_t Longs __attribute__((vector_size(64), aligned(8)));

// The operands of a product of 16 x 8 x 16 in bf16, as values and their exponents before normalisation, and the sums.
struct Product {
    float row_values[ROWS][INNER];
    int32_t row_exponents[ROWS][INNER];
    Floats column_values[INNER];
    Integers column_exponents[INNER];
    Floats sums[ROWS];

    static float value(uint32_t bits) {
        uint32_t word = bits << 16;
        float x;
        memcpy(&x, &word, 4);
        return x;
    }
    static int32_t exponent(uint32_t bits) {
        int biased = bits >> 7 & 0xFF;
        int exponent = biased == 0xFF ? NOT_FINITE : (biased ? biased : 1) - 127;
        return bits & 0x7FFF ? exponent : ZERO;
    }
    void put_row(unsigned row, unsigned k, uint32_t bits) {
        row_values[row][k] = value(bits), row_exponents[row][k] = exponent(bits);
    }
    void put_column(unsigned column, unsigned k, uint32_t bits) {
        column_values[k][column] = value(bits), column_exponents[k][column] = exponent(bits);
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

// c plus COUNT products of a row and a column from `first` on, in double precision: of terms that are not finite too.
template <int COUNT> inline float exact_sum(const Product& of, int row, int column, int first, float c) {
    double total = c;
    for (int k = first; k < first + COUNT; k++)
        total += double(of.row_values[row][k]) * double(of.column_values[k][column]);
    return float(total);
}

// One fused sum of COUNT products from `first` on and c, with BITS fraction bits, of any exponents.
template <int COUNT, int BITS>
inline float fused_sum(const Product& of, int row, int column, int first, float c) {
    uint32_t word;
    memcpy(&word, &c, 4);
    int biased = word >> 23 & 0xFF;
    int64_t last = (word & 0x7FFFFF) | (biased ? 0x800000 : 0);
    int exponent = (biased ? biased : 1) - 127, most = -132 - (BITS - 24);
    if (last && exponent > most) most = exponent;
    for (int k = first; k < first + COUNT; k++) {
        int product = of.row_exponents[row][k] + of.column_exponents[k][column];
        most = product > most ? product : most;
    }
    if (most > NOT_FINITE / 2 || !isfinite(c)) return exact_sum<COUNT>(of, row, column, first, c);
    int below = most - exponent < 63 ? most - exponent : 63;
    last = last << (BITS - 23) >> below;
    double unit = power(most - BITS), by = 1 / unit;
    int64_t total = word >> 31 ? -last : last;
    for (int k = first; k < first + COUNT; k++)
        total += int64_t(double(of.row_values[row][k]) * double(of.column_values[k][column]) * by);
    return toward_zero(double(total) * unit);
}

// The same of all columns of a row, whose products are in multiples of a unit, a power of two; what is less than a
// unit is cut off from each.
template <int COUNT, int BITS>
__attribute__((always_inline)) inline void fused_row(const Product& of, int row, int first, Floats& c) {
    Integers words = (Integers)c, biased = words >> 23 & 0xFF;
    Integers last = (words & 0x7FFFFF) | (biased ? Integers{} + 0x800000 : Integers{});
    Integers exponent = (biased ? biased : Integers{} + 1) - 127, most = last ? exponent : Integers{} + ZERO;
    for (int k = first; k < first + COUNT; k++) {
        Integers product = of.row_exponents[row][k] + of.column_exponents[k];
        most = product > most ? product : most;
    }
    // With these exponents f32 holds a unit, a sum, and exactly each product that is not less than a unit. Of zeros
    // any unit is right.
    Integers zeros = most < ZERO / 2, ordinary = ((most > -90) & (most < 120)) | zeros;
    most = zeros ? Integers{} : most;
    bool all = true;
    for (int column = 0; column < COLUMNS; column++) all &= ordinary[column] != 0;
    if (!all) {
        for (int column = 0; column < COLUMNS; column++)
            c[column] = fused_sum<COUNT, BITS>(of, row, column, first, c[column]);
        return;
    }
    Integers below = most - exponent;
    last = last << (BITS - 23) >> (below < 31 ? below : Integers{} + 31);
    Integers last_bit = most - BITS;
    Floats unit = (Floats)((127 + last_bit) << 23), by = (Floats)((127 - last_bit) << 23);
    // At most 16 * 4 * 2^25 units, below 2^31.
    Integers products = {};
    for (int k = first; k < first + COUNT; k++)
        products += __builtin_convertvector(of.row_values[row][k] * of.column_values[k] * by, Integers);
    Doubles total = __builtin_convertvector(products, Doubles) +
                    __builtin_convertvector(words < 0 ? -last : last, Doubles);
    total *= __builtin_convertvector(unit, Doubles);
    // f32 has 29 fraction bits less.
    c = __builtin_convertvector((Doubles)((Longs)total & -(1ll << 29)), Floats);
}

// Compiled for AVX2 too, whose vectors have eight numbers.
#if defined(__x86_64__) && defined(__GLIBC__)
#define CLONED __attribute__((target_clones("avx2", "default")))
#else
#define CLONED
#endif

// Adds the product of the operands to the sums.
CLONED inline void add_product(Sums sums, Product& of) {
    for (int row = 0; row < ROWS; row++) {
        Floats& c = of.sums[row];
        switch (sums) {
        case HOPPER: fused_row<16, 25>(of, row, 0, c); break;
        case AMPERE:
            fused_row<8, 24>(of, row, 0, c);
            fused_row<8, 24>(of, row, 8, c);
            break;
        case EXACT:
            for (int column = 0; column < COLUMNS; column++)
                c[column] = exact_sum<INNER>(of, row, column, 0, c[column]);
        }
    }
}

} // namespace emulate
