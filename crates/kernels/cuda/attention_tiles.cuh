// Attention on tensor cores with heads of up to 128: a warp has whole queries.
#pragma once
#include "attention_bytes.cuh"

// The state of one warp's sixteen queries. Lane l holds the largest score, the sum and the result of
// rows l / 4 and l / 4 + 8.
template <int C> struct Folded {
    float most[2] = {-INFINITY, -INFINITY};
    float sum[2] = {};
    float out[C / 8][4] = {};

    // Merges the result of a segment, whose sums are those of a lane's own slots.
    DEVICE void merge_segment(const Folded& segment) {
#pragma unroll
        for (unsigned half = 0; half < 2; half++) {
            float others = segment.sum[half];
            others += shuffle_xor(others, 1);
            others += shuffle_xor(others, 2);
            Seen all = {most[half], sum[half]};
            Factors by = merge(all, {segment.most[half], others});
            most[half] = all.most, sum[half] = all.sum;
#pragma unroll
            for (unsigned j = 0; j < C / 8; j++)
#pragma unroll
                for (unsigned i = 2 * half; i < 2 * half + 2; i++)
                    out[j][i] = merged(out[j][i], segment.out[j][i], by);
        }
    }
};

// The sight of a lane's two queries: the end of each, and, if rows of the tile have holes, the slots that those
// rows see, else null. A row has `share` queries.
struct Sight {
    unsigned seen[2];
    const Visible* rows;
    unsigned share;
};

// Takes the scores of the slots that a query does not see out of the chunk that starts at `slot`.
DEVICE void hide(float (&s)[CHUNK / 8][4], unsigned half, unsigned slot, const Sight& sight) {
    unsigned lane = thread() % 32, seen = sight.seen[half];
    if (slot + CHUNK > seen)
#pragma unroll
        for (unsigned j = 0; j < CHUNK / 8; j++)
#pragma unroll
            for (unsigned i = 0; i < 2; i++)
                if (slot + j * 8 + lane % 4 * 2 + i >= seen) s[j][2 * half + i] = -INFINITY;
    if (sight.rows == nullptr || seen == 0) return;
    unsigned query = thread() / 32 * 16 + lane / 4 + 8 * half;
    const Visible row = sight.rows[query / sight.share];
#pragma unroll
    for (unsigned j = 0; j < CHUNK / 8; j++)
#pragma unroll
        for (unsigned i = 0; i < 2; i++)
            if (!visible(row, slot + j * 8 + lane % 4 * 2 + i)) s[j][2 * half + i] = -INFINITY;
}

// The scores of a chunk's slots.
template <int C> DEVICE void score(float (&s)[CHUNK / 8][4], const bf16* q, const bf16* keys) {
    unsigned lane = thread() % 32, query = thread() / 32 * 16 + lane % 16;
    unsigned row = lane % 8 + lane / 16 * 8;
    q += query * C;
    keys += row * C;
#pragma unroll
    for (unsigned kk = 0; kk < C / 16; kk++) {
        uint32_t x[4], w[4];
        load_matrices(x, q + ((kk * 2 + lane / 16) ^ flip<C / 8>(query)) * 8);
        const bf16* from = keys + ((kk * 2 + lane / 8 % 2) ^ flip<C / 8>(row)) * 8;
#pragma unroll
        for (unsigned j = 0; j < CHUNK / 16; j++) {
            load_matrices(w, from + j * 16 * C);
            multiply(s[2 * j], x, w[0], w[1]);
            multiply(s[2 * j + 1], x, w[2], w[3]);
        }
    }
}

