// Matrix products y [r, n] = x [r, k] w [n, k]' + b, with epilogues.
//
// Every tile size sums over the inner dimension in ascending order, so a row's result depends neither
// on the other rows nor on the tile size.
#pragma once
#include "portable.h"

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

// x [r, k] and w [n, k], row-major; k is a multiple of 64.
struct Operands {
    const void* x;
    const void* w;
    uint32_t rows, n, k;
};

struct Gemm {
    Operands of;
    // [n], or null.
    const float* bias;
    // Rows of `stride` elements.
    void* out;
    uint32_t stride;
    Finish finish;
};

// Writes two adjacent elements of a row of the product; `column` is even.
template <class T>
DEVICE void finish_pair(const Gemm& a, unsigned row, unsigned column, float x, float y) {
    if (row >= a.of.rows || column >= a.of.n) return;
    bool both = column + 1 < a.of.n;
    if (a.bias) {
        x += a.bias[column];
        if (both) y += a.bias[column + 1];
    }
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

// The sums of tile (block_x, block_y) of BM rows and BN columns on WM by WN warps, in steps of 64
// inner elements with STAGES buffers. A row of operands in shared memory is eight pieces of 16 bytes;
// piece p of row r is stored at p ^ (r % 8), so that copies and matrix loads have no bank conflicts.
template <int BM, int BN, int WM, int WN, int STAGES> struct TileBf16 {
    static constexpr int BK = 64, PIECES = BK / 8, THREADS = WM * WN * 32;
    static constexpr int TM = BM / WM / 16, TN = BN / WN / 8;
    static_assert(TN % 2 == 0, "columns are loaded sixteen at a time");
    float sums[TM][TN][4] = {};

    DEVICE static unsigned first_row() { return block_x() * BM; }
    DEVICE static unsigned first_column() { return block_y() * BN; }
    DEVICE static unsigned warp_row() { return thread() / 32 / WN * (TM * 16); }
    DEVICE static unsigned warp_column() { return thread() / 32 % WN * (TN * 8); }

    DEVICE static void fetch(bf16* to, const void* from, unsigned first, unsigned limit, int count,
                             size_t stride, int k) {
        for (int i = thread(); i < count * PIECES; i += THREADS) {
            int r = i / PIECES, piece = i % PIECES;
            bool real = first + r < limit;
            const bf16* source =
                static_cast<const bf16*>(from) + (real ? first + r : 0) * stride + k + piece * 8;
            copy16(to + r * BK + (piece ^ r % 8) * 8, source, real);
        }
    }

    // Adds the products of one stage.
    DEVICE void fold(const bf16* xt, const bf16* wt) {
        unsigned lane = thread() % 32;
#pragma unroll
        for (int kk = 0; kk < BK / 16; kk++) {
            uint32_t xf[TM][4], wf[TN / 2][4];
#pragma unroll
            for (int i = 0; i < TM; i++) {
                unsigned r = warp_row() + i * 16 + lane % 16, piece = kk * 2 + lane / 16;
                load_matrices(xf[i], xt + r * BK + (piece ^ r % 8) * 8);
            }
#pragma unroll
            for (int j = 0; j < TN / 2; j++) {
                unsigned r = warp_column() + j * 16 + lane % 8 + lane / 16 * 8;
                unsigned piece = kk * 2 + lane / 8 % 2;
                load_matrices(wf[j], wt + r * BK + (piece ^ r % 8) * 8);
            }
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++)
                    multiply(sums[i][j], xf[i], wf[j / 2][j % 2 * 2], wf[j / 2][j % 2 * 2 + 1]);
        }
    }

    DEVICE void run(const Operands& of) {
        bf16* xs = reinterpret_cast<bf16*>(shared_memory());
        bf16* ws = xs + STAGES * BM * BK;
        auto stage = [&](int number) {
            int at = number % STAGES, k = number * BK;
            fetch(xs + at * BM * BK, of.x, first_row(), of.rows, BM, of.k, k);
            fetch(ws + at * BN * BK, of.w, first_column(), of.n, BN, of.k, k);
        };
        int steps = of.k / BK;
        for (int s = 0; s < STAGES - 1; s++) {
            if (s < steps) stage(s);
            copies_commit();
        }
        for (int step = 0; step < steps; step++) {
            copies_wait<STAGES - 2>();
            sync();
            // Overwrites the stage that all warps have finished.
            if (step + STAGES - 1 < steps) stage(step + STAGES - 1);
            copies_commit();
            fold(xs + step % STAGES * BM * BK, ws + step % STAGES * BN * BK);
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
                f(row, column, sums[i][j][0], sums[i][j][1]);
                f(row + 8, column, sums[i][j][2], sums[i][j][3]);
            }
    }
};

// The same in f32, for parity with the CPU: tiles of 64 by 64, four by four elements per thread.
struct TileF32 {
    static constexpr int TILE = 64, BK = 16, PITCH = TILE + 4;
    float sums[4][4] = {};

    DEVICE static unsigned first_row() { return block_x() * TILE; }
    DEVICE static unsigned first_column() { return block_y() * TILE; }

    DEVICE void run(const Operands& of) {
        float* xs = reinterpret_cast<float*>(shared_memory());
        float* ws = xs + BK * PITCH;
        const float* x = static_cast<const float*>(of.x);
        const float* w = static_cast<const float*>(of.w);
        unsigned tx = thread() % 16, ty = thread() / 16;
        for (unsigned k = 0; k < of.k; k += BK) {
            for (unsigned i = thread(); i < TILE * BK; i += 256) {
                unsigned r = i / BK, kk = i % BK, row = first_row() + r, column = first_column() + r;
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
    }

    template <class F> DEVICE void each(F f) {
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j += 2)
                f(thread() / 16 * 4 + i, thread() % 16 * 4 + j, sums[i][j], sums[i][j + 1]);
    }
};

template <class Tile, class T> DEVICE void gemm(const Gemm& a) {
    Tile tile;
    tile.run(a.of);
    tile.each([&](unsigned row, unsigned column, float x, float y) {
        finish_pair<T>(a, tile.first_row() + row, tile.first_column() + column, x, y);
    });
}

// For few rows: narrow tiles, so that even a matrix of 4,096 rows is read by over a hundred blocks.
KERNEL(gemm_bf16_narrow, Gemm, 128) { gemm<TileBf16<64, 32, 2, 2, 5>, bf16>(a); }
// For many rows.
KERNEL(gemm_bf16_wide, Gemm, 256) { gemm<TileBf16<128, 128, 2, 4, 3>, bf16>(a); }
KERNEL(gemm_f32, Gemm, 256) { gemm<TileF32, float>(a); }
