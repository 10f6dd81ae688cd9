// Weights that stay packed in memory and are widened to bf16 on their way to the tensor cores: codes of
// four, five, six or eight bits, where a weight is `scale * code + minimum`, computed exactly or rounded
// once to f32, and then rounded to bf16. So a product has the bits of one with these weights in bf16.
//
// Columns are in panels of sixteen and inner elements in steps of 64; a panel has a record for each step.
// The record begins with sixteen bytes for each lane of a warp: the codes of columns l / 4 and l / 4 + 8
// that lane l multiplies, in words of four codes, a byte each, for each sixteen inner elements: of elements
// 2 (l % 4), + 1, + 8 and + 9. Four bits of two such words are in one: for each column a word of the first
// 32 elements and one of the others. The further bits of codes follow, as many words for each lane: with
// one bit more, bit i of a byte belongs to the byte's codes of word i; with two, a word for each column has
// them. Of eight bits, four words for column l / 4 are followed by those for column l / 4 + 8 of all lanes.
//
// Eight bytes for each column end the record: a scale and a minimum in 16 bits for each 32 elements. In
// fine forms a scale and a minimum, and a factor of each for each 32 elements; with six bits, a scale and
// four factors plus 128, of sixteen elements each, and a code stands for its value minus 32; with two bits, four
// factors of four bits each for the scale and above them for the minimum. In forms with a list (IQ), a code
// stands for one of 16 numbers, and four factors plus 128 multiply the product of both numbers. Of 4-bit
// floats, a scale for each sixteen elements in an 8-bit float, and a factor of all in f32. Of 8-bit floats, a
// scale in f32 for each 32.
#pragma once
#include "gemm.cuh"

// Columns of a panel, inner elements of a step, and bytes of a record's scales.
constexpr unsigned PANEL = 16, PACKED_STEP = 64, SCALE_BYTES = PANEL * 8;
// Bytes of a record for each bit of a code, and of the largest record.
constexpr unsigned BIT_BYTES = PANEL * PACKED_STEP / 8, MOST_RECORD = 8 * BIT_BYTES + SCALE_BYTES;

DEVICE unsigned bits_of(Form form) {
    switch (form) {
    case FIVE:
    case FINE_FIVE: return 5;
    case FINE_SIX: return 6;
    case EIGHT:
    case FP8: return 8;
    default: return 4;
    }
}
DEVICE unsigned record_bytes(Form form) { return bits_of(form) * BIT_BYTES + SCALE_BYTES; }

// Words that are read at once.
template <class T> DEVICE T read_words(const unsigned char* from) {
    return *reinterpret_cast<const T*>(from);
}

// The scale and the minimum of some codes, after `offset` is subtracted from them.
struct Affine {
    float scale, minimum;
};

// Byte i of a word as a number, minus `less`.
DEVICE float byte_at(uint32_t word, unsigned i, float less) {
    return byte_above(word, i) - (8388608.0f + less);
}

// The 8-bit float with four bits of exponent (E4M3) in the low byte of a word. Its bits as those of f32 have an
// exponent that is 120 less; the product is exact.
DEVICE float small_float(uint32_t word) {
    return as_float((word & 0x7Fu) << 20 | (word & 0x80u) << 24) * as_float(247u << 23);
}

// The 4-bit float with two bits of exponent (E2M1) in the low bits of a byte: 126 less.
DEVICE float tiny_float(uint32_t word) {
    return as_float((word & 7u) << 22 | (word & 8u) << 28) * as_float(253u << 23);
}

// The 16 numbers of a form, each plus 128.
template <Form FORM> struct List {
    static constexpr uint32_t A = 0x3F2D1801, B = 0x766A5D4F, C = 0xA6998D81, D = 0xF1D9C5B5;
};
template <> struct List<IQ3_S> {
    static constexpr uint32_t A = 0x87858381, B = 0x8F8D8B89, C = 0x797B7D7F, D = 0x71737577;
};
template <> struct List<IQ3_XXS> {
    static constexpr uint32_t A = 0x9C948C84, B = 0xBEB4ACA4, C = 0x646C747C, D = 0x424C545C;
};
template <> struct List<IQ2> {
    static constexpr uint32_t A = 0x87AB9988, B = 0x82808189, C = 0x79556778, D = 0x7E807F77;
};

// The bytes of a list in place of the codes of a word.
template <class Of> DEVICE uint32_t listed(uint32_t codes) {
    uint32_t low = codes & 0x07070707u, pairs = low | low >> 4;
    uint32_t places = (pairs & 0xFFu) | (pairs >> 8 & 0xFF00u);
    uint32_t last = high_bits(codes << 4);
    return (pick_bytes(Of::A, Of::B, places) & ~last) | (pick_bytes(Of::C, Of::D, places) & last);
}

