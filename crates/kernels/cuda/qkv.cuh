// Queries, keys and values: norms and rotation of the heads of a row, and the write to their destination,
// alone or after their product. Both have the same bits: every operation is rounded on its own.
#pragma once
#include "gemm.cuh"
#include "groups.cuh"
#include "groups_widened.cuh"
#include "packed.cuh"
#include "pages.cuh"
#include "rows.cuh"

// The destinations of the (h + 2 g) c numbers of a row: query, key and value heads.
struct HeadSplit {
    // [normed, c]: norms of the first heads before rotation.
    const float* head_norms;
    // [positions, 2, half]: cosines, then sines.
    const float* angles;
    // [positions]: factors of queries; null for 1.
    const float* query_factors;
    // [r].
    const uint32_t* positions;
    // NONE: keys and values are not written.
    const uint32_t* slots;
    // [r, h c].
    void* q;
    // In pages.
    void* keys;
    void* values;
    uint32_t heads, groups, c, page, half, normed;
    float eps;
    // 1: keys and values are in int8.
    uint32_t in_bytes;
};

// Widest head of a warp that rounds it.
constexpr unsigned WIDEST = 512;

// The sum of two products.
DEVICE float pair_sum(float a, float b, float c, float d) {
    return rounded_sum(rounded_product(a, b), rounded_product(c, d));
}

// Where a row's heads go, computed once for all of them.
struct Place {
    // NONE as `page`: its keys and values are not written.
    uint32_t position, page, in_page;
};

DEVICE Place place_of(const HeadSplit& a, unsigned row) {
    uint32_t slot = read_only(a.slots + row);
    if (slot == NONE) return {read_only(a.positions + row), NONE, 0};
    return {read_only(a.positions + row), slot / a.page, slot % a.page};
}
DEVICE Place shuffle(const Place& x, int lane) {
    return {shuffle(x.position, lane), shuffle(x.page, lane), shuffle(x.in_page, lane)};
}

// A head, or a part of one: `count` columns from `first` on, and as many `half` columns above them.
struct HeadPart {
    unsigned head, first, count;
};

// Calls use(i, numbers) for the W adjacent numbers from i on that the lane has of a head of a row, after norm
// and rotation. All lanes have read what they need of `x` before the first call, but for the numbers that
// the lane uses later.
template <unsigned W, class Use>
DEVICE void transform(const HeadSplit& a, const float* x, uint32_t position, HeadPart part, Use use) {
    using Some = Numbers<W>;
    unsigned lane = thread() % 32, count = part.count;
    float factor = 1.0f;
    const float* weight = nullptr;
    if (part.head < a.normed) {
        float sum = 0.0f;
        for (unsigned i = lane; i < a.c; i += 32) sum = rounded_sum(sum, rounded_product(x[i], x[i]));
        factor = 1.0f / sqrtf(warp_sum(sum) / float(a.c) + a.eps);
        weight = a.head_norms + size_t(part.head) * a.c;
        sync_warp();
    }
    auto normed = [&](unsigned i) {
        Some some = *reinterpret_cast<const Some*>(x + i);
        if (!weight) return some;
        Some by = read_only(reinterpret_cast<const Some*>(weight + i));
#pragma unroll
        for (unsigned j = 0; j < W; j++)
            some.at[j] = rounded_product(rounded_product(some.at[j], factor), by.at[j]);
        return some;
    };
    bool turns = part.head < a.heads + a.groups;
    const float* cosines = a.angles + size_t(position) * 2 * a.half + part.first;
    float growth =
        a.query_factors && part.head < a.heads ? read_only(a.query_factors + position) : 1.0f;
    for (unsigned i = lane * W; i < count; i += 32 * W) {
        Some low = normed(i), high = normed(i + count);
        if (turns) {
            Some cosine = read_only(reinterpret_cast<const Some*>(cosines + i));
            Some sine = read_only(reinterpret_cast<const Some*>(cosines + a.half + i));
#pragma unroll
            for (unsigned j = 0; j < W; j++) {
                float x = low.at[j], y = high.at[j], c = cosine.at[j], s = sine.at[j];
                low.at[j] = rounded_product(pair_sum(x, c, -y, s), growth);
                high.at[j] = rounded_product(pair_sum(y, c, x, s), growth);
            }
        }
        use(part.first + i, low);
        use(part.first + i + a.half, high);
    }
    // Columns that are not rotated.
    if (count < a.half) return;
    for (unsigned i = 2 * a.half + lane * W; i < a.c; i += 32 * W) {
        Some some = normed(i);
#pragma unroll
        for (unsigned j = 0; j < W; j++) some.at[j] = rounded_product(some.at[j], growth);
        use(i, some);
    }
}

// Writes adjacent numbers.
template <unsigned W> DEVICE void put(float* to, const Numbers<W>& some) {
    *reinterpret_cast<Numbers<W>*>(to) = some;
}
DEVICE void put(bf16* to, const Two& two) {
    *reinterpret_cast<uint32_t*>(to) = pack(two.at[0], two.at[1]);
}
DEVICE void put(bf16* to, const Numbers<1>& one) { *to = narrow<bf16>(one.at[0]); }

