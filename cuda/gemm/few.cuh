// few: what a warp adds up of up to 8 rows times two columns of weights.
//
// A lane loads pieces of 16 bytes (fewer where rows do not begin at a multiple of 16), four of each column before it uses the
// first, so that a few warps on every processor keep the memory busy. It sums every 32nd piece in order; lanes are added
// pairwise. Rows that do not exist are skipped by a uniform branch.
#include "shared/weights.cuh"

constexpr u32 LANES = 32u;
// Columns of a warp at a time.
constexpr u32 COLUMNS = 2u;
// Pieces of a column that a lane loads before it uses the first.
constexpr u32 DEPTH = 4u;
constexpr u32 FEW = 8u;
// Columns of weights that share a scale.
constexpr u32 SCALE_COLUMNS = 128u;

// Adds to `sums` what this lane has of `here` rows times two columns that begin at elements `from` of w, whose pieces hold E
// elements. `row(i)` is where row i begins. FP8: `scales` has the first block of each column.
template <typename Piece, u32 E, typename Row>
__device__ __forceinline__ void add_pieces(
    const void* __restrict__ w, const size_t (&from)[COLUMNS], const float* const (&scales)[COLUMNS], Row row, u32 k, u32 here,
    float (&sums)[FEW][COLUMNS]) {
    const Piece* columns[COLUMNS];
#pragma unroll
    for (u32 c = 0u; c < COLUMNS; c++) {
        columns[c] = static_cast<const Piece*>(w) + from[c] / E;
    }
    const u32 pieces = k / E;
    for (u32 start = threadIdx.x % LANES; start < pieces; start += LANES * DEPTH) {
        Piece loaded[DEPTH][COLUMNS];
#pragma unroll
        for (u32 d = 0u; d < DEPTH; d++) {
            const u32 s = start + d * LANES;
#pragma unroll
            for (u32 c = 0u; c < COLUMNS; c++) {
                loaded[d][c] = s < pieces ? __ldcs(columns[c] + s) : Piece{};
            }
        }
#pragma unroll
        for (u32 d = 0u; d < DEPTH; d++) {
            const u32 s = start + d * LANES;
            if (s >= pieces) {
                break;
            }
            float x[COLUMNS][E];
#pragma unroll
            for (u32 c = 0u; c < COLUMNS; c++) {
                widen(loaded[d][c], x[c]);
                if (WEIGHT == 2u) {
                    const float scale = scales[c][s * E / SCALE_COLUMNS];
#pragma unroll
                    for (u32 e = 0u; e < E; e++) {
                        x[c][e] *= scale;
                    }
                }
            }
#pragma unroll
            for (u32 i = 0u; i < FEW; i++) {
                if (i < here) {
#pragma unroll
                    for (u32 q = 0u; q < E / 4u; q++) {
                        const float4 y = row(i)[s * (E / 4u) + q];
#pragma unroll
                        for (u32 c = 0u; c < COLUMNS; c++) {
                            const float* part = x[c] + 4u * q;
                            sums[i][c] = fmaf(part[3], y.w,
                                fmaf(part[2], y.z, fmaf(part[1], y.y, fmaf(part[0], y.x, sums[i][c]))));
                        }
                    }
                }
            }
        }
    }
}

// `put(i, j, sum)` for each of `here` rows and two columns, by a lane of its own.
template <typename Row, typename Put>
__device__ __forceinline__ void few_rows(
    const void* __restrict__ w, const size_t (&from)[COLUMNS], const float* const (&scales)[COLUMNS], Row row, u32 k, u32 here,
    Put put) {
    float sums[FEW][COLUMNS];
#pragma unroll
    for (u32 i = 0u; i < FEW; i++) {
#pragma unroll
        for (u32 j = 0u; j < COLUMNS; j++) {
            sums[i][j] = 0.0f;
        }
    }
    if (WEIGHT == 0u) {
        add_pieces<float4, 4u>(w, from, scales, row, k, here, sums);
    } else if (WEIGHT == 1u && k % 8u == 0u) {
        add_pieces<uint4, 8u>(w, from, scales, row, k, here, sums);
    } else if (WEIGHT == 1u) {
        add_pieces<uint2, 4u>(w, from, scales, row, k, here, sums);
    } else if (k % 16u == 0u) {
        add_pieces<uint4, 16u>(w, from, scales, row, k, here, sums);
    } else {
        add_pieces<u32, 4u>(w, from, scales, row, k, here, sums);
    }
#pragma unroll
    for (u32 i = 0u; i < FEW; i++) {
        if (i < here) {
#pragma unroll
            for (u32 j = 0u; j < COLUMNS; j++) {
                float sum = sums[i][j];
#pragma unroll
                for (u32 offset = LANES / 2u; offset > 0u; offset /= 2u) {
                    sum += __shfl_xor_sync(0xffffffffu, sum, offset);
                }
                if (threadIdx.x % LANES == i * COLUMNS + j) {
                    put(i, j, sum);
                }
            }
        }
    }
}