// The scale and the minimum of a column's codes for the step `k` of sixteen inner elements.
template <Form FORM> DEVICE Affine affine(const TwoWords& of, unsigned k) {
    if (FORM == FOUR || FORM == FIVE || FORM == EIGHT) {
        uint32_t word = of.at[k / 2];
        return {half_number(word), half_number(word >> 16)};
    }
    if (FORM == FP8) return {as_float(of.at[k / 2]), 0.0f};
    if (FORM == NVFP4) return {small_float(of.at[0] >> 8 * k) * as_float(of.at[1]), 0.0f};
    float scale = half_number(of.at[0]);
    if (FORM == FINE_SIX) return {scale * byte_at(of.at[1], k, 128.0f), 0.0f};
    float minimum = half_number(of.at[0] >> 16);
    if (FORM >= IQ4) return {scale * minimum * byte_at(of.at[1], k, 128.0f), 0.0f};
    if (FORM == FINE_TWO)
        return {scale * byte_at(of.at[1] & 0x0F0F0F0Fu, k, 0.0f),
                minimum * byte_at(of.at[1] >> 4 & 0x0F0F0F0Fu, k, 0.0f)};
    unsigned first = k / 2 * 2;
    return {scale * byte_at(of.at[1], first, 0.0f), minimum * byte_at(of.at[1], first + 1, 0.0f)};
}

// Widens the weights of a record that a lane multiplies: for each sixteen inner elements, elements
// 2 (l % 4) and + 1 of columns l / 4 and l / 4 + 8, and elements + 8 and + 9 of both.
template <Form FORM>
DEVICE void widen_record(uint32_t (&to)[PACKED_STEP / 16][4], const unsigned char* record) {
    constexpr unsigned BITS = FORM == EIGHT || FORM == FP8        ? 8
                              : FORM == FINE_SIX                   ? 6
                              : FORM == FIVE || FORM == FINE_FIVE  ? 5
                                                                   : 4;
    constexpr unsigned MORE = 4 * BIT_BYTES;
    const float less = FORM == FINE_SIX ? 32.0f : FORM >= IQ4 ? 128.0f : 0.0f;
    unsigned lane = thread() % 32;
    uint32_t low[2][4], high[2] = {};
    FourWords words = read_words<FourWords>(record + lane * 16);
    if (BITS == 8) {
        FourWords others = read_words<FourWords>(record + MORE + lane * 16);
#pragma unroll
        for (int k = 0; k < 4; k++) low[0][k] = words.at[k], low[1][k] = others.at[k];
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                low[i][k] = words.at[2 * i + k / 2] >> k % 2 * 4 & 0x0F0F0F0Fu;
    }
    if (BITS == 5) high[0] = *reinterpret_cast<const uint32_t*>(record + MORE + lane * 4);
    if (BITS == 6) {
        TwoWords both = read_words<TwoWords>(record + MORE + lane * 8);
        high[0] = both.at[0], high[1] = both.at[1];
    }
#pragma unroll
    for (unsigned i = 0; i < 2; i++) {
        const unsigned char* scales = record + BITS * BIT_BYTES + (lane / 4 + 8 * i) * 8;
        TwoWords of = read_words<TwoWords>(scales);
#pragma unroll
        for (unsigned k = 0; k < 4; k++) {
            uint32_t codes = low[i][k];
            if (BITS == 5) codes |= (high[0] >> (4 * i + k) & 0x01010101u) << 4;
            if (BITS == 6) codes |= (high[i] >> 2 * k & 0x03030303u) << 4;
            if (FORM >= IQ4) codes = listed<List<FORM>>(codes);
            Affine by = affine<FORM>(of, k);
            float x[4];
#pragma unroll
            for (unsigned b = 0; b < 4; b++)
                x[b] = FORM == NVFP4 ? tiny_float(codes >> 8 * b) * by.scale
                       : FORM == FP8 ? small_float(codes >> 8 * b) * by.scale
                                     : byte_at(codes, b, less) * by.scale + by.minimum;
            to[k][i] = pack(x[0], x[1]), to[k][i + 2] = pack(x[2], x[3]);
        }
    }
}

