// From rows of logits to one small record per row.
#pragma once
#include "portable.h"

// A change of one token's logit.
struct Bias {
    uint32_t token;
    float repetition, amount;
};

struct Scored {
    // The token the row carried as its input.
    uint32_t input;
    uint32_t position;
    // Range of biases.
    uint32_t from, to;
    // Number of a set of allowed tokens, or NONE.
    uint32_t allowed;
    // 0: the most probable token.
    float temperature;
    // The noise's key.
    uint32_t seed_low, seed_high, clock;
};

constexpr uint32_t NONE = 0xFFFFFFFF;

struct Score {
    // [n, v]; biases are applied in place.
    float* logits;
    const Scored* rows;
    const Bias* biases;
    // Sets of ceil(v / 32) words.
    const uint32_t* allowed;
    // [n, 7]: token, its probability, runner-up, its probability, entropy, gap, probability of the
    // input token. Not a number if a logit is not.
    double* out;
    uint32_t vocab;
    // Never chosen, but part of the softmax.
    uint32_t mask;
};

// A token and what it is ranked by; of equal ones the lower token is first.
template <class T> struct Ranked {
    T by;
    uint32_t token;
};

template <class T> DEVICE bool before(Ranked<T> a, Ranked<T> b) {
    return a.by > b.by || (a.by == b.by && a.token < b.token);
}

// The two best of a block's threads' two best, in every thread. `scratch` [2 * threads].
template <class T>
DEVICE void best_two(Ranked<T>& first, Ranked<T>& second, Ranked<T>* scratch) {
    scratch[2 * thread()] = first;
    scratch[2 * thread() + 1] = second;
    sync();
    for (unsigned width = threads() / 2; width > 0; width /= 2) {
        if (thread() < width) {
            Ranked<T> a = scratch[2 * thread()], b = scratch[2 * thread() + 1];
            Ranked<T> c = scratch[2 * (thread() + width)], d = scratch[2 * (thread() + width) + 1];
            bool won = before(a, c);
            scratch[2 * thread()] = won ? a : c;
            Ranked<T> x = won ? b : d, y = won ? c : a;
            scratch[2 * thread() + 1] = before(x, y) ? x : y;
        }
        sync();
    }
    first = scratch[0];
    second = scratch[1];
    sync();
}

// The finaliser of the splitmix64 generator after one increment.
DEVICE uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// A standard Gumbel variate of a token under a row's key.
DEVICE double gumbel(uint64_t key, uint32_t token) {
    uint64_t bits = mix(key ^ mix(token));
    double uniform = (double(bits >> 11) + 0.5) / 9007199254740992.0;
    return -log(-log(uniform));
}

// One row of logits after its biases.
struct Logits {
    const float* x;
    // Null: all allowed.
    const uint32_t* set;

    DEVICE float operator[](uint32_t token) const {
        return !set || set[token / 32] >> (token % 32) & 1 ? x[token] : -INFINITY;
    }
};

// The token that a row draws: the best of its logits, sharpened and with noise.
DEVICE uint32_t draw(const Score& a, const Scored& row, const Logits& logits, float top,
                     void* scratch) {
    uint64_t seed = uint64_t(row.seed_high) << 32 | row.seed_low;
    uint64_t spot = (uint64_t(row.clock) << 32 | row.position) ^ 0xA5A5A5A55A5A5A5Aull;
    uint64_t key = mix(mix(seed) + mix(spot));
    double sharpness = 1.0 / double(row.temperature);
    Ranked<double> first{-INFINITY, NONE}, second = first;
    for (uint32_t i = thread(); i < a.vocab; i += threads()) {
        float x = logits[i];
        if (i == a.mask || !(x > -INFINITY)) continue;
        Ranked<double> one{(double(x) - top) * sharpness + gumbel(key, i), i};
        if (before(one, first)) first = one;
    }
    best_two(first, second, static_cast<Ranked<double>*>(scratch));
    return first.token;
}

// One block per row.
KERNEL(score, Score, 256) {
    const Scored row = a.rows[block_x()];
    float* x = a.logits + size_t(block_x()) * a.vocab;
    if (thread() == 0) {
        for (uint32_t i = row.from; i < row.to; i++) {
            Bias bias = a.biases[i];
            float logit = x[bias.token];
            logit = logit > 0.0f ? logit / bias.repetition : logit * bias.repetition;
            x[bias.token] = logit + bias.amount;
        }
    }
    sync();
    uint32_t words = (a.vocab + 31) / 32;
    bool all = row.allowed == NONE;
    Logits logits{x, all ? nullptr : a.allowed + size_t(row.allowed) * words};
    void* scratch = shared_memory();
    Ranked<float> first{-INFINITY, NONE}, second = first;
    double odd = 0.0;
    for (uint32_t i = thread(); i < a.vocab; i += threads()) {
        Ranked<float> one{logits[i], i};
        if (!(one.by < INFINITY)) odd = 1.0;
        if (i == a.mask) continue;
        if (before(one, first)) second = first, first = one;
        else if (before(one, second)) second = one;
    }
    best_two(first, second, static_cast<Ranked<float>*>(scratch));
    odd = block_sum(odd, static_cast<double*>(scratch));
    float mask = a.mask < a.vocab ? logits[a.mask] : -INFINITY;
    double most = fmaxf(first.by, mask), total = 0.0, weighted = 0.0;
    bool none = most == -INFINITY;
    for (uint32_t i = thread(); i < a.vocab && !none; i += threads()) {
        double below = double(logits[i]) - most;
        if (below == -INFINITY) continue;
        double power = expf(float(below));
        total += power;
        weighted += below * power;
    }
    total = block_sum(total, static_cast<double*>(scratch));
    weighted = block_sum(weighted, static_cast<double*>(scratch));
    uint32_t token = first.token;
    if (row.temperature > 0.0f && first.by > -INFINITY)
        token = draw(a, row, logits, first.by, scratch);
    if (thread() != 0) return;
    // Everything banned: no probability anywhere.
    if (none) most = 0.0, total = 1.0, weighted = 0.0;
    auto probability = [&](uint32_t of) {
        return of < a.vocab ? exp(double(logits[of]) - most) / total : 0.0;
    };
    uint32_t runner_up = token == first.token ? second.token : first.token;
    double entropy = log(total) - weighted / total;
    double gap = first.by == -INFINITY ? 0.0 : double(first.by) - double(second.by);
    double* out = a.out + size_t(block_x()) * 7;
    out[0] = odd > 0.0 ? double(NAN) : double(token);
    out[1] = probability(token);
    out[2] = runner_up;
    out[3] = probability(runner_up);
    out[4] = entropy > 0.0 ? entropy : 0.0;
    out[5] = gap > 0.0 ? gap : 0.0;
    out[6] = probability(row.input);
}
