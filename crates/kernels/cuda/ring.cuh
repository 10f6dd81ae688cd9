// Matrix products of warpgroups whose operands a warp loads by bulk tensor copies into a ring of stages:
// devices of compute capability 9.0 only. A block computes one tile after the other, and the stages of the next
// are loaded while the sums of one are finished. The two blocks of a cluster have tiles one below the other;
// each loads half of the columns that both need for both. Sums have the bits of gemm.cuh. The
// coordinates of copies count elements of two bytes: one number in bf16, two in int8.
#pragma once
#include "groups.cuh"
#include "qkv.cuh"
#include "residual.cuh"
#include "score.cuh"

#ifdef WARPGROUPS

// Rows of a copy; `BOX_ROWS` of src/device/tensor_map.rs. With GROUP_BYTES of each it is a swizzled tile.
constexpr unsigned BOX = 32, BOX_BYTES = BOX * GROUP_BYTES;
// A row beyond every array, which is read as zeros.
constexpr unsigned NO_ROW = 1u << 30;
// Threads that multiply, and all with the warpgroup of the warp that loads.
constexpr unsigned CONSUMERS = 256, RING_THREADS = CONSUMERS + 128;
// Bytes after the stages for barriers and the answer to who ends last.
constexpr unsigned RING_CONTROL = 256;

// The arguments of a product, and the maps of its operands.
template <class Args> struct Ring {
    TensorMap x, w;
    // The parts of the blocks, or of the clusters; and the first row of the inputs.
    uint32_t parts, first;
    Args a;
};

// The barriers of the stages of this block: copies have filled one, warps have used one up.
template <int STAGES> struct Stations {
    static_assert((2 * STAGES + 1) * sizeof(uint64_t) <= RING_CONTROL, "room for all");
    uint64_t full[STAGES], empty[STAGES];
    // True if this block ends last.
    uint32_t answer;
};

// The next stage of a ring, and the parity of its phase.
template <int STAGES> struct Turn {
    unsigned at = 0, parity = 0;

    DEVICE void next() {
        parity ^= at + 1 == STAGES;
        at = at + 1 == STAGES ? 0 : at + 1;
    }
};

// A tile on two warpgroups, as in groups.cuh. PAIR: blocks of a cluster. RESIDENT: blocks of a multiprocessor.
template <class T, int BM, int BN, int STAGES, int PAIR, bool SINGLE, bool HEADS_CUT = false, int RESIDENT = 1>
struct TileRing : TileGroups<T, BM, BN, STAGES, SINGLE, HEADS_CUT> {
    using Base = TileGroups<T, BM, BN, STAGES, SINGLE, HEADS_CUT>;
    static constexpr int CLUSTER = PAIR;
    // Registers of a thread that loads, and of one that multiplies.
    static constexpr int FEWER = RESIDENT == 2 ? 24 : 40, MORE = RESIDENT == 2 ? 104 : 232;
    static constexpr unsigned STAGE = (BM + BN) * GROUP_BYTES;
    // Columns of whose sums there is room at a time, and numbers from one row of them to the next.
    static constexpr unsigned WINDOW = BN == 256 ? 128 : BN, PITCH = WINDOW + Base::BETWEEN;
    // Rows that a warp finishes at a time: with 64 rows, half of those whose sums two warps have.
    static constexpr unsigned OWN_ROWS = BM == 64 ? 4 : 8;
    static_assert(BN % (BOX * PAIR) == 0 && BM % BOX == 0, "whole copies");

    DEVICE static Stations<STAGES>& stations() {
        return *reinterpret_cast<Stations<STAGES>*>(shared_memory() + STAGES * STAGE);
    }
    DEVICE static float* room() {
        return reinterpret_cast<float*>(shared_memory() + STAGES * STAGE + RING_CONTROL);
    }
    // Waits for the threads that share rows of the room.
    DEVICE static void sync_room() {
        if (BM == 64) sync_first<CONSUMERS>();
        else sync_warp();
    }

    // Steps of a part.
    DEVICE static unsigned begin(const Operands& of, const Part& part) {
        return part.first * (of.segment / Base::INNER);
    }
    DEVICE static unsigned end(const Operands& of, const Part& part) {
        unsigned end = part.end * (of.segment / Base::INNER), all = of.k / Base::INNER;
        return end < all ? end : all;
    }

