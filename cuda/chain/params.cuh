// The parameters of the chain kernels, and what their constants mean. The constants are K, DECAY, UPDATE and ROTATION.
#include "shared/tables.cuh"

struct Params {
    u32 heads;
    u32 value_heads;
    u32 value;
    u32 row;
    u32 gate_row;
    u32 strength;
    u32 launch;
    u32 rot;
};

constexpr u32 DECAY_NONE = 0u;
constexpr u32 DECAY_SCALAR = 1u;
constexpr u32 DECAY_DIAGONAL = 2u;

constexpr u32 UPDATE_ADD = 0u;
constexpr u32 UPDATE_STRENGTH = 1u;
constexpr u32 UPDATE_DELTA = 2u;
constexpr u32 UPDATE_RANK_ONE = 3u;

constexpr u32 ROTATION_NONE = 0u;
constexpr u32 ROTATION_INTERLEAVED = 2u;

// Logarithm of a factor that is exactly 0: sums of two stay finite, and exp of it is 0.
constexpr float LOG_ZERO = -1e38f;
