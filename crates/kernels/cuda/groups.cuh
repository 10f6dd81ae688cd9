// Matrix products of warpgroups in bf16 and int8: four warps that multiply tiles in shared memory,
// asynchronously. Devices of compute capability 9.0 only. Sums have the bits of gemm.cuh: the same segments,
// summed in the same order by the same tensor cores.
#pragma once
#include "gemm.cuh"

#ifdef WARPGROUPS

// Bytes of a row of a step, and its inner elements in bf16.
constexpr unsigned GROUP_BYTES = 128, GROUP_INNER = GROUP_BYTES / 2;

// The copies of a thread for a step of COUNT rows of BYTES bytes, by THREADS threads.
template <int COUNT, unsigned BYTES, int THREADS> struct Copies {
    static constexpr unsigned PIECES = BYTES / 16, STEP = THREADS / PIECES;
    static constexpr unsigned EACH = (COUNT + STEP - 1) / STEP;
    // Bytes of a step.
    static constexpr unsigned SIZE = COUNT * BYTES;
    static_assert(STEP % 8 == 0, "the copies of a thread are swizzled alike");
    // Where the step begins, the same in all threads; and the sources of the copies, relative to it.
    const unsigned char* from;
    uint32_t sources[EACH];
    // Offset of the first copy in the step.
    unsigned to;
    // Bit i: the row of copy i exists.
    uint32_t real = 0;

    DEVICE Copies(const unsigned char* rows, unsigned exist, size_t stride)
        : Copies(rows, exist, stride, [](unsigned row) { return row; }) {}

    // The source of a row of the step is row `map(row)`.
    template <class Map>
    DEVICE Copies(const unsigned char* rows, unsigned exist, size_t stride, Map map) : from(rows) {
        unsigned row = thread() / PIECES, piece = thread() % PIECES;
#pragma unroll
        for (unsigned i = 0; i < EACH; i++) {
            unsigned source = map(row + i * STEP);
            bool is_real = source < exist;
            real |= is_real << i;
            sources[i] = is_real ? source * uint32_t(stride) + piece * 16 : 0;
        }
        to = swizzle<PIECES>(row, piece) * 16;
    }

    // Copies the next step.
    DEVICE void fetch(unsigned char* start) {
#pragma unroll
        for (unsigned i = 0; i < EACH; i++) {
            if (COUNT % STEP != 0 && thread() / PIECES + i * STEP >= COUNT) break;
            copy16(start + to + i * STEP * BYTES, from + sources[i], real >> i & 1);
        }
        from += BYTES;
    }
};

// The steps of a part, in STAGES buffers of STEPS steps each: XS rows of x, then weights. While the tensor
// cores read the stage before, FIRST stages are on their way.
template <int XS, class Weights, int STAGES, int STEPS, int THREADS> struct Stages {
    static constexpr unsigned X_BYTES = XS * GROUP_BYTES;
    // A swizzled tile begins at a multiple of 1024.
    static constexpr unsigned SIZE = (X_BYTES + Weights::SIZE + 1023) / 1024 * 1024;
    static constexpr int FIRST = STAGES - 2;
    Copies<XS, GROUP_BYTES, THREADS> x;
    Weights w;
    // The next step to fetch, and the end of all.
    unsigned step, end;
    // Buffers, in steps, to fetch to and to take from.
    unsigned put = 0, at = 0;

    // Fetches the next stage; `weights`: also those.
    DEVICE void next(bool weights = true) {
#pragma unroll
        for (unsigned i = 0; i < STEPS; i++) {
            if (step + i >= end) break;
            unsigned char* to = shared_memory() + (put + i) * SIZE;
            x.fetch(to);
            if (weights) w.fetch(to + X_BYTES);
        }
        copies_commit();
        step += STEPS;
        put = put + STEPS == STAGES * STEPS ? 0 : put + STEPS;
    }

    // Fetches the first stages, and waits for the launches before. `early`: weights are fetched before that wait.
    // Otherwise they are not, because copies are complete in their order: the first stage would be with the last.
    template <class Begun> DEVICE void begin(bool early, Begun begun) {
        if (early)
#pragma unroll
            for (unsigned i = 0; i < FIRST * STEPS; i++)
                if (step + i < end) w.fetch(shared_memory() + i * SIZE + X_BYTES);
        launches_follow(begun);
#pragma unroll
        for (int i = 0; i < FIRST; i++) next(!early);
        begun();
    }

    // The next step. At the beginning of a stage, waits for it, and starts the copies of one that all
    // warpgroups have finished: they wait for their products of the step before the last one first.
    DEVICE const unsigned char* take() {
        if (STEPS == 1 || at % STEPS == 0) {
            copies_wait<FIRST - 1>();
            copies_visible();
            sync();
            next();
        }
        const unsigned char* taken = shared_memory() + at * SIZE;
        at = at + 1 == STAGES * STEPS ? 0 : at + 1;
        return taken;
    }
};

