// Ragged attention over paged keys and values: what its kernels share, attention in f32, and the
// combination of parts.
//
// A row's context is split into partitions of PARTITION slots, always counted from slot 0, and these
// into segments of SEGMENT slots. A segment is processed from nothing in chunks of CHUNK slots. The
// segments of a partition are merged in order, and then the partitions. A block has a partition or,
// where few rows leave multiprocessors idle, a segment: its part. The block of a tile that ends last combines
// the parts. So a row's operations depend only on
// its own query and the slots that it sees. Every slot below the last of them holds finite numbers.
#pragma once
#include "pages.cuh"

constexpr unsigned PARTITION = 512, SEGMENT = 128, CHUNK = 64;

// Consecutive rows with the same page table.
struct Tile {
    uint32_t row, rows;
    // Start of the page table.
    uint32_t pages;
    // The first slot after all that one of the rows sees.
    uint32_t reach;
    // Not 0 if one of the rows does not see all slots below its reach.
    uint32_t holes;
};

// The slots [begin, end) and, for every set bit b of `high` * 2^32 + `low`, slot end + b.
struct Visible {
    uint32_t begin, end, low, high;
};

DEVICE bool visible(const Visible& row, unsigned slot) {
    if (slot < row.end) return slot >= row.begin;
    unsigned bit = slot - row.end;
    return bit < 64 && (bit < 32 ? row.low : row.high) >> bit % 32 & 1;
}

struct Attend {
    // [r, h c].
    const void* q;
    // In pages; see pages.cuh.
    const void* keys;
    const void* values;
    // Results of parts, not yet divided by their sums: [r, h, parts, `part_stride`], starting with the
    // first tile's first row.
    float* partial;
    // [r, h]: blocks with a part of these queries that have ended, at the first query of a block; zeros
    // before and after the launch.
    uint32_t* ended;
    const Tile* tiles;
    const uint32_t* pages;
    // [r]: the first slot after all that a row sees.
    const uint32_t* reaches;
    // [r].
    const Visible* visible;
    uint32_t heads, groups, c, page;
    // Parts of a context, and slots of a part: PARTITION or, of `attend_bf16`, SEGMENT.
    uint32_t parts, span;
    // Scale of the scores, times log2 e.
    float scale;
    uint32_t stride;
    // [r], rows of `stride` elements.
    void* out;
};

// Offset of a slot of a key head in either pool of numbers N.
template <class N>
DEVICE size_t slot_at(const Attend& a, const Tile& tile, unsigned group, unsigned slot) {
    return numbers_at<N>(a, a.pages[tile.pages + slot / a.page], group, slot % a.page);
}
// The scale of a slot of a key head in a pool; 1 where numbers have none.
template <class N>
DEVICE float slot_scale(const Attend& a, const void* pool, const Tile& tile, unsigned group,
                        unsigned slot) {
    if constexpr (sizeof(N) > 1) return 1.0f;
    size_t at = scale_at(a, a.pages[tile.pages + slot / a.page], group, slot % a.page);
    return *reinterpret_cast<const float*>(static_cast<const int8_t*>(pool) + at);
}

// Offset of a 16-byte piece of a row in a shared-memory tile with rows of C elements.
template <int C> DEVICE unsigned spot(unsigned row, unsigned piece) {
    return swizzle<C / 8>(row, piece) * 8;
}

// The facts of a query after some slots: the largest score, and the sum of the weights.
struct Seen {
    float most, sum;
};

// The factors of results before and after two of them are merged.
struct Factors {
    float before, after;
};

// Merges the facts of later slots. All merging has the same roundings.
DEVICE Factors merge(Seen& before, const Seen& after) {
    float most = fmaxf(before.most, after.most);
    // A row that has seen no slot yet has no largest score to subtract.
    float base = most == -INFINITY ? 0.0f : most;
    Factors by = {power2(before.most - base), power2(after.most - base)};
    before = {most, fmaf(after.sum, by.after, before.sum * by.before)};
    return by;
}
DEVICE float merged(float before, float after, const Factors& by) {
    return fmaf(after, by.after, before * by.before);
}

