// Ragged attention over paged keys and values.
//
// A row's context is split into partitions of PARTITION slots, always counted from slot 0. A block
// processes one partition in chunks of CHUNK slots, and the partitions are combined in order. So a
// row's operations depend only on its own query and the slots that it sees. Every slot below the last
// of them holds finite numbers.
#pragma once
#include "portable.h"

constexpr unsigned PARTITION = 512, CHUNK = 64;
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
    // [pages, g, p, c].
    const void* keys;
    const void* values;
    // Results of partitions, not yet divided by their sums: [r, h, partitions, c], starting with the
    // first tile's first row. [r, h, partitions, 2]: largest score (times log2 e) and sum of weights.
    float* partial;
    float* sums;
    const Tile* tiles;
    const uint32_t* pages;
    // [r]: the first slot after all that a row sees.
    const uint32_t* reaches;
    // [r].
    const Visible* visible;
    uint32_t heads, groups, c, page, partitions;
    // Scale of the scores, times log2 e.
    float scale;
    // [r], rows of `stride` elements: results of rows that see slots of the first partition only.
    void* out;
    uint32_t stride;
};

// Offset of a slot of a key head in either pool.
DEVICE size_t slot_at(const Attend& a, const Tile& tile, unsigned group, unsigned slot) {
    size_t page = a.pages[tile.pages + slot / a.page];
    return ((page * a.groups + group) * a.page + slot % a.page) * a.c;
}

// Offset of a 16-byte piece of a row in a shared-memory tile with rows of C elements.
template <int C> DEVICE unsigned spot(unsigned row, unsigned piece) {
    return swizzle<C / 8>(row, piece) * 8;
}

// The state of one warp's sixteen queries. Lane l holds the largest score, the sum and the result of
// rows l / 4 and l / 4 + 8.
template <int C> struct Folded {
    float most[2] = {-INFINITY, -INFINITY};
    float sum[2] = {};
    float out[C / 8][4] = {};
};

// What a lane's two queries see: the end of each, and, if rows of the tile have holes, what those rows
// see, else null. A row has `share` queries.
struct Sight {
    unsigned seen[2];
    const Visible* rows;
    unsigned share;
};

// Takes the scores of the slots that a row does not see out of the chunk that starts at `slot`.
DEVICE void hide(float (&s)[CHUNK / 8][4], unsigned slot, const Sight& sight) {
    unsigned lane = thread() % 32;
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
        if (sight.seen[half] == 0) continue;
        unsigned query = thread() / 32 * 16 + lane / 4 + 8 * half;
        const Visible row = sight.rows[query / sight.share];
#pragma unroll
        for (unsigned j = 0; j < CHUNK / 8; j++)
#pragma unroll
            for (unsigned i = 0; i < 2; i++)
                if (!visible(row, slot + j * 8 + lane % 4 * 2 + i))
                    s[j][2 * half + i] = -INFINITY;
    }
}

// Processes the chunk that starts at `slot`: scores, weights, weighted values.
template <int C>
DEVICE void fold(Folded<C>& f, const Attend& a, const bf16* q, const bf16* keys, const bf16* values,
                 unsigned slot, const Sight& sight) {
    unsigned lane = thread() % 32, first = thread() / 32 * 16;
    float s[CHUNK / 8][4] = {};
#pragma unroll
    for (unsigned kk = 0; kk < C / 16; kk++) {
        uint32_t x[4], w[4];
        load_matrices(x, q + spot<C>(first + lane % 16, kk * 2 + lane / 16));
#pragma unroll
        for (unsigned j = 0; j < CHUNK / 16; j++) {
            unsigned row = j * 16 + lane % 8 + lane / 16 * 8;
            load_matrices(w, keys + spot<C>(row, kk * 2 + lane / 8 % 2));
            multiply(s[2 * j], x, w[0], w[1]);
            multiply(s[2 * j + 1], x, w[2], w[3]);
        }
    }
    if (sight.rows) hide(s, slot, sight);
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
        float most = f.most[half];
#pragma unroll
        for (unsigned j = 0; j < CHUNK / 8; j++)
#pragma unroll
            for (unsigned i = 0; i < 2; i++) {
                float& score = s[j][2 * half + i];
                bool sees = slot + j * 8 + lane % 4 * 2 + i < sight.seen[half];
                score = sees ? score * a.scale : -INFINITY;
                most = fmaxf(most, score);
            }
        most = fmaxf(most, shuffle_xor(most, 1));
        most = fmaxf(most, shuffle_xor(most, 2));
        // A row that has seen no slot yet has no largest score to subtract.
        float base = most == -INFINITY ? 0.0f : most;
        float fade = exp2f(f.most[half] - base);
        f.most[half] = most;
        f.sum[half] *= fade;
#pragma unroll
        for (unsigned j = 0; j < C / 8; j++) f.out[j][2 * half] *= fade, f.out[j][2 * half + 1] *= fade;
#pragma unroll
        for (unsigned j = 0; j < CHUNK / 8; j++)
#pragma unroll
            for (unsigned i = 0; i < 2; i++) {
                float weight = exp2f(s[j][2 * half + i] - base);
                s[j][2 * half + i] = weight;
                f.sum[half] += weight;
            }
    }
