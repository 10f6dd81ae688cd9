// Matrix products y [r, n] = x [r, k] w [n, k]' + b, with epilogues.
//
// The inner dimension is divided into segments, whose length depends on k alone. A segment is summed
// from zero in ascending order; the segments are added in order. Tiles of every size do so, in one
// block or in several that each take some of the segments, so a row's result depends neither on the
// other rows nor on how the product is divided. Sums of integers are exact.
#pragma once
#include "portable.h"

// Forms of packed weights; `Form` of src/simd/blocks/form.rs. packed.cuh describes them.
enum Form : uint32_t {
    FOUR,
    FIVE,
    EIGHT,
    FINE_FOUR,
    FINE_FIVE,
    FINE_SIX,
    NVFP4,
    FP8,
    FINE_TWO,
    IQ4,
    IQ3_S,
    IQ3_XXS,
    IQ2
};

enum Finish : uint32_t {
    // Store as f32.
    STORE = 0,
    // Add to f32 numbers.
    ADD = 1,
    // For each pair of columns store silu(first) * second in the activations' dtype.
    GATE = 2,
    // The same with GELU in its tanh form.
    GELU_GATE = 3,
};

// x [r, k] and w [n, k], row-major; k is a multiple of 64, of integers of 128.
struct Operands {
    const void* x;
    const void* w;
    // [n], factors of the sums, or null; and [r], those of rows of integers.
    const float* scales;
    const float* row_scales;
    // [r, parts]: sums of the squares of 64 numbers each of the rows that x has without the factor of their
    // norm; null if x has all.
    const float* squares;
    uint32_t rows, n, k;
    // Inner elements of a segment, a multiple of 64, of integers of 128.
    uint32_t segment;
    // The form of packed weights.
    Form form;
    uint32_t parts;
    // The norm's epsilon.
    float eps;
    // Byte of shared memory from which on the factors of rows are.
    uint32_t factors;
    // Not 0: launches may overlap, so that weights are fetched before the wait for those before.
    uint32_t early;
};

// The division of a product's tiles among blocks. Tiles are numbered column by column. The first
// `whole` tiles take one block each, the others `pieces` blocks each.
struct Share {
    // Partial sums of the divided tiles, and for each the number of its blocks that have ended: zeros
    // before and after the launch.
    Four* partials;
    uint32_t* ended;
    // Tiles of a column.
    uint32_t tall;
    uint32_t whole, pieces;
    // Segments of a piece, the last one excepted.
    uint32_t lead;
};

struct Gemm {
    Operands of;
    Share share;
    // [n], or null.
    const float* bias;
    // Rows of `stride` elements.
    void* out;
    uint32_t stride;
    Finish finish;
};

// The work of a block: the segments [first, end) of the tile with this first row and column, in
// numbers of tiles.
struct Part {
    unsigned row, column, first, end;
    // Null for a whole tile. Otherwise room for the sum of the first piece, then for every segment of
    // the others, or for that of every piece if sums are exact.
    Four* partials;
    uint32_t* ended;
    unsigned pieces, lead, slots;
};

DEVICE unsigned segments(const Operands& of) { return (of.k + of.segment - 1) / of.segment; }

// The whole tile of this block in a grid of tiles.
DEVICE Part whole_part(const Operands& of) {
    return {block_x(), block_y(), 0, segments(of), nullptr, nullptr, 1, 0, 0};
}

// The number of a part, and the block of `cluster` adjacent ones that have this part of adjacent tiles.
struct PartNumber {
    unsigned part, rank, cluster;
};