    // Loads this block's share of the weights of a step to the stage `at`, whose barrier then expects all bytes of
    // the step.
    template <class Args>
    DEVICE static void load_weights(const Ring<Args>& a, const Part& part, unsigned step, unsigned at) {
        constexpr unsigned SHARE = BN / BOX / PAIR;
        bool second = Base::CUT && part.column % 2;
        unsigned column = (part.column - second) * BN, rank = cluster_rank<PAIR>();
        uint64_t& full = stations().full[at];
        barrier_expect(full, STAGE);
        for (unsigned i = rank * SHARE; i < (rank + 1) * SHARE; i++) {
            unsigned from = Base::CUT ? i * BOX + cut_offset(second, i * BOX) : i * BOX;
            bulk_copy<PAIR>(shared_memory() + at * STAGE + BM * GROUP_BYTES + i * BOX_BYTES, a.w,
                            step * GROUP_INNER, column + from, full);
        }
    }

    // Loads the stages of a part, once their warps in all blocks of the cluster have used them up. `first`: the
    // ring is empty, and the weights of its stages are loaded before the wait for the launches before.
    template <class Args>
    DEVICE static void load(const Ring<Args>& a, const Part& part, Turn<STAGES>& turn, bool first) {
        const Operands& of = a.a.of;
        unsigned row = part.row * BM, step = begin(of, part), end = TileRing::end(of, part), loaded = step;
        if (first) {
            loaded = step + STAGES < end ? step + STAGES : end;
            if (thread() % 32 == 0)
                for (unsigned i = step; i < loaded; i++) load_weights(a, part, i, i - step);
            sync_warp();
            launches_follow();
        }
        for (; step < end; step++, turn.next()) {
            if (step >= loaded) barrier_wait(stations().empty[turn.at], turn.parity ^ 1);
            if (thread() % 32 == 0) {
                if (step >= loaded) load_weights(a, part, step, turn.at);
                for (unsigned i = 0; i < BM / BOX; i++) {
                    unsigned from = row + i * BOX;
                    bulk_copy<1>(shared_memory() + turn.at * STAGE + i * BOX_BYTES, a.x, step * GROUP_INNER,
                                 from < of.rows ? a.first + from : NO_ROW, stations().full[turn.at]);
                }
            }
            sync_warp();
        }
    }

    // Tells all blocks of the cluster that this warp has used up a stage.
    DEVICE static void release(unsigned at) {
        sync_warp();
        if (thread() % 32 < PAIR) barrier_arrive<PAIR>(stations().empty[at], thread() % 32);
    }

    // Computes the sums of a part.
    DEVICE void multiply_part(const Operands& of, const Part& part, Turn<STAGES>& turn) {
        unsigned each = of.segment / Base::INNER, step = begin(of, part), end = TileRing::end(of, part);
        unsigned segment = part.first;
        while (step < end) {
            unsigned start = step, stop = step + each < end ? step + each : end, before = 0;
            for (; step < stop; step++, turn.next()) {
                barrier_wait(stations().full[turn.at], turn.parity);
                const unsigned char* stage = shared_memory() + turn.at * STAGE;
                group_begin();
#pragma unroll
                for (unsigned k = 0; k < GROUP_BYTES / 32; k++)
                    group_multiply<Base::OWN>(this->sums, stage + Base::group_row() * GROUP_BYTES,
                                              stage + (BM + Base::group_column()) * GROUP_BYTES, k);
                group_commit();
                // The products of the stage before.
                group_wait<1>();
                if (step > start) release(before);
                before = turn.at;
            }
            group_wait<0>();
            group_done(this->sums);
            release(before);
            this->close(part, segment++);
        }
    }

    // True in the block that ends last of those of a divided tile.
    DEVICE bool ends_last(const Part& part) {
        return this->gather(part, [](const Part& part) {
            return block_ends_last(part.ended, part.pieces, &stations().answer,
                                   [] { sync_first<CONSUMERS>(); });
        });
    }