// Elements of the result of a part: its columns, then the largest score (times log2 e) and the sum of weights
// in a sector of their own.
DEVICE unsigned part_stride(const Attend& a) { return (a.c + 7) / 8 * 8 + 8; }
// The result of a part of a query, by its number among all rows and heads.
DEVICE float* part_result(const Attend& a, size_t query, unsigned part) {
    query -= size_t(a.tiles[0].row) * a.heads;
    return a.partial + (query * a.parts + part) * part_stride(a);
}
DEVICE float* part_seen(const Attend& a, size_t query, unsigned part) {
    return part_result(a, query, part) + part_stride(a) - 8;
}

// Writes the first `real` of four numbers; in bf16 all or none are real.
DEVICE void write_four(float* to, unsigned real, const float (&x)[4]) {
#pragma unroll
    for (unsigned j = 0; j < 4; j++)
        if (j < real) to[j] = x[j];
}
DEVICE void write_four(bf16* to, unsigned real, const float (&x)[4]) {
    if (real) *reinterpret_cast<TwoWords*>(to) = {pack(x[0], x[1]), pack(x[2], x[3])};
}

// Combines C columns from `first` on of the parts of a query whose context ends at `reach`, by LANES lanes, each
// with four of every 4 LANES columns. Parts are merged in their order.
template <class T, unsigned C, unsigned LANES>
DEVICE void combine(const Attend& a, size_t query, unsigned reach, unsigned first) {
    constexpr unsigned PIECES = C / (4 * LANES);
    unsigned count = (reach + a.span - 1) / a.span, step = PARTITION / a.span;
    unsigned column = first + thread() % LANES * 4, stride = part_stride(a);
    const float* results = part_result(a, query, 0);
    auto four = [&](unsigned part, unsigned at) {
        return read_across(reinterpret_cast<const Four*>(results + part * stride + at));
    };
    float most = -INFINITY;
#pragma unroll 4
    for (unsigned p = 0; p < count; p++) most = fmaxf(most, four(p, stride - 8).at[0]);
    if (most == -INFINITY) count = 0;
    // Minus zero plus any number has its bits.
    float total = 0.0f, out[PIECES][4], x[PIECES][4];
#pragma unroll
    for (unsigned i = 0; i < 4 * PIECES; i++) out[i / 4][i % 4] = -0.0f;
    for (unsigned begin = 0; begin < count; begin += step) {
        Seen all = {-INFINITY, 0.0f};
#pragma unroll
        for (unsigned i = 0; i < 4 * PIECES; i++) x[i / 4][i % 4] = 0.0f;
        for (unsigned p = begin; p < count && p < begin + step; p++) {
            Four seen = four(p, stride - 8), some[PIECES];
#pragma unroll
            for (unsigned i = 0; i < PIECES; i++)
                some[i] = column + i * 4 * LANES < a.c ? four(p, column + i * 4 * LANES) : Four{};
            Factors by = merge(all, {seen.at[0], seen.at[1]});
#pragma unroll
            for (unsigned i = 0; i < 4 * PIECES; i++)
                x[i / 4][i % 4] = merged(x[i / 4][i % 4], some[i / 4].at[i % 4], by);
        }
        float scale = power2(all.most - most);
        total += all.sum * scale;
#pragma unroll
        for (unsigned i = 0; i < 4 * PIECES; i++) out[i / 4][i % 4] += x[i / 4][i % 4] * scale;
    }
    T* to = static_cast<T*>(a.out) + query / a.heads * a.stride + query % a.heads * a.c;
#pragma unroll
    for (unsigned i = 0; i < PIECES; i++) {
        unsigned at = column + i * 4 * LANES;
#pragma unroll
        for (unsigned j = 0; j < 4; j++) out[i][j] = count ? out[i][j] / total : 0.0f;
        write_four(to + at, a.c - (at < a.c ? at : a.c), out[i]);
    }
}

