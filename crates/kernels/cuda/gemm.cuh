// Matrix products y [r, n] = x [r, k] w [n, k]' + b, with what follows them.
//
// The inner dimension is walked from its first number to its last in every tile of every size, so a
// row's result depends neither on the other rows nor on the tile that was chosen for them.
#pragma once
#include "portable.h"

enum Finish : uint32_t {
    // Written as f32.
    STORE = 0,
    // Added to f32 numbers.
    ADD = 1,
    // Of each pair of columns silu(first) * second, written in the activations' dtype.
    GATE = 2,
};

struct Gemm {
    // [r, k] and [n, k] row by row; k is a multiple of 64.
    const void* x;
    const void* w;
    // [n], or null.
    const float* bias;
    // Rows of `stride` numbers.
    void* out;
    uint32_t rows, n, k, stride;
    Finish finish;
};

// Two neighbours of a row of the product, the first in an even column.
template <class T>
DEVICE void finish_pair(const Gemm& a, unsigned row, unsigned column, float x, float y) {
    if (row >= a.rows || column >= a.n) return;
    bool both = column + 1 < a.n;
    if (a.bias) {
        x += a.bias[column];
        if (both) y += a.bias[column + 1];
    }
    size_t at = size_t(row) * a.stride;
    if (a.finish == GATE) {
        static_cast<T*>(a.out)[at + column / 2] = narrow<T>(silu(x) * y);
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

// Tiles of BM rows and BN columns on WM by WN warps, 64 inner numbers at a time, STAGES of them on
// their way. A row of a tile is eight pieces of 16 bytes, piece p of row r at place p ^ (r % 8), so
// that neither copies nor loads of matrices meet in a bank.
template <int BM, int BN, int WM, int WN, int STAGES> DEVICE void gemm_bf16(const Gemm& a) {
    constexpr int BK = 64, PIECES = BK / 8, THREADS = WM * WN * 32;
    constexpr int TM = BM / WM / 16, TN = BN / WN / 8;
    static_assert(TN % 2 == 0, "columns are loaded sixteen at a time");
    bf16* xs = reinterpret_cast<bf16*>(shared_memory());
    bf16* ws = xs + STAGES * BM * BK;
    const bf16* x = static_cast<const bf16*>(a.x);
    const bf16* w = static_cast<const bf16*>(a.w);
    unsigned row0 = block_x() * BM, column0 = block_y() * BN;
    unsigned warp = thread() / 32, lane = thread() % 32;
    unsigned warp_row = warp / WN * (TM * 16), warp_column = warp % WN * (TN * 8);

    auto fetch = [&](bf16* to, const bf16* from, unsigned first, unsigned limit, int count, int k) {
        for (int i = thread(); i < count * PIECES; i += THREADS) {
            int r = i / PIECES, piece = i % PIECES;
            bool real = first + r < limit;
            const bf16* source = from + size_t(real ? first + r : 0) * a.k + k + piece * 8;
            copy16(to + r * BK + (piece ^ r % 8) * 8, source, real);
        }
    };
    auto stage = [&](int number) {
        int at = number % STAGES, k = number * BK;
        fetch(xs + at * BM * BK, x, row0, a.rows, BM, k);
        fetch(ws + at * BN * BK, w, column0, a.n, BN, k);
    };

    float sums[TM][TN][4] = {};
    int steps = a.k / BK;
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) stage(s);
        copies_commit();
    }
    for (int step = 0; step < steps; step++) {
        copies_wait<STAGES - 2>();
        sync();
        // Into the stage that everyone has left behind.
        if (step + STAGES - 1 < steps) stage(step + STAGES - 1);
        copies_commit();
        const bf16* xt = xs + step % STAGES * BM * BK;
        const bf16* wt = ws + step % STAGES * BN * BK;
#pragma unroll
        for (int kk = 0; kk < BK / 16; kk++) {
            uint32_t xf[TM][4], wf[TN / 2][4];
#pragma unroll
            for (int i = 0; i < TM; i++) {
                unsigned r = warp_row + i * 16 + lane % 16, piece = kk * 2 + lane / 16;
                load_matrices(xf[i], xt + r * BK + (piece ^ r % 8) * 8);
            }
#pragma unroll
            for (int j = 0; j < TN / 2; j++) {
                unsigned r = warp_column + j * 16 + lane % 8 + lane / 16 * 8;
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
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) {
            unsigned row = row0 + warp_row + i * 16 + lane / 4;
            unsigned column = column0 + warp_column + j * 8 + lane % 4 * 2;
            finish_pair<bf16>(a, row, column, sums[i][j][0], sums[i][j][1]);
            finish_pair<bf16>(a, row + 8, column, sums[i][j][2], sums[i][j][3]);
        }
}

// Few rows: narrow tiles, so that even a matrix of 4,096 rows is read by over a hundred blocks.
KERNEL(gemm_bf16_narrow, Gemm, 128) { gemm_bf16<64, 32, 2, 2, 5>(a); }
// Many rows.
KERNEL(gemm_bf16_wide, Gemm, 256) { gemm_bf16<128, 128, 2, 4, 3>(a); }

// In f32 throughout, for parity with the CPU: tiles of 64 by 64, four by four a thread.
KERNEL(gemm_f32, Gemm, 256) {
    constexpr int TILE = 64, BK = 16, PITCH = TILE + 4;
    float* xs = reinterpret_cast<float*>(shared_memory());
    float* ws = xs + BK * PITCH;
    const float* x = static_cast<const float*>(a.x);
    const float* w = static_cast<const float*>(a.w);
    unsigned row0 = block_x() * TILE, column0 = block_y() * TILE;
    unsigned tx = thread() % 16, ty = thread() / 16;
    float sums[4][4] = {};
    for (unsigned k = 0; k < a.k; k += BK) {
        for (unsigned i = thread(); i < TILE * BK; i += 256) {
            unsigned r = i / BK, kk = i % BK;
            bool in_x = row0 + r < a.rows, in_w = column0 + r < a.n;
            xs[kk * PITCH + r] = in_x ? x[size_t(row0 + r) * a.k + k + kk] : 0.0f;
            ws[kk * PITCH + r] = in_w ? w[size_t(column0 + r) * a.k + k + kk] : 0.0f;
        }
        sync();
        for (int kk = 0; kk < BK; kk++)
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++)
                    sums[i][j] += xs[kk * PITCH + ty * 4 + i] * ws[kk * PITCH + tx * 4 + j];
        sync();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j += 2)
            finish_pair<float>(a, row0 + ty * 4 + i, column0 + tx * 4 + j, sums[i][j],
                               sums[i][j + 1]);
}
