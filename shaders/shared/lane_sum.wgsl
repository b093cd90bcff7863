// lane_sum: the sum of one value from each invocation of a workgroup of LANES invocations (a power of two), as a tree.
//
// The file that includes this declares LANES and calls it once, in uniform control flow. Workgroup memory: 4·LANES bytes.

var<workgroup> partial: array<f32, LANES>;

fn lane_sum(lane: u32, value: f32) -> f32 {
    partial[lane] = value;
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
            partial[lane] += partial[lane + half];
        }
    }
    workgroupBarrier();
    return partial[0];
}
