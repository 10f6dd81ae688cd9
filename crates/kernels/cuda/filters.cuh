// Filters of sampled tokens, and the most probable tokens, from the stored logits of a row.
//
// The tokens of a row are ordered by logit; of equal logits the lower token comes first. A filter keeps
// the first tokens of this order, so it is found as the least rank that is kept: sums of weights over
// eight parts of a range of ranks tell in which part the rank is, and the range becomes that part.
#pragma once
#include "score.cuh"

// Most probable tokens of a row at most.
constexpr unsigned MOST_TOPS = 256;

struct Top {
    uint32_t token, unused;
    double log_probability;
};

struct Filters {
    // [r, vocab], as written by Head.
    const float* logits;
    // [r].
    const Scored* rows;
    // [r, RECORD]: records, as written by Fold.
    double* out;
    Top* tops;
    // Sets of tokens.
    const uint32_t* words;
    // `digits`: ceil(log2 vocab).
    uint32_t vocab, mask, digits;
};

// The tokens of a row that may be chosen.
struct Tokens {
    const float* logits;
    uint32_t vocab, mask, digits;
    // The set that they belong to, or null.
    const uint32_t* set;

    // Digits of a rank, rounded up to the three that a search finds at a time.
    DEVICE int rank_digits() const { return (32 + int(digits) + 2) / 3 * 3; }

    // Larger for earlier tokens, different for each; 0 for a token that may not be chosen.
    DEVICE uint64_t rank(uint32_t token) const {
        float x = logits[token];
        if (token == mask || !(x > -INFINITY)) return 0;
        if (set && !(set[token / 32] >> (token % 32) & 1)) return 0;
        // Adding 0 makes 0 of -0.
        x += 0.0f;
        uint32_t bits;
        memcpy(&bits, &x, 4);
        bits = bits >> 31 ? ~bits : bits | 0x80000000u;
        return uint64_t(bits) << digits | (vocab - 1 - token);
    }

    // Calls f(token, rank) for this thread's tokens of rank `least` or higher, except rank 0.
    template <class F> DEVICE void each(uint64_t least, F f) const {
#pragma unroll 1
        for (uint32_t token = thread(); token < vocab; token += threads()) {
            uint64_t at = rank(token);
            if (at != 0 && at >= least) f(token, at);
        }
    }

    // The highest rank for which the weights of all tokens of it or higher sum to `wanted`; 0 if all
    // weights together do not. `scratch` [8 * warps].
    template <class F> DEVICE uint64_t search(double wanted, double* scratch, F weight) const {
        uint64_t low = 0;
        double above = 0.0;
        unsigned warps = threads() / 32;
#pragma unroll 1
        for (int shift = rank_digits() - 3; shift >= 0; shift -= 3) {
            double sums[8] = {};
            each(low, [&](uint32_t token, uint64_t at) {
                uint64_t part = (at - low) >> shift;
                if (part > 7) return;
                double one = weight(token);
#pragma unroll
                for (unsigned j = 0; j < 8; j++) sums[j] += part == j ? one : 0.0;
            });
#pragma unroll
            for (unsigned j = 0; j < 8; j++) {
                double sum = warp_sum(sums[j]);
                if (thread() % 32 == 0) scratch[j * warps + thread() / 32] = sum;
            }
            sync();
            unsigned part = 7;
            for (;; part--) {
                double sum = 0.0;
                for (unsigned warp = 0; warp < warps; warp++) sum += scratch[part * warps + warp];
                if (part == 0 || above + sum >= wanted) break;
                above += sum;
            }
            sync();
            low += uint64_t(part) << shift;
        }
        return low;
    }
};

// Tempered logits this far below the best have negligible mass for top_p.
constexpr double NEGLIGIBLE = 30.0;

