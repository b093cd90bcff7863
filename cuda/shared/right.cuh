// right: products of a left operand in registers with a right operand in shared memory, for the four warps of a block at once.
//
// A right operand is made of core matrices: 8 rows of 16 bytes, one after the other. `rows` bytes lie between core matrices that
// follow each other along N, `depth` bytes between those along K. Plainly a core matrix has 8 n by 8 k; transposed, 8 k by 8 n.
// On Hopper's own instruction set this is wgmma, which reads shared memory by itself and runs while the warps do other things:
// products_begin() comes after the registers of its operands were written, products_wait() before its sums are read. What
// plain stores or cp.async wrote to shared memory is made visible to it by products_see() in the writing thread, before a barrier.
// Elsewhere it is ldmatrix and mma of each warp for itself, at once. The two do not mix in a kernel, or ptxas makes wgmma wait for
// each product.
#include "shared/tables.cuh"
#include "shared/mma.cuh"

typedef float Sums[4];

struct Right {
    const void* at;
    u32 rows;
    u32 depth;
};

__device__ __forceinline__ Right moved(const Right& right, u32 bytes) {
    return {reinterpret_cast<const char*>(right.at) + bytes, right.rows, right.depth};
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ void products_begin() {
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

__device__ __forceinline__ void products_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

// Waits until at most N committed groups are under way.
template <int N>
__device__ __forceinline__ void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(N) : "memory");
}

__device__ __forceinline__ void products_see() {
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

__device__ __forceinline__ unsigned long long descriptor(const Right& right) {
    const unsigned long long at = (shared_address(right.at) & 0x3ffffu) >> 4u;
    return at | (unsigned long long)(right.depth >> 4u) << 16u | (unsigned long long)(right.rows >> 4u) << 32u;
}

template <u32 TILES, bool TRANSPOSED, bool FIRST>
struct Product;

template <bool TRANSPOSED, bool FIRST>
struct Product<8u, TRANSPOSED, FIRST> {
    static __device__ __forceinline__ void add(Sums* d, const u32 (&a)[4], unsigned long long right) {
        asm volatile(
            "{\n.reg .pred all;\nsetp.ne.u32 all, %38, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
            ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
            "}, {%32, %33, %34, %35}, %36, all, 1, 1, %37;\n}"
            : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]),
              "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
              "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
              "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),
              "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
              "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
              "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]),
              "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right), "n"(TRANSPOSED ? 1 : 0), "n"(FIRST ? 0 : 1));
    }
};

template <bool TRANSPOSED, bool FIRST>
struct Product<16u, TRANSPOSED, FIRST> {
    static __device__ __forceinline__ void add(Sums* d, const u32 (&a)[4], unsigned long long right) {
        asm volatile(
            "{\n.reg .pred all;\nsetp.ne.u32 all, %70, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
            ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
            ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
            ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
            "}, {%64, %65, %66, %67}, %68, all, 1, 1, %69;\n}"
            : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]),
              "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
              "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
              "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),
              "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
              "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
              "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]),
              "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3]),
              "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]),
              "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]),
              "+f"(d[10][0]), "+f"(d[10][1]), "+f"(d[10][2]), "+f"(d[10][3]),
              "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]),
              "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]),
              "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]),
              "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]),
              "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right), "n"(TRANSPOSED ? 1 : 0), "n"(FIRST ? 0 : 1));
    }
};

// d += a·right over 8·TILES columns and 16 deep; FIRST: d = a·right.
template <u32 TILES, bool TRANSPOSED, bool FIRST>
__device__ __forceinline__ void product(Sums* d, const u32 (&a)[4], const Right& right) {
    Product<TILES, TRANSPOSED, FIRST>::add(d, a, descriptor(right));
}

#else

__device__ __forceinline__ void products_begin() {}

__device__ __forceinline__ void products_commit() {}

template <int N>
__device__ __forceinline__ void products_wait() {}

__device__ __forceinline__ void products_see() {}

// d += a·right over 8·TILES columns and 16 deep; FIRST: d = a·right.
template <u32 TILES, bool TRANSPOSED, bool FIRST>
__device__ __forceinline__ void product(Sums* d, const u32 (&a)[4], const Right& right) {
    const u32 lane = threadIdx.x % 32u;
    const char* row = reinterpret_cast<const char*>(right.at) + lane % 8u * 16u + lane / 8u % 2u * right.depth +
                      lane / 16u * right.rows;
#pragma unroll
    for (u32 n = 0u; n < TILES; n += 2u) {
        u32 b[4];
        if (TRANSPOSED) {
            ldmatrix_x4_trans(b, row + n * right.rows);
        } else {
            ldmatrix_x4(b, row + n * right.rows);
        }
        if (FIRST) {
#pragma unroll
            for (u32 c = 0u; c < 4u; c++) {
                d[n][c] = 0.0f;
                d[n + 1u][c] = 0.0f;
            }
        }
        mma_bf16(d[n], a, b[0], b[1]);
        mma_bf16(d[n + 1u], a, b[2], b[3]);
    }
}

#endif
