// Ragged attention over paged keys and values: what its kernels share, attention in f32, and the
// combination of parts.
//
// A row's context is split into partitions of PARTITION slots, always counted from slot 0, and these
// into segments of SEGMENT slots. A segment is processed from nothing in chunks of CHUNK slots. The
// segments of a partition are merged in order, and then the partitions. A block has a partition or,
// where few rows leave multiprocessors idle, a segment: its part. So a row's operations depend only on
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
    // Results of parts, not yet divided by their sums: [r, h, parts, c], starting with the first
    // tile's first row. [r, h, parts, 2]: largest score (times log2 e) and sum of weights.
    float* partial;
    float* sums;
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
    // [r], rows of `stride` elements: results of rows that see slots of the first part only.
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

// What is known of a query after some slots: the largest score, and the sum of the weights.
struct Seen {
    float most, sum;
};

// The factors of results before and after two of them are merged.
struct Factors {
    float before, after;
};

// Merges what is known of later slots. All merging has the same roundings.
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

// Two numbers that are written at once.
struct alignas(8) Two {
    float at[2];
};

// Attention in f32 for parity with the CPU: one warp per query, head width up to 32 OWN.
template <class N, unsigned OWN> DEVICE void attend_exact(const Attend& a) {
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
    query -= size_t(a.tiles[0].row) * a.heads;
    for (unsigned i = 0; i < OWN; i++)
        if (lane + 32 * i < a.c)
            a.partial[(query * a.parts + part) * a.c + lane + 32 * i] = out[i];
    if (lane == 0) {
        a.sums[(query * a.parts + part) * 2] = most;
        a.sums[(query * a.parts + part) * 2 + 1] = sum;
    }
}
KERNEL(attend_f32, Attend, 32) { attend_exact<float, 4>(a); }
KERNEL(attend_f32_wide, Attend, 32) { attend_exact<float, 16>(a); }
KERNEL(attend_int8_f32, Attend, 32) { attend_exact<int8_t, 4>(a); }
KERNEL(attend_int8_f32_wide, Attend, 32) { attend_exact<int8_t, 16>(a); }

struct Combine {
    // As written by [`Attend`].
    const float* partial;
    const float* sums;
    const uint32_t* reaches;
    // [r], rows of `stride` elements.
    void* out;
    // The tiles, whose rows are consecutive. `rows` is the number of rows of the batch if these are
    // the last tiles, otherwise 0.
    const Tile* tiles;
    uint32_t count, rows;
    uint32_t heads, c, parts, span, stride;
};

// Columns of a lane at a time.
constexpr unsigned COLUMNS = 4;

// The result of a partition of a query, of which `parts` parts start at `sums` and `partial`, in the
// columns `column` + 32 i.
DEVICE Seen partition(const Combine& a, const float* sums, const float* partial, unsigned parts,
                      unsigned column, float (&out)[COLUMNS]) {
    Seen all = {-INFINITY, 0.0f};
#pragma unroll 4
    for (unsigned p = 0; p < parts; p++) {
        Factors by = merge(all, {sums[2 * p], sums[2 * p + 1]});
#pragma unroll
        for (unsigned i = 0; i < COLUMNS; i++)
            if (column + 32 * i < a.c)
                out[i] = merged(out[i], partial[p * a.c + column + 32 * i], by);
    }
    return all;
}

// Combines the parts of one query per warp. Rows with one part have their results.
template <class T> DEVICE void combine(const Combine& a) {
    unsigned lane = thread() % 32, head = block_y() * (threads() / 32) + thread() / 32;
    unsigned row = a.tiles[0].row + block_x(), end = a.rows ? a.rows : a.tiles[a.count].row;
    if (head >= a.heads || row >= end) return;
    unsigned count = (a.reaches[row] + a.span - 1) / a.span, step = PARTITION / a.span;
    if (count <= 1) return;
    size_t query = size_t(block_x()) * a.heads + head;
    const float* sums = a.sums + query * a.parts * 2;
    const float* partial = a.partial + query * a.parts * a.c;
    float most = -INFINITY;
    for (unsigned p = 0; p < count; p++) most = fmaxf(most, sums[2 * p]);
    if (most == -INFINITY) count = 0;
    for (unsigned column = lane; column < a.c; column += 32 * COLUMNS) {
        // Minus zero plus any number has its bits.
        float total = 0.0f, out[COLUMNS] = {-0.0f, -0.0f, -0.0f, -0.0f};
        for (unsigned p = 0; p < count; p += step) {
            unsigned parts = p + step < count ? step : count - p;
            float x[COLUMNS] = {};
            Seen all = partition(a, sums + 2 * p, partial + size_t(p) * a.c, parts, column, x);
            float scale = power2(all.most - most);
            total += all.sum * scale;
#pragma unroll
            for (unsigned i = 0; i < COLUMNS; i++) out[i] += x[i] * scale;
        }
        T* to = static_cast<T*>(a.out) + size_t(row) * a.stride + head * a.c;
#pragma unroll
        for (unsigned i = 0; i < COLUMNS; i++)
            if (column + 32 * i < a.c)
                to[column + 32 * i] = narrow<T>(count ? out[i] / total : 0.0f);
    }
}
KERNEL(combine_f32, Combine, 128) { combine<float>(a); }
KERNEL(combine_bf16, Combine, 128) { combine<bf16>(a); }
