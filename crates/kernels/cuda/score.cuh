// The LM head and its reduction: every tile of the product is reduced to one partial record per row
// immediately, so that rows of logits are never stored; then the partial records of a row are
// combined.
#pragma once
#include "gemm.cuh"
#include "groups.cuh"
#include "groups_widened.cuh"
#include "packed.cuh"

// Settings of a scored row.
struct Scored {
    // The row's input token, whose probability is wanted.
    uint32_t input;
    uint32_t position;
    // First word of its biases, three words each, and their number.
    uint32_t biases, count;
    // First word of its set of allowed tokens, ceil(v / 32) words, or NONE.
    uint32_t allowed;
    // 0: greedy.
    float temperature;
    // Key of the noise.
    uint32_t seed_low, seed_high, clock;
    // The additional results, bits of RowExtras; filters.cuh computes it from the logits.
    uint32_t extras;
    // Filters of a sampled token: see Draw in src/score.rs. `least` is a double, the logarithm of
    // `min_p`.
    uint32_t top_k;
    float top_p;
    uint32_t least_low, least_high;
    // Number of the most probable tokens, and the place of the first in their list.
    uint32_t tops, first_top;
    // What its logits are divided by.
    float divisor;
    // First word of the set whose tokens alone are listed, or NONE.
    uint32_t among;
};

enum RowExtras : uint32_t {
    // The sampled token must pass filters.
    FILTERED = 1,
    // The most probable tokens are listed.
    LISTED = 2,
};

// Doubles of a record.
constexpr unsigned RECORD = 8;

// A token and its rank value; ties go to the lower token.
template <class T> struct Ranked {
    T by;
    uint32_t token;
};

template <class T> DEVICE bool before(Ranked<T> a, Ranked<T> b) {
    return a.by > b.by || (a.by == b.by && a.token < b.token);
}

// Merges two sorted pairs into the first two of four.
template <class T>
DEVICE void merge(Ranked<T>& first, Ranked<T>& second, Ranked<T> a, Ranked<T> b) {
    bool won = before(first, a);
    Ranked<T> x = won ? second : b, y = won ? a : first;
    first = won ? first : a;
    second = before(x, y) ? x : y;
}

template <class T> DEVICE Ranked<T> shuffle_xor(Ranked<T> x, int lanes) {
    return {shuffle_xor(x.by, lanes), shuffle_xor(x.token, lanes)};
}

// The finaliser of the splitmix64 generator after one increment.
DEVICE uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// The largest variate; src/score/sample.rs has the same.
constexpr double GUMBEL_MAX = 37.0;

// The random bits of a token with a row's key.
DEVICE uint64_t noise_bits(uint64_t key, uint32_t token) { return mix(key ^ mix(token)); }

// The standard Gumbel variate of random bits.
DEVICE double gumbel(uint64_t bits) {
    double uniform = (double(bits >> 11) + 0.5) / 9007199254740992.0;
    return fmin(-log(-log(uniform)), GUMBEL_MAX);
}

// A variate in single precision, and how far it may be from that in double precision: most devices have
// few units for the latter.
struct Rough {
    float variate, error;

    DEVICE explicit Rough(uint64_t bits) {
        // Near 1 the distance from 1 is known better than the number.
        bool upper = bits >> 63;
        uint64_t tail = (upper ? ~bits : bits) >> 11;
        float uniform = (float(tail) + 0.5f) / 9007199254740992.0f;
        float exponential = upper ? -log1pf(-uniform) : -logf(uniform);
        variate = fminf(-logf(exponential), float(GUMBEL_MAX));
        // There the number in double precision is rounded to a neighbour.
        error = 1e-5f * (fabsf(variate) + 1.0f) + (upper && tail < 1u << 20 ? 1.0f : 0.0f);
    }
};

DEVICE uint64_t noise_key(const Scored& row) {
    uint64_t seed = uint64_t(row.seed_high) << 32 | row.seed_low;
    uint64_t spot = (uint64_t(row.clock) << 32 | row.position) ^ 0xA5A5A5A55A5A5A5Aull;
    return mix(mix(seed) + mix(spot));
}

