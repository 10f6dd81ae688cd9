// All kernels; compiled for the GPU, and by the host's compiler for tests.
#include "attention.cuh"
#include "attention_wide.cuh"
#include "canvas.cuh"
#include "experts.cuh"
#include "filters.cuh"
#include "gemm.cuh"
#include "rows.cuh"
#include "score.cuh"

#ifndef __CUDACC__
// Runs a kernel on the calling thread; false if no kernel has this name.
extern "C" bool asynclane_emulate(const char* name, const uint32_t* grid, uint32_t threads,
                                  uint32_t shared, const void* args) {
    return emulate::launch(name, grid, threads, shared, args);
}
#endif