#pragma unroll
    for (unsigned kk = 0; kk < CHUNK / 16; kk++) {
        // The results of the first product are the left operand of the second.
        const float(&low)[4] = s[2 * kk];
        const float(&high)[4] = s[2 * kk + 1];
        uint32_t p[4] = {pack(low[0], low[1]), pack(low[2], low[3]), pack(high[0], high[1]),
                         pack(high[2], high[3])};
#pragma unroll
        for (unsigned j = 0; j < C / 16; j++) {
            uint32_t w[4];
            load_transposed(w, values + spot<C>(kk * 16 + lane % 16, j * 2 + lane / 16));
            multiply(f.out[2 * j], p, w[0], w[1]);
            multiply(f.out[2 * j + 1], p, w[2], w[3]);
        }
    }
}

// Writes two elements of a query's partial result.
DEVICE void put(const Attend& a, size_t query, unsigned partition, unsigned column, float x,
                float y) {
    float* to = a.partial + (query * a.partitions + partition) * a.c;
    if (column < a.c) to[column] = x;
    if (column + 1 < a.c) to[column + 1] = y;
}

// Writes two elements of a query's result; `column` is even.
DEVICE void finish(const Attend& a, size_t query, unsigned column, float x, float y) {
    if (column >= a.c) return;
    size_t at = query / a.heads * a.stride + query % a.heads * a.c + column;
    *reinterpret_cast<uint32_t*>(static_cast<bf16*>(a.out) + at) = pack(x, y);
}