// The partial record of a row for one tile of the vocabulary. The mask token is never chosen, but is
// part of the softmax.
struct Partial {
    // The two largest logits and their tokens.
    Ranked<float> first, second;
    // The largest logit, including the mask token's; sums of w = exp(x - most) and of (x - most) w.
    float most, sum, weighted;
    // The token that the row samples from this tile, its logit and its noise.
    uint32_t drawn;
    float logit;
    // Whether a logit is NaN or infinite.
    uint32_t odd;
    double noise;
};

struct Head {
    Operands of;
    // [n], or null.
    const float* bias;
    // [r].
    const Scored* rows;
    // Biases and sets of allowed tokens.
    const uint32_t* words;
    // [r, count].
    Partial* partials;
    // [r]: the logit of the row's input token.
    float* present;
    // [r, n]: the logits of rows with additional results.
    float* logits;
    // [r, n], or null: the logits of all rows before biases and sets of allowed tokens.
    float* plain;
    uint32_t mask;
    // Partial records of a row.
    uint32_t count;
    // Logits are cap * tanh(x / cap) of the product, unless it is 0.
    float cap;
};

// The logit of a product.
DEVICE float logit(float x, float cap, float divisor) {
    if (cap > 0.0f) x = cap * tanhf(x / cap);
    return divisor == 1.0f ? x : x / divisor;
}

// One row of a tile, held by one warp: a lane has the columns lane, lane + 32, ..
template <int COLUMNS> struct Reduced {
    static constexpr int EACH = COLUMNS / 32;
    float x[EACH];
    unsigned first_column, n;

    DEVICE unsigned token(int j) const { return first_column + j * 32 + thread() % 32; }

    DEVICE void bias(const Scored& row, const uint32_t* words) {
        for (unsigned first = 0; first < row.count; first += 32) {
            unsigned at = first + thread() % 32;
            uint32_t token = at < row.count ? words[row.biases + 3 * at] : NONE;
            // In the order of the biases, because a token may have several.
            for (uint32_t hit = warp_ballot(token - first_column < COLUMNS); hit; hit &= hit - 1) {
                const uint32_t* one = words + row.biases + 3 * (first + lowest(hit));
                float repetition = as_float(one[1]), amount = as_float(one[2]);
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    if (this->token(j) == one[0])
                        x[j] = (x[j] > 0.0f ? x[j] / repetition : x[j] * repetition) + amount;
            }
        }
    }

    DEVICE void allow(const uint32_t* set) {
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (token(j) < n && !(set[token(j) / 32] >> (token(j) % 32) & 1)) x[j] = -INFINITY;
    }

    DEVICE void keep(float* logits) const {
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (token(j) < n) logits[token(j)] = x[j];
    }

    // The logit of a token of the tile, in every lane.
    DEVICE float logit(uint32_t of) const {
        float mine = -INFINITY;
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (token(j) == of) mine = x[j];
        return shuffle(mine, of % 32);
    }

    DEVICE void best(Partial& partial, uint32_t mask) const {
        Ranked<float> first{-INFINITY, NONE}, second = first;
        uint32_t odd = 0;
        float most = -INFINITY;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            Ranked<float> one{x[j], token(j)};
            if (one.token >= n) continue;
            if (!(one.by < INFINITY)) odd = 1;
            most = fmaxf(most, one.by);
            if (one.token == mask) continue;
            if (before(one, first)) second = first, first = one;
            else if (before(one, second)) second = one;
        }
        for (int lanes = 16; lanes > 0; lanes /= 2) {
            merge(first, second, shuffle_xor(first, lanes), shuffle_xor(second, lanes));
            most = fmaxf(most, shuffle_xor(most, lanes));
            odd |= shuffle_xor(odd, lanes);
        }
        partial.first = first, partial.second = second, partial.most = most, partial.odd = odd;
    }

    DEVICE void softmax(Partial& partial) const {
        float sum = 0.0f, weighted = 0.0f;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (!(x[j] > -INFINITY)) continue;
            float below = x[j] - partial.most, power = expf(below);
            sum += power;
            weighted += below * power;
        }
        partial.sum = warp_sum(sum), partial.weighted = warp_sum(weighted);
    }

    DEVICE void draw(Partial& partial, const Scored& row, uint32_t mask) const {
        partial.drawn = NONE, partial.logit = -INFINITY, partial.noise = 0.0;
        if (!(row.temperature > 0.0f) || !(partial.first.by > -INFINITY)) return;
        if (row.extras & FILTERED) return;
        uint64_t key = noise_key(row);
        double sharpness = 1.0 / double(row.temperature);
        // What a token has at most, and what the best one has at least.
        float bound[EACH], least = -INFINITY;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            bound[j] = -INFINITY;
            if (token(j) == mask || !(x[j] > -INFINITY)) continue;
            Rough rough(noise_bits(key, token(j)));
            float below = (x[j] - partial.first.by) * float(sharpness);
            float by = below + rough.variate, error = rough.error + 1e-5f * fabsf(below);
            bound[j] = by + error, least = fmaxf(least, by - error);
        }
        for (int lanes = 16; lanes > 0; lanes /= 2)
            least = fmaxf(least, shuffle_xor(least, lanes));
        Ranked<double> best{-INFINITY, NONE};
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (bound[j] < least || token(j) == mask || !(x[j] > -INFINITY)) continue;
            double noise = gumbel(noise_bits(key, token(j)));
            Ranked<double> one{(double(x[j]) - partial.first.by) * sharpness + noise, token(j)};
            if (before(one, best)) best = one;
        }
        for (int lanes = 16; lanes > 0; lanes /= 2) {
            Ranked<double> other = shuffle_xor(best, lanes);
            if (before(other, best)) best = other;
        }
        partial.drawn = best.token, partial.logit = logit(best.token);
        partial.noise = gumbel(noise_bits(key, best.token));
    }
};

