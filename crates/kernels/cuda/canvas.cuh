// Operations of canvas models alone (DiffusionGemma): norms of sums and of some rows, factors by the kind of
// a row, and the mean embeddings of scored rows, which are kept by slot.
#pragma once
#include "score.cuh"

enum Kind : uint32_t {
    // The row is denoised; other rows are encoded.
    DENOISED = 1,
    // It has a mean embedding.
    CONDITIONED = 2,
};

struct Rowwise {
    // [r, d].
    const float* x;
    // [d].
    const float* weight;
    // [r]: bits of Kind.
    const uint32_t* kinds;
    // [r, d].
    float* out;
    uint32_t d;
    float eps;
    // Factors of encoded and of denoised rows.
    float encoded, denoised;
};

// The factor of a row's numbers in an RMS norm, beside the weights.
DEVICE float norm_factor(const float* x, uint32_t d, float eps) {
    float* scratch = reinterpret_cast<float*>(shared_memory());
    float sum = 0.0f;
    for (unsigned i = thread(); i < d; i += threads()) sum += x[i] * x[i];
    return 1.0f / sqrtf(block_sum(sum, scratch) / float(d) + eps);
}

// Adds the norm of every row; one block per row.
KERNEL(norm_add, Rowwise, 256) {
    launches_follow();
    const float* x = a.x + size_t(block_x()) * a.d;
    float* out = a.out + size_t(block_x()) * a.d;
    float factor = norm_factor(x, a.d, a.eps);
    for (unsigned i = thread(); i < a.d; i += threads()) out[i] += x[i] * factor * a.weight[i];
}

// Replaces denoised rows by their norms.
KERNEL(norm_denoised, Rowwise, 256) {
    launches_follow();
    if (!(a.kinds[block_x()] & DENOISED)) return;
    float* x = a.out + size_t(block_x()) * a.d;
    float factor = norm_factor(x, a.d, a.eps);
    for (unsigned i = thread(); i < a.d; i += threads()) x[i] = x[i] * factor * a.weight[i];
}

// Multiplies every row by the factor of its kind.
KERNEL(scale_rows, Rowwise, 256) {
    launches_follow();
    float factor = a.kinds[block_x()] & DENOISED ? a.denoised : a.encoded;
    float* x = a.out + size_t(block_x()) * a.d;
    for (unsigned i = thread(); i < a.d; i += threads()) x[i] *= factor;
}

// Makes every row zero.
KERNEL(clear_rows, Rowwise, 256) {
    launches_follow();
    float* x = a.out + size_t(block_x()) * a.d;
    for (unsigned i = thread(); i < a.d; i += threads()) x[i] = 0.0f;
}

struct Means {
    // [slots, d]: the mean embedding of what stands in each slot.
    float* kept;
    const uint32_t* slots;
    const uint32_t* kinds;
    // The numbers and the settings of a range of the scored rows.
    const uint32_t* scored;
    const Scored* rows;
    // [r, d]: of all rows, or of the range.
    float* x;
    uint32_t d;
};

// Reads the mean embeddings of all rows that have one; zeros for the others.
KERNEL(read_means, Means, 256) {
    launches_follow();
    float* x = a.x + size_t(block_x()) * a.d;
    bool has = a.kinds[block_x()] & CONDITIONED;
    const float* kept = a.kept + (has ? size_t(a.slots[block_x()]) * a.d : 0);
    for (unsigned i = thread(); i < a.d; i += threads()) x[i] = has ? kept[i] : 0.0f;
}

// Keeps the mean embeddings of a range of the scored rows; padding rows ask for no token.
KERNEL(keep_means, Means, 256) {
    launches_follow();
    if (a.rows[block_x()].input == NONE) return;
    const float* x = a.x + size_t(block_x()) * a.d;
    float* kept = a.kept + size_t(a.slots[a.scored[block_x()]]) * a.d;
    for (unsigned i = thread(); i < a.d; i += threads()) kept[i] = x[i];
}

struct Softmax {
    // [r, vocab].
    const float* logits;
    const Scored* rows;
    // Sets of allowed tokens.
    const uint32_t* words;
    // Rows of `stride` elements.
    void* out;
    uint32_t vocab, stride;
};

// The probabilities of every row among its allowed tokens; one block per row.
template <class T> DEVICE void softmax(const Softmax& a) {
    launches_follow();
    float* scratch = reinterpret_cast<float*>(shared_memory());
    const float* logits = a.logits + size_t(block_x()) * a.vocab;
    const uint32_t first = a.rows[block_x()].allowed;
    auto logit = [&](unsigned i) {
        bool allowed = first == NONE || (a.words[first + i / 32] >> (i % 32) & 1);
        return allowed ? logits[i] : -INFINITY;
    };
    float most = -INFINITY, sum = 0.0f;
    for (unsigned i = thread(); i < a.vocab; i += threads()) most = fmaxf(most, logit(i));
    for (int lanes = 16; lanes > 0; lanes /= 2) most = fmaxf(most, shuffle_xor(most, lanes));
    if (thread() % 32 == 0) scratch[thread() / 32] = most;
    sync();
    for (unsigned warp = 0; warp < threads() / 32; warp++) most = fmaxf(most, scratch[warp]);
    sync();
    for (unsigned i = thread(); i < a.vocab; i += threads()) sum += expf(logit(i) - most);
    sum = block_sum(sum, scratch);
    T* out = static_cast<T*>(a.out) + size_t(block_x()) * a.stride;
    for (unsigned i = thread(); i < a.vocab; i += threads())
        out[i] = narrow<T>(expf(logit(i) - most) / sum);
}
KERNEL(softmax_f32, Softmax, 256) { softmax<float>(a); }
KERNEL(softmax_bf16, Softmax, 256) { softmax<bf16>(a); }