    // Where the factor of the norm of a row of the tile is, for this warp.
    DEVICE static float& factor(const Operands& of, unsigned row) {
        return factors(of)[thread() / 128 * 64 + row % 64];
    }
    // Computes the factors of this warp's rows.
    DEVICE static void find_own_factors(const Operands& of, unsigned first) {
        if (!of.squares) return;
        // All lanes have read those of the tile before.
        sync_warp();
        unsigned own = Base::group_row() + thread() % 128 / 32 * 16;
#pragma unroll 4
        for (unsigned i = own; i < own + 16; i++) {
            float found = norm_factor(of, first + i);
            if (thread() % 32 == 0) factor(of, i) = found;
        }
        sync_warp();
    }

    // Calls f(numbers, row, column) for OWN_ROWS rows of the tile from `row` on and WINDOW columns from
    // `column` on, which are in rows of PITCH numbers in the room, until this warp has finished its rows.
    template <class F> DEVICE void each_rows(F f) {
        unsigned warp = thread() / 32, lane = thread() % 32, quarter = warp % 4;
        // Rows of the room that the warp writes, and those that it finishes.
        unsigned own = BM == 64 ? quarter * 8 : warp * 8, left = BM == 64 ? warp / 4 * OWN_ROWS : 0;
#pragma unroll 1
        for (unsigned pass = 0; pass < 2 * (BN / WINDOW); pass++) {
            unsigned upper = pass % 2, window = pass / 2 * WINDOW;
#pragma unroll
            for (int j = 0; j < Base::OWN / 8; j++) {
                unsigned column = Base::group_column() + j * 8 + lane % 4 * 2;
                if (BN != WINDOW && column / WINDOW * WINDOW != window) continue;
                const auto& sums = this->sums[j];
                *reinterpret_cast<Two*>(room() + (own + lane / 4) * PITCH + column % WINDOW) =
                    Two{{float(upper ? sums[2] : sums[0]), float(upper ? sums[3] : sums[1])}};
            }
            sync_room();
            f(room() + (own + left) * PITCH, Base::group_row() + quarter * 16 + upper * 8 + left, window);
            sync_room();
        }
    }
};

// The division of tiles among parts.
template <class Tile, class Args> DEVICE Share share_of(const Args& a) { return a.share; }
// The tiles of the LM head are whole.
template <class Tile> DEVICE Share share_of(const Head& a) {
    unsigned tall = (a.of.rows + Tile::ROWS - 1) / Tile::ROWS;
    tall = (tall + Tile::CLUSTER - 1) / Tile::CLUSTER * Tile::CLUSTER;
    return {nullptr, nullptr, tall, 0xFFFFFFFF / Tile::CLUSTER * Tile::CLUSTER, 1, 1};
}

// Loads and multiplies the parts of a block, and gives each tile with its part to `finish`.
template <class Tile, class Args, class Finish> DEVICE void ring(const Ring<Args>& a, Finish finish) {
    constexpr int CLUSTER = Tile::CLUSTER;
    auto& stations = Tile::stations();
    constexpr unsigned STAGES = sizeof stations.full / sizeof(uint64_t);
    if (thread() == 0) {
        for (unsigned i = 0; i < STAGES; i++) {
            barrier_init(stations.full[i], 1);
            barrier_init(stations.empty[i], CONSUMERS / 32 * CLUSTER);
        }
        barriers_ready();
    }
    sync_cluster<CLUSTER>();
    Turn<STAGES> turn;
    auto each_part = [&](auto use) {
        for (unsigned number = block_x() / CLUSTER; number < a.parts; number += blocks_x() / CLUSTER) {
            begin_part(number);
            use(part_of(a.a.of, share_of<Tile>(a.a), Tile::SIZE, Tile::EXACT,
                        {number, cluster_rank<CLUSTER>(), CLUSTER}));
        }
    };
    if (thread() >= CONSUMERS) {
        fewer_registers<Tile::FEWER>();
        bool first = true;
        if (thread() / 32 == CONSUMERS / 32)
            each_part([&](const Part& part) {
                Tile::load(a, part, turn, first);
                first = false;
            });
        if (first) launches_follow();
    } else {
        more_registers<Tile::MORE>();
        launches_follow();
        each_part([&](const Part& part) {
            if (!Tile::EXACT) Tile::find_own_factors(a.a.of, part.row * Tile::ROWS);
            Tile tile;
            tile.multiply_part(a.a.of, part, turn);
            if (tile.ends_last(part)) finish(tile, part);
        });
    }
    // No block ends while another copies to its memory or uses its barriers.
    sync_cluster<CLUSTER>();
}