// The partial records of a tile, one for every COLUMNS of its columns. COLUMNS does not depend on the
// number of rows, so that a row's sums never change.
template <class Tile, int COLUMNS> DEVICE void head(const Head& a) {
    // Rows start in different banks.
    constexpr int PITCH = Tile::COLUMNS + 4, PARTS = Tile::COLUMNS / COLUMNS;
    float* logits = reinterpret_cast<float*>(shared_memory());
    Tile tile;
    Part part = whole_part(a.of);
    tile.run(a.of, part);
    copies_wait<0>();
    // All threads have read the operands.
    sync();
    unsigned first_row = part.row * Tile::ROWS, first_column = part.column * Tile::COLUMNS;
    auto finished = [&](unsigned row, unsigned token, float x) {
        if (first_row + row >= a.of.rows || token >= a.of.n) return x;
        x = scaled(a.of, first_row + row, token, x);
        return a.bias ? x + a.bias[token] : x;
    };
    tile.each([&](unsigned row, unsigned column, float x, float y) {
        unsigned token = first_column + column;
        logits[row * PITCH + column] = finished(row, token, x);
        logits[row * PITCH + column + 1] = finished(row, token + 1, y);
    });
    sync();
    for (unsigned i = thread() / 32; i < Tile::ROWS * PARTS; i += threads() / 32) {
        unsigned r = i / PARTS, column = i % PARTS * COLUMNS, number = first_row + r;
        if (number >= a.of.rows) break;
        if (first_column + column >= a.of.n) continue;
        const Scored row = a.rows[number];
        Reduced<COLUMNS> reduced;
        reduced.first_column = first_column + column, reduced.n = a.of.n;
#pragma unroll
        for (int j = 0; j < COLUMNS / 32; j++)
            reduced.x[j] = reduced.token(j) < a.of.n
                               ? logit(logits[r * PITCH + column + j * 32 + thread() % 32], a.cap,
                                       row.divisor)
                               : -INFINITY;
        if (a.plain) reduced.keep(a.plain + size_t(number) * a.of.n);
        reduced.bias(row, a.words);
        if (row.allowed != NONE) reduced.allow(a.words + row.allowed);
        if (row.extras) reduced.keep(a.logits + size_t(number) * a.of.n);
        Partial partial;
        reduced.best(partial, a.mask);
        reduced.softmax(partial);
        reduced.draw(partial, row, a.mask);
        if (row.input < a.of.n && row.input - reduced.first_column < COLUMNS) {
            float present = reduced.logit(row.input);
            if (thread() % 32 == 0) a.present[number] = present;
        }
        unsigned at = reduced.first_column / COLUMNS;
        if (thread() % 32 == 0) a.partials[size_t(number) * a.count + at] = partial;
    }
}
KERNEL(head_bf16_64x128, Head, 256) { head<TileLow<Bf16Weights>, 128>(a); }
KERNEL(head_bf16_128x128, Head, 256) { head<TileSquare<Bf16Weights>, 128>(a); }
KERNEL(head_bf16_128x256, Head, 256) { head<TileWide<Bf16Weights>, 128>(a); }
KERNEL(head_int8_64x128, Head, 256) { head<TileLow<Int8Weights>, 128>(a); }
KERNEL(head_int8_128x128, Head, 256) { head<TileSquare<Int8Weights>, 128>(a); }
KERNEL(head_int8_128x256, Head, 256) { head<TileWide<Int8Weights>, 128>(a); }
KERNEL(head_int8w_64x128, Head, 256) { head<TileLow<WidenedWeights>, 128>(a); }
KERNEL(head_int8w_128x128, Head, 256) { head<TileSquare<WidenedWeights>, 128>(a); }
KERNEL(head_int8w_128x256, Head, 256) { head<TileWide<WidenedWeights>, 128>(a); }
KERNEL(head_packed_64x128, Head, 256) { head<TileLow<PackedWeights>, 128>(a); }
KERNEL(head_packed_128x128, Head, 256) { head<TileSquare<PackedWeights>, 128>(a); }
KERNEL(head_f32, Head, 256) { head<TileF32, 64>(a); }
#ifdef WARPGROUPS
KERNEL(head_bf16_groups_64x128, Head, 256) { head<Groups64x128<bf16>, 128>(a); }
KERNEL(head_bf16_groups_128x128, Head, 256) { head<Groups128x128<bf16>, 128>(a); }
KERNEL(head_bf16_groups_128x256, Head, 256) { head<Groups128x256<bf16>, 128>(a); }
KERNEL(head_int8_groups_64x128, Head, 256) { head<Groups64x128<int8_t>, 128>(a); }
KERNEL(head_int8_groups_128x128, Head, 256) { head<Groups128x128<int8_t>, 128>(a); }
KERNEL(head_int8_groups_128x256, Head, 256) { head<Groups128x256<int8_t>, 128>(a); }
KERNEL(head_int8w_groups_64x128, Head, 256) { head<Widened64x128<WidenedGroups>, 128>(a); }
KERNEL(head_int8w_groups_128x128, Head, 256) { head<Widened128x128<WidenedGroups>, 128>(a); }
KERNEL(head_packed_groups_64x128, Head, 256) { head<Widened64x128<PackedGroups>, 128>(a); }
KERNEL(head_packed_groups_128x128, Head, 256) { head<Widened128x128<PackedGroups>, 128>(a); }
#endif

