// The facts of a row's logits: the two best tokens, the sampled one, the sum of their exponentials;
// and its partial record for 64 columns, reduced in the registers where tensor cores leave the sums.
#pragma once
#include "portable.h"

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
    // The divisor of its logits.
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

template <class T> DEVICE Ranked<T> shuffle_xor(Ranked<T> x, int lanes) {
    return {shuffle_xor(x.by, lanes), shuffle_xor(x.token, lanes)};
}

// The two best tokens.
template <class T> struct Best {
    Ranked<T> first{-INFINITY, NONE}, second{-INFINITY, NONE};

    // Enters a later token than all before.
    DEVICE void enter(Ranked<T> one) {
        bool leads = one.by > first.by, follows = one.by > second.by;
        second = leads ? first : follows ? one : second;
        first = leads ? one : first;
    }

    DEVICE void join(const Best& other) {
        bool won = before(first, other.first);
        Ranked<T> x = won ? second : other.second, y = won ? other.first : first;
        first = won ? first : other.first;
        second = before(x, y) ? x : y;
    }

    DEVICE Best across(int lanes) const {
        Best other;
        other.first = shuffle_xor(first, lanes), other.second = shuffle_xor(second, lanes);
        return other;
    }
};

// Joins what the four lanes of a quad have, in all of them.
template <class T> DEVICE void join_quad(T& x) {
    x.join(x.across(1));
    x.join(x.across(2));
}