// Turns the scores of the chunk that starts at `slot` into weights, and fades what was added before.
template <int C>
DEVICE void weigh(Folded<C>& f, float (&s)[CHUNK / 8][4], float scale, unsigned slot,
                  const Sight& sight) {
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
        hide(s, half, slot, sight);
        float most = -INFINITY;
#pragma unroll
        for (unsigned j = 0; j < CHUNK / 8; j++)
            most = fmaxf(most, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
        most = fmaxf(most, shuffle_xor(most, 1));
        most = fmaxf(most, shuffle_xor(most, 2));
        most = fmaxf(f.most[half], most * scale);
        // A row that has seen no slot yet has no largest score to subtract.
        float base = most == -INFINITY ? 0.0f : most;
        float fade = power2(f.most[half] - base);
        f.most[half] = most;
        f.sum[half] *= fade;
#pragma unroll
        for (unsigned j = 0; j < C / 8; j++) f.out[j][2 * half] *= fade, f.out[j][2 * half + 1] *= fade;
#pragma unroll
        for (unsigned j = 0; j < CHUNK / 8; j++)
#pragma unroll
            for (unsigned i = 0; i < 2; i++) {
                float weight = power2(fmaf(s[j][2 * half + i], scale, -base));
                s[j][2 * half + i] = weight;
                f.sum[half] += weight;
            }
    }
}

// Adds the weighted values of a chunk.
template <int C>
DEVICE void add(Folded<C>& f, const float (&s)[CHUNK / 8][4], const bf16* values) {
    unsigned lane = thread() % 32, row = lane % 16;
    values += row * C;
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
            const bf16* from = values + ((j * 2 + lane / 16) ^ flip<C / 8>(row)) * 8;
            load_transposed(w, from + kk * 16 * C);
            multiply(f.out[2 * j], p, w[0], w[1]);
            multiply(f.out[2 * j + 1], p, w[2], w[3]);
        }
    }
}

// Copies chunks of a part's keys and values into two stages, by a block of THREADS threads.
template <int C, unsigned THREADS> struct Chunks {
    static constexpr unsigned PIECES = C / 8;
    // A thread copies the same piece of every ROWS-th row, and spots repeat after eight rows.
    static constexpr unsigned ROWS = THREADS / PIECES, COPIES = CHUNK / ROWS;
    static constexpr unsigned TURNS = ROWS < 8 ? 8 / ROWS : 1, BATCH = COPIES < 8 ? COPIES : 8;
    // Slots of a chunk that a thread locates.
    static constexpr unsigned LOCATED = THREADS < CHUNK ? CHUNK / THREADS : 1;

    struct Found {
        uint32_t pages[LOCATED];
    };

    const Attend& a;
    const Tile& tile;
    unsigned group, begin, end;
    // [2, CHUNK, C] each.
    bf16* keys;
    bf16* values;
    // Offsets of the slots of two chunks in the pool, so that a page is looked up once per slot.
    size_t* offsets;

    // True if the part has a chunk of this number.
    DEVICE bool has(unsigned step) const { return begin + step * CHUNK < end; }

    // Slots after the last visible one may contain anything, so that one takes their place.
    DEVICE unsigned slot(unsigned step, unsigned i) const {
        unsigned slot = begin + step * CHUNK + (thread() + i * THREADS) % CHUNK;
        return slot < end ? slot : end - 1;
    }

    // Reads the pages of a chunk's slots, which takes long.
    DEVICE Found find(unsigned step) const {
        Found found = {};
        if (!has(step)) return found;
#pragma unroll
        for (unsigned i = 0; i < LOCATED; i++)
            found.pages[i] = a.pages[tile.pages + slot(step, i) / a.page];
        return found;
    }

    DEVICE void locate(unsigned step, const Found& found) const {
        if (!has(step) || thread() >= CHUNK) return;
#pragma unroll
        for (unsigned i = 0; i < LOCATED; i++) {
            unsigned to = step % 2 * CHUNK + thread() + i * THREADS;
            offsets[to] = numbers_at<bf16>(a, found.pages[i], group, slot(step, i) % a.page);
        }
    }

    // Starts the copies of a chunk that was located, as a group of copies.
    DEVICE void fetch(unsigned step) const {
        unsigned piece = thread() % PIECES, top = thread() / PIECES, stage = step % 2 * CHUNK * C;
        bool real = piece * 8 < a.c;
        const bf16* k = static_cast<const bf16*>(a.keys) + (real ? piece * 8 : 0);
        const bf16* v = static_cast<const bf16*>(a.values) + (real ? piece * 8 : 0);
        const size_t* from = offsets + step % 2 * CHUNK + top;
        if (has(step))
#pragma unroll
            for (unsigned first = 0; first < COPIES; first += BATCH) {
                size_t at[BATCH];
#pragma unroll
                for (unsigned i = 0; i < BATCH; i++) at[i] = from[(first + i) * ROWS];
#pragma unroll
                for (unsigned i = 0; i < BATCH; i++) {
                    constexpr unsigned EIGHT = TURNS * ROWS * C;
                    unsigned turn = (first + i) % TURNS, eights = (first + i) / TURNS;
                    unsigned to = stage + spot<C>(top + turn * ROWS, piece);
                    copy16(keys + to + eights * EIGHT, k + at[i], real);
                    copy16(values + to + eights * EIGHT, v + at[i], real);
                }
            }
        copies_commit();
    }
    DEVICE const bf16* keys_of(unsigned step) const { return keys + step % 2 * CHUNK * C; }
    DEVICE const bf16* values_of(unsigned step) const { return values + step % 2 * CHUNK * C; }
};