// A part. A tile has `size` times four sums.
DEVICE Part part_of(const Operands& of, const Share& share, unsigned size, bool exact, PartNumber number_of) {
    unsigned all = segments(of), whole = share.whole / number_of.cluster;
    unsigned tile = number_of.part * number_of.cluster + number_of.rank;
    Part part{0, 0, 0, all, nullptr, nullptr, 1, 0, 0};
    if (number_of.part >= whole) {
        unsigned block = number_of.part - whole;
        unsigned number = block / share.pieces * number_of.cluster + number_of.rank;
        tile = share.whole + number;
        part.first = block % share.pieces * share.lead;
        part.end = part.first + share.lead < all ? part.first + share.lead : all;
        part.pieces = share.pieces, part.lead = share.lead;
        part.slots = exact ? share.pieces : all - share.lead + 1;
        part.partials = share.partials + size_t(number) * part.slots * size;
        part.ended = share.ended + number;
    }
    part.row = tile % share.tall, part.column = tile / share.tall;
    return part;
}

// The part of this block.
DEVICE Part part_of(const Operands& of, const Share& share, unsigned size, bool exact) {
    return part_of(of, share, size, exact, {block_x(), 0, 1});
}

// True in the block that ends last of those of a divided tile.
struct EndsLast {
    DEVICE bool operator()(const Part& part) const {
        copies_wait<0>();
        return block_ends_last(part.ended, part.pieces);
    }
};

// Gives f every partial sum that a thread has of a divided tile, in order, in the block that ends last;
// `size` is the number of its sums. False in the others, which are done.
template <int COUNT, class F, class Ends>
DEVICE bool gather_partials(const Part& part, unsigned size, F f, Ends ends_last) {
    if (!ends_last(part)) return false;
    for (unsigned slot = 0; slot < part.slots; slot++) {
        const Four* from = part.partials + size_t(slot) * size;
#pragma unroll
        for (int i = 0; i < COUNT; i++) f(i, read_across(from + i * (size / COUNT) + thread()));
    }
    return true;
}

// The sums of one thread, COUNT times four: of the current segment, and of the segments before it.
// They are in registers, or in shared memory from byte HELD on if that is not 0.
template <int COUNT, int THREADS, int HELD> struct Sums {
    static constexpr int SIZE = COUNT * THREADS;
    static constexpr bool EXACT = false;
    float sums[COUNT][4] = {};
    float totals[HELD ? 1 : COUNT][4] = {};

    DEVICE static unsigned spot(int i) { return i * THREADS + thread(); }

    // Ends a segment. After the part's last one, `sums` holds the sum of all.
    DEVICE void close(const Part& part, unsigned segment) {
        bool last = segment + 1 == part.end;
        if (part.first == 0) fold(segment == 0, last);
        if (!part.partials || (part.first == 0 && !last)) return;
        unsigned slot = part.first == 0 ? 0 : segment - part.lead + 1;
        keep(part.partials + size_t(slot) * SIZE);
    }

    // Writes the sums, and begins anew.
    DEVICE void keep(Four* to) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            to[spot(i)] = Four{{sums[i][0], sums[i][1], sums[i][2], sums[i][3]}};
#pragma unroll
            for (int j = 0; j < 4; j++) sums[i][j] = 0.0f;
        }
    }

    // Adds a segment to the ones before it.
    DEVICE void fold(bool first, bool last) {
        Four* held = reinterpret_cast<Four*>(shared_memory() + HELD);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            Four sum{};
            if (HELD && !first) sum = held[spot(i)];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                sum.at[j] = (HELD ? sum.at[j] : totals[HELD ? 0 : i][j]) + sums[i][j];
                sums[i][j] = last ? sum.at[j] : 0.0f;
                if (!HELD) totals[HELD ? 0 : i][j] = sum.at[j];
            }
            if (HELD && !last) held[spot(i)] = sum;
        }
    }

    // Adds the partial sums of a divided tile in the block that ends last. False in the others.
    template <class Ends = EndsLast> DEVICE bool gather(const Part& part, Ends ends_last = {}) {
        if (!part.partials) return true;
        auto add = [&](int i, const Four& more) {
#pragma unroll
            for (int j = 0; j < 4; j++) sums[i][j] += more.at[j];
        };
        return gather_partials<COUNT>(part, SIZE, add, ends_last);
    }
};

