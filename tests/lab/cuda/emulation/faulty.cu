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
    }
}
