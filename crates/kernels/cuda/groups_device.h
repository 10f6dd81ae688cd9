// Products of warpgroups on a GPU.
#pragma once

// Products of warpgroups exist in machine code for compute capability 9.0 only.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WARPGROUPS

// Kernels whose blocks run in clusters of `cluster`, `blocks` of them on a multiprocessor.
#define CLUSTER_KERNEL(name, Args, count, blocks, cluster)                                         \
    extern "C" __global__ void __cluster_dims__(cluster, 1, 1) __launch_bounds__(count, blocks)    \
        name(const __grid_constant__ Args a)

// The driver's description of rows for bulk copies.
struct alignas(128) TensorMap {
    uint64_t words[16];
};

// Tells the emulation that a thread goes on with other tiles.
DEVICE void begin_part(unsigned) {}

// The number of this block in its cluster of C blocks.
template <int C> DEVICE unsigned cluster_rank() {
    unsigned rank = 0;
    if (C > 1) asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
// Waits for all threads of the cluster.
template <int C> DEVICE void sync_cluster() {
    if (C == 1) return __syncthreads();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Waits for the first COUNT threads of the block.
template <int COUNT> DEVICE void sync_first() {
    asm volatile("bar.sync 1, %0;" ::"n"(COUNT) : "memory");
}

// Gives registers of a thread back, for all warps of a warpgroup, or takes as many.
template <int COUNT> DEVICE void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> DEVICE void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// A barrier whose phases complete after `count` arrivals, and when all bytes are there that were expected.
DEVICE void barrier_init(uint64_t& barrier, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(count)
                 : "memory");
}
// Makes the barriers that this thread has initialised visible to copies, and after the next barrier of the
// cluster to its blocks.
DEVICE void barriers_ready() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
}
// Arrives, and expects `bytes` more in this phase.
DEVICE void barrier_expect(uint64_t& barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
                 "r"(bytes)
                 : "memory");
}
// Arrives at the same barrier of a block of the cluster of C. It orders what products have read, which is
// complete, and nothing that this thread wrote: barriers of the cluster's scope would wait for its memory.
template <int C> DEVICE void barrier_arrive(uint64_t& barrier, unsigned rank) {
    uint32_t to = shared_address(&barrier);
    if (C == 1) {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(to) : "memory");
        return;
    }
    asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(to) : "r"(rank));
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(to) : "memory");
}
// Waits until the phase of this parity is complete.
DEVICE void barrier_wait(uint64_t& barrier, unsigned parity) {
    uint32_t from = shared_address(&barrier), done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(from), "r"(parity)
                     : "memory");
    } while (!done);
}
// Copies rows of 128 bytes from a row and an inner element on to a swizzled tile of this block, or to the same
// one of all C blocks of the cluster. Zeros are beyond the rows. Their bytes arrive at `barrier` of each block.
template <int C>
DEVICE void bulk_copy(unsigned char* to, const TensorMap& map, unsigned inner, unsigned row,
                      uint64_t& barrier) {
    if (C == 1)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
                     "l"(&map), "r"(inner), "r"(row), "r"(shared_address(&barrier))
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
                     "l"(&map), "r"(inner), "r"(row), "r"(shared_address(&barrier)),
                     "h"(uint16_t((1 << C) - 1))
                     : "memory");
}

// Orders a warpgroup's accesses to registers before its products.
DEVICE void group_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Ends a group of products.
DEVICE void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for the warpgroup's products, except those of the last NEWEST groups.
template <int NEWEST> DEVICE void group_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(NEWEST) : "memory");
}
// After a wait: keeps the compiler from moving the use of sums before it.
template <int COUNT> DEVICE void group_done(float (&sums)[COUNT][4]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) asm volatile("" : "+f"(sums[i][j])::"memory");
}
template <int COUNT> DEVICE void group_done(int32_t (&sums)[COUNT][4]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) asm volatile("" : "+r"(sums[i][j])::"memory");
}
// Makes this thread's finished copies visible to products.
DEVICE void copies_visible() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Describes step `k` of 32 bytes of a tile of swizzled rows with 128 bytes: its address, the
// distance of eight rows, both in units of 16 bytes, and the swizzle.
DEVICE uint64_t group_tile(const unsigned char* tile, unsigned k) {
    return uint64_t(1) << 62 | uint64_t(64) << 32 | uint64_t(1) << 16 |
           ((shared_address(tile) & 0x3FFFF) >> 4) + 2 * k;
}

