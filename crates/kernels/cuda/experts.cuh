// Mixtures of experts: the router, the grouping of rows by expert, products of the groups, and the sum
// of a row's experts in the order of their numbers.
//
// The number of rows of an expert depends on the data, the launches do not: grids have room for every
// grouping of that number of rows, and blocks without work return.
#pragma once
#include "score.cuh"

// Experts of a layer, and of a row, at most.
constexpr unsigned MOST_EXPERTS = 1024, MOST_CHOSEN = 32;
// Rows of a block of the router.
constexpr unsigned ROUTED = 8;

struct Route {
    // [r, k].
    const void* x;
    // [experts, k].
    const float* gate;
    // [r, experts].
    float* logits;
    uint32_t rows, experts, k;
};

// The product of rows and the router's matrix in f32. A warp has one expert and ROUTED rows; its lanes
// sum over every 32nd number.
template <class T> DEVICE void route(const Route& a) {
    launches_follow();
    unsigned lane = thread() % 32, first = block_x() * ROUTED;
    unsigned expert = block_y() * (threads() / 32) + thread() / 32;
    if (expert >= a.experts) return;
    const float* gate = a.gate + size_t(expert) * a.k;
    const T* x = static_cast<const T*>(a.x) + size_t(first) * a.k;
    float sums[ROUTED] = {};
    for (unsigned i = lane; i < a.k; i += 32) {
        float weight = gate[i];
#pragma unroll
        for (unsigned r = 0; r < ROUTED; r++)
            if (first + r < a.rows) sums[r] += wide(x[size_t(r) * a.k + i]) * weight;
    }
#pragma unroll
    for (unsigned r = 0; r < ROUTED; r++) {
        float sum = warp_sum(sums[r]);
        if (lane == 0 && first + r < a.rows) a.logits[size_t(first + r) * a.experts + expert] = sum;
    }
}
KERNEL(route_f32, Route, 256) { route<float>(a); }
KERNEL(route_bf16, Route, 256) { route<bf16>(a); }

enum Gating : uint32_t {
    // Probabilities, with corrections.
    SOFTMAX = 0,
    // The same divided by their sum.
    NORMALISED = 1,
    // Sigmoids divided by their sum, times `scale`; corrections act on the choice alone.
    SIGMOID = 2,
};

struct Choose {
    // [r, experts].
    const float* logits;
    // [r]; NONE: a padding row, which chooses no experts.
    const uint32_t* slots;
    // [experts], or null: corrections, and factors of the weights.
    const float* bias;
    const float* scales;
    // [r, chosen]: experts of each row, ascending, or NONE; and their weights.
    uint32_t* experts;
    float* weights;
    uint32_t count, chosen;
    Gating gating;
    // A row chooses from the `best` groups with the largest sums of two scores.
    uint32_t groups, best;
    float scale;
};

// The best of all lanes' tokens, in every lane.
DEVICE Ranked<float> warp_best(Ranked<float> best) {
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        Ranked<float> other = shuffle_xor(best, lanes);
        if (before(other, best)) best = other;
    }
    return best;
}

// Takes the experts outside the best groups out of the scores.
DEVICE void close_groups(const Choose& a, float* scores) {
    unsigned lane = thread(), size = a.count / a.groups;
    float first = -INFINITY, second = -INFINITY;
    for (unsigned i = 0; lane < a.groups && i < size; i++) {
        float x = scores[lane * size + i];
        if (x > first) second = first, first = x;
        else if (x > second) second = x;
    }
    Ranked<float> mine{lane < a.groups ? first + second : -INFINITY, lane};
    bool open = false;
    for (unsigned i = 0; i < a.best; i++) {
        Ranked<float> best = warp_best(open ? Ranked<float>{-INFINITY, NONE} : mine);
        open = open || best.token == lane;
    }
    sync();
    for (unsigned i = 0; lane < a.groups && !open && i < size; i++) scores[lane * size + i] = -INFINITY;
    sync();
}

