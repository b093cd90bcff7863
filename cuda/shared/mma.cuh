// mma: tensor-core products and asynchronous copies, from sm_80 on.
//
// Fragments of m16n8k16, with g = lane/4 and t = lane%4: a holds A[g, 2t..], A[g+8, 2t..], A[g, 2t+8..], A[g+8, 2t+8..];
// b holds B[2t.., g], B[2t+8.., g]; d holds D[g, 2t], D[g, 2t+1], D[g+8, 2t], D[g+8, 2t+1]. Pairs lie in one word, the first
// in its low half. So the sums of two neighbouring 8-column tiles, packed in pairs, are an a of the next product.
#include "shared/tables.cuh"

// Two floats as bf16, rounded to nearest even; `low` in the low half.
__device__ __forceinline__ u32 pack_bf16(float low, float high) {
    u32 out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

// d += a·b, bf16 operands and f32 sums.
__device__ __forceinline__ void mma_bf16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ u32 shared_address(const void* at) {
    return (u32)__cvta_generic_to_shared(at);
}

// Four 8×8 matrices of bf16 from shared memory: lane l gives the address of row l%8 of matrix l/8, a multiple of 16 bytes.
__device__ __forceinline__ void ldmatrix_x4(u32 (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// The same, each matrix transposed.
__device__ __forceinline__ void ldmatrix_x4_trans(u32 (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Copies 16 bytes to shared memory behind the scenes, past the L1 cache; zeros where not `take`, and then nothing is read.
__device__ __forceinline__ void cp_async16_or_zero(void* shared, const void* global, bool take) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(shared)), "l"(global), "r"(take ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void cp_async16(void* shared, const void* global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(shared_address(shared)), "l"(global) : "memory");
}

// Ends a group of copies.
__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;" : : : "memory");
}

// Waits until at most N of this thread's groups are under way. Other threads see the bytes after a barrier.
template <int N>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
}
