// Kernels with one fault each, for tests: the observer must find it.
#include "portable.h"

struct Faulty {
    // [threads] per block.
    float* x;
    uint32_t fault;
};

// Blocks of 64 threads with 8 KiB of shared memory.
KERNEL(faulty, Faulty, 64) {
    float* words = reinterpret_cast<float*>(shared_memory());
    unsigned me = thread(), other = (me + 32) % 64, at = block_x() * threads() + me;
    // A block ends without a wait for the launches before.
    if (a.fault == 12 && block_x() == 1) return;
    // Reads what a launch writes, or writes, before that wait.
    float early = a.fault == 13 ? a.x[at] : 0.0f;
    if (a.fault == 14) a.x[at] = 1.0f;
    launches_follow();
    switch (a.fault) {
    // No fault: barriers of the block, then of the warp.
    case 0:
        words[me] = a.x[at];
        sync();
        a.x[at] = words[other];
        sync();
        words[me] = 1.0f;
        sync_warp();
        a.x[at] += words[me ^ 1];
        break;
    // Reads what another warp writes.
    case 1:
        words[me] = 1.0f;
        a.x[at] = words[other];
        break;
    // Reads what another lane writes; an exchange of registers orders no memory.
    case 2:
        words[me] = 1.0f;
        a.x[at] = shuffle_xor(1.0f, 1) + words[me ^ 1];
        break;
    // Writes what another thread reads.
    case 3:
        words[me] = 1.0f;
        sync();
        a.x[at] = words[other];
        words[me] = 2.0f;
        break;
    // Reads a copy before it is complete.
    case 4:
        copy16(words + 4 * me, a.x, true);
        copies_commit();
        a.x[at] = words[4 * me];
        break;
    // Reads another thread's copy after its own wait.
    case 5:
        copy16(words + 4 * me, a.x, true);
        copies_commit();
        copies_wait<0>();
        a.x[at] = words[4 * other];
        break;
    // Waits for all copies but the newest.
    case 6:
        copy16(words + 4 * me, a.x, true);
        copies_commit();
        copies_wait<1>();
        sync();
        a.x[at] = words[4 * other];
        break;
    // Reads shared memory that nothing was written to.
    case 7: a.x[at] = words[me]; break;
    // Blocks write to the same place.
    case 8: a.x[me] = 1.0f; break;
    // Reads in front of an allocation.
    case 9: a.x[at] = a.x[-1]; break;
    // Writes beyond the shared memory of the launch.
    case 10: words[2048 + me] = 1.0f; break;
    // Not wrong but slow: the words of a warp are in one bank, and a sector for every lane.
    case 11:
        words[me * 32] = a.x[me * 8 % 64];
        break;
    case 13: a.x[at] = early + 1.0f; break;
    // Reads as a constant what a launch writes.
    case 15: a.x[at] = read_only(a.x + at) + 1.0f; break;
    // No fault.
    case 16: a.x[at] += 1.0f; break;
    }
}

struct FaultyRing {
    // [192, 64].
    TensorMap x;
    // [64] per block.
    float* out;
    uint32_t fault;
};

constexpr unsigned FAULTY_STEPS = 6, FAULTY_STAGES = 2, FAULTY_BYTES = 4096;

// Two blocks of a cluster of 96 threads, with 9 KiB of shared memory. In turn their last warps load rows for
// both blocks, whose other two warps add them up.
CLUSTER_KERNEL(faulty_ring, FaultyRing, 96, 1, 2) {
    auto full = reinterpret_cast<uint64_t*>(shared_memory() + FAULTY_STAGES * FAULTY_BYTES);
    uint64_t* empty = full + FAULTY_STAGES;
    unsigned warp = thread() / 32, lane = thread() % 32, rank = cluster_rank<2>();
    launches_follow();
    // The use of a stage by the second warp, or by the other block, is not waited for.
    bool alone = a.fault == 1, apart = a.fault == 2;
    if (thread() == 0)
        for (unsigned i = 0; i < FAULTY_STAGES; i++) {
            barrier_init(full[i], 1);
            barrier_init(empty[i], (alone ? 1 : 2) * (apart ? 1 : 2));
        }
    sync_cluster<2>();
    float sum = 0.0f;
    for (unsigned step = 0; step < FAULTY_STEPS; step++) {
        unsigned at = step % FAULTY_STAGES, parity = step / FAULTY_STAGES % 2;
        unsigned char* stage = shared_memory() + at * FAULTY_BYTES;
        auto release = [&] {
            sync_warp();
            if ((alone && warp == 1) || (apart ? lane != rank : lane > 1)) return;
            if (lane < 2) barrier_arrive<2>(empty[at], lane);
        };
        if (warp == 2) {
            barrier_wait(empty[at], parity ^ 1);
            // More bytes than ever arrive.
            unsigned more = a.fault == 5 && step == 3 ? 16 : 0;
            if (lane == 0) barrier_expect(full[at], FAULTY_BYTES + more);
            if (lane == 0 && step % 2 == rank) bulk_copy<2>(stage, a.x, 0, step * 32, full[at]);
            sync_warp();
            continue;
        }
        // A warp reads without a wait.
        if (a.fault != 3 || warp == 0) barrier_wait(full[at], parity);
        // A stage is given back before it is read.
        if (a.fault == 4) release();
        for (unsigned i = 0; i < 4; i++)
            sum += reinterpret_cast<float*>(stage)[(warp * 4 + i) * 32 + lane];
        if (a.fault != 4) release();
    }
    if (warp < 2) a.out[block_x() * 64 + thread()] = sum;
    // A block ends while the other uses its barriers.
    if (a.fault != 6) sync_cluster<2>();
}
