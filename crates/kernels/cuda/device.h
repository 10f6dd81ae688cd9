// The primitives of portable.h on a GPU of compute capability 8.0 or later.
#pragma once
#include <math.h>
#include <string.h>

// Namespaces are for the emulation only.
#define KERNELS_BEGIN
#define KERNELS_END

#define DEVICE __device__ __forceinline__
#define KERNEL(name, Args, count)                                                                  \
    extern "C" __global__ void __launch_bounds__(count) name(const __grid_constant__ Args a)
// The same with all registers that one block on a multiprocessor may have.
#define ROOMY_KERNEL(name, Args, count)                                                            \
    extern "C" __global__ void __launch_bounds__(count, 1) name(const __grid_constant__ Args a)

DEVICE unsigned thread() { return threadIdx.x; }
DEVICE unsigned threads() { return blockDim.x; }
DEVICE unsigned block_x() { return blockIdx.x; }
DEVICE unsigned block_y() { return blockIdx.y; }
DEVICE unsigned block_z() { return blockIdx.z; }
DEVICE unsigned blocks_x() { return gridDim.x; }
DEVICE unsigned blocks_y() { return gridDim.y; }
DEVICE void sync() { __syncthreads(); }
// Orders the memory accesses of a warp's lanes. Exchanges of registers do not.
DEVICE void sync_warp() { __syncwarp(); }

DEVICE unsigned char* shared_memory() {
    // Swizzled tiles of products of warpgroups begin at multiples of 1024.
    extern __shared__ __align__(1024) unsigned char bytes[];
    return bytes;
}

template <class T> DEVICE T shuffle_xor(T x, int lanes) {
    return __shfl_xor_sync(0xFFFFFFFFu, x, lanes);
}
template <class T> DEVICE T shuffle(T x, int lane) { return __shfl_sync(0xFFFFFFFFu, x, lane); }
// Bit l: the predicate of lane l.
DEVICE uint32_t warp_ballot(bool predicate) { return __ballot_sync(0xFFFFFFFFu, predicate); }
// Index of the lowest set bit of a number other than 0.
DEVICE int lowest(uint32_t bits) { return __ffs(int(bits)) - 1; }
DEVICE float as_float(uint32_t bits) { return __uint_as_float(bits); }
DEVICE uint32_t as_bits(float x) { return __float_as_uint(x); }
// A product and a sum that no fused operation replaces.
DEVICE float rounded_product(float x, float y) { return __fmul_rn(x, y); }
DEVICE float rounded_sum(float x, float y) { return __fadd_rn(x, y); }

// The number of 16 bits (IEEE 754) in the lower half of a word.
DEVICE float half_number(uint32_t word) {
    float x;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low; }" : "=f"(x) : "r"(word));
    return x;
}
// 2^23 plus byte i of a word.
DEVICE float byte_above(uint32_t word, unsigned i) {
    return __uint_as_float(__byte_perm(word, 0x4B000000u, 0x7440u | i));
}

// Byte b is byte `places >> 4 b & 7` of two words.
DEVICE uint32_t pick_bytes(uint32_t low, uint32_t high, uint32_t places) {
    return __byte_perm(low, high, places);
}
// Bytes of ones in place of those whose highest bit is set, of zeros in place of the others.
DEVICE uint32_t high_bits(uint32_t word) { return __byte_perm(word, 0, 0xBA98); }

// Reads numbers that no launch of a step writes: not even the wait for launches orders these reads.
DEVICE float read_only(const float* from) { return __ldg(from); }
DEVICE uint32_t read_only(const uint32_t* from) { return __ldg(from); }
DEVICE Numbers<1> read_only(const Numbers<1>* from) { return {__ldg(from->at)}; }
DEVICE Two read_only(const Two* from) {
    float2 two = __ldg(reinterpret_cast<const float2*>(from));
    return {two.x, two.y};
}
DEVICE Four read_only(const Four* from) {
    float4 four = __ldg(reinterpret_cast<const float4*>(from));
    return {four.x, four.y, four.z, four.w};
}