template <class Tile, class Out> DEVICE void ring_gemm(const Ring<Gemm>& a) {
    ring<Tile>(a, [&](Tile& tile, const Part& part) {
        unsigned row = part.row * Tile::ROWS, column = part.column * Tile::COLUMNS;
        bool lacks = !Tile::EXACT && a.a.of.squares;
        tile.each([&](unsigned r, unsigned c, float x, float y) {
            finish_pair<Out>(a.a, row + r, column + c, x, y, lacks ? Tile::factor(a.a.of, r) : 1.0f);
        });
    });
}

template <class Tile> DEVICE void ring_head(const Ring<Head>& a) {
    ring<Tile>(a, [&](Tile& tile, const Part& part) {
        each_strip(tile, [&](unsigned row, unsigned column, const float(&sums)[OWN_COLUMNS]) {
            reduce_strip(a.a, part.row * Tile::ROWS + row, part.column * Tile::COLUMNS + column, sums);
        });
    });
}

template <class Tile> DEVICE void ring_residual(const Ring<Residual>& a) {
    ring<Tile>(a, [&](Tile& tile, const Part& part) {
        tile.each_rows([&](const float* x, unsigned row, unsigned window) {
            unsigned first = part.row * Tile::ROWS + row;
            unsigned column = part.column * Tile::COLUMNS + window;
            for (unsigned strip = 0; strip < Tile::WINDOW && column + strip < a.a.of.n; strip += SQUARED)
                for (unsigned i = 0; i < Tile::OWN_ROWS; i += 2 * AT_ONCE)
                    add_rows(a.a, x + i * Tile::PITCH + strip, Tile::PITCH, first + i,
                             first + Tile::OWN_ROWS, column + strip);
        });
    });
}

template <class Tile> DEVICE void ring_qkv(const Ring<Qkv>& a) {
    bool plain = Tile::CUT || is_plain(a.a.to);
    ring<Tile>(a, [&](Tile& tile, const Part& part) {
        tile.each_rows([&](float* x, unsigned row, unsigned window) {
            unsigned first = part.row * Tile::ROWS + row, own = first + thread() % Tile::OWN_ROWS;
            // A lane has the place of one of the rows.
            Place mine = place_of(a.a.to, own < a.a.of.rows ? own : 0);
            for (unsigned i = 0; i < Tile::OWN_ROWS && first + i < a.a.of.rows; i++) {
                float factor = !Tile::EXACT && a.a.of.squares ? Tile::factor(a.a.of, row + i) : 1.0f;
                Place at = shuffle(mine, int(i));
                Window columns{window, Tile::WINDOW};
                float* sums = x + i * Tile::PITCH;
                if (plain) finish_row<Tile, true>(a.a, sums, part.column, columns, first + i, at, factor);
                else finish_row<Tile, false>(a.a, sums, part.column, columns, first + i, at, factor);
            }
        });
    });
}