// Exact sums of integers, which need no order. Their bits are passed on as those of floats.
template <int COUNT, int THREADS> struct IntegerSums {
    static constexpr int SIZE = COUNT * THREADS;
    static constexpr bool EXACT = true;
    int32_t sums[COUNT][4] = {};

    DEVICE void close(const Part& part, unsigned segment) {
        if (!part.partials || segment + 1 < part.end) return;
        Four* to = part.partials + size_t(part.first / part.lead) * SIZE;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            Four bits;
#pragma unroll
            for (int j = 0; j < 4; j++) bits.at[j] = as_float(uint32_t(sums[i][j])), sums[i][j] = 0;
            to[i * THREADS + thread()] = bits;
        }
    }

    template <class Ends = EndsLast> DEVICE bool gather(const Part& part, Ends ends_last = {}) {
        if (!part.partials) return true;
        auto add = [&](int i, const Four& more) {
#pragma unroll
            for (int j = 0; j < 4; j++) sums[i][j] += int32_t(as_bits(more.at[j]));
        };
        return gather_partials<COUNT>(part, SIZE, add, ends_last);
    }
};

// The sums of products of inputs of a type.
template <class Input, int COUNT, int THREADS, int HELD> struct SumsFor {
    using Type = Sums<COUNT, THREADS, HELD>;
};
template <int COUNT, int THREADS, int HELD> struct SumsFor<int8_t, COUNT, THREADS, HELD> {
    using Type = IntegerSums<COUNT, THREADS>;
};

// Copies COUNT rows of BYTES bytes, of which `real` exist, by THREADS threads.
template <int COUNT, int BYTES, int THREADS>
DEVICE void fetch(unsigned char* to, const unsigned char* from, unsigned real, size_t stride) {
    constexpr int PIECES = BYTES / 16;
#pragma unroll
    for (int first = 0; first < COUNT * PIECES; first += THREADS) {
        unsigned i = first + thread(), row = i / PIECES, piece = i % PIECES;
        if (COUNT * PIECES % THREADS != 0 && row >= COUNT) break;
        bool is_real = row < real;
        copy16(to + swizzle<PIECES>(row, piece) * 16,
               from + (is_real ? row * stride : 0) + piece * 16, is_real);
    }
}

// Copies of the weights of BN columns in steps of BK inner elements of BYTES bytes.
template <int BYTES, int BN, int BK, int THREADS> struct PlainCopies {
    // Bytes of a step.
    static constexpr int SIZE = BN * BK * BYTES;
    const unsigned char* from;
    unsigned real;
    size_t stride;

    DEVICE PlainCopies(const Operands& of, unsigned column)
        : from(static_cast<const unsigned char*>(of.w) + column * size_t(of.k) * BYTES),
          real(of.n - column), stride(size_t(of.k) * BYTES) {}

    DEVICE void copy(unsigned char* to, unsigned step) {
        fetch<BN, BK * BYTES, THREADS>(to, from + size_t(step) * BK * BYTES, real, stride);
    }
};

// Weights of the type of the inputs, bf16 or int8. They are loaded for COUNT times eight columns from
// `column` on, from a tile of BK inner elements, for one step `k` of 32 bytes at a time.
template <class T> struct PlainWeights {
    using Input = T;
    template <int BN, int BK, int THREADS> using Copies = PlainCopies<sizeof(T), BN, BK, THREADS>;

    template <int BK, int COUNT> struct Loaded {
        const unsigned char* tile;
        unsigned column;

        DEVICE Loaded(Form, const unsigned char* tile, unsigned column)
            : tile(tile), column(column) {}

        DEVICE void load(uint32_t (&to)[COUNT][2], unsigned k) const {
            static_assert(COUNT % 2 == 0, "columns are loaded sixteen at a time");
            constexpr int PIECES = BK * sizeof(T) / 16;
            unsigned lane = thread() % 32;
#pragma unroll
            for (int j = 0; j < COUNT; j += 2) {
                unsigned row = column + j * 8 + lane % 8 + lane / 16 * 8;
                uint32_t of[4];
                load_matrices(of, tile + swizzle<PIECES>(row, k * 2 + lane / 8 % 2) * 16);
                to[j][0] = of[0], to[j][1] = of[1], to[j + 1][0] = of[2], to[j + 1][1] = of[3];
            }
        }
    };
};

