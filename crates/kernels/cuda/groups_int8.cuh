// Matrix products of warpgroups in int8: the transposed product, whose left operand, the weights, is
// widened to bf16 in registers while the products of the stage before are computed. Devices of compute
// capability 9.0 only. Sums have the bits of gemm.cuh.
#pragma once
#include "groups.cuh"

#ifdef WARPGROUPS

// A tile of BM rows and BN columns on GROUPS warpgroups, which share the columns, 64 at a time. SINGLE: for
// products of one segment.
template <int BM, int BN, int GROUPS, int STAGES, bool SINGLE>
struct TileWidened : SumsOf<SINGLE, BM * BN / GROUPS / 512, GROUPS * 128>::Type {
    static constexpr int ROWS = BM, COLUMNS = BN, THREADS = GROUPS * 128;
    // Sets of 64 columns of a warpgroup, and sums of a thread for one of them, in fours.
    static constexpr int SETS = BN / GROUPS / 64, FOURS = BM / 8;
    // Bytes of a column's weights in a stage.
    static constexpr unsigned BYTES = GROUP_INNER;
    static_assert(GROUP_INNER == 64, "a stage has two pairs of steps");

    // The weights of a thread for two steps of sixteen inner elements, in bf16.
    struct Weights {
        uint32_t of[SETS][2][4];
    };

    // The first column of the warp's sixteen of a set.
    DEVICE static unsigned warp_column(int set) {
        return thread() / 128 * (BN / GROUPS) + set * 64 + thread() % 128 / 32 * 16;
    }

    // Widens the weights of the steps k and k + 1.
    DEVICE static void widen_pair(Weights& to, const unsigned char* tile, unsigned k) {
        unsigned lane = thread() % 32;
#pragma unroll
        for (int set = 0; set < SETS; set++) {
            // Columns 0 to 7 and 8 to 15 of step k, then of step k + 1.
            uint32_t four[4];
            unsigned row = warp_column(set) + lane % 16;
            load_matrices(four, tile + swizzle<BYTES / 16>(row, k + lane / 16) * 16);
#pragma unroll
            for (unsigned i = 0; i < 4; i++) {
                uint32_t pair[2];
                widen(pair, four[i]);
                to.of[set][i / 2][i % 2] = pair[0];
                to.of[set][i / 2][i % 2 + 2] = pair[1];
            }
        }
    }

    // Adds the products of the steps k and k + 1 of a stage, asynchronously.
    template <class S>
    DEVICE void multiply_pair(const unsigned char* stage, Weights& weights, unsigned k) {
        widen_pair(weights, stage + S::X_STAGE, k);
        group_begin();
#pragma unroll
        for (unsigned i = 0; i < 2; i++)
#pragma unroll
            for (int set = 0; set < SETS; set++)
                group_multiply_left<BM>(reinterpret_cast<float(&)[FOURS][4]>(this->sums[set * FOURS]),
                                        weights.of[set][i], stage, k + i);
        group_commit();
        // Those of the pair before, which read the other weights.
        group_wait<1>();
    }

    DEVICE void run(const Operands& of, const Part& part) {
        unsigned row = part.row * BM, column = part.column * BN;
        unsigned each = of.segment / GROUP_INNER, all = of.k / GROUP_INNER;
        unsigned step = part.first * each, end = part.end * each < all ? part.end * each : all;
        size_t x_stride = size_t(of.k) * 2, w_stride = of.k;
        auto x = static_cast<const unsigned char*>(of.x) + row * x_stride + step * GROUP_BYTES;
        auto w = static_cast<const unsigned char*>(of.w) + column * w_stride + step * BYTES;
        Stages<BM, BN, BYTES, STAGES, THREADS> stages{{x, of.rows - row, x_stride},
                                                      {w, of.n - column, w_stride}, step, end};
        stages.begin();
        unsigned segment = part.first;
        Weights even, odd;
        while (step < end) {
            unsigned stop = step + each < end ? step + each : end;
            for (; step < stop; step++) {
                const unsigned char* stage = stages.take();
                multiply_pair<decltype(stages)>(stage, even, 0);
                multiply_pair<decltype(stages)>(stage, odd, 2);
            }
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
        for (int set = 0; set < SETS; set++)
#pragma unroll
            for (int j = 0; j < FOURS; j++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const float(&sums)[4] = this->sums[set * FOURS + j];
                    float x = sums[2 * half], y = sums[2 * half + 1];
                    float other = shuffle_xor(odd ? x : y, 4);
                    unsigned row = j * 8 + thread() % 4 * 2 + odd;
                    unsigned column = warp_column(set) + 8 * half + thread() % 32 / 8 * 2;
                    f(row, column, odd ? other : x, odd ? y : other);
                }
    }
};

// The tiles of src/device/launch/tile.rs.
using Widened64x128 = TileWidened<64, 128, 2, 6, false>;
using Widened64x256 = TileWidened<64, 256, 2, 8, false>;
using Widened128x128 = TileWidened<128, 128, 2, 8, false>;
using Widened128x192 = TileWidened<128, 192, 3, 7, true>;
using Widened128x256 = TileWidened<128, 256, 2, 6, true>;
KERNEL(gemm_int8_groups_64x128, Gemm, 256) { gemm<Widened64x128, bf16>(a); }
KERNEL(gemm_int8_groups_64x256, Gemm, 256) { gemm<Widened64x256, bf16>(a); }
KERNEL(gemm_int8_groups_128x128, Gemm, 256) { gemm<Widened128x128, bf16>(a); }
KERNEL(gemm_int8_groups_128x192, Gemm, 384) { gemm<Widened128x192, bf16>(a); }
KERNEL(gemm_int8_groups_128x256, Gemm, 256) { gemm<Widened128x256, bf16>(a); }
#endif