// Writes a head of a row, queries, keys and values in T, or keys and values in int8; in T also a part of one.
// A warp calls it, with room for a head in shared memory, which may be `x`. W divides c, half and the part.
template <class T, unsigned W>
DEVICE void split_head(const HeadSplit& a, const float* x, float* room, unsigned row, const Place& at,
                       HeadPart part) {
    unsigned lane = thread() % 32, head = part.head;
    if (head < a.heads) {
        T* q = static_cast<T*>(a.q) + (size_t(row) * a.heads + head) * a.c;
        transform<W>(a, x, at.position, part, [&](unsigned i, const auto& some) { put(q + i, some); });
        return;
    }
    if (at.page == NONE) return;
    bool is_key = head < a.heads + a.groups;
    unsigned group = head - a.heads - (is_key ? 0 : a.groups);
    void* pool = is_key ? a.keys : a.values;
    if (!a.in_bytes) {
        T* kept = static_cast<T*>(pool) + numbers_at<T>(a, at.page, group, at.in_page);
        transform<W>(a, x, at.position, part,
                     [&](unsigned i, const auto& some) { put(kept + i, some); });
        return;
    }
    uint32_t most = 0;
    transform<W>(a, x, at.position, part, [&](unsigned i, const auto& some) {
        put(room + i, some);
#pragma unroll
        for (unsigned j = 0; j < W; j++)
            most = size_of(some.at[j]) > most ? size_of(some.at[j]) : most;
    });
    sync_warp();
    Factor by = factor_of(warp_most(most));
    int8_t* bytes = static_cast<int8_t*>(pool);
    if (lane == 0)
        *reinterpret_cast<float*>(bytes + scale_at(a, at.page, group, at.in_page)) = by.scale;
    bytes += numbers_at<int8_t>(a, at.page, group, at.in_page);
    for (unsigned i = lane; i < a.c; i += 32) bytes[i] = rounded(room[i], by.inverse);
}

struct Split {
    // [r, (h + 2 g) c].
    const float* qkv;
    HeadSplit of;
};

// One warp per head of a row.
template <class T> DEVICE void split(const Split& a) {
    launches_follow();
    unsigned row = block_x(), warp = thread() / 32, all = a.of.heads + 2 * a.of.groups;
    unsigned head = block_y() * (threads() / 32) + warp;
    if (head >= all) return;
    const float* x = a.qkv + (size_t(row) * all + head) * a.of.c;
    float* room = reinterpret_cast<float*>(shared_memory()) + warp * WIDEST;
    Place at = place_of(a.of, row);
    HeadPart part{head, 0, a.of.half};
    if (a.of.c % 2 == 0 && a.of.half % 2 == 0) split_head<T, 2>(a.of, x, room, row, at, part);
    else split_head<T, 1>(a.of, x, room, row, at, part);
}
KERNEL(split_f32, Split, 128) { split<float>(a); }
KERNEL(split_bf16, Split, 128) { split<bf16>(a); }

// A product, whose results are split.
struct Qkv {
    Operands of;
    Share share;
    // [n], or null.
    const float* bias;
    HeadSplit to;
};

// Splits a head, or a part of one, of a row of the product. `column` is the matrix column of x[i], which are
// whole heads unless they are cut.
template <unsigned W, class Column>
DEVICE void finish_head(const Qkv& a, const HeadSplit& to, float* x, unsigned row, const Place& at,
                        HeadPart part, float factor, Column column) {
    if (part.head >= to.heads + 2 * to.groups) return;
    bool whole = part.count == to.half, bare = !a.of.squares && !a.of.scales && !a.bias;
    unsigned width = whole ? to.c : 2 * part.count;
    for (unsigned j = thread() % 32; j < width && !bare; j += 32)
        x[j] = biased(a.of, a.bias, row, column(j), a.of.squares ? rounded_product(x[j], factor) : x[j]);
    sync_warp();
    split_head<bf16, W>(to, x, x, row, at, part);
}

// Some of the columns of a tile, whole heads: the first one, and how many.
struct Window {
    unsigned first, count;
};

// True if heads have CUT_HEAD columns, all rotated, and no norms, and keys and values are not in int8.
DEVICE bool is_plain(const HeadSplit& a) {
    return a.c == CUT_HEAD && a.half == CUT_HEAD / 2 && a.normed == 0 && a.in_bytes == 0;
}