// Writes the results of the lane's two queries; `sees` are their ends, `number` their indices.
template <int C, class F>
DEVICE void finish_tile(const Attend& a, const Folded<C>& folded, const unsigned (&sees)[2],
                        unsigned queries, F number) {
    unsigned lane = thread() % 32, part = block_z(), column = lane % 4 * 2;
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
        unsigned mine = thread() / 32 * 16 + lane / 4 + 8 * half;
        bool whole = sees[half] <= a.span;
        if (mine >= queries || (whole && part > 0)) continue;
        size_t query = number(mine);
        if (whole) {
            float sum = folded.most[half] == -INFINITY ? 1.0f : folded.sum[half];
            bf16* to = static_cast<bf16*>(a.out) + query / a.heads * a.stride +
                       query % a.heads * a.c + column;
#pragma unroll
            for (unsigned j = 0; j < C / 8; j++)
                if (j * 8 < a.c)
                    *reinterpret_cast<uint32_t*>(to + j * 8) =
                        pack(folded.out[j][2 * half] / sum, folded.out[j][2 * half + 1] / sum);
            continue;
        }
        float* to = part_result(a, query, part) + column;
#pragma unroll
        for (unsigned j = 0; j < C / 8; j++)
            if (j * 8 < a.c)
                *reinterpret_cast<Two*>(to + j * 8) = {folded.out[j][2 * half],
                                                       folded.out[j][2 * half + 1]};
        if (lane % 4 == 0)
            *reinterpret_cast<Two*>(part_seen(a, query, part)) = {folded.most[half],
                                                                  folded.sum[half]};
    }
}

