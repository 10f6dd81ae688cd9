// The LM head and its reduction: every tile of the product is reduced to partial records of its rows
// immediately, so that rows of logits are never stored; then the partial records of a row are
// combined.
#pragma once
#include "gemm.cuh"
#include "groups.cuh"
#include "groups_widened.cuh"
#include "packed.cuh"
#include "strips.cuh"

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
    // [r, 2]: the logits of the row's input token and of the mask token.
    float* apart;
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

// Reduces a strip of eight rows: of row thread() % 32 / 4 from `first_row` on, and columns from `column`
// on.
DEVICE void reduce_strip(const Head& a, unsigned first_row, unsigned column,
                         const float (&sums)[OWN_COLUMNS]) {
    if (first_row >= a.of.rows || column >= a.of.n) return;
    unsigned row = first_row + thread() % 32 / 4;
    bool exists = row < a.of.rows;
    // All lanes take part.
    if (!exists) row = a.of.rows - 1;
    const Scored& settings = a.rows[row];
    Strip strip;
    strip.first = column, strip.n = a.of.n;
    float divisor = settings.divisor;
#pragma unroll
    for (int i = 0; i < OWN_COLUMNS; i++) strip.x[i] = sums[i];
    // Most sums are logits as they are.
    if (column + STRIP > a.of.n || a.of.scales || a.bias || a.cap > 0.0f ||
        warp_ballot(divisor != 1.0f))
        strip.each_four([&](int i, float sum) {
            unsigned token = strip.token(i);
            if (token >= a.of.n) return -INFINITY;
            return logit(biased(a.of, a.bias, row, token, sum), a.cap, divisor);
        });
    if (a.plain && exists) strip.keep(a.plain + size_t(row) * a.of.n);
    strip.bias(settings, a.words);
    if (settings.allowed != NONE) strip.allow(a.words + settings.allowed);
    if (settings.extras && exists) strip.keep(a.logits + size_t(row) * a.of.n);
    if (strip.has(settings.input) && exists) a.apart[2 * row] = strip.own(settings.input);
    if (strip.has(a.mask)) {
        if (exists) a.apart[2 * row + 1] = strip.own(a.mask);
        strip.put(a.mask, -INFINITY);
    }
    Partial partial;
    strip.reduce(partial);
    strip.draw(partial, settings);
    if (exists && thread() % 4 == 0) a.partials[size_t(row) * a.count + column / STRIP] = partial;
}

// Calls f(first row, first column, sums) for the strips of a tile, each of eight rows, whose sums a warp
// has in registers.
template <class Tile, class F> DEVICE void each_strip(Tile& tile, F f) {
    float sums[OWN_COLUMNS];
    if constexpr (Tile::STRIPS > 0) {
#pragma unroll 1
        for (unsigned s = 0; s < Tile::STRIPS; s++) {
#pragma unroll
            for (unsigned i = 0; i < Tile::STRIPS * 16; i++)
                if (i / 16 == s)
                    sums[i % 16] = float(tile.sums[i / 32 * 8 + i % 16 / 2][i / 16 % 2 * 2 + i % 2]);
            f(tile.strip_row(s), tile.strip_column(s), sums);
        }
        return;
    }
    // The sums of these tiles lie otherwise.
    constexpr unsigned PITCH = Tile::COLUMNS + Tile::BETWEEN, TALL = Tile::ROWS / 8;
    const float* all = spread(tile);
    for (unsigned s = thread() / 32; s < TALL * (Tile::COLUMNS / STRIP); s += threads() / 32) {
        unsigned row = s % TALL * 8, column = s / TALL * STRIP;
        const float* from = all + (row + thread() % 32 / 4) * PITCH + column + thread() % 4 * 2;
#pragma unroll
        for (int i = 0; i < OWN_COLUMNS; i++) sums[i] = from[i / 2 * 8 + i % 2];
        f(row, column, sums);
    }
}

template <class Tile> DEVICE void head(const Head& a) {
    Tile tile;
    Part part = whole_part(a.of);
    tile.run(a.of, part);
    each_strip(tile, [&](unsigned row, unsigned column, const float (&sums)[OWN_COLUMNS]) {
        reduce_strip(a, part.row * Tile::ROWS + row, part.column * Tile::COLUMNS + column, sums);
    });
}
ROOMY_KERNEL(head_bf16_64x128, Head, 256) { head<TileLow<Bf16Weights>>(a); }
KERNEL(head_bf16_128x128, Head, 256) { head<TileSquare<Bf16Weights>>(a); }
KERNEL(head_bf16_128x256, Head, 256) { head<TileWide<Bf16Weights>>(a); }
ROOMY_KERNEL(head_int8_64x128, Head, 256) { head<TileLow<Int8Weights>>(a); }
KERNEL(head_int8_128x128, Head, 256) { head<TileSquare<Int8Weights>>(a); }
KERNEL(head_int8_128x256, Head, 256) { head<TileWide<Int8Weights>>(a); }
KERNEL(head_int8w_64x128, Head, 256) { head<TileLow<WidenedWeights>>(a); }
KERNEL(head_int8w_128x128, Head, 256) { head<TileSquare<WidenedWeights>>(a); }
KERNEL(head_int8w_128x256, Head, 256) { head<TileWide<WidenedWeights>>(a); }
KERNEL(head_packed_64x128, Head, 256) { head<PackedLow>(a); }
KERNEL(head_packed_128x128, Head, 256) { head<PackedSquare>(a); }
KERNEL(head_f32, Head, 256) { head<TileF32>(a); }
#ifdef WARPGROUPS
KERNEL(head_bf16_groups_64x128, Head, 256) { head<Groups64x128<bf16>>(a); }
KERNEL(head_bf16_groups_128x128, Head, 256) { head<Groups128x128<bf16>>(a); }
KERNEL(head_bf16_groups_128x256, Head, 256) { head<Groups128x256<bf16>>(a); }
KERNEL(head_int8_groups_64x128, Head, 256) { head<Groups64x128<int8_t>>(a); }
KERNEL(head_int8_groups_128x128, Head, 256) { head<Groups128x128<int8_t>>(a); }
KERNEL(head_int8_groups_128x256, Head, 256) { head<Groups128x256<int8_t>>(a); }
KERNEL(head_int8w_groups_64x128, Head, 256) { head<Widened64x128<WidenedGroups>>(a); }
KERNEL(head_int8w_groups_128x128, Head, 256) { head<Widened128x128<WidenedGroups>>(a); }
KERNEL(head_packed_groups_64x128, Head, 256) { head<Widened64x128<PackedGroups>>(a); }
KERNEL(head_packed_groups_128x128, Head, 256) { head<Widened128x128<PackedGroups>>(a); }
#endif

