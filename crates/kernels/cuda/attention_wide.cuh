// Attention with heads wider than 128, whose results do not fit the registers of one warp: four warps
// share sixteen queries. A warp has the scores of a quarter of a chunk's slots, and a quarter of the
// columns of the results.
#pragma once
#include "attention_bytes.cuh"

// Slots of a chunk, and queries of a block.
constexpr unsigned WIDE_CHUNK = 32, WIDE_QUERIES = 16;

// The state of sixteen queries. Lane l of every warp has the largest score and the sum of rows l / 4
// and l / 4 + 8, and its columns of their results.
template <int C> struct WideFolded {
    static constexpr int OWN = C / 4;
    float most[2] = {-INFINITY, -INFINITY};
    float sum[2] = {};
    float out[OWN / 8][4] = {};

    // The scores of the warp's eight slots, times the scale and those of the keys if they have any, to `to`
    // [WIDE_QUERIES, WIDE_CHUNK].
    DEVICE static void score(const bf16* q, const bf16* keys, float scale, const float* scales,
                             float* to) {
        unsigned lane = thread() % 32, warp = thread() / 32;
        float s[4] = {};
#pragma unroll 4
        for (unsigned kk = 0; kk < C / 32; kk++) {
            uint32_t x[4], w[4];
            // Eight slots, 32 inner elements.
            load_matrices(w, keys + spot<C>(warp * 8 + lane % 8, kk * 4 + lane / 8));
            load_matrices(x, q + spot<C>(lane % 16, kk * 4 + lane / 16));
            multiply(s, x, w[0], w[1]);
            load_matrices(x, q + spot<C>(lane % 16, kk * 4 + 2 + lane / 16));
            multiply(s, x, w[2], w[3]);
        }
#pragma unroll
        for (unsigned half = 0; half < 2; half++)
#pragma unroll
            for (unsigned i = 0; i < 2; i++) {
                unsigned slot = warp * 8 + lane % 4 * 2 + i;
                float own = scales ? s[2 * half + i] * scales[slot] : s[2 * half + i];
                to[(lane / 4 + 8 * half) * WIDE_CHUNK + slot] = own * scale;
            }
    }

    // Turns the scores of a row into weights; `sees(half, slot)` tells whether it sees a slot.
    template <class F>
    DEVICE void weigh(float (&s)[WIDE_CHUNK / 8][4], const float* scores, unsigned half, F sees) {
        unsigned lane = thread() % 32;
        float highest = most[half];
#pragma unroll
        for (unsigned j = 0; j < WIDE_CHUNK / 8; j++)
#pragma unroll
            for (unsigned i = 0; i < 2; i++) {
                unsigned slot = j * 8 + lane % 4 * 2 + i;
                float score = scores[(lane / 4 + 8 * half) * WIDE_CHUNK + slot];
                s[j][2 * half + i] = sees(half, slot) ? score : -INFINITY;
                highest = fmaxf(highest, s[j][2 * half + i]);
            }
        highest = fmaxf(highest, shuffle_xor(highest, 1));
        highest = fmaxf(highest, shuffle_xor(highest, 2));
        // A row that has seen no slot yet has no largest score to subtract.
        float base = highest == -INFINITY ? 0.0f : highest;
        float fade = power2(most[half] - base);
        most[half] = highest;
        sum[half] *= fade;
#pragma unroll
        for (unsigned j = 0; j < OWN / 8; j++) out[j][2 * half] *= fade, out[j][2 * half + 1] *= fade;
#pragma unroll
        for (unsigned j = 0; j < WIDE_CHUNK / 8; j++)
#pragma unroll
            for (unsigned i = 0; i < 2; i++) {
                float weight = power2(s[j][2 * half + i] - base);
                s[j][2 * half + i] = weight;
                sum[half] += weight;
            }
    }

    // Adds the weighted values of a chunk; `scales` are theirs if they have any.
    template <class F>
    DEVICE void add(const float* scores, const bf16* values, const float* scales, F sees) {
        unsigned lane = thread() % 32, warp = thread() / 32;
        float s[WIDE_CHUNK / 8][4];
        weigh(s, scores, 0, sees);
        weigh(s, scores, 1, sees);
        if (scales)
#pragma unroll
            for (unsigned j = 0; j < WIDE_CHUNK / 8; j++)
#pragma unroll
                for (unsigned i = 0; i < 4; i++) s[j][i] *= scales[j * 8 + lane % 4 * 2 + i % 2];
#pragma unroll
        for (unsigned kk = 0; kk < WIDE_CHUNK / 16; kk++) {
            const float(&low)[4] = s[2 * kk];
            const float(&high)[4] = s[2 * kk + 1];
            uint32_t p[4] = {pack(low[0], low[1]), pack(low[2], low[3]), pack(high[0], high[1]),
                             pack(high[2], high[3])};
#pragma unroll
            for (unsigned j = 0; j < OWN / 16; j++) {
                uint32_t w[4];
                unsigned piece = warp * (OWN / 8) + j * 2 + lane / 16;
                load_transposed(w, values + spot<C>(kk * 16 + lane % 16, piece));
                multiply(out[2 * j], p, w[0], w[1]);
                multiply(out[2 * j + 1], p, w[2], w[3]);
            }
        }
    }
};