// Attention of a tile of rows with the query heads of one key head, over one part of the context, on
// tensor cores. A tile has up to QUERIES queries: rows with the same page table times query heads of
// the key head; a warp processes sixteen, so the size of the tile changes no result. Keys and values are in
// N; the head width is c <= C, a multiple of 16 bytes of them.
template <class N, int C, int QUERIES> DEVICE void attend_tile(const Attend& a) {
    constexpr unsigned PIECES = C / 8, THREADS = QUERIES * 2;
    constexpr bool BYTES = sizeof(N) == 1;
    const Tile tile = a.tiles[block_x()];
    unsigned group = block_y(), begin = block_z() * a.span;
    // A row that sees nothing has a result too.
    if (tile.rows == 0 || (begin >= tile.reach && block_z() > 0)) return launches_follow();
    unsigned end = begin + a.span < tile.reach ? begin + a.span : tile.reach;
    unsigned share = a.heads / a.groups, queries = tile.rows * share;
    bf16* qs = reinterpret_cast<bf16*>(shared_memory());
    bf16* ks = qs + QUERIES * C;
    auto chunks = [&] {
        if constexpr (BYTES) return ByteChunks<C, THREADS>{a, tile, group, begin, end, ks, {}};
        else {
            bf16* vs = ks + 2 * CHUNK * C;
            size_t* offsets = reinterpret_cast<size_t*>(vs + 2 * CHUNK * C);
            return Chunks<C, THREADS>{a, tile, group, begin, end, ks, vs, offsets};
        }
    }();
    // No launch writes the pages' numbers.
    auto found = chunks.find(0), next = chunks.find(1);
    launches_follow();
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
    chunks.locate(0, found);
    if constexpr (BYTES) chunks.fetch(0);
    chunks.locate(1, next);
    if constexpr (!BYTES) sync(), chunks.fetch(0);
    Sight sight;
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
        unsigned mine = thread() / 32 * 16 + thread() % 32 / 4 + 8 * half;
        sight.seen[half] = mine < queries ? a.reaches[tile.row + mine / share] : 0;
    }
    sight.rows = tile.holes ? a.visible + tile.row : nullptr;
    sight.share = share;
    Folded<C> all;
    bool idle = thread() / 32 * 16 >= queries;
    for (unsigned from = begin; from < end; from += SEGMENT) {
        Folded<C> segment;
        for (unsigned slot = from; slot < end && slot < from + SEGMENT; slot += CHUNK) {
            unsigned step = (slot - begin) / CHUNK;
            found = chunks.find(step + 2);
            chunks.fetch(step + 1);
            copies_wait<1>();
            if constexpr (BYTES) chunks.widen(step);
            sync();
            float s[CHUNK / 8][4] = {};
            if (!idle) {
                score<C>(s, qs, chunks.keys_of(step));
                if constexpr (BYTES) chunks.scale_scores(s, step);
                weigh(segment, s, a.scale, slot, sight);
                if constexpr (BYTES) chunks.scale_weights(s, step);
                add(segment, s, chunks.values_of(step));
            }
            chunks.locate(step + 2, found);
            sync();
        }
        all.merge_segment(segment);
    }
    copies_wait<0>();
    finish_tile(a, all, sight.seen, queries, number);
    unsigned parts = (tile.reach + a.span - 1) / a.span;
    if (parts <= 1 || !block_ends_last(a.ended + number(0), parts)) return;
#pragma unroll 1
    for (unsigned query = thread() / 4; query < queries; query += THREADS / 4) {
        unsigned reach = a.reaches[tile.row + query / share];
        if (reach > a.span) combine<bf16, C, 4>(a, number(query), reach, 0);
    }
}
KERNEL(attend_bf16_32x16, Attend, 32) { attend_tile<bf16, 32, 16>(a); }
KERNEL(attend_bf16_32x32, Attend, 64) { attend_tile<bf16, 32, 32>(a); }
KERNEL(attend_bf16_32x64, Attend, 128) { attend_tile<bf16, 32, 64>(a); }
KERNEL(attend_bf16_64x16, Attend, 32) { attend_tile<bf16, 64, 16>(a); }
KERNEL(attend_bf16_64x32, Attend, 64) { attend_tile<bf16, 64, 32>(a); }
KERNEL(attend_bf16_64x64, Attend, 128) { attend_tile<bf16, 64, 64>(a); }
KERNEL(attend_bf16_128x16, Attend, 32) { attend_tile<bf16, 128, 16>(a); }
KERNEL(attend_bf16_128x32, Attend, 64) { attend_tile<bf16, 128, 32>(a); }
KERNEL(attend_bf16_128x64, Attend, 128) { attend_tile<bf16, 128, 64>(a); }
KERNEL(attend_int8_32x16, Attend, 32) { attend_tile<int8_t, 32, 16>(a); }
KERNEL(attend_int8_32x32, Attend, 64) { attend_tile<int8_t, 32, 32>(a); }
KERNEL(attend_int8_32x64, Attend, 128) { attend_tile<int8_t, 32, 64>(a); }
KERNEL(attend_int8_64x16, Attend, 32) { attend_tile<int8_t, 64, 16>(a); }
KERNEL(attend_int8_64x32, Attend, 64) { attend_tile<int8_t, 64, 32>(a); }
KERNEL(attend_int8_64x64, Attend, 128) { attend_tile<int8_t, 64, 64>(a); }
KERNEL(attend_int8_128x16, Attend, 32) { attend_tile<int8_t, 128, 16>(a); }
KERNEL(attend_int8_128x32, Attend, 64) { attend_tile<int8_t, 128, 32>(a); }
KERNEL(attend_int8_128x64, Attend, 128) { attend_tile<int8_t, 128, 64>(a); }