// Joins what all threads have, in every thread. `scratch` [threads].
template <class T> DEVICE void join_block(T& x, void* scratch) {
    T* all = static_cast<T*>(scratch);
    all[thread()] = x;
    sync();
    for (unsigned width = threads() / 2; width > 0; width /= 2) {
        if (thread() < width) {
            x.join(all[thread() + width]);
            all[thread()] = x;
        }
        sync();
    }
    x = all[0];
    sync();
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

// The tokens of a row that may have the largest of the logits with noise, as far as single precision tells.
struct Contest {
    // The least value that the best token can have; the most that the first and the second can have; the first's token.
    float least = -INFINITY, most = -INFINITY, next = -INFINITY;
    uint32_t token = NONE;

    // Enters a token whose tempered logit is `below` that of the best one.
    DEVICE void enter(uint32_t of, float below, uint64_t bits) {
        Rough rough(bits);
        float by = below + rough.variate, error = rough.error + 1e-5f * fabsf(below);
        least = fmaxf(least, by - error);
        join_bound(of, by + error, -INFINITY);
    }

    DEVICE void join(const Contest& other) {
        least = fmaxf(least, other.least);
        join_bound(other.token, other.most, other.next);
    }

    // True if no token but `token` can be the best.
    DEVICE bool is_won() const { return next < least; }

    DEVICE Contest across(int lanes) const {
        Contest other;
        other.least = shuffle_xor(least, lanes), other.most = shuffle_xor(most, lanes);
        other.next = shuffle_xor(next, lanes), other.token = shuffle_xor(token, lanes);
        return other;
    }

  private:
    DEVICE void join_bound(uint32_t of, float first, float second) {
        bool leads = first > most;
        next = fmaxf(leads ? most : first, leads ? second : next);
        most = leads ? first : most;
        token = leads ? of : token;
    }
};

// The partial record of a row for a strip of the vocabulary.
struct alignas(16) Partial {
    // The two largest logits and their tokens, without the mask token.
    Ranked<float> first, second;
    // Sums of w = exp(x - first) and of (x - first) w, without the mask token; NaN if a logit is NaN or
    // infinite.
    float sum, weighted;
    // The token that the row samples from this strip, and its logit.
    uint32_t drawn;
    float logit;
};

// Columns of a strip, and columns of it that a lane has.
constexpr unsigned STRIP = 64;
constexpr int OWN_COLUMNS = STRIP / 4;

// The logits of a row's strip, in the four lanes of a quad as the sums of tensor cores lie: lane l has
// columns 2 (l % 4) and + 1 of every eight. A lane adds in the order of its columns; lanes are added in
// pairs. So the sums depend neither on the tile nor on the number of rows.
struct Strip {
    float x[OWN_COLUMNS];
    // The first column, and the columns of the matrix.
    unsigned first, n;

    DEVICE uint32_t token(int i) const { return first + i / 2 * 8 + thread() % 4 * 2 + i % 2; }
    DEVICE bool has(uint32_t token) const {
        return token - first < STRIP && token % 8 / 2 == thread() % 4;
    }

    // This lane's logit in the place of a token that some lane of the quad has.
    DEVICE float own(uint32_t token) const {
        return own_at(int(token % STRIP / 8 * 2 + token % 2));
    }
    DEVICE float own_at(int place) const {
        float mine = -INFINITY;
#pragma unroll
        for (int i = 0; i < OWN_COLUMNS; i++)
            if (i == place) mine = x[i];
        return mine;
    }
    DEVICE void put(uint32_t token, float logit) {
#pragma unroll
        for (int i = 0; i < OWN_COLUMNS; i++)
            if (this->token(i) == token) x[i] = logit;
    }

    // Replaces every logit by f(place, logit), four at a time, because the instructions of all are many.
    template <class F> DEVICE void each_four(F f) {
#pragma unroll 1
        for (int begin = 0; begin < OWN_COLUMNS; begin += 4) {
            float four[4];
#pragma unroll
            for (int i = 0; i < 4; i++) four[i] = f(begin + i, x[i]);
#pragma unroll
            for (int i = 0; i < OWN_COLUMNS; i++) x[i] = i < OWN_COLUMNS - 4 ? x[i + 4] : four[i % 4];
        }
    }

    DEVICE void bias(const Scored& row, const uint32_t* words) {
        unsigned lane = thread() % 32;
        for (unsigned at = 0; warp_ballot(at < row.count); at += 4) {
            const uint32_t* four = words + row.biases + 3 * at;
            uint32_t token = at + lane % 4 < row.count ? four[3 * (lane % 4)] : NONE;
            uint32_t hits = warp_ballot(token - first < STRIP) >> lane / 4 * 4 & 15;
            // In the order of the biases, because a token may have several.
            for (; hits; hits &= hits - 1) {
                const uint32_t* one = four + 3 * lowest(hits);
                if (!has(one[0])) continue;
                float repetition = as_float(one[1]), amount = as_float(one[2]), old = own(one[0]);
                put(one[0], rounded_sum(old > 0.0f ? old / repetition : old * repetition, amount));
            }
        }
    }

    DEVICE void allow(const uint32_t* set) {
        uint32_t low = set[first / 32], high = first + 32 < n ? set[first / 32 + 1] : 0;
#pragma unroll
        for (int i = 0; i < OWN_COLUMNS; i++)
            if (!((i < OWN_COLUMNS / 2 ? low : high) >> token(i) % 32 & 1)) x[i] = -INFINITY;
    }

    DEVICE void keep(float* logits) const {
#pragma unroll
        for (int i = 0; i < OWN_COLUMNS; i++)
            if (token(i) < n) logits[token(i)] = x[i];
    }

    DEVICE void reduce(Partial& partial) const {
        Best<float> best;
#pragma unroll
        for (int i = 0; i < OWN_COLUMNS; i++) best.enter({x[i], token(i)});
        join_quad(best);
        partial.first = best.first, partial.second = best.second;
        float base = best.first.by > -INFINITY ? best.first.by : 0.0f, sum = 0.0f, weighted = 0.0f;
#pragma unroll
        for (int i = 0; i < OWN_COLUMNS; i++) {
            float below = x[i] - base, power = expf(below);
            sum += power;
            weighted = fmaf(below > -INFINITY ? below : 0.0f, power, weighted);
        }
        for (int lanes = 1; lanes < 4; lanes *= 2) {
            sum += shuffle_xor(sum, lanes);
            weighted += shuffle_xor(weighted, lanes);
        }
        partial.sum = sum, partial.weighted = weighted;
    }

    // Samples a token. Double precision, of which most devices have little, serves where the single one
    // does not tell which token wins.
    DEVICE void draw(Partial& partial, const Scored& row) {
        float top = partial.first.by;
        bool draws = row.temperature > 0.0f && !(row.extras & FILTERED) && top > -INFINITY;
        partial.drawn = NONE, partial.logit = -INFINITY;
        if (!warp_ballot(draws)) return;
        uint64_t key = noise_key(row);
        float sharpness = 1.0f / row.temperature;
        Contest contest;
        each_four([&](int i, float logit) {
            if (logit > -INFINITY)
                contest.enter(token(i), (logit - top) * sharpness, noise_bits(key, token(i)));
            return logit;
        });
        join_quad(contest);
        uint32_t drawn = contest.token;
        if (warp_ballot(draws && !contest.is_won())) drawn = draw_exactly(key, row.temperature, top);
        float logit = shuffle(own(drawn), int(thread() % 32 / 4 * 4 + drawn % 8 / 2));
        if (draws) partial.drawn = drawn, partial.logit = logit;
    }

  private:
    DEVICE uint32_t draw_exactly(uint64_t key, float temperature, float top) const {
        double sharpness = 1.0 / double(temperature);
        Best<double> best;
#pragma unroll 1
        for (int i = 0; i < OWN_COLUMNS; i++) {
            double below = (double(own_at(i)) - top) * sharpness;
            if (below > -INFINITY) best.enter({below + gumbel(noise_bits(key, token(i))), token(i)});
        }
        join_quad(best);
        return best.first.token;
    }
};