// Weights in int8, widened exactly in parts of 64. Of sixteen inner elements, lane l takes 2 l, 2 l + 1,
// 2 l + 8 and 2 l + 9 (l < 4), which are a word in memory.
struct WidenedWeights {
    using Input = bf16;
    template <int BN, int BK, int THREADS> using Copies = PlainCopies<1, BN, BK, THREADS>;

    template <int BK, int COUNT> struct Loaded {
        const unsigned char* tile;
        unsigned column;

        DEVICE Loaded(Form, const unsigned char* tile, unsigned column)
            : tile(tile), column(column) {}

        DEVICE void load(uint32_t (&to)[COUNT][2], unsigned k) const {
            static_assert(COUNT % 4 == 0, "columns are loaded 32 at a time");
#pragma unroll
            for (int j = 0; j < COUNT; j += 4) {
                uint32_t of[4];
                unsigned row = column + j * 8 + thread() % 32;
                load_matrices(of, tile + swizzle<BK / 16>(row, k) * 16);
#pragma unroll
                for (int i = 0; i < 4; i++) widen(to[j + i], of[i]);
            }
        }
    };
};

// The work while the first stages of a product are on their way: none.
struct Nothing {
    DEVICE void operator()() const {}
};
// The same, where the launches before have been waited for.
struct Waited : Nothing {};
template <class Begun> DEVICE void launches_follow(const Begun&) { launches_follow(); }
DEVICE void launches_follow(const Waited&) {}