// Splits the heads of a row of a tile, of which `x` has the columns of a window, or all if heads are cut. PLAIN:
// heads are, which saves instructions.
template <class Tile, bool PLAIN = Tile::CUT>
DEVICE void finish_row(const Qkv& a, float* x, unsigned tile, Window window, unsigned row,
                       const Place& at, float factor) {
    constexpr unsigned QUARTER = CUT_HEAD / 4;
    HeadSplit to = a.to;
    // Known to the compiler.
    if (PLAIN) to.c = CUT_HEAD, to.half = CUT_HEAD / 2, to.normed = 0, to.in_bytes = 0;
    if constexpr (Tile::CUT) {
        bool second = tile % 2;
        unsigned head = tile / 2 * 3, base = (tile - second) * Tile::COLUMNS;
        auto from = [&](unsigned place) {
            return [=](unsigned j) { return base + place + j + cut_offset(second, place + j); };
        };
        unsigned whole = second ? 2 * QUARTER : 0, cut = second ? 0 : CUT_HEAD;
        finish_head<2>(a, to, x + whole, row, at, {second ? head + 2 : head, 0, to.half}, factor,
                       from(whole));
        finish_head<1>(a, to, x + cut, row, at, {head + 1, second ? QUARTER : 0, QUARTER}, factor,
                       from(cut));
    } else {
        unsigned first = (tile * Tile::COLUMNS + window.first) / to.c;
        for (unsigned i = 0; i < window.count / to.c; i++) {
            unsigned head = first + i;
            finish_head<2>(a, to, x + i * to.c, row, at, {head, 0, to.half}, factor,
                           [=](unsigned j) { return head * to.c + j; });
        }
    }
}

// The tile's columns are whole heads, and both c and half are even. If heads are cut, they are plain.
template <class Tile> DEVICE void qkv(const Qkv& a) {
    Tile tile;
    Part part = part_of(a.of, a.share, Tile::SIZE, Tile::EXACT);
    tile.run(a.of, part, [&] {
        if (!Tile::EXACT) find_factors<Tile::ROWS>(a.of, part.row * Tile::ROWS);
    });
    if (!tile.gather(part)) return;
    float* all = spread(tile);
    unsigned first = part.row * Tile::ROWS, left = a.of.rows - first, warps = threads() / 32;
    unsigned rows = left < Tile::ROWS ? left : Tile::ROWS, warp = thread() / 32;
    // A lane has the places of one of the warp's rows, up to 32.
    unsigned own = warp + thread() % 32 * warps;
    Place mine = place_of(a.to, first + (own < rows ? own : 0));
    for (unsigned i = warp, lane = 0; i < rows; i += warps, lane++) {
        unsigned row = first + i;
        float factor = !Tile::EXACT && a.of.squares ? row_factor(a.of, row) : 1.0f;
        finish_row<Tile>(a, all + i * (Tile::COLUMNS + Tile::BETWEEN), part.column, {0, Tile::COLUMNS},
                         row, shuffle(mine, int(lane)), factor);
    }
}
KERNEL(qkv_bf16_64x128, Qkv, 256) { qkv<TileLow<Bf16Weights>>(a); }
KERNEL(qkv_bf16_128x128, Qkv, 256) { qkv<TileSquare<Bf16Weights>>(a); }
KERNEL(qkv_bf16_128x256, Qkv, 256) { qkv<TileWide<Bf16Weights>>(a); }
ROOMY_KERNEL(qkv_int8_64x128, Qkv, 256) { qkv<TileLow<Int8Weights>>(a); }
ROOMY_KERNEL(qkv_int8_128x128, Qkv, 256) { qkv<TileSquare<Int8Weights>>(a); }
KERNEL(qkv_int8_128x256, Qkv, 256) { qkv<TileWide<Int8Weights>>(a); }
KERNEL(qkv_int8w_64x128, Qkv, 256) { qkv<TileLow<WidenedWeights>>(a); }
KERNEL(qkv_int8w_128x128, Qkv, 256) { qkv<TileSquare<WidenedWeights>>(a); }
KERNEL(qkv_int8w_128x256, Qkv, 256) { qkv<TileWide<WidenedWeights>>(a); }
KERNEL(qkv_packed_64x128, Qkv, 256) { qkv<PackedLow>(a); }
KERNEL(qkv_packed_128x128, Qkv, 256) { qkv<PackedSquare>(a); }
#ifdef WARPGROUPS
KERNEL(qkv_bf16_groups_64x128, Qkv, 256) { qkv<Groups64x128<bf16>>(a); }
KERNEL(qkv_bf16_groups_128x128, Qkv, 256) { qkv<Groups128x128<bf16>>(a); }
KERNEL(qkv_bf16_groups_128x192, Qkv, 256) { qkv<GroupsCut<bf16>>(a); }
KERNEL(qkv_bf16_groups_128x256, Qkv, 256) { qkv<Groups128x256<bf16>>(a); }
KERNEL(qkv_int8_groups_64x128, Qkv, 256) { qkv<Groups64x128<int8_t>>(a); }
KERNEL(qkv_int8_groups_128x128, Qkv, 256) { qkv<Groups128x128<int8_t>>(a); }
KERNEL(qkv_int8_groups_128x256, Qkv, 256) { qkv<Groups128x256<int8_t>>(a); }
KERNEL(qkv_int8w_groups_64x128, Qkv, 256) { qkv<Widened64x128<WidenedGroups>>(a); }
KERNEL(qkv_int8w_groups_128x128, Qkv, 256) { qkv<Widened128x128<WidenedGroups>>(a); }
KERNEL(qkv_packed_groups_64x128, Qkv, 256) { qkv<Widened64x128<PackedGroups>>(a); }
KERNEL(qkv_packed_groups_128x128, Qkv, 256) { qkv<Widened128x128<PackedGroups>>(a); }
#endif