// Attention in f32 for parity with the CPU: one warp per query, head width up to 32 OWN.
template <class N, unsigned OWN> DEVICE void attend_exact(const Attend& a) {
    launches_follow();
    const Tile tile = a.tiles[block_x()];
    unsigned share = a.heads / a.groups, part = block_z(), lane = thread();
    unsigned begin = part * PARTITION;
    unsigned row = block_y() / a.heads, head = block_y() % a.heads, group = head / share;
    if (row >= tile.rows) return;
    unsigned reach = a.reaches[tile.row + row];
    unsigned end = begin + PARTITION < reach ? begin + PARTITION : reach;
    // A row that sees nothing has a result too.
    if (begin >= end && part > 0) return;
    size_t query = size_t(tile.row + row) * a.heads + head;
    const float* q = static_cast<const float*>(a.q) + query * a.c;
    const N* keys = static_cast<const N*>(a.keys);
    const N* values = static_cast<const N*>(a.values);
    float most = -INFINITY, sum = 0.0f, out[OWN] = {};
    for (unsigned first = begin; first < end; first += 32) {
        bool sees = first + lane < end;
        if (sees && tile.holes) sees = visible(a.visible[tile.row + row], first + lane);
        size_t at = sees ? slot_at<N>(a, tile, group, first + lane) : 0;
        float score = 0.0f;
        for (unsigned i = 0; sees && i < a.c; i++) score += q[i] * wide(keys[at + i]);
        if (sees) score *= slot_scale<N>(a, keys, tile, group, first + lane);
        score = sees ? score * a.scale : -INFINITY;
        float highest = score;
        for (int lanes = 16; lanes > 0; lanes /= 2)
            highest = fmaxf(highest, shuffle_xor(highest, lanes));
        highest = fmaxf(highest, most);
        // A row that has seen no slot yet has no largest score to subtract.
        float base = highest == -INFINITY ? 0.0f : highest;
        float fade = power2(most - base), weight = power2(score - base);
        most = highest;
        sum = sum * fade + warp_sum(weight);
        if (sees) weight *= slot_scale<N>(a, values, tile, group, first + lane);
        for (unsigned i = 0; i < OWN; i++) out[i] *= fade;
        for (unsigned j = 0; j < 32 && first + j < end; j++) {
            float w = shuffle(weight, j);
            size_t from = slot_at<N>(a, tile, group, first + j);
            for (unsigned i = 0; i < OWN; i++)
                if (lane + 32 * i < a.c) out[i] += w * wide(values[from + lane + 32 * i]);
        }
    }
    if (reach <= PARTITION) {
        float* to = static_cast<float*>(a.out) + size_t(tile.row + row) * a.stride + head * a.c;
        for (unsigned i = 0; i < OWN; i++)
            if (lane + 32 * i < a.c) to[lane + 32 * i] = most == -INFINITY ? 0.0f : out[i] / sum;
        return;
    }
    float* result = part_result(a, query, part);
    for (unsigned i = 0; i < OWN; i++)
        if (lane + 32 * i < a.c) result[lane + 32 * i] = out[i];
    if (lane < 2) part_seen(a, query, part)[lane] = lane == 0 ? most : sum;
    if (block_ends_last(a.ended + query, (reach + PARTITION - 1) / PARTITION))
        combine<float, 32 * OWN, 32>(a, query, reach, 0);
}
KERNEL(attend_f32, Attend, 32) { attend_exact<float, 4>(a); }
KERNEL(attend_f32_wide, Attend, 32) { attend_exact<float, 16>(a); }
KERNEL(attend_int8_f32, Attend, 32) { attend_exact<int8_t, 4>(a); }
KERNEL(attend_int8_f32_wide, Attend, 32) { attend_exact<int8_t, 16>(a); }
