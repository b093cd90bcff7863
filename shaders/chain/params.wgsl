// The parameters of the chain kernels, and what their constants mean. The constants are K, DECAY, UPDATE and ROTATION.

struct Params {
    heads: u32,
    value_heads: u32,
    value: u32,
    row: u32,
    gate_row: u32,
    strength: u32,
    launch: u32,
    rot: u32,
}

const DECAY_NONE: u32 = 0u;
const DECAY_SCALAR: u32 = 1u;
const DECAY_DIAGONAL: u32 = 2u;

const UPDATE_ADD: u32 = 0u;
const UPDATE_STRENGTH: u32 = 1u;
const UPDATE_DELTA: u32 = 2u;
const UPDATE_RANK_ONE: u32 = 3u;

const ROTATION_NONE: u32 = 0u;
const ROTATION_INTERLEAVED: u32 = 2u;

// Logarithm of a factor that is exactly 0: sums of two stay finite, and exp of it is 0.
const LOG_ZERO: f32 = -1e38;