DEVICE float wide(bf16 x) { return __uint_as_float(uint32_t(x.bits) << 16); }

// Two numbers rounded to nearest even, the first in the lower half.
DEVICE uint32_t pack(float low, float high) {
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
template <class T> DEVICE T narrow(float x);
template <> DEVICE bf16 narrow<bf16>(float x) { return bf16{uint16_t(pack(x, 0.0f))}; }

// 2^x within two units in the last place; 0 below 2^-126.
DEVICE float power2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE uint32_t shared_address(const void* at) { return uint32_t(__cvta_generic_to_shared(at)); }

// Copies 16 bytes to shared memory asynchronously, or writes zeros if not `real`. Done when
// copies_wait returns.
DEVICE void copy16(void* to, const void* from, bool real) {
    int bytes = real ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes)
                 : "memory");
}
// Ends a group of copies.
DEVICE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for this thread's copies, except those of the last NEWEST groups.
template <int NEWEST> DEVICE void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(NEWEST) : "memory");
}

// Waits for the launches before this one, and sees what they wrote. A launch may begin while the one before it runs:
// before this every thread reads only what no launch of a step writes, and it writes nothing to global memory.
// Every thread calls it, also one that has nothing to do: the launch after next relies on this one's wait.
DEVICE void launches_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Permits the next launch to begin once every block has called this or ended.
DEVICE void launches_permit() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Makes this thread's writes visible to other blocks before its later ones.
DEVICE void fence() { __threadfence(); }
// Counts calls by other blocks; true in the call number `last`, counted from 0, after which the count
// is 0 again.
DEVICE bool is_last(uint32_t* count, uint32_t last) { return atomicInc(count, last) == last; }
// Reads numbers that another block of the same launch wrote.
DEVICE Four read_across(const Four* from) {
    Four to;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(to.at[0]), "=f"(to.at[1]), "=f"(to.at[2]), "=f"(to.at[3])
                 : "l"(from)
                 : "memory");
    return to;
}

// Widens four weights in int8 exactly to bf16, in parts of 64: the first two to to[0], the others to to[1].
// In the word, bits 0 to 6, 16 to 22, 8 to 14 and 24 to 30 are their sizes, and 15, 31, 23 and 7 their
// signs. A sign and a size alone are the bf16 size * 2^-133.
DEVICE void widen(uint32_t (&to)[2], uint32_t word) {
    uint32_t pairs[2] = {word & 0x807F807Fu, __funnelshift_r(word, word, 8) & 0x807F807Fu};
#pragma unroll
    for (int i = 0; i < 2; i++)
        // Times 2^127, minus 0.
        asm("fma.rn.bf16x2 %0, %1, %2, %3;"
            : "=r"(to[i])
            : "r"(pairs[i]), "r"(0x7F007F00u), "r"(0x80008000u));
}

// Widens four signed bytes exactly to bf16, in order: the first two to to[0], the others to to[1].
DEVICE void widen_bytes(uint32_t (&to)[2], uint32_t word) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t pair = __byte_perm(word, 0, i ? 0x4342 : 0x4140);
        // 128 plus the lower seven bits, minus 128 or, of a negative byte, 256.
        uint32_t sum = 0x43004300u | (pair & 0x007F007Fu), less = 0xC300C300u | (pair & 0x00800080u);
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(to[i]) : "r"(sum), "r"(0x3F803F80u), "r"(less));
    }
}

// Loads four 8x8 matrices of bf16. Lane l passes the address of row l % 8 of matrix l / 8. Of matrix
// i, lane l gets elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 in to[i].
DEVICE void load_matrices(uint32_t (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}
// The same for the transposed matrices.
DEVICE void load_transposed(uint32_t (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// c [16, 8] += a [16, 16] b [16, 8] on tensor cores with f32 sums.
DEVICE void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// c [16, 8] += a [16, 32] b [32, 8] of integers with eight bits, exactly. Words hold four where those of
// bf16 hold two.
DEVICE void multiply(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#include "groups_device.h"