// Attention of a tile of rows with the query heads of one key head, over one partition of the
// context, on tensor cores. A tile has up to QUERIES queries: rows with the same page table times
// query heads of the key head; a warp processes sixteen, so the size of the tile changes no result.
// The head width is c <= C, a multiple of 8.
template <int C, int QUERIES> DEVICE void attend_bf16(const Attend& a) {
    constexpr unsigned PIECES = C / 8, THREADS = QUERIES * 2;
    const Tile tile = a.tiles[block_x()];
    unsigned group = block_y(), partition = block_z(), begin = partition * PARTITION;
    // A row that sees nothing has a result too.
    if (tile.rows == 0 || (begin >= tile.reach && partition > 0)) return;
    unsigned end = begin + PARTITION < tile.reach ? begin + PARTITION : tile.reach;
    unsigned share = a.heads / a.groups, queries = tile.rows * share;
    bf16* qs = reinterpret_cast<bf16*>(shared_memory());
    bf16* ks = qs + QUERIES * C;
    bf16* vs = ks + 2 * CHUNK * C;
    // Offsets of the slots of two chunks in the pool, so that a page is looked up once per slot.
    size_t* offsets = reinterpret_cast<size_t*>(vs + 2 * CHUNK * C);
    size_t first = size_t(a.tiles[0].row) * a.heads;
    // Index of a query of the tile among all rows and heads.
    auto number = [&](unsigned query) {
        return size_t(tile.row + query / share) * a.heads + group * share + query % share;
    };
    const bf16* q = static_cast<const bf16*>(a.q);
    for (unsigned i = thread(); i < QUERIES * PIECES; i += THREADS) {
        unsigned query = i / PIECES, piece = i % PIECES;
        bool real = query < queries && piece * 8 < a.c;
        copy16(qs + spot<C>(query, piece), real ? q + number(query) * a.c + piece * 8 : q, real);
    }
    auto locate = [&](unsigned step) {
        for (unsigned i = thread(); i < CHUNK; i += THREADS) {
            unsigned slot = begin + step * CHUNK + i;
            if (slot < end) offsets[step % 2 * CHUNK + i] = slot_at(a, tile, group, slot);
        }
    };
    auto fetch = [&](unsigned step) {
        for (unsigned i = thread(); i < CHUNK * PIECES; i += THREADS) {
            unsigned row = i / PIECES, piece = i % PIECES;
            // Slots after the last visible one may contain anything, so zeros are copied instead.
            bool real = begin + step * CHUNK + row < end && piece * 8 < a.c;
            size_t from = real ? offsets[step % 2 * CHUNK + row] + piece * 8 : 0;
            unsigned to = step % 2 * CHUNK * C + spot<C>(row, piece);
            copy16(ks + to, static_cast<const bf16*>(a.keys) + from, real);
            copy16(vs + to, static_cast<const bf16*>(a.values) + from, real);
        }
    };
    locate(0);
    locate(1);
    sync();
    fetch(0);
    copies_commit();
    unsigned lane = thread() % 32, mine[2];
    Sight sight;
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
        mine[half] = thread() / 32 * 16 + lane / 4 + 8 * half;
        sight.seen[half] = mine[half] < queries ? a.reaches[tile.row + mine[half] / share] : 0;
    }
    sight.rows = tile.holes ? a.visible + tile.row : nullptr;
    sight.share = share;
    Folded<C> folded;
    unsigned steps = (end - begin + CHUNK - 1) / CHUNK;
    bool idle = thread() / 32 * 16 >= queries;
    for (unsigned step = 0; step < steps; step++) {
        if (step + 1 < steps) fetch(step + 1);
        copies_commit();
        copies_wait<1>();
        sync();
        locate(step + 2);
        unsigned at = step % 2 * CHUNK * C;
        if (!idle) fold<C>(folded, a, qs, ks + at, vs + at, begin + step * CHUNK, sight);
        sync();
    }
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
        float sum = folded.sum[half];
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        if (mine[half] >= queries) continue;
        size_t query = number(mine[half]);
        if (sight.seen[half] <= PARTITION) {
            if (partition > 0) continue;
            bool none = folded.most[half] == -INFINITY;
#pragma unroll
            for (unsigned j = 0; j < C / 8; j++)
                finish(a, query, j * 8 + lane % 4 * 2,
                       none ? 0.0f : folded.out[j][2 * half] / sum,
                       none ? 0.0f : folded.out[j][2 * half + 1] / sum);
            continue;
        }
        query -= first;
#pragma unroll
        for (unsigned j = 0; j < C / 8; j++)
            put(a, query, partition, j * 8 + lane % 4 * 2, folded.out[j][2 * half],
                folded.out[j][2 * half + 1]);
        if (lane % 4 == 0) {
            float* to = a.sums + (query * a.partitions + partition) * 2;
            to[0] = folded.most[half];
            to[1] = sum;
        }
    }
}
KERNEL(attend_bf16_32x16, Attend, 32) { attend_bf16<32, 16>(a); }
KERNEL(attend_bf16_32x32, Attend, 64) { attend_bf16<32, 32>(a); }
KERNEL(attend_bf16_32x64, Attend, 128) { attend_bf16<32, 64>(a); }
KERNEL(attend_bf16_64x16, Attend, 32) { attend_bf16<64, 16>(a); }
KERNEL(attend_bf16_64x32, Attend, 64) { attend_bf16<64, 32>(a); }
KERNEL(attend_bf16_64x64, Attend, 128) { attend_bf16<64, 64>(a); }
KERNEL(attend_bf16_128x16, Attend, 32) { attend_bf16<128, 16>(a); }
KERNEL(attend_bf16_128x32, Attend, 64) { attend_bf16<128, 32>(a); }
KERNEL(attend_bf16_128x64, Attend, 128) { attend_bf16<128, 64>(a); }