// One warp per row.
KERNEL(choose_experts, Choose, 32) {
    launches_follow();
    unsigned row = block_x(), lane = thread();
    uint32_t* to = a.experts + size_t(row) * a.chosen;
    if (a.slots[row] == NONE) {
        if (lane < a.chosen) to[lane] = NONE;
        return;
    }
    float* own = reinterpret_cast<float*>(shared_memory());
    float* scores = own + a.count;
    const float* logits = a.logits + size_t(row) * a.count;
    float most = -INFINITY, total = 0.0f;
    for (unsigned i = lane; i < a.count; i += 32) most = fmaxf(most, logits[i]);
    for (int lanes = 16; lanes > 0; lanes /= 2) most = fmaxf(most, shuffle_xor(most, lanes));
    for (unsigned i = lane; i < a.count; i += 32) {
        own[i] = a.gating == SIGMOID ? 1.0f / (1.0f + expf(-logits[i])) : expf(logits[i] - most);
        total += own[i];
    }
    total = warp_sum(total);
    for (unsigned i = lane; i < a.count; i += 32) {
        if (a.gating != SIGMOID) own[i] /= total;
        scores[i] = a.bias ? own[i] + a.bias[i] : own[i];
    }
    sync();
    if (a.gating == SIGMOID && a.best < a.groups) close_groups(a, scores);
    // The lane's own choice.
    uint32_t expert = NONE;
    float weight = 0.0f, sum = 0.0f;
    for (unsigned i = 0; i < a.chosen; i++) {
        Ranked<float> best{-INFINITY, NONE};
        for (unsigned j = lane; j < a.count; j += 32)
            if (Ranked<float> one{scores[j], j}; before(one, best)) best = one;
        best = warp_best(best);
        float value = 0.0f;
        if (best.token != NONE) value = a.gating == SIGMOID ? own[best.token] : best.by;
        sum += value;
        if (lane == i) expert = best.token, weight = value;
        sync();
        if (lane == 0 && best.token != NONE) scores[best.token] = -INFINITY;
        sync();
    }
    if (a.gating == NORMALISED) weight /= sum;
    if (a.gating == SIGMOID) weight = weight / (a.chosen == 1 ? 1.0f : sum + 1e-20f) * a.scale;
    if (a.scales && expert != NONE) weight *= a.scales[expert];
    unsigned place = 0;
    for (unsigned i = 0; i < a.chosen; i++) {
        uint32_t other = shuffle(expert, i);
        place += other < expert || (other == expert && i < lane);
    }
    if (lane >= a.chosen) return;
    to[place] = expert;
    a.weights[size_t(row) * a.chosen + place] = weight;
}

// Rows of one expert, of which a block multiplies some columns.
struct GroupTile {
    uint32_t expert, first, rows;
};

struct Group {
    // [pairs]: the expert of each pair of a row and one of its choices; or NONE.
    const uint32_t* experts;
    // [count]: pairs of each expert.
    uint32_t* counts;
    // [pairs]: the pair at each place, or NONE; pairs are ordered by expert, then by row.
    uint32_t* pairs_at;
    // [pairs]: the place of each pair.
    uint32_t* places;
    // [tiles].
    GroupTile* tiles;
    uint32_t pairs, count, tile, tile_count;
};

// One block per expert.
KERNEL(count_experts, Group, 256) {
    launches_follow();
    uint32_t* scratch = reinterpret_cast<uint32_t*>(shared_memory());
    uint32_t mine = 0;
    for (unsigned i = thread(); i < a.pairs; i += threads()) mine += a.experts[i] == block_x();
    mine = block_sum(mine, scratch);
    if (thread() == 0) a.counts[block_x()] = mine;
}

