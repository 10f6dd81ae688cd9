// Products that are added to the residual stream and leave what the product after the next norm reads: rows
// times the norm's weights, in bf16, and sums of their squares, from which that product computes the factors
// of its rows (`find_factors` of gemm.cuh). Both are the same whatever the tile.
#pragma once
#include "gemm.cuh"
#include "groups.cuh"
#include "groups_widened.cuh"
#include "packed.cuh"

// n is a multiple of SQUARED.
struct Residual {
    Operands of;
    Share share;
    // [n], or null.
    const float* bias;
    // [r, n].
    float* sum;
    // [n]: weights of the norm.
    const float* weight;
    // [r, n].
    bf16* next;
    // [r, n / SQUARED].
    float* squares;
};

// Rows of half a warp whose sums are loaded before the first is used.
constexpr unsigned AT_ONCE = 2;

// Adds 64 columns from `column` on of rows of the product, whose sums are in rows of `pitch` numbers. A warp
// calls it for twice AT_ONCE rows from `first` on, of which those before `end` exist: sixteen lanes have a row's
// columns, four each.
DEVICE void add_rows(const Residual& a, const float* sums, unsigned pitch, unsigned first, unsigned end,
                     unsigned column) {
    if (end > a.of.rows) end = a.of.rows;
    if (first >= end) return;
    unsigned place = thread() % 16 * 4, own = thread() % 32 / 16 * AT_ONCE;
    bool bare = !a.of.scales && !a.bias;
    column += place;
    Four weight = read_only(reinterpret_cast<const Four*>(a.weight + column));
    Four old[AT_ONCE];
#pragma unroll
    for (unsigned j = 0; j < AT_ONCE; j++)
        if (first + own + j < end)
            old[j] = *reinterpret_cast<const Four*>(a.sum + size_t(first + own + j) * a.of.n + column);
#pragma unroll
    for (unsigned j = 0; j < AT_ONCE; j++) {
        bool exists = first + own + j < end;
        unsigned i = exists ? own + j : 0;
        Four x = *reinterpret_cast<const Four*>(sums + i * pitch + place);
        float square = 0.0f, next[4];
#pragma unroll
        for (unsigned l = 0; l < 4; l++) {
            if (!bare) x.at[l] = biased(a.of, a.bias, first + i, column + l, x.at[l]);
            x.at[l] = rounded_sum(x.at[l], old[j].at[l]);
            square = rounded_sum(square, rounded_product(x.at[l], x.at[l]));
            next[l] = rounded_product(x.at[l], weight.at[l]);
        }
        for (int lanes = 8; lanes > 0; lanes /= 2) square += shuffle_xor(square, lanes);
        if (!exists) continue;
        size_t at = size_t(first + i) * a.of.n + column;
        *reinterpret_cast<Four*>(a.sum + at) = x;
        *reinterpret_cast<TwoWords*>(a.next + at) =
            TwoWords{{pack(next[0], next[1]), pack(next[2], next[3])}};
        if (thread() % 16 == 0) a.squares[at / SQUARED] = square;
    }
}

template <class Tile> DEVICE void residual(const Residual& a) {
    Tile tile;
    Part part = part_of(a.of, a.share, Tile::SIZE, Tile::EXACT);
    tile.run(a.of, part);
    if (!tile.gather(part)) return;
    constexpr unsigned PITCH = Tile::COLUMNS + Tile::BETWEEN;
    const float* all = spread(tile);
    unsigned first = part.row * Tile::ROWS, column = part.column * Tile::COLUMNS;
    for (unsigned strip = 0; strip < Tile::COLUMNS && column + strip < a.of.n; strip += SQUARED)
        for (unsigned i = thread() / 32 * (2 * AT_ONCE); i < Tile::ROWS; i += threads() / 16 * AT_ONCE)
            add_rows(a, all + i * PITCH + strip, PITCH, first + i, first + Tile::ROWS, column + strip);
}
KERNEL(residual_bf16_64x128, Residual, 256) { residual<TileLow<Bf16Weights>>(a); }
KERNEL(residual_bf16_128x128, Residual, 256) { residual<TileSquare<Bf16Weights>>(a); }
KERNEL(residual_bf16_128x256, Residual, 256) { residual<TileWide<Bf16Weights>>(a); }
KERNEL(residual_int8w_64x128, Residual, 256) { residual<TileLow<WidenedWeights>>(a); }
KERNEL(residual_int8w_128x128, Residual, 256) { residual<TileSquare<WidenedWeights>>(a); }
KERNEL(residual_int8w_128x256, Residual, 256) { residual<TileWide<WidenedWeights>>(a); }
KERNEL(residual_packed_64x128, Residual, 256) { residual<PackedLow>(a); }
KERNEL(residual_packed_128x128, Residual, 256) { residual<PackedSquare>(a); }
#ifdef WARPGROUPS
KERNEL(residual_bf16_groups_64x64, Residual, 256) { residual<Groups64x64<bf16>>(a); }
KERNEL(residual_bf16_groups_64x128, Residual, 256) { residual<Groups64x128<bf16>>(a); }
KERNEL(residual_bf16_groups_128x128, Residual, 256) { residual<Groups128x128<bf16>>(a); }
KERNEL(residual_int8w_groups_64x128, Residual, 256) { residual<Widened64x128<WidenedGroups>>(a); }
KERNEL(residual_int8w_groups_64x192, Residual, 384) { residual<Widened64x192<WidenedGroups>>(a); }
KERNEL(residual_int8w_groups_128x128, Residual, 256) { residual<Widened128x128<WidenedGroups>>(a); }
KERNEL(residual_packed_groups_64x128, Residual, 256) { residual<Widened64x128<PackedGroups>>(a); }
KERNEL(residual_packed_groups_64x192, Residual, 384) { residual<Widened64x192<PackedGroups>>(a); }
KERNEL(residual_packed_groups_128x128, Residual, 256) { residual<Widened128x128<PackedGroups>>(a); }
#endif
