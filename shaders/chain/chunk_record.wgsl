// What chunk_prepare leaves for chunk_chain, in `work` (f32): first the sums of the gates, [chunks, HV, D] with D = K for a
// diagonal decay and 1 otherwise, up to a multiple of four words; then a record a row and value head. The layout is that of
// `Layout` in crates/kernels/src/chunk/mod.rs.
//
// A record: qe [K] | ke [K] | w [K] (delta only) | a [16] | u [V], up to a multiple of four words. K is one.
const KE: u32 = K;
const W: u32 = 2u * K;
const A: u32 = select(2u, 3u, UPDATE == UPDATE_DELTA) * K;
const U: u32 = A + CHUNK_TOKENS;

// First word of the record of a row.
fn row_record(row: u32, head: u32) -> u32 {
    let sums = tables[CHUNKS] * p.value_heads * select(1u, K, DECAY == DECAY_DIAGONAL);
    let words = U + (p.value + 3u) / 4u * 4u;
    return (sums + 3u) / 4u * 4u + (row * p.value_heads + head) * words;
}

// One number a token of a chunk, in registers.
struct Tokens {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
    d: vec4<f32>,
}

// With number i set to x: as comparisons, because registers have no index.
fn with_token(t: Tokens, i: u32, x: f32) -> Tokens {
    let at = vec4(0u, 1u, 2u, 3u);
    return Tokens(
        select(t.a, vec4(x), at == vec4(i)),
        select(t.b, vec4(x), at + 4u == vec4(i)),
        select(t.c, vec4(x), at + 8u == vec4(i)),
        select(t.d, vec4(x), at + 12u == vec4(i)),
    );
}

// Without number 0, the others one place further to the front.
fn without_first(t: Tokens) -> Tokens {
    return Tokens(vec4(t.a.yzw, t.b.x), vec4(t.b.yzw, t.c.x), vec4(t.c.yzw, t.d.x), vec4(t.d.yzw, 0.0));
}