// A tile of BM rows and BN columns on WM by WN warps, in steps of BK inner elements with STAGES
// buffers. SHARED: sums of earlier segments are in shared memory, because the registers have no room.
template <class Weights, int BM, int BN, int WM, int WN, int BK, int STAGES, bool SHARED>
struct TileMma
    : SumsFor<typename Weights::Input, BM / WM / 16 * (BN / WN / 8), WM * WN * 32,
              SHARED ? STAGES * (BM * BK * int(sizeof(typename Weights::Input)) +
                                 Weights::template Copies<BN, BK, WM * WN * 32>::SIZE)
                     : 0>::Type {
    static constexpr int ROWS = BM, COLUMNS = BN, THREADS = WM * WN * 32;
    static constexpr int TM = BM / WM / 16, TN = BN / WN / 8;
    static constexpr bool CUT = false;
    // Numbers between rows that `spread` writes, so that they are in different banks.
    static constexpr int BETWEEN = 8;
    using Copies = typename Weights::template Copies<BN, BK, THREADS>;
    // Bytes of an input, of a row of x of a stage, and of a stage.
    static constexpr int INPUT = sizeof(typename Weights::Input), X_BYTES = BK * INPUT;
    static constexpr int X_STAGE = BM * X_BYTES, STAGE = X_STAGE + Copies::SIZE;
    // Strips of eight rows and 64 columns that a warp has, for the LM head: `each_strip` of score.cuh.
    static constexpr unsigned STRIPS = TN % 8 == 0 ? TM * TN / 4 : 0;

    DEVICE static unsigned strip_row(unsigned s) {
        return warp_row() + s / (TN / 4) * 16 + s % 2 * 8;
    }
    DEVICE static unsigned strip_column(unsigned s) { return warp_column() + s / 2 % (TN / 8) * 64; }
    DEVICE static unsigned warp_row() { return thread() / 32 / WN * (TM * 16); }
    DEVICE static unsigned warp_column() { return thread() / 32 % WN * (TN * 8); }

    // Adds the products of one stage.
    DEVICE void fold_stage(Form form, const unsigned char* stage) {
        unsigned lane = thread() % 32;
        typename Weights::template Loaded<BK, TN> weights(form, stage + X_STAGE, warp_column());
#pragma unroll
        for (int k = 0; k < X_BYTES / 32; k++) {
            uint32_t xf[TM][4], wf[TN][2];
#pragma unroll
            for (int i = 0; i < TM; i++) {
                unsigned row = warp_row() + i * 16 + lane % 16;
                load_matrices(xf[i], stage + swizzle<X_BYTES / 16>(row, k * 2 + lane / 16) * 16);
            }
            weights.load(wf, k);
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++)
                    multiply(this->sums[i * TN + j], xf[i], wf[j][0], wf[j][1]);
        }
    }

    // Waits for the launches before, and calls `begun` when the first stages are on their way.
    template <class Begun = Nothing>
    DEVICE void run(const Operands& of, const Part& part, Begun begun = {}) {
        launches_follow(begun);
        unsigned char* stages = shared_memory();
        unsigned row = part.row * BM, column = part.column * BN;
        size_t stride = size_t(of.k) * INPUT;
        auto x = static_cast<const unsigned char*>(of.x) + row * stride;
        Copies weights(of, column);
        auto stage = [&](unsigned step, unsigned at) {
            unsigned char* to = stages + at * STAGE;
            fetch<BM, X_BYTES, THREADS>(to, x + size_t(step) * X_BYTES, of.rows - row, stride);
            weights.copy(to + X_STAGE, step);
        };
        unsigned each = of.segment / BK, all = of.k / BK, left = each;
        unsigned step = part.first * each, end = part.end * each < all ? part.end * each : all;
        for (unsigned s = 0; s < STAGES - 1; s++) {
            if (step + s < end) stage(step + s, s);
            copies_commit();
        }
        begun();
        unsigned at = 0, segment = part.first;
        for (; step < end; step++) {
            copies_wait<STAGES - 2>();
            sync();
            // Overwrites the stage that all warps have finished.
            if (step + STAGES - 1 < end) stage(step + STAGES - 1, at == 0 ? STAGES - 1 : at - 1);
            copies_commit();
            fold_stage(of.form, stages + at * STAGE);
            at = at + 1 == STAGES ? 0 : at + 1;
            if (--left > 0 && step + 1 < end) continue;
            this->close(part, segment++);
            left = each;
        }
    }

    // Calls f(row of the tile, even column of the tile, sum, sum of the next column).
    template <class F> DEVICE void each(F f) {
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) {
                unsigned row = warp_row() + i * 16 + thread() % 32 / 4;
                unsigned column = warp_column() + j * 8 + thread() % 4 * 2;
                const auto& sums = this->sums[i * TN + j];
                f(row, column, float(sums[0]), float(sums[1]));
                f(row + 8, column, float(sums[2]), float(sums[3]));
            }
    }
};

// The same in f32, for parity with the CPU: tiles of 64 by 64, four by four elements per thread.
struct TileF32 : Sums<4, 256, 0> {
    static constexpr int ROWS = 64, COLUMNS = 64, BETWEEN = 4, BK = 16, PITCH = ROWS + 4;
    static constexpr unsigned STRIPS = 0;

    template <class Begun = Nothing>
    DEVICE void run(const Operands& of, const Part& part, Begun begun = {}) {
        launches_follow(begun);
        float* xs = reinterpret_cast<float*>(shared_memory());
        float* ws = xs + BK * PITCH;
        const float* x = static_cast<const float*>(of.x);
        const float* w = static_cast<const float*>(of.w);
        unsigned tx = thread() % 16, ty = thread() / 16;
        for (unsigned segment = part.first; segment < part.end; segment++) {
            unsigned from = segment * of.segment;
            unsigned end = from + of.segment < of.k ? from + of.segment : of.k;
            for (unsigned k = from; k < end; k += BK) {
                for (unsigned i = thread(); i < ROWS * BK; i += 256) {
                    unsigned r = i / BK, kk = i % BK;
                    unsigned row = part.row * ROWS + r, column = part.column * COLUMNS + r;
                    xs[kk * PITCH + r] = row < of.rows ? x[size_t(row) * of.k + k + kk] : 0.0f;
                    ws[kk * PITCH + r] = column < of.n ? w[size_t(column) * of.k + k + kk] : 0.0f;
                }
                sync();
                for (int kk = 0; kk < BK; kk++)
                    for (int i = 0; i < 4; i++)
                        for (int j = 0; j < 4; j++)
                            sums[i][j] += xs[kk * PITCH + ty * 4 + i] * ws[kk * PITCH + tx * 4 + j];
                sync();
            }
            close(part, segment);
        }
    }