struct Fold {
    // [r, count].
    const Partial* partials;
    // [r].
    const float* present;
    const Scored* rows;
    // [r, RECORD]: token, its probability, runner-up, its probability, entropy, gap, probability of
    // the input token, logarithm of the sum of the exponentials of the logits. The token is NaN if a
    // logit is NaN or infinite.
    double* out;
    // Partial records of a row, tokens per partial record, tokens.
    uint32_t count, columns, vocab;
};

// The two best of all threads' two best, in every thread. `scratch` [2 * threads].
template <class T>
DEVICE void best_two(Ranked<T>& first, Ranked<T>& second, Ranked<T>* scratch) {
    scratch[2 * thread()] = first;
    scratch[2 * thread() + 1] = second;
    sync();
    for (unsigned width = threads() / 2; width > 0; width /= 2) {
        if (thread() < width) {
            merge(first, second, scratch[2 * (thread() + width)],
                  scratch[2 * (thread() + width) + 1]);
            scratch[2 * thread()] = first;
            scratch[2 * thread() + 1] = second;
        }
        sync();
    }
    first = scratch[0];
    second = scratch[1];
    sync();
}

// The token that a row samples: the best of the tiles' sampled tokens, relative to the row's best
// logit `top`.
DEVICE uint32_t draw(const Fold& a, const Partial* partials, double sharpness, float top,
                     void* scratch) {
    Ranked<double> first{-INFINITY, NONE}, second = first;
    for (unsigned i = thread(); i < a.count; i += threads()) {
        if (partials[i].drawn == NONE) continue;
        double by = (double(partials[i].logit) - top) * sharpness + partials[i].noise;
        Ranked<double> one{by, partials[i].drawn};
        if (before(one, first)) first = one;
    }
    best_two(first, second, static_cast<Ranked<double>*>(scratch));
    return first.token;
}