// The sums of one thread, COUNT times four, of parts of one segment, which need no registers for earlier ones.
template <int COUNT, int THREADS> struct SingleSums : Sums<COUNT, THREADS, 0> {
    // Ends the segment of a part of a divided tile.
    DEVICE void close(const Part& part, unsigned segment) {
        if (part.partials) this->keep(part.partials + size_t(segment) * this->SIZE);
    }
};
// The sums of inputs of a type. SINGLE: of products of one segment, which leaves registers for more sums.
template <class T, bool SINGLE, int COUNT, int THREADS> struct SumsOf : SumsFor<T, COUNT, THREADS, 0> {};
template <int COUNT, int THREADS> struct SumsOf<bf16, true, COUNT, THREADS> {
    using Type = SingleSums<COUNT, THREADS>;
};

// A tile of BM rows and BN columns on two warpgroups, of inputs and weights in bf16 or int8. With 128 rows
// each has half of the rows, with 64 half of the columns. HEADS_CUT: two tiles share three heads.
template <class T, int BM, int BN, int STAGES, bool SINGLE, bool HEADS_CUT = false>
struct TileGroups : SumsOf<T, SINGLE, BM * BN / 1024, 256>::Type {
    static_assert(!HEADS_CUT || BN == CUT_COLUMNS, "columns of one and a half heads");
    static constexpr int ROWS = BM, COLUMNS = BN, BETWEEN = 8;
    static constexpr bool CUT = HEADS_CUT;
    // Inner elements of a step.
    static constexpr unsigned INNER = GROUP_BYTES / sizeof(T);
    // Columns of a warpgroup.
    static constexpr int OWN = BM == 64 ? BN / 2 : BN;

    // Strips of eight rows and 64 columns, for the LM head: `each_strip` of score.cuh.
    static constexpr unsigned STRIPS = OWN % 64 == 0 ? OWN / 32 : 0;

    DEVICE static unsigned strip_row(unsigned s) {
        return group_row() + thread() % 128 / 32 * 16 + s % 2 * 8;
    }
    DEVICE static unsigned strip_column(unsigned s) { return group_column() + s / 2 * 64; }
    DEVICE static unsigned group_row() { return BM == 64 ? 0 : thread() / 128 * 64; }
    DEVICE static unsigned group_column() { return BM == 64 ? thread() / 128 * OWN : 0; }