// The token that a row samples from those that pass min_p, top_k and top_p, in this order; each filter
// sees what the one before it left. `best` is the token with the largest logit.
DEVICE uint32_t draw_filtered(const Tokens& tokens, const Scored& row, uint32_t best, void* scratch) {
    double* sums = static_cast<double*>(scratch);
    double top = tokens.logits[best], sharpness = 1.0 / double(row.temperature);
    auto tempered = [&](uint32_t token) {
        return (double(tokens.logits[token]) - top) * sharpness;
    };
    uint64_t bits = uint64_t(row.least_high) << 32 | row.least_low;
    double least;
    memcpy(&least, &bits, 8);
    uint64_t kept = 1;
    // Counts tokens for top_k, then sums their masses for top_p.
#pragma unroll 1
    for (unsigned by_mass = 0; by_mass < 2; by_mass++) {
        if (by_mass ? !(row.top_p < 1.0f) : row.top_k == 0) continue;
        double wanted = row.top_k;
        auto weight = [&](uint32_t token) {
            double x = tempered(token);
            if (!(x >= least) || tokens.rank(token) < kept) return 0.0;
            return by_mass ? exp(x) : 1.0;
        };
        if (by_mass) {
            double total = 0.0;
            tokens.each(kept, [&](uint32_t token, uint64_t) { total += weight(token); });
            wanted = double(row.top_p) * block_sum(total, sums);
            least = least > -NEGLIGIBLE ? least : -NEGLIGIBLE;
        }
        uint64_t at = tokens.search(wanted, sums, weight);
        kept = at > kept ? at : kept;
    }
    // The best token always passes.
    uint64_t first = tokens.rank(best);
    kept = kept < first ? kept : first;
    uint64_t key = noise_key(row);
    Best<double> winner;
    tokens.each(kept, [&](uint32_t token, uint64_t) {
        double x = tempered(token);
        if (!(x >= least)) return;
        winner.enter({x + gumbel(noise_bits(key, token)), token});
    });
    join_block(winner, scratch);
    return winner.first.token;
}

// Lists the most probable tokens of a row.
DEVICE void list(const Tokens& tokens, const Scored& row, double base, Top* to, void* scratch) {
    unsigned wanted = row.tops < MOST_TOPS ? row.tops : MOST_TOPS;
    uint64_t* ranks = static_cast<uint64_t*>(scratch);
    uint32_t* counts = reinterpret_cast<uint32_t*>(ranks + MOST_TOPS);
    uint64_t least =
        tokens.search(wanted, static_cast<double*>(scratch), [](uint32_t) { return 1.0; });
    uint32_t mine = 0, from = 0, found = 0;
    tokens.each(least, [&](uint32_t, uint64_t) { mine++; });
    counts[thread()] = mine;
    sync();
    for (unsigned i = 0; i < threads(); i++) {
        if (i == thread()) from = found;
        found += counts[i];
    }
    tokens.each(least, [&](uint32_t, uint64_t at) {
        if (from < MOST_TOPS) ranks[from++] = at;
    });
    sync();
    found = found < wanted ? found : wanted;
    for (unsigned i = thread(); i < found; i += threads()) {
        unsigned place = 0;
        for (unsigned j = 0; j < found; j++) place += ranks[j] > ranks[i];
        uint32_t token = tokens.vocab - 1 - uint32_t(ranks[i] & ((uint64_t(1) << tokens.digits) - 1));
        double log_probability = double(tokens.logits[token]) - base;
        to[place] = {token, 0, log_probability < 0.0 ? log_probability : 0.0};
    }
    // Only banned tokens are left.
    for (unsigned i = found + thread(); i < row.tops; i += threads())
        to[i] = {tokens.mask == 0, 0, -INFINITY};
    sync();
}

// The tokens of the block's row.
DEVICE Tokens tokens_of(const Filters& a) {
    return {a.logits + size_t(block_x()) * a.vocab, a.vocab, a.mask, a.digits, nullptr};
}

// One block per row; rows that list no tokens are left as they are.
ROOMY_KERNEL(list_tops, Filters, 256) {
    launches_follow();
    const Scored row = a.rows[block_x()];
    const double* record = a.out + size_t(block_x()) * RECORD;
    // NaN: a logit is not finite.
    if (!(row.extras & LISTED) || !(record[0] == record[0])) return;
    Tokens tokens = tokens_of(a);
    if (row.among != NONE) tokens.set = a.words + row.among;
    list(tokens, row, record[7], a.tops + row.first_top, shared_memory());
}

// One block per row; rows without filters are left as they are. The record is that of the best token.
ROOMY_KERNEL(filter_rows, Filters, 256) {
    launches_follow();
    const Scored row = a.rows[block_x()];
    double* out = a.out + size_t(block_x()) * RECORD;
    double chosen = out[0];
    if (!(row.extras & FILTERED) || !(chosen == chosen)) return;
    Tokens tokens = tokens_of(a);
    uint32_t best = uint32_t(chosen);
    if (!(tokens.logits[best] > -INFINITY)) return;
    uint32_t token = draw_filtered(tokens, row, best, shared_memory());
    if (thread() != 0 || token == best || token >= a.vocab) return;
    out[0] = token;
    out[2] = best;
    out[3] = out[1];
    out[1] = exp(double(tokens.logits[token]) - out[7]);
}