    template <class F> DEVICE void each(F f) {
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j += 2)
                f(thread() / 16 * 4 + i, thread() % 16 * 4 + j, sums[i][j], sums[i][j + 1]);
    }
};

// Heads that two tiles share, of the columns of both: every tile has one, and a quarter of its columns on
// each side of the middle of the one between them, so that columns which are rotated together are together.
constexpr unsigned CUT_HEAD = 128, CUT_COLUMNS = 3 * CUT_HEAD / 2;

// Columns between column `i` of a tile and the same one of the first tile of the pair, if they share heads.
DEVICE unsigned cut_offset(bool second, unsigned i) {
    constexpr unsigned QUARTER = CUT_HEAD / 4;
    if (second) return i < QUARTER ? CUT_HEAD + QUARTER : CUT_COLUMNS;
    return i < CUT_HEAD + QUARTER ? 0 : QUARTER;
}

// Columns whose squares are summed at once, rows of the tallest tile.
constexpr unsigned SQUARED = 64, TALLEST = 128;

// The factors of the norms of a tile's rows.
DEVICE float* factors(const Operands& of) {
    return reinterpret_cast<float*>(shared_memory() + of.factors);
}
// The factor of a row.
DEVICE float& row_factor(const Operands& of, unsigned row) { return factors(of)[row % TALLEST]; }

// Computes the factor of a row, or of the last one if there are fewer. A warp calls it.
DEVICE float norm_factor(const Operands& of, unsigned row) {
    const float* squares = of.squares + size_t(row < of.rows ? row : of.rows - 1) * of.parts;
    float sum = 0.0f;
    for (unsigned j = thread() % 32; j < of.parts; j += 32)
        sum = rounded_sum(sum, squares[j]);
    return 1.0f / sqrtf(warp_sum(sum) / float(of.parts * SQUARED) + of.eps);
}

// Computes the factors of the rows of a tile, which all threads may read after the next barrier.
template <unsigned ROWS> DEVICE void find_factors(const Operands& of, unsigned first) {
    if (!of.squares) return;
#pragma unroll 4
    for (unsigned i = thread() / 32; i < ROWS; i += threads() / 32) {
        float factor = norm_factor(of, first + i);
        if (thread() % 32 == 0) row_factor(of, first + i) = factor;
    }
}

// A sum times its factors. Every product is rounded on its own, as on the CPU.
DEVICE float scaled(const Operands& of, unsigned row, unsigned column, float sum) {
    if (!of.scales) return sum;
    float scale = of.scales[column];
    if (of.row_scales) scale = rounded_product(of.row_scales[row], scale);
    return rounded_product(sum, scale);
}

// The same plus its bias.
DEVICE float biased(const Operands& of, const float* bias, unsigned row, unsigned column, float sum) {
    float x = scaled(of, row, column, sum);
    return bias ? x + bias[column] : x;
}

// Writes the sums of a tile to shared memory, in rows of COLUMNS + BETWEEN numbers.
template <class Tile> DEVICE float* spread(Tile& tile) {
    float* all = reinterpret_cast<float*>(shared_memory());
    copies_wait<0>();
    // All threads have read the operands.
    sync();
    tile.each([&](unsigned row, unsigned column, float x, float y) {
        unsigned place = row * (Tile::COLUMNS + Tile::BETWEEN) + column;
        *reinterpret_cast<Two*>(all + place) = Two{{x, y}};
    });
    sync();
    return all;
}

