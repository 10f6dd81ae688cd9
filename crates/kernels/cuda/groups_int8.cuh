// Matrix products of warpgroups in int8: the transposed product, whose left operand, the weights, is
// widened to bf16 in registers while the products of the step before are computed. Devices of compute
// capability 9.0 only. Sums have the bits of gemm.cuh.
#pragma once
#include "groups.cuh"

#ifdef WARPGROUPS

// A tile of BM rows on GROUPS warpgroups of 64 columns each. STEPS: steps of a stage. SINGLE: for products
// of one segment.
template <int BM, int GROUPS, int STAGES, int STEPS, bool SINGLE>
struct TileWidened : SumsOf<SINGLE, BM / 8, GROUPS * 128>::Type {
    static constexpr int ROWS = BM, COLUMNS = GROUPS * 64, THREADS = GROUPS * 128;
    // Bytes of a column's weights of a step, and products of sixteen inner elements.
    static constexpr unsigned BYTES = GROUP_INNER, PRODUCTS = GROUP_INNER / 16;

    // The weights of a thread for a step, in bf16.
    struct Weights {
        uint32_t of[PRODUCTS][4];
    };

    // The first of the warp's sixteen columns.
    DEVICE static unsigned warp_column() { return thread() / 32 * 16; }

    DEVICE static void widen_step(Weights& to, const unsigned char* tile) {
        unsigned lane = thread() % 32;
        uint32_t bytes[PRODUCTS / 2][4];
        // Columns 0 to 7 and 8 to 15 of a product, then of the next one.
#pragma unroll
        for (unsigned i = 0; i < PRODUCTS / 2; i++) {
            unsigned row = warp_column() + lane % 16;
            load_matrices(bytes[i], tile + swizzle<BYTES / 16>(row, 2 * i + lane / 16) * 16);
        }
#pragma unroll
        for (unsigned i = 0; i < PRODUCTS * 2; i++) {
            uint32_t pair[2];
            widen(pair, bytes[i / 4][i % 4]);
            to.of[i / 2][i % 2] = pair[0];
            to.of[i / 2][i % 2 + 2] = pair[1];
        }
    }

    // Adds the products of the next step, asynchronously.
    template <class S> DEVICE void multiply_step(S& stages, Weights& weights) {
        const unsigned char* step = stages.take();
        widen_step(weights, step + S::X_BYTES);
        group_begin();
#pragma unroll
        for (unsigned k = 0; k < PRODUCTS; k++)
            group_multiply_left<BM>(this->sums, weights.of[k], step, k);
        group_commit();
        // Those of the step before, which read the other weights.
        group_wait<1>();
    }

    DEVICE void run(const Operands& of, const Part& part) {
        unsigned row = part.row * BM, column = part.column * COLUMNS;
        unsigned each = of.segment / GROUP_INNER, all = of.k / GROUP_INNER;
        unsigned step = part.first * each, end = part.end * each < all ? part.end * each : all;
        size_t x_stride = size_t(of.k) * 2, w_stride = of.k;
        auto x = static_cast<const unsigned char*>(of.x) + row * x_stride + step * GROUP_BYTES;
        auto w = static_cast<const unsigned char*>(of.w) + column * w_stride + step * BYTES;
        Stages<BM, COLUMNS, BYTES, STAGES, STEPS, THREADS> stages{
            {x, of.rows - row, x_stride}, {w, of.n - column, w_stride}, step, end};
        stages.begin();
        unsigned segment = part.first;
        Weights even, odd;
        while (step < end) {
            unsigned stop = step + each < end ? step + each : end;
            for (; step + 1 < stop; step += 2) {
                multiply_step(stages, even);
                multiply_step(stages, odd);
            }
            if (step < stop) multiply_step(stages, even), step++;
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
using Widened64x128 = TileWidened<64, 2, 6, 2, false>;
using Widened64x192 = TileWidened<64, 3, 5, 2, false>;
using Widened128x128 = TileWidened<128, 2, 8, 1, false>;
using Widened128x192 = TileWidened<128, 3, 7, 1, true>;
KERNEL(gemm_int8_groups_64x128, Gemm, 256) { gemm<Widened64x128, bf16>(a); }
KERNEL(gemm_int8_groups_64x192, Gemm, 384) { gemm<Widened64x192, bf16>(a); }
KERNEL(gemm_int8_groups_128x128, Gemm, 256) { gemm<Widened128x128, bf16>(a); }
KERNEL(gemm_int8_groups_128x192, Gemm, 384) { gemm<Widened128x192, bf16>(a); }
#endif