// One block per expert.
KERNEL(group_rows, Group, 256) {
    launches_follow();
    uint32_t* scratch = reinterpret_cast<uint32_t*>(shared_memory());
    unsigned expert = block_x(), lane = thread() % 32, warp = thread() / 32;
    uint32_t place = 0, tile = 0;
    for (unsigned i = thread(); i < expert; i += threads())
        place += a.counts[i], tile += (a.counts[i] + a.tile - 1) / a.tile;
    place = block_sum(place, scratch);
    tile = block_sum(tile, scratch);
    uint32_t own = a.counts[expert], end = place + own, tiles = (own + a.tile - 1) / a.tile;
    for (unsigned i = thread(); i < tiles; i += threads()) {
        uint32_t done = i * a.tile;
        a.tiles[tile + i] = {expert, place + done, own - done < a.tile ? own - done : a.tile};
    }
    for (unsigned first = 0; first < a.pairs; first += threads()) {
        unsigned pair = first + thread();
        bool here = pair < a.pairs && a.experts[pair] == expert;
        uint32_t hits = warp_ballot(here);
        if (lane == 0) {
            uint32_t count = 0;
            for (uint32_t left = hits; left; left &= left - 1) count++;
            scratch[warp] = count;
        }
        sync();
        uint32_t at = place;
        for (unsigned i = 0; i < threads() / 32; i++) {
            if (i < warp) at += scratch[i];
            place += scratch[i];
        }
        for (uint32_t left = hits & ((1u << lane) - 1); left; left &= left - 1) at++;
        if (here) a.pairs_at[at] = pair, a.places[pair] = at;
        sync();
    }
    if (expert + 1 < a.count) return;
    for (unsigned i = end + thread(); i < a.pairs; i += threads()) a.pairs_at[i] = NONE;
    for (unsigned i = tile + tiles + thread(); i < a.tile_count; i += threads())
        a.tiles[i] = {0, 0, 0};
}

struct Gather {
    // [r, k].
    const void* x;
    // [pairs]; a row has `chosen` pairs.
    const uint32_t* pairs_at;
    // [pairs, k].
    void* out;
    // Factors of rows of integers: [r], and [pairs].
    const float* row_scales;
    float* out_scales;
    uint32_t chosen, k;
};

// One block per place.
template <class T> DEVICE void gather(const Gather& a) {
    launches_follow();
    uint32_t pair = a.pairs_at[block_x()];
    if (pair == NONE) return;
    const T* x = static_cast<const T*>(a.x) + size_t(pair / a.chosen) * a.k;
    T* out = static_cast<T*>(a.out) + size_t(block_x()) * a.k;
    for (unsigned i = thread(); i < a.k; i += threads()) out[i] = x[i];
    if (a.row_scales && thread() == 0) a.out_scales[block_x()] = a.row_scales[pair / a.chosen];
}
KERNEL(gather_f32, Gather, 128) { gather<float>(a); }
KERNEL(gather_bf16, Gather, 128) { gather<bf16>(a); }
// Four integers at a time.
KERNEL(gather_int8, Gather, 128) {
    Gather words = a;
    words.k /= 4;
    gather<uint32_t>(words);
}

struct Grouped {
    // [pairs, k], ordered by expert; and the factors of rows of integers, or null.
    const void* x;
    const float* row_scales;
    // The address of each expert's matrix [n, k], every `step`-th number; and of its factors in int8.
    const uint64_t* matrices;
    const uint64_t* scales;
    const GroupTile* tiles;
    // [pairs], rows of `stride` elements.
    void* out;
    uint32_t step, n, k, stride, segment;
    Finish finish;
    // The form of packed weights.
    Form form;
};

// A product of gemm.cuh for every tile of rows, by one block.
template <class Tile, class T, class Out, bool SCALED = false> DEVICE void grouped(const Grouped& a) {
    // A launch of the step writes the numbers of the weights that this one needs.
    launches_follow();
    const GroupTile tile = a.tiles[block_x()];
    if (tile.rows == 0) return;
    Gemm product{};
    product.of.x = static_cast<const T*>(a.x) + size_t(tile.first) * a.k;
    product.of.w = reinterpret_cast<const void*>(a.matrices[tile.expert * a.step]);
    if (SCALED)
        product.of.scales = reinterpret_cast<const float*>(a.scales[tile.expert * a.step]);
    if (SCALED && a.row_scales) product.of.row_scales = a.row_scales + tile.first;
    product.of.rows = tile.rows;
    product.of.n = a.n, product.of.k = a.k, product.of.segment = a.segment;
    product.of.form = a.form;
    product.out = static_cast<Out*>(a.out) + size_t(tile.first) * a.stride;
    product.stride = a.stride, product.finish = a.finish;
    Part part = whole_part(product.of);
    part.row = 0;
    Tile sums;
    sums.run(product.of, part, Waited());
    sums.each([&](unsigned row, unsigned column, float x, float y) {
        finish_pair<Out>(product, row, part.column * Tile::COLUMNS + column, x, y, 1.0f);
    });
}

