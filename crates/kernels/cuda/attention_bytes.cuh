// Chunks of keys and values in int8, which become bf16 in shared memory. Sums are multiplied by the scales of
// keys, and weights by those of values.
#pragma once
#include "attention.cuh"

// A piece of sixteen numbers of a chunk.
struct BytePlace {
    unsigned row, piece;
};

// The place of piece `i` of a chunk with PIECES in a row. Four of a row come before four of the next, so that
// eight threads widen theirs without bank conflicts.
template <unsigned PIECES> DEVICE BytePlace byte_place(unsigned i) {
    constexpr unsigned SIDE = PIECES < 4 ? PIECES : 4, ACROSS = PIECES / SIDE;
    unsigned block = i / (2 * SIDE);
    return {block / ACROSS * 2 + i / SIDE % 2, block % ACROSS * SIDE + i % SIDE};
}

// Writes sixteen numbers in int8 to a tile of bf16 with rows of C.
template <int C> DEVICE void widen_piece(bf16* tile, BytePlace at, const FourWords& numbers) {
#pragma unroll
    for (unsigned i = 0; i < 2; i++) {
        uint32_t low[2], high[2];
        widen_bytes(low, numbers.at[2 * i]);
        widen_bytes(high, numbers.at[2 * i + 1]);
        bf16* to = tile + spot<C>(at.row, 2 * at.piece + i);
        *reinterpret_cast<FourWords*>(to) = {low[0], low[1], high[0], high[1]};
    }
}

// Copies chunks of a part's bytes and scales into two stages, and widens one at a time, by a block of THREADS
// threads. Four adjacent slots are in one page.
template <int C, unsigned THREADS> struct ByteChunks {
    static constexpr unsigned PIECES = C / 16, COPIES = CHUNK * PIECES / THREADS, BYTES = CHUNK * C;

    // The offsets of the numbers and of the scales of four slots: of lanes l and l + 16 those from slot 4 l on.
    struct Found {
        size_t numbers, scales;
    };

    const Attend& a;
    const Tile& tile;
    unsigned group, begin, end;
    // The keys of a chunk in bf16, [CHUNK, C], and its values; then [2, keys and values, CHUNK, C] bytes, a
    // thread's pieces where it alone reads them; then [2, keys and values, CHUNK] scales.
    bf16* tiles;
    Found next;

    DEVICE int8_t* stage(unsigned step) const {
        return reinterpret_cast<int8_t*>(tiles + 2 * BYTES) + step % 2 * 2 * BYTES;
    }
    // The scales of a chunk's keys, before those of its values.
    DEVICE float* scales(unsigned step) const {
        return reinterpret_cast<float*>(tiles + 4 * BYTES) + step % 2 * 2 * CHUNK;
    }
    DEVICE const bf16* keys_of(unsigned) const { return tiles; }
    DEVICE const bf16* values_of(unsigned) const { return tiles + BYTES; }

    // True if the part has a chunk of this number.
    DEVICE bool has(unsigned step) const { return begin + step * CHUNK < end; }

    // Slots after the last visible one may contain anything, so that one takes their place.
    DEVICE unsigned slot(unsigned step, unsigned i) const {
        unsigned slot = begin + step * CHUNK + i;
        return slot < end ? slot : end - 1;
    }

    DEVICE Found find(unsigned step) const {
        if (!has(step)) return {};
        unsigned first = slot(step, thread() % 16 * 4) / 4 * 4, at = first % a.page;
        size_t page = a.pages[tile.pages + first / a.page];
        return {numbers_at<int8_t>(a, page, group, at), scale_at(a, page, group, at)};
    }
    DEVICE void locate(unsigned, const Found& found) { next = found; }

    // Starts the copies of a chunk that was located last, as a group of copies.
    DEVICE void fetch(unsigned step) const {
        const int8_t* keys = static_cast<const int8_t*>(a.keys);
        const int8_t* values = static_cast<const int8_t*>(a.values);
        if (has(step)) {
#pragma unroll
            for (unsigned i = 0; i < COPIES; i++) {
                BytePlace at = byte_place<PIECES>(i * THREADS + thread());
                unsigned row = slot(step, at.row) - begin - step * CHUNK;
                bool real = at.piece * 16 < a.c;
                size_t from = shuffle(next.numbers, row / 4) + row % 4 * a.c;
                from += real ? at.piece * 16 : 0;
                int8_t* to = stage(step) + (i * THREADS + thread()) * 16;
                copy16(to, keys + from, real);
                copy16(to + BYTES, values + from, real);
            }
            if (thread() < CHUNK / 2) {
                const int8_t* pool = thread() < CHUNK / 4 ? keys : values;
                copy16(scales(step) + thread() * 4, pool + next.scales, true);
            }
        }
        copies_commit();
    }

    // Widens the pieces that this thread copied.
    DEVICE void widen(unsigned step) const {
#pragma unroll
        for (unsigned i = 0; i < COPIES; i++) {
            BytePlace at = byte_place<PIECES>(i * THREADS + thread());
            const int8_t* from = stage(step) + (i * THREADS + thread()) * 16;
            widen_piece<C>(tiles, at, *reinterpret_cast<const FourWords*>(from));
            widen_piece<C>(tiles + BYTES, at, *reinterpret_cast<const FourWords*>(from + BYTES));
        }
    }

    // Multiplies the scores of a chunk's slots by the scales of its keys.
    DEVICE void scale_scores(float (&s)[CHUNK / 8][4], unsigned step) const {
        each(s, scales(step), [](float score, float scale) { return score * scale; });
    }
    // Multiplies the weights of a chunk's slots by the scales of its values. A slot after the last visible
    // one, whose weight is 0, may have any scale.
    DEVICE void scale_weights(float (&s)[CHUNK / 8][4], unsigned step) const {
        each(s, scales(step) + CHUNK,
             [](float weight, float scale) { return weight > 0.0f ? weight * scale : 0.0f; });
    }

  private:
    template <class F>
    DEVICE static void each(float (&s)[CHUNK / 8][4], const float* scales, F scaled) {
#pragma unroll
        for (unsigned j = 0; j < CHUNK / 8; j++) {
            const Two by = *reinterpret_cast<const Two*>(scales + j * 8 + thread() % 4 * 2);
#pragma unroll
            for (unsigned i = 0; i < 4; i++) s[j][i] = scaled(s[j][i], by.at[i % 2]);
        }
    }
};