// The tiles of src/device/launch/tile.rs: in pairs of blocks for many rows, alone for few.
template <class T> using Pair128x256 = TileRing<T, 128, 256, 4, 2, true>;
template <class T> using Pair128x192 = TileRing<T, 128, 192, 4, 2, true>;
template <class T> using PairCut = TileRing<T, 128, 192, 4, 2, true, true>;
template <class T> using Pair128x128 = TileRing<T, 128, 128, 5, 2, false>;
template <class T> using Ring128x128 = TileRing<T, 128, 128, 5, 1, false>;
template <class T> using Ring64x128 = TileRing<T, 64, 128, 4, 1, false, false, 2>;
template <class T> using RingHeads64x128 = TileRing<T, 64, 128, 4, 1, false>;
template <class T> using Ring64x64 = TileRing<T, 64, 64, 6, 1, false, false, 2>;
#define RING(name, blocks, cluster, Args) CLUSTER_KERNEL(name, Ring<Args>, RING_THREADS, blocks, cluster)
RING(gemm_bf16_pair_128x256, 1, 2, Gemm) { ring_gemm<Pair128x256<bf16>, bf16>(a); }
RING(qkv_bf16_pair_128x256, 1, 2, Qkv) { ring_qkv<Pair128x256<bf16>>(a); }
RING(head_bf16_pair_128x256, 1, 2, Head) { ring_head<Pair128x256<bf16>>(a); }
RING(residual_bf16_pair_128x256, 1, 2, Residual) { ring_residual<Pair128x256<bf16>>(a); }
RING(gemm_bf16_pair_128x192, 1, 2, Gemm) { ring_gemm<Pair128x192<bf16>, bf16>(a); }
RING(qkv_bf16_pair_128x192, 1, 2, Qkv) { ring_qkv<PairCut<bf16>>(a); }
RING(gemm_bf16_pair_128x128, 1, 2, Gemm) { ring_gemm<Pair128x128<bf16>, bf16>(a); }
RING(qkv_bf16_pair_128x128, 1, 2, Qkv) { ring_qkv<Pair128x128<bf16>>(a); }
RING(head_bf16_pair_128x128, 1, 2, Head) { ring_head<Pair128x128<bf16>>(a); }
RING(residual_bf16_pair_128x128, 1, 2, Residual) { ring_residual<Pair128x128<bf16>>(a); }
RING(gemm_bf16_ring_128x128, 1, 1, Gemm) { ring_gemm<Ring128x128<bf16>, bf16>(a); }
RING(qkv_bf16_ring_128x128, 1, 1, Qkv) { ring_qkv<Ring128x128<bf16>>(a); }
RING(residual_bf16_ring_128x128, 1, 1, Residual) { ring_residual<Ring128x128<bf16>>(a); }
RING(gemm_bf16_ring_64x128, 2, 1, Gemm) { ring_gemm<Ring64x128<bf16>, bf16>(a); }
RING(qkv_bf16_ring_64x128, 1, 1, Qkv) { ring_qkv<RingHeads64x128<bf16>>(a); }
RING(residual_bf16_ring_64x128, 1, 1, Residual) { ring_residual<RingHeads64x128<bf16>>(a); }
RING(gemm_bf16_ring_64x64, 2, 1, Gemm) { ring_gemm<Ring64x64<bf16>, bf16>(a); }
RING(residual_bf16_ring_64x64, 2, 1, Residual) { ring_residual<Ring64x64<bf16>>(a); }
RING(gemm_int8_pair_128x256, 1, 2, Gemm) { ring_gemm<Pair128x256<int8_t>, float>(a); }
RING(qkv_int8_pair_128x256, 1, 2, Qkv) { ring_qkv<Pair128x256<int8_t>>(a); }
RING(head_int8_pair_128x256, 1, 2, Head) { ring_head<Pair128x256<int8_t>>(a); }
RING(gemm_int8_pair_128x192, 1, 2, Gemm) { ring_gemm<Pair128x192<int8_t>, float>(a); }
RING(gemm_int8_pair_128x128, 1, 2, Gemm) { ring_gemm<Pair128x128<int8_t>, float>(a); }
RING(qkv_int8_pair_128x128, 1, 2, Qkv) { ring_qkv<Pair128x128<int8_t>>(a); }
RING(head_int8_pair_128x128, 1, 2, Head) { ring_head<Pair128x128<int8_t>>(a); }
RING(gemm_int8_ring_128x128, 1, 1, Gemm) { ring_gemm<Ring128x128<int8_t>, float>(a); }
RING(qkv_int8_ring_128x128, 1, 1, Qkv) { ring_qkv<Ring128x128<int8_t>>(a); }
RING(gemm_int8_ring_64x128, 2, 1, Gemm) { ring_gemm<Ring64x128<int8_t>, float>(a); }
RING(qkv_int8_ring_64x128, 1, 1, Qkv) { ring_qkv<RingHeads64x128<int8_t>>(a); }
RING(gemm_int8_ring_64x64, 2, 1, Gemm) { ring_gemm<Ring64x64<int8_t>, float>(a); }
#endif