// Writes two elements of a query's partial result.
DEVICE void put(const Attend& a, size_t query, unsigned part, unsigned column, float x, float y) {
    float* to = part_result(a, query, part);
    if (column < a.c) to[column] = x;
    if (column + 1 < a.c) to[column + 1] = y;
}

// Writes two elements of a query's result; `column` is even.
DEVICE void finish(const Attend& a, size_t query, unsigned column, float x, float y) {
    if (column >= a.c) return;
    size_t at = query / a.heads * a.stride + query % a.heads * a.c + column;
    *reinterpret_cast<uint32_t*>(static_cast<bf16*>(a.out) + at) = pack(x, y);
}

// Writes the results of the lane's two rows: `mine` are their queries in the tile, `seen` their ends.
template <int C, class F>
DEVICE void finish_wide(const Attend& a, const WideFolded<C>& folded, const unsigned (&mine)[2],
                        const unsigned (&seen)[2], F number) {
    unsigned lane = thread() % 32, part = block_z();
    unsigned column = thread() / 32 * WideFolded<C>::OWN + lane % 4 * 2;
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
        float sum = folded.sum[half];
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        if (mine[half] == NONE) continue;
        size_t query = number(mine[half]);
        if (seen[half] <= PARTITION) {
            if (part > 0) continue;
            bool none = folded.most[half] == -INFINITY;
#pragma unroll
            for (unsigned j = 0; j < WideFolded<C>::OWN / 8; j++)
                finish(a, query, column + j * 8, none ? 0.0f : folded.out[j][2 * half] / sum,
                       none ? 0.0f : folded.out[j][2 * half + 1] / sum);
            continue;
        }
#pragma unroll
        for (unsigned j = 0; j < WideFolded<C>::OWN / 8; j++)
            put(a, query, part, column + j * 8, folded.out[j][2 * half],
                folded.out[j][2 * half + 1]);
        if (thread() < 32 && lane % 4 == 0) {
            float* to = part_seen(a, query, part);
            to[0] = folded.most[half];
            to[1] = sum;
        }
    }
}

// Where a block finds the keys and values of a chunk.
struct WideSlots {
    const Attend& a;
    const Tile& tile;
    unsigned group, end;
};

// Copies the keys and values of a chunk. Slots after the last visible one may contain anything, so zeros are
// copied instead.
template <int C>
DEVICE void fetch_wide(const WideSlots& slots, unsigned first, bf16* ks, bf16* vs) {
    constexpr unsigned PIECES = C / 8;
    const Attend& a = slots.a;
    for (unsigned i = thread(); i < WIDE_CHUNK * PIECES; i += 128) {
        unsigned row = i / PIECES, piece = i % PIECES;
        bool real = first + row < slots.end && piece * 8 < a.c;
        size_t at = 0;
        if (real) at = slot_at<bf16>(a, slots.tile, slots.group, first + row) + piece * 8;
        copy16(ks + spot<C>(row, piece), static_cast<const bf16*>(a.keys) + at, real);
        copy16(vs + spot<C>(row, piece), static_cast<const bf16*>(a.values) + at, real);
    }
}

// Reads the same in int8 and widens them; `scales` [keys and values, WIDE_CHUNK] get theirs.
template <int C>
DEVICE void widen_wide(const WideSlots& slots, unsigned first, bf16* ks, bf16* vs, float* scales) {
    constexpr unsigned PIECES = C / 16, BATCH = 4;
    const Attend& a = slots.a;
    auto read = [&](const void* pool, size_t at, bool real) {
        auto from = reinterpret_cast<const FourWords*>(static_cast<const int8_t*>(pool) + at);
        return real ? *from : FourWords{};
    };
    for (unsigned i = thread(); i < WIDE_CHUNK * PIECES; i += 128 * BATCH) {
        FourWords keys[BATCH], values[BATCH];
#pragma unroll
        for (unsigned j = 0; j < BATCH; j++) {
            BytePlace place = byte_place<PIECES>(i + j * 128);
            bool real = first + place.row < slots.end && place.piece * 16 < a.c;
            size_t at = 0;
            if (real)
                at = slot_at<int8_t>(a, slots.tile, slots.group, first + place.row) + place.piece * 16;
            keys[j] = read(a.keys, at, real), values[j] = read(a.values, at, real);
        }
#pragma unroll
        for (unsigned j = 0; j < BATCH; j++) {
            widen_piece<C>(ks, byte_place<PIECES>(i + j * 128), keys[j]);
            widen_piece<C>(vs, byte_place<PIECES>(i + j * 128), values[j]);
        }
    }
    if (thread() >= 2 * WIDE_CHUNK) return;
    unsigned slot = first + thread() % WIDE_CHUNK;
    const void* pool = thread() < WIDE_CHUNK ? a.keys : a.values;
    bool real = slot < slots.end;
    scales[thread()] = real ? slot_scale<int8_t>(a, pool, slots.tile, slots.group, slot) : 0.0f;
}