    // As that of gemm.cuh.
    template <class Begun = Nothing>
    DEVICE void run(const Operands& of, const Part& part, Begun begun = {}) {
        unsigned row = part.row * BM, column = part.column * BN;
        unsigned each = of.segment / INNER, all = of.k / INNER;
        unsigned step = part.first * each, end = part.end * each < all ? part.end * each : all;
        size_t stride = size_t(of.k) * sizeof(T), before = size_t(step) * GROUP_BYTES;
        auto x = static_cast<const unsigned char*>(of.x) + row * stride + before;
        // Columns are counted from the first of those that tiles share.
        bool second = CUT && part.column % 2;
        if (second) column -= BN;
        auto w = static_cast<const unsigned char*>(of.w) + column * stride + before;
        auto map = [&](unsigned i) { return CUT ? i + cut_offset(second, i) : i; };
        Stages<BM, Copies<BN, GROUP_BYTES, 256>, STAGES, 1, 256> stages{
            {x, of.rows - row, stride}, {w, of.n - column, stride, map}, step, end};
        stages.begin(of.early, begun);
        unsigned segment = part.first;
        while (step < end) {
            unsigned stop = step + each < end ? step + each : end;
            for (; step < stop; step++) {
                const unsigned char* stage = stages.take();
                group_begin();
#pragma unroll
                for (unsigned k = 0; k < GROUP_BYTES / 32; k++)
                    group_multiply<OWN>(this->sums, stage + group_row() * GROUP_BYTES,
                                        stage + (BM + group_column()) * GROUP_BYTES, k);
                group_commit();
                // The products of the stage before.
                group_wait<1>();
            }
            group_wait<0>();
            group_done(this->sums);
            this->close(part, segment++);
        }
    }

    template <class F> DEVICE void each(F f) {
#pragma unroll
        for (int j = 0; j < OWN / 8; j++) {
            unsigned row = group_row() + thread() % 128 / 32 * 16 + thread() % 32 / 4;
            unsigned column = group_column() + j * 8 + thread() % 4 * 2;
            const auto& sums = this->sums[j];
            f(row, column, float(sums[0]), float(sums[1]));
            f(row + 8, column, float(sums[2]), float(sums[3]));
        }
    }
};

// The tiles of src/device/launch/tile.rs.
template <class T> using Groups64x64 = TileGroups<T, 64, 64, 6, false>;
template <class T> using Groups64x128 = TileGroups<T, 64, 128, 6, false>;
template <class T> using Groups64x192 = TileGroups<T, 64, 192, 6, true>;
template <class T> using Groups128x128 = TileGroups<T, 128, 128, 4, false>;
template <class T> using Groups128x192 = TileGroups<T, 128, 192, 5, true>;
template <class T> using GroupsCut = TileGroups<T, 128, 192, 5, true, true>;
template <class T> using Groups128x256 = TileGroups<T, 128, 256, 4, true>;
KERNEL(gemm_bf16_groups_64x64, Gemm, 256) { gemm<Groups64x64<bf16>, bf16>(a); }
KERNEL(gemm_bf16_groups_64x128, Gemm, 256) { gemm<Groups64x128<bf16>, bf16>(a); }
KERNEL(gemm_bf16_groups_64x192, Gemm, 256) { gemm<Groups64x192<bf16>, bf16>(a); }
KERNEL(gemm_bf16_groups_128x128, Gemm, 256) { gemm<Groups128x128<bf16>, bf16>(a); }
KERNEL(gemm_bf16_groups_128x192, Gemm, 256) { gemm<Groups128x192<bf16>, bf16>(a); }
KERNEL(gemm_bf16_groups_128x256, Gemm, 256) { gemm<Groups128x256<bf16>, bf16>(a); }
KERNEL(gemm_int8_groups_64x64, Gemm, 256) { gemm<Groups64x64<int8_t>, float>(a); }
KERNEL(gemm_int8_groups_64x128, Gemm, 256) { gemm<Groups64x128<int8_t>, float>(a); }
KERNEL(gemm_int8_groups_64x192, Gemm, 256) { gemm<Groups64x192<int8_t>, float>(a); }
KERNEL(gemm_int8_groups_128x128, Gemm, 256) { gemm<Groups128x128<int8_t>, float>(a); }
KERNEL(gemm_int8_groups_128x192, Gemm, 256) { gemm<Groups128x192<int8_t>, float>(a); }
KERNEL(gemm_int8_groups_128x256, Gemm, 256) { gemm<Groups128x256<int8_t>, float>(a); }
#endif