// Writes two adjacent elements of a row of the product; `column` is even. `factor`: of the row's norm.
template <class T>
DEVICE void finish_pair(const Gemm& a, unsigned row, unsigned column, float x, float y, float factor) {
    if (row >= a.of.rows || column >= a.of.n) return;
    bool both = column + 1 < a.of.n;
    // Inputs are in bf16 where gates are.
    if (sizeof(T) == 2 && a.of.squares)
        x = rounded_product(x, factor), y = rounded_product(y, factor);
    x = biased(a.of, a.bias, row, column, x);
    if (both) y = biased(a.of, a.bias, row, column + 1, y);
    size_t at = size_t(row) * a.stride;
    if (a.finish == GATE || a.finish == GELU_GATE) {
        float gate = a.finish == GATE ? silu(x) : gelu(x);
        static_cast<T*>(a.out)[at + column / 2] = narrow<T>(gate * y);
        return;
    }
    float* out = static_cast<float*>(a.out) + at + column;
    if (a.finish == ADD) {
        x += out[0];
        if (both) y += out[1];
    }
    out[0] = x;
    if (both) out[1] = y;
}

template <class Tile, class T> DEVICE void gemm(const Gemm& a) {
    Tile tile;
    Part part = part_of(a.of, a.share, Tile::SIZE, Tile::EXACT);
    if constexpr (sizeof(T) == 2)
        tile.run(a.of, part, [&] { find_factors<Tile::ROWS>(a.of, part.row * Tile::ROWS); });
    else tile.run(a.of, part);
    if (!tile.gather(part)) return;
    unsigned row = part.row * Tile::ROWS, column = part.column * Tile::COLUMNS;
    bool lacks = sizeof(T) == 2 && a.of.squares;
    tile.each([&](unsigned r, unsigned c, float x, float y) {
        finish_pair<T>(a, row + r, column + c, x, y, lacks ? row_factor(a.of, row + r) : 1.0f);
    });
}

// The tiles of src/device/launch/tile.rs: few rows; devices with little shared memory; many rows. A stage
// of inputs in int8 has as many bytes of a row as one in bf16.
template <class Weights> constexpr int DEEP = 128 / int(sizeof(typename Weights::Input));
template <class Weights>
using TileLow = TileMma<Weights, 64, 128, 4, 2, DEEP<Weights>, 4, false>;
template <class Weights>
using TileSquare = TileMma<Weights, 128, 128, 4, 2, DEEP<Weights>, 3, false>;
template <class Weights>
using TileWide = TileMma<Weights, 128, 256, 2, 4, DEEP<Weights> / 2, 4, true>;
using Bf16Weights = PlainWeights<bf16>;
using Int8Weights = PlainWeights<int8_t>;

KERNEL(gemm_bf16_64x128, Gemm, 256) { gemm<TileLow<Bf16Weights>, bf16>(a); }
KERNEL(gemm_bf16_128x128, Gemm, 256) { gemm<TileSquare<Bf16Weights>, bf16>(a); }
KERNEL(gemm_bf16_128x256, Gemm, 256) { gemm<TileWide<Bf16Weights>, bf16>(a); }
KERNEL(gemm_int8_64x128, Gemm, 256) { gemm<TileLow<Int8Weights>, float>(a); }
KERNEL(gemm_int8_128x128, Gemm, 256) { gemm<TileSquare<Int8Weights>, float>(a); }
KERNEL(gemm_int8_128x256, Gemm, 256) { gemm<TileWide<Int8Weights>, float>(a); }
KERNEL(gemm_int8w_64x128, Gemm, 256) { gemm<TileLow<WidenedWeights>, bf16>(a); }
KERNEL(gemm_int8w_128x128, Gemm, 256) { gemm<TileSquare<WidenedWeights>, bf16>(a); }
KERNEL(gemm_int8w_128x256, Gemm, 256) { gemm<TileWide<WidenedWeights>, bf16>(a); }
KERNEL(gemm_f32, Gemm, 256) { gemm<TileF32, float>(a); }
