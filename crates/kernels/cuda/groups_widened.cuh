// Matrix products of warpgroups with weights in int8 or packed: the transposed product, whose left operand,
// the weights, is widened to bf16 in registers while the products of the step before are computed. Devices
// of compute capability 9.0 only. Sums have the bits of gemm.cuh.
#pragma once
#include "groups.cuh"
#include "packed.cuh"

#ifdef WARPGROUPS

// The weights of a thread for a step, in bf16: for each product of sixteen inner elements, in the layout of
// `multiply`.
constexpr unsigned GROUP_PRODUCTS = GROUP_INNER / 16;
using GroupWeights = uint32_t[GROUP_PRODUCTS][4];

// Weights in int8, a byte for each inner element.
struct WidenedGroups {
    template <int COLUMNS, int THREADS> struct Source : Copies<COLUMNS, GROUP_INNER, THREADS> {
        DEVICE Source(const Operands& of, unsigned column, unsigned step)
            : Copies<COLUMNS, GROUP_INNER, THREADS>(
                  static_cast<const unsigned char*>(of.w) + column * size_t(of.k) +
                      step * GROUP_INNER,
                  of.n - column, of.k) {}
    };

    // Widens sixteen columns of a step from `column` on.
    DEVICE static void widen_step(Form, GroupWeights& to, const unsigned char* tile,
                                  unsigned column) {
        unsigned lane = thread() % 32;
        uint32_t bytes[GROUP_PRODUCTS / 2][4];
        // Columns 0 to 7 and 8 to 15 of a product, then of the next one.
#pragma unroll
        for (unsigned i = 0; i < GROUP_PRODUCTS / 2; i++) {
            unsigned at = swizzle<GROUP_INNER / 16>(column + lane % 16, 2 * i + lane / 16);
            load_matrices(bytes[i], tile + at * 16);
        }
#pragma unroll
        for (unsigned i = 0; i < GROUP_PRODUCTS * 2; i++) {
            uint32_t pair[2];
            widen(pair, bytes[i / 4][i % 4]);
            to[i / 2][i % 2] = pair[0];
            to[i / 2][i % 2 + 2] = pair[1];
        }
    }
};

// Packed weights.
struct PackedGroups {
    template <int COLUMNS, int THREADS> using Source = PackedCopies<COLUMNS, THREADS>;

    DEVICE static void widen_step(Form form, GroupWeights& to, const unsigned char* tile,
                                  unsigned column) {
        widen_record(form, to, tile + column / PANEL * record_bytes(form));
    }
};

// A tile of BM rows on GROUPS warpgroups of 64 columns each. STEPS: steps of a stage. SINGLE: for products
// of one segment.
template <class Weights, int BM, int GROUPS, int STAGES, int STEPS, bool SINGLE>
struct TileWidened : SumsOf<bf16, SINGLE, BM / 8, GROUPS * 128>::Type {
    static constexpr int ROWS = BM, COLUMNS = GROUPS * 64, THREADS = GROUPS * 128, BETWEEN = 4;
    static constexpr bool CUT = false;
    static constexpr unsigned STRIPS = 0;

    // The first of the warp's sixteen columns.
    DEVICE static unsigned warp_column() { return thread() / 32 * 16; }

    // Adds the products of the next step, asynchronously.
    template <class S>
    DEVICE void multiply_step(S& stages, Form form, GroupWeights& weights) {
        const unsigned char* step = stages.take();
        Weights::widen_step(form, weights, step + S::X_BYTES, warp_column());
        group_begin();
#pragma unroll
        for (unsigned k = 0; k < GROUP_PRODUCTS; k++)
            group_multiply_left<BM>(this->sums, weights[k], step, k);
        group_commit();
        // The products of the step before, which read the other weights.
        group_wait<1>();
    }

    // As that of gemm.cuh.
    template <class Begun = Nothing>
    DEVICE void run(const Operands& of, const Part& part, Begun begun = {}) {
        unsigned row = part.row * BM, column = part.column * COLUMNS;
        unsigned each = of.segment / GROUP_INNER, all = of.k / GROUP_INNER;
        unsigned step = part.first * each, end = part.end * each < all ? part.end * each : all;
        size_t stride = size_t(of.k) * 2;
        auto x = static_cast<const unsigned char*>(of.x) + row * stride + step * GROUP_BYTES;
        using Source = typename Weights::template Source<COLUMNS, THREADS>;
        Stages<BM, Source, STAGES, STEPS, THREADS> stages{
            {x, of.rows - row, stride}, {of, column, step}, step, end};
        stages.begin(of.early, begun);
        unsigned segment = part.first;
        GroupWeights even, odd;
        while (step < end) {
            unsigned stop = step + each < end ? step + each : end;
            for (; step + 1 < stop; step += 2) {
                multiply_step(stages, of.form, even);
                multiply_step(stages, of.form, odd);
            }
            if (step < stop) multiply_step(stages, of.form, even), step++;
            group_wait<0>();
            group_done(this->sums);
            this->close(part, segment++);
        }
    }

    // Calls f(row of the tile, even column of the tile, sum, sum of the next column). A thread has two
    // rows of one column, and exchanges one with the thread that has the column beside it.
    template <class F> DEVICE void each(F f) {
        bool odd = thread() / 4 % 2;
#pragma unroll
        for (int j = 0; j < BM / 8; j++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float x = this->sums[j][2 * half], y = this->sums[j][2 * half + 1];
                float other = shuffle_xor(odd ? x : y, 4);
                unsigned row = j * 8 + thread() % 4 * 2 + odd;
                unsigned column = warp_column() + 8 * half + thread() % 32 / 8 * 2;
                f(row, column, odd ? other : x, odd ? y : other);
            }
    }
};

// The tiles of src/device/launch/tile.rs.
template <class Weights> using Widened64x128 = TileWidened<Weights, 64, 2, 6, 2, false>;
template <class Weights> using Widened64x192 = TileWidened<Weights, 64, 3, 5, 2, false>;
template <class Weights> using Widened128x128 = TileWidened<Weights, 128, 2, 8, 1, false>;
template <class Weights> using Widened128x192 = TileWidened<Weights, 128, 3, 7, 1, true>;
KERNEL(gemm_int8w_groups_64x128, Gemm, 256) { gemm<Widened64x128<WidenedGroups>, bf16>(a); }
KERNEL(gemm_int8w_groups_64x192, Gemm, 384) { gemm<Widened64x192<WidenedGroups>, bf16>(a); }
KERNEL(gemm_int8w_groups_128x128, Gemm, 256) { gemm<Widened128x128<WidenedGroups>, bf16>(a); }
KERNEL(gemm_int8w_groups_128x192, Gemm, 384) { gemm<Widened128x192<WidenedGroups>, bf16>(a); }
KERNEL(gemm_packed_groups_64x128, Gemm, 256) { gemm<Widened64x128<PackedGroups>, bf16>(a); }
KERNEL(gemm_packed_groups_64x192, Gemm, 384) { gemm<Widened64x192<PackedGroups>, bf16>(a); }
KERNEL(gemm_packed_groups_128x128, Gemm, 256) { gemm<Widened128x128<PackedGroups>, bf16>(a); }
KERNEL(gemm_packed_groups_128x192, Gemm, 384) { gemm<Widened128x192<PackedGroups>, bf16>(a); }
#endif