// As attend_tile, for WIDE_QUERIES of the tile's queries; the blocks of a key head are adjacent.
template <class N, int C> DEVICE void attend_wide(const Attend& a) {
    launches_follow();
    constexpr unsigned PIECES = C / 8;
    const Tile tile = a.tiles[block_x()];
    unsigned parts = blocks_y() / a.groups, group = block_y() / parts, begin = block_z() * PARTITION;
    unsigned share = a.heads / a.groups, queries = tile.rows * share;
    unsigned base = block_y() % parts * WIDE_QUERIES;
    // A row that sees nothing has a result too.
    if (base >= queries || (begin >= tile.reach && block_z() > 0)) return;
    unsigned end = begin + PARTITION < tile.reach ? begin + PARTITION : tile.reach;
    bf16* qs = reinterpret_cast<bf16*>(shared_memory());
    bf16* ks = qs + WIDE_QUERIES * C;
    bf16* vs = ks + WIDE_CHUNK * C;
    float* scores = reinterpret_cast<float*>(vs + WIDE_CHUNK * C);
    constexpr bool BYTES = sizeof(N) == 1;
    float* scales = BYTES ? scores + WIDE_QUERIES * WIDE_CHUNK : nullptr;
    const WideSlots slots = {a, tile, group, end};
    auto number = [&](unsigned query) {
        return size_t(tile.row + query / share) * a.heads + group * share + query % share;
    };
    const bf16* q = static_cast<const bf16*>(a.q);
    for (unsigned i = thread(); i < WIDE_QUERIES * PIECES; i += 128) {
        unsigned query = base + i / PIECES, piece = i % PIECES;
        bool real = query < queries && piece * 8 < a.c;
        copy16(qs + spot<C>(query - base, piece), real ? q + number(query) * a.c + piece * 8 : q,
               real);
    }
    unsigned lane = thread() % 32, mine[2], seen[2];
    Visible rows[2];
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
        unsigned query = base + lane / 4 + 8 * half, row = tile.row + query / share;
        mine[half] = query < queries ? query : NONE;
        seen[half] = query < queries ? a.reaches[row] : 0;
        rows[half] = query < queries ? a.visible[row] : Visible{};
    }
    // Chunks before the window of every row change no bit.
    unsigned least = end;
    unsigned past = base + WIDE_QUERIES < queries ? base + WIDE_QUERIES : queries;
    for (unsigned row = base / share; row * share < past; row++) {
        const Visible sees = a.visible[tile.row + row];
        unsigned start = sees.begin < sees.end ? sees.begin : sees.end;
        if (start < least) least = start;
    }
    unsigned from = least > begin ? begin + (least - begin) / WIDE_CHUNK * WIDE_CHUNK : begin;
    WideFolded<C> folded;
    for (unsigned first = from; first < end; first += WIDE_CHUNK) {
        if constexpr (BYTES) widen_wide<C>(slots, first, ks, vs, scales);
        else fetch_wide<C>(slots, first, ks, vs);
        copies_commit();
        copies_wait<0>();
        sync();
        folded.score(qs, ks, a.scale, scales, scores);
        sync();
        folded.add(scores, vs, BYTES ? scales + WIDE_CHUNK : nullptr, [&](unsigned half, unsigned slot) {
            return first + slot < seen[half] && visible(rows[half], first + slot);
        });
        sync();
    }
    copies_wait<0>();
    finish_wide<C>(a, folded, mine, seen, number);
    unsigned count = (tile.reach + PARTITION - 1) / PARTITION, query = base + thread() / 8;
    if (count <= 1 || !block_ends_last(a.ended + number(base), count) || query >= queries) return;
    unsigned reach = a.reaches[tile.row + query / share];
    if (reach <= PARTITION) return;
#pragma unroll 1
    for (unsigned first = 0; first < a.c; first += 128)
        combine<bf16, 128, 8>(a, number(query), reach, first);
}
KERNEL(attend_bf16_256, Attend, 128) { attend_wide<bf16, 256>(a); }
KERNEL(attend_bf16_512, Attend, 128) { attend_wide<bf16, 512>(a); }
KERNEL(attend_int8_256, Attend, 128) { attend_wide<int8_t, 256>(a); }
KERNEL(attend_int8_512, Attend, 128) { attend_wide<int8_t, 512>(a); }