// One block per row.
KERNEL(fold_partials, Fold, 128) {
    const Scored row = a.rows[block_x()];
    const Partial* partials = a.partials + size_t(block_x()) * a.count;
    void* scratch = shared_memory();
    Ranked<float> first{-INFINITY, NONE}, second = first, most = first, least = first;
    double odd = 0.0;
    for (unsigned i = thread(); i < a.count; i += threads()) {
        merge(first, second, partials[i].first, partials[i].second);
        most.by = fmaxf(most.by, partials[i].most);
        odd += partials[i].odd;
    }
    best_two(first, second, static_cast<Ranked<float>*>(scratch));
    best_two(most, least, static_cast<Ranked<float>*>(scratch));
    odd = block_sum(odd, static_cast<double*>(scratch));
    double base = most.by, total = 0.0, weighted = 0.0;
    bool none = most.by == -INFINITY;
    for (unsigned i = thread(); i < a.count && !none; i += threads()) {
        double below = double(partials[i].most) - base;
        if (below == -INFINITY) continue;
        double power = exp(below);
        total += power * partials[i].sum;
        weighted += power * (partials[i].weighted + below * partials[i].sum);
    }
    total = block_sum(total, static_cast<double*>(scratch));
    weighted = block_sum(weighted, static_cast<double*>(scratch));
    uint32_t token = first.token;
    bool sampled = row.temperature > 0.0f && !(row.extras & FILTERED);
    if (sampled && first.by > -INFINITY)
        token = draw(a, partials, 1.0 / double(row.temperature), first.by, scratch);
    if (thread() != 0) return;
    // All tokens are banned: all probabilities are 0.
    if (none) base = 0.0, total = 1.0, weighted = 0.0;
    auto probability = [&](float logit) { return exp(double(logit) - base) / total; };
    bool drew = token != first.token && token < a.vocab;
    Ranked<float> runner_up = drew ? first : second;
    double entropy = log(total) - weighted / total;
    double gap = first.by == -INFINITY ? 0.0 : double(first.by) - double(second.by);
    double* out = a.out + size_t(block_x()) * RECORD;
    out[0] = odd > 0.0 ? double(NAN) : double(token);
    out[1] = probability(drew ? partials[token / a.columns].logit : first.by);
    out[2] = runner_up.token;
    out[3] = probability(runner_up.by);
    out[4] = entropy > 0.0 ? entropy : 0.0;
    out[5] = gap > 0.0 ? gap : 0.0;
    out[6] = row.input < a.vocab ? probability(a.present[block_x()]) : 0.0;
    out[7] = base + log(total);
}