// The same in f32 for parity with the CPU: one warp per query, head width up to 32 OWN.
template <unsigned OWN> DEVICE void attend_exact(const Attend& a) {
    const Tile tile = a.tiles[block_x()];
    unsigned share = a.heads / a.groups, partition = block_z(), lane = thread();
    unsigned begin = partition * PARTITION;
    unsigned row = block_y() / a.heads, head = block_y() % a.heads, group = head / share;
    if (row >= tile.rows) return;
    unsigned reach = a.reaches[tile.row + row];
    unsigned end = begin + PARTITION < reach ? begin + PARTITION : reach;
    // A row that sees nothing has a result too.
    if (begin >= end && partition > 0) return;
    size_t query = size_t(tile.row + row) * a.heads + head;
    const float* q = static_cast<const float*>(a.q) + query * a.c;
    const float* keys = static_cast<const float*>(a.keys);
    const float* values = static_cast<const float*>(a.values);
    float most = -INFINITY, sum = 0.0f, out[OWN] = {};
    for (unsigned first = begin; first < end; first += 32) {
        bool sees = first + lane < end;
        if (sees && tile.holes) sees = visible(a.visible[tile.row + row], first + lane);
        size_t at = sees ? slot_at(a, tile, group, first + lane) : 0;
        float score = 0.0f;
        for (unsigned i = 0; sees && i < a.c; i++) score += q[i] * keys[at + i];
        score = sees ? score * a.scale : -INFINITY;
        float highest = score;
        for (int lanes = 16; lanes > 0; lanes /= 2)
            highest = fmaxf(highest, shuffle_xor(highest, lanes));
        highest = fmaxf(highest, most);
        // A row that has seen no slot yet has no largest score to subtract.
        float base = highest == -INFINITY ? 0.0f : highest;
        float fade = exp2f(most - base), weight = exp2f(score - base);
        most = highest;
        sum = sum * fade + warp_sum(weight);
        for (unsigned i = 0; i < OWN; i++) out[i] *= fade;
        for (unsigned j = 0; j < 32 && first + j < end; j++) {
            float w = shuffle(weight, j);
            size_t from = slot_at(a, tile, group, first + j);
            for (unsigned i = 0; i < OWN; i++)
                if (lane + 32 * i < a.c) out[i] += w * values[from + lane + 32 * i];
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
            a.partial[(query * a.partitions + partition) * a.c + lane + 32 * i] = out[i];
    if (lane == 0) {
        a.sums[(query * a.partitions + partition) * 2] = most;
        a.sums[(query * a.partitions + partition) * 2 + 1] = sum;
    }
}
KERNEL(attend_f32, Attend, 32) { attend_exact<4>(a); }
KERNEL(attend_f32_wide, Attend, 32) { attend_exact<16>(a); }

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
    uint32_t heads, c, partitions, stride;
};

// Combines the partitions of one query per warp. Rows with one partition have their results.
template <class T> DEVICE void combine(const Combine& a) {
    unsigned lane = thread() % 32, head = block_y() * (threads() / 32) + thread() / 32;
    unsigned row = a.tiles[0].row + block_x(), end = a.rows ? a.rows : a.tiles[a.count].row;
    if (head >= a.heads || row >= end) return;
    unsigned count = (a.reaches[row] + PARTITION - 1) / PARTITION;
    if (count <= 1) return;
    size_t query = size_t(block_x()) * a.heads + head;
    const float* sums = a.sums + query * a.partitions * 2;
    float most = -INFINITY, total = 0.0f;
    for (unsigned p = 0; p < count; p++) most = fmaxf(most, sums[2 * p]);
    if (most == -INFINITY) count = 0;
    for (unsigned p = 0; p < count; p++) total += sums[2 * p + 1] * exp2f(sums[2 * p] - most);
    for (unsigned i = lane; i < a.c; i += 32) {
        float out = 0.0f;
        for (unsigned p = 0; p < count; p++)
            out += a.partial[(query * a.partitions + p) * a.c + i] * exp2f(sums[2 * p] - most);
        size_t at = size_t(row) * a.stride + head * a.c + i;
        static_cast<T*>(a.out)[at] = narrow<T>(count ? out / total : 0.0f);
    }
}
KERNEL(combine_f32, Combine, 128) { combine<float>(a); }
KERNEL(combine_bf16, Combine, 128) { combine<bf16>(a); }