// For few rows of each expert, and for many; with a gate, whose result has the activations' dtype, and
// without.
using TileFew = TileMma<Bf16Weights, 16, 64, 1, 4, 64, 5, false>;
KERNEL(gates_bf16_few, Grouped, 128) { grouped<TileFew, bf16, bf16>(a); }
KERNEL(downs_bf16_few, Grouped, 128) { grouped<TileFew, bf16, float>(a); }
KERNEL(gates_bf16_many, Grouped, 256) { grouped<TileLow<Bf16Weights>, bf16, bf16>(a); }
KERNEL(downs_bf16_many, Grouped, 256) { grouped<TileLow<Bf16Weights>, bf16, float>(a); }
using TileFewInt8 = TileMma<Int8Weights, 16, 64, 1, 4, 128, 5, false>;
KERNEL(gates_int8_few, Grouped, 128) { grouped<TileFewInt8, int8_t, float, true>(a); }
KERNEL(downs_int8_few, Grouped, 128) { grouped<TileFewInt8, int8_t, float, true>(a); }
KERNEL(gates_int8_many, Grouped, 256) { grouped<TileLow<Int8Weights>, int8_t, float, true>(a); }
KERNEL(downs_int8_many, Grouped, 256) { grouped<TileLow<Int8Weights>, int8_t, float, true>(a); }
using TileFewInt8w = TileMma<WidenedWeights, 16, 64, 1, 2, 64, 5, false>;
KERNEL(gates_int8w_few, Grouped, 64) { grouped<TileFewInt8w, bf16, bf16, true>(a); }
KERNEL(downs_int8w_few, Grouped, 64) { grouped<TileFewInt8w, bf16, float, true>(a); }
KERNEL(gates_int8w_many, Grouped, 256) { grouped<TileLow<WidenedWeights>, bf16, bf16, true>(a); }
KERNEL(downs_int8w_many, Grouped, 256) { grouped<TileLow<WidenedWeights>, bf16, float, true>(a); }
using TileFewPacked = TileMma<PackedWeights, 16, 64, 1, 2, 64, 5, false>;
KERNEL(gates_packed_few, Grouped, 64) { grouped<TileFewPacked, bf16, bf16>(a); }
KERNEL(downs_packed_few, Grouped, 64) { grouped<TileFewPacked, bf16, float>(a); }
KERNEL(gates_packed_many, Grouped, 256) { grouped<PackedLow, bf16, bf16>(a); }
KERNEL(downs_packed_many, Grouped, 256) { grouped<PackedLow, bf16, float>(a); }
KERNEL(experts_f32, Grouped, 256) { grouped<TileF32, float, float>(a); }

struct Mix {
    // [pairs, d], ordered by expert.
    const float* results;
    // [pairs].
    const uint32_t* experts;
    const uint32_t* places;
    const float* weights;
    // [r, d].
    float* sum;
    uint32_t chosen, d;
};

// One block per row.
KERNEL(mix_experts, Mix, 256) {
    launches_follow();
    size_t first = size_t(block_x()) * a.chosen;
    float* sum = a.sum + size_t(block_x()) * a.d;
    for (unsigned i = thread(); i < a.d; i += threads()) {
        float x = sum[i];
        for (unsigned j = 0; j < a.chosen; j++)
            if (a.experts[first + j] != NONE)
                x += a.weights[first + j] * a.results[size_t(a.places[first + j]) * a.d + i];
        sum[i] = x;
    }
}