DEVICE void widen_record(Form form, uint32_t (&to)[PACKED_STEP / 16][4],
                         const unsigned char* record) {
    switch (form) {
    case FOUR: return widen_record<FOUR>(to, record);
    case FIVE: return widen_record<FIVE>(to, record);
    case EIGHT: return widen_record<EIGHT>(to, record);
    case FINE_FOUR: return widen_record<FINE_FOUR>(to, record);
    case FINE_FIVE: return widen_record<FINE_FIVE>(to, record);
    case FINE_SIX: return widen_record<FINE_SIX>(to, record);
    case NVFP4: return widen_record<NVFP4>(to, record);
    case FP8: return widen_record<FP8>(to, record);
    case FINE_TWO: return widen_record<FINE_TWO>(to, record);
    case IQ4: return widen_record<IQ4>(to, record);
    case IQ3_S: return widen_record<IQ3_S>(to, record);
    case IQ3_XXS: return widen_record<IQ3_XXS>(to, record);
    case IQ2: return widen_record<IQ2>(to, record);
    }
}

// The copies of a thread for the records of COLUMNS columns of a step, by THREADS threads.
template <int COLUMNS, int THREADS> struct PackedCopies {
    // Bytes of a step of the largest records.
    static constexpr unsigned SIZE = COLUMNS / PANEL * MOST_RECORD;
    static constexpr unsigned EACH = (SIZE / 16 + THREADS - 1) / THREADS;
    // Where the step begins, and the sources of the copies, relative to it.
    const unsigned char* from;
    uint32_t sources[EACH];
    unsigned record;
    // Bytes of the panels that exist.
    unsigned real;

    DEVICE PackedCopies(const Operands& of, unsigned column, unsigned step)
        : record(record_bytes(of.form)) {
        unsigned panels = (of.n + PANEL - 1) / PANEL - column / PANEL;
        real = (panels < COLUMNS / PANEL ? panels : COLUMNS / PANEL) * record;
        uint32_t stride = of.k / PACKED_STEP * record;
        from = static_cast<const unsigned char*>(of.w) + size_t(column / PANEL) * stride +
               size_t(step) * record;
#pragma unroll
        for (unsigned i = 0; i < EACH; i++) {
            unsigned at = (i * THREADS + thread()) * 16;
            sources[i] = at < real ? at / record * stride + at % record : 0;
        }
    }

    // Copies a step that is `steps` after the first.
    DEVICE void copy_after(unsigned char* to, unsigned steps) {
        const unsigned char* start = from + size_t(steps) * record;
#pragma unroll
        for (unsigned i = 0; i < EACH; i++) {
            unsigned at = (i * THREADS + thread()) * 16;
            if (at >= COLUMNS / PANEL * record) break;
            copy16(to + at, start + sources[i], at < real);
        }
    }

    // Copies the next step.
    DEVICE void fetch(unsigned char* to) {
        copy_after(to, 0);
        from += record;
    }
};

// Packed weights for tiles of warps.
struct PackedWeights {
    using Input = bf16;
    template <int BN, int BK, int THREADS> struct Copies : PackedCopies<BN, THREADS> {
        static_assert(BK == PACKED_STEP, "a stage has a record of every panel");

        DEVICE Copies(const Operands& of, unsigned column)
            : PackedCopies<BN, THREADS>(of, column, 0) {}

        DEVICE void copy(unsigned char* to, unsigned step) { this->copy_after(to, step); }
    };

    template <int BK, int COUNT> struct Loaded {
        static_assert(COUNT % 2 == 0, "panels have sixteen columns");
        uint32_t of[COUNT / 2][BK / 16][4];

        DEVICE Loaded(Form form, const unsigned char* tile, unsigned column) {
            unsigned record = record_bytes(form);
#pragma unroll
            for (int i = 0; i < COUNT / 2; i++)
                widen_record(form, of[i], tile + (column / PANEL + i) * record);
        }

        DEVICE void load(uint32_t (&to)[COUNT][2], unsigned k) const {
#pragma unroll
            for (int j = 0; j < COUNT; j++)
                to[j][0] = of[j / 2][k][j % 2], to[j][1] = of[j / 2][k][j % 2 + 2];
        }
    };
};

// A warp has few columns, because it holds the weights of all in registers.
using PackedLow = TileMma<PackedWeights, 64, 128, 2, 4, PACKED_STEP, 4, false>;
using PackedSquare = TileMma<PackedWeights, 128, 128, 2, 4, PACKED_STEP, 3, false>;
KERNEL(gemm_packed_64x128, Gemm, 256) { gemm<PackedLow, bf16>(a); }
KERNEL(gemm_packed_128x128, Gemm, 256) { gemm<PackedSquare, bf16>(a); }