#define REGISTERS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define REGISTERS_16 REGISTERS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define REGISTERS_32 \
    REGISTERS_16 ", " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGISTERS_48 \
    REGISTERS_32 ", " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define REGISTERS_64 \
    REGISTERS_48 ", " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define REGISTERS_96 \
    REGISTERS_64 ", " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define REGISTERS_128 \
    REGISTERS_96 ", " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
// `kind`: f for floats, r for integers.
#define SUMS_4(kind, i) \
    "+" kind(sums[i][0]), "+" kind(sums[i][1]), "+" kind(sums[i][2]), "+" kind(sums[i][3])
#define SUMS_8(kind, i) SUMS_4(kind, i), SUMS_4(kind, i + 1)
#define SUMS_16(kind, i) SUMS_8(kind, i), SUMS_8(kind, i + 2)
#define SUMS_32(kind, i) SUMS_16(kind, i), SUMS_16(kind, i + 4)
#define SUMS_48(kind, i) SUMS_32(kind, i), SUMS_16(kind, i + 8)
#define SUMS_64(kind, i) SUMS_32(kind, i), SUMS_32(kind, i + 8)
#define SUMS_96(kind, i) SUMS_64(kind, i), SUMS_32(kind, i + 16)
#define SUMS_128(kind, i) SUMS_64(kind, i), SUMS_64(kind, i + 16)

// sums [64, N] += x [64, 16] w [N, 16]', asynchronously; tiles of rows with 128 bytes. Of 64 rows a warp
// has sixteen, whose sums are those of `multiply` for every eight columns. Of integers: 32 inner elements.
template <int N>
DEVICE void group_multiply(float (&sums)[N / 8][4], const unsigned char* x, const unsigned char* w,
                           unsigned k);
template <int N>
DEVICE void group_multiply(int32_t (&sums)[N / 8][4], const unsigned char* x, const unsigned char* w,
                           unsigned k);
#define GROUP_MULTIPLY_AS(Sum, kind, types, ends, N, COUNT, AT, NEXT)                              \
    template <>                                                                                    \
    DEVICE void group_multiply<N>(Sum(&sums)[N / 8][4], const unsigned char* x,                    \
                                  const unsigned char* w, unsigned k) {                            \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N types " {" REGISTERS_##COUNT           \
                     "}, %" #AT ", %" #NEXT ends                                                   \
                     : SUMS_##COUNT(kind, 0)                                                       \
                     : "l"(group_tile(x, k)), "l"(group_tile(w, k)));                              \
    }
#define GROUP_MULTIPLY(N, COUNT, AT, NEXT)                                                         \
    GROUP_MULTIPLY_AS(float, "f", "k16.f32.bf16.bf16", ", 1, 1, 1, 0, 0;", N, COUNT, AT, NEXT)     \
    GROUP_MULTIPLY_AS(int32_t, "r", "k32.s32.s8.s8", ", 1;", N, COUNT, AT, NEXT)

// sums [64, N] += w [64, 16] x [N, 16]', asynchronously: w in registers, x in a tile of rows with 128 bytes.
// A warp has sixteen of 64 rows, in the layout of `multiply`.
template <int N>
DEVICE void group_multiply_left(float (&sums)[N / 8][4], const uint32_t (&w)[4], const unsigned char* x,
                                unsigned k);
#define GROUP_MULTIPLY_LEFT(N, COUNT, AT, B, C, D, TILE)                                           \
    template <>                                                                                    \
    DEVICE void group_multiply_left<N>(float(&sums)[N / 8][4], const uint32_t(&w)[4],              \
                                       const unsigned char* x, unsigned k) {                       \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" REGISTERS_##COUNT \
                     "}, {%" #AT ", %" #B ", %" #C ", %" #D "}, %" #TILE ", 1, 1, 1, 0;"           \
                     : SUMS_##COUNT("f", 0)                                                        \
                     : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(group_tile(x, k)));         \
    }
GROUP_MULTIPLY(32, 16, 16, 17)
GROUP_MULTIPLY(64, 32, 32, 33)
GROUP_MULTIPLY(96, 48, 48, 49)
GROUP_MULTIPLY(128, 64, 64, 65)
GROUP_MULTIPLY(192, 96, 96, 97)
GROUP_MULTIPLY(256, 128, 128, 129)
GROUP_MULTIPLY_LEFT(16, 8, 8, 9, 10, 11, 12)
GROUP_MULTIPLY_LEFT(64, 32, 32, 33, 34, 35, 36)
GROUP_MULTIPLY_LEFT(128, 64, 64, 65, 66, 67, 68)
#endif