struct Fold {
    // [r, count].
    const Partial* partials;
    // [r, 2].
    const float* apart;
    const Scored* rows;
    // [r, RECORD]: token, its probability, runner-up, its probability, entropy, gap, probability of
    // the input token, logarithm of the sum of the exponentials of the logits. The token is NaN if a
    // logit is NaN or infinite.
    double* out;
    // Partial records of a row, tokens.
    uint32_t count, vocab, mask;
};

// The token that a row samples: the best of the strips' sampled tokens, relative to the row's best
// logit `top`.
DEVICE uint32_t draw(const Fold& a, const Partial* partials, const Scored& row, float top,
                     void* scratch) {
    uint64_t key = noise_key(row);
    float sharpness = 1.0f / row.temperature;
    Contest contest;
    for (unsigned i = thread(); i < a.count; i += threads()) {
        Partial one = partials[i];
        if (one.drawn != NONE)
            contest.enter(one.drawn, (one.logit - top) * sharpness, noise_bits(key, one.drawn));
    }
    join_block(contest, scratch);
    if (contest.is_won()) return contest.token;
    Best<double> best;
    for (unsigned i = thread(); i < a.count; i += threads()) {
        Partial one = partials[i];
        if (one.drawn == NONE) continue;
        double below = (double(one.logit) - top) * (1.0 / double(row.temperature));
        best.enter({below + gumbel(noise_bits(key, one.drawn)), one.drawn});
    }
    join_block(best, scratch);
    return best.first.token;
}

// The lowest token that is neither of two.
DEVICE uint32_t lowest_without(uint32_t a, uint32_t b) {
    for (uint32_t token = 0;; token++)
        if (token != a && token != b) return token;
}

// One block per row.
ROOMY_KERNEL(fold_partials, Fold, 128) {
    launches_follow();
    const Scored row = a.rows[block_x()];
    const Partial* partials = a.partials + size_t(block_x()) * a.count;
    const float* apart = a.apart + 2 * block_x();
    void* scratch = shared_memory();
    Best<float> best;
    for (unsigned i = thread(); i < a.count; i += threads()) {
        Best<float> one;
        one.first = partials[i].first, one.second = partials[i].second;
        best.join(one);
    }
    join_block(best, scratch);
    float masked = a.mask < a.vocab ? apart[1] : -INFINITY;
    Ranked<float> first = best.first, second = best.second;
    double base = fmaxf(first.by, masked), total = 0.0, weighted = 0.0;
    // All tokens are banned.
    bool none = base == -INFINITY;
    if (none) base = 0.0;
    auto add = [&](float most, float sum, float less) {
        double below = double(most) - base, power = exp(below);
        total += power * sum;
        if (power > 0.0) weighted += power * (less + below * sum);
    };
    if (thread() == 0) add(masked, 1.0f, 0.0f);
    for (unsigned i = thread(); i < a.count; i += threads())
        add(partials[i].first.by, partials[i].sum, partials[i].weighted);
    total = block_sum(total, static_cast<double*>(scratch));
    weighted = block_sum(weighted, static_cast<double*>(scratch));
    // The lowest banned tokens are the best ones.
    if (first.token == NONE) first.token = lowest_without(a.mask, NONE);
    if (second.token == NONE) second.token = lowest_without(a.mask, first.token);
    uint32_t token = first.token;
    bool sampled = row.temperature > 0.0f && !(row.extras & FILTERED);
    if (sampled && first.by > -INFINITY) token = draw(a, partials, row, first.by, scratch);
    if (thread() != 0) return;
    bool odd = total != total;
    // All probabilities are 0.
    if (none) total = 1.0, weighted = 0.0;
    auto probability = [&](float logit) { return exp(double(logit) - base) / total; };
    bool drew = token != first.token && token < a.vocab;
    Ranked<float> runner_up = drew ? first : second;
    double entropy = log(total) - weighted / total;
    double gap = first.by == -INFINITY ? 0.0 : double(first.by) - double(second.by);
    double* out = a.out + size_t(block_x()) * RECORD;
    out[0] = odd ? double(NAN) : double(token);
    out[1] = probability(drew ? partials[token / STRIP].logit : first.by);
    out[2] = runner_up.token;
    out[3] = probability(runner_up.by);
    out[4] = entropy > 0.0 ? entropy : 0.0;
    out[5] = gap > 0.0 ? gap : 0.0;
    out[6] = row.input < a.vocab ? probability(apart[0]) : 0.0;
    out[7] = base + log(total);
}
