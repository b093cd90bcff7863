//! Batching: sequences of different lengths side by side, as more heads of one run.

use crate::error::AlgebraError;
use crate::family::DecayKind;
use crate::inputs::{Extra, Heads, Inputs, Run};
use crate::sizes::Sizes;

/// One run of all the sequences: the heads of the first, then those of the second, and so on. Shorter ones are filled up
/// with tokens that change nothing (no decay, a zero key and value, no strength, extras at their idle value). A fixed decay
/// becomes a gate a token, since the sequences end at different tokens. Heads and dims, layouts, skip and scale must be
/// those of the first sequence.
///
/// # Errors
/// No sequence, inputs that [`Inputs::check`] refuses, [`AlgebraError::ShapeMismatch`].
pub fn stack(xs: &[&Inputs]) -> Result<Inputs, AlgebraError> {
    let Some(first) = xs.first() else {
        return Err(AlgebraError::Dimension { what: "sequences", value: 0, reason: "must be at least 1" });
    };
    let kind = |x: &Inputs| {
        let extras: Vec<_> = x.extras.iter().map(|e| (e.name, e.heads, e.dim)).collect();
        (Sizes { tokens: 0, ..x.sizes }, x.decay, x.writes, x.skip.len(), x.scale.to_bits(), extras)
    };
    for x in xs {
        x.check()?;
        if kind(x) != kind(first) {
            let (left, right) = (format!("{:?}", kind(first)), format!("{:?}", kind(x)));
            return Err(AlgebraError::ShapeMismatch { what: "stack", left, right });
        }
    }
    let (one, n, w) = (first.sizes, xs.len(), first.writes);
    let tokens = xs.iter().map(|x| x.sizes.tokens).max().unwrap_or(0);
    let heads = |h: usize| h.saturating_mul(n);
    let sizes = Sizes { tokens, key_heads: heads(one.key_heads), value_heads: heads(one.value_heads), ..one };
    sizes.check()?;
    let strengths = xs.iter().any(|x| !x.beta.is_empty());
    let decay = if first.decay == DecayKind::Fixed { DecayKind::Scalar } else { first.decay };
    let unrolled: Vec<Vec<f64>> =
        xs.iter().map(|x| if x.decay == DecayKind::Fixed { x.g.repeat(x.sizes.tokens) } else { x.g.clone() }).collect();
    // Row r of every sequence after row r of the one before it; rows past a sequence's end hold `idle`.
    let rows = |arrays: Vec<&[f64]>, row: usize, rows: usize, idle: f64| -> Vec<f64> {
        (0..rows)
            .flat_map(|r| arrays.iter().map(move |a| (r, *a)))
            .flat_map(|(r, a)| (r * row..(r + 1) * row).map(|i| a.get(i).copied().unwrap_or(idle)))
            .collect()
    };
    let each = |get: fn(&Inputs) -> &[f64]| xs.iter().map(|x| get(x)).collect::<Vec<_>>();
    let gates = Inputs { decay, ..first.cut(0..0) }.gate_row();
    let extra = |(i, e): (usize, &Extra)| {
        let arrays = xs.iter().map(|x| x.extras[i].values.as_slice()).collect();
        let per_head = if e.heads == Heads::Key { one.key_heads } else { one.value_heads };
        Extra { values: rows(arrays, per_head * e.dim, tokens, e.idle), ..e.clone() }
    };
    Ok(Inputs {
        sizes,
        q: rows(each(|x| &x.q), one.key_heads * one.key_dim, tokens, 0.0),
        k: rows(each(|x| &x.k), one.key_heads * one.key_dim, tokens * w, 0.0),
        v: rows(each(|x| &x.v), one.value_heads * one.value_dim, tokens * w, 0.0),
        g: rows(unrolled.iter().map(Vec::as_slice).collect(), gates, if gates == 0 { 0 } else { tokens }, 0.0),
        beta: if strengths { rows(each(|x| &x.beta), one.value_heads, tokens * w, 0.0) } else { vec![] },
        scale: first.scale,
        decay,
        writes: w,
        skip: xs.iter().flat_map(|x| x.skip.iter().copied()).collect(),
        extras: first.extras.iter().enumerate().map(extra).collect(),
    })
}

/// The runs of the single sequences from the run of [`stack`]; `state_len` is that of one sequence.
///
/// # Errors
/// A run of other sizes.
pub fn unstack(run: &Run, xs: &[&Inputs], state_len: usize) -> Result<Vec<Run>, AlgebraError> {
    let tokens = xs.iter().map(|x| x.sizes.tokens).max().unwrap_or(0);
    let row = xs.first().map_or(0, |x| x.sizes.value_heads * x.sizes.value_dim);
    crate::error::check_length("state of the stack", xs.len() * state_len, run.state.len())?;
    crate::error::check_length("outputs of the stack", xs.len() * tokens * row, run.o.len())?;
    let single = |(i, x): (usize, &&Inputs)| Run {
        o: (0..x.sizes.tokens).flat_map(|t| run.o[(t * xs.len() + i) * row..][..row].iter().copied()).collect(),
        state: run.state[i * state_len..(i + 1) * state_len].to_vec(),
    };
    Ok(xs.iter().enumerate().map(single).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families;
    use crate::strategy::{Case, Kind, Rounding};

    /// Padding is exactly nothing and heads do not hear of each other: bit-equal in every family.
    #[test]
    fn a_stack_is_its_sequences_in_every_family() {
        for family in families::all() {
            let case = |seed, tokens| Case {
                seed,
                kind: Kind::Anything,
                tokens,
                key_heads: 2,
                ratio: 2,
                key_dim: 4,
                value_dim: 3,
            };
            let drawn: Vec<_> =
                [7, 0, 12, 1].iter().map(|&n| family.inputs(&case(n as u64, n), Rounding::F64)).collect();
            let xs: Vec<&Inputs> = drawn.iter().map(|(x, _)| x).collect();
            let s0 = drawn.iter().flat_map(|(_, s)| s.clone()).collect::<Vec<_>>();
            let together = family.run(&stack(&xs).unwrap(), &s0).unwrap();
            let runs = unstack(&together, &xs, s0.len() / 4).unwrap();
            for ((x, s0), got) in drawn.iter().zip(runs) {
                assert_eq!(got, family.run(x, s0).unwrap(), "{}", family.name());
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_a_typed_error() {
        let case = Case { seed: 1, kind: Kind::Typical, tokens: 3, key_heads: 1, ratio: 1, key_dim: 4, value_dim: 3 };
        let x = |case: Case| case.inputs(Rounding::F64).0;
        let (a, b) = (x(case), x(Case { key_dim: 8, ..case }));
        assert!(matches!(stack(&[]), Err(AlgebraError::Dimension { .. })));
        assert!(matches!(stack(&[&a, &b]), Err(AlgebraError::ShapeMismatch { what: "stack", .. })));
        let run = Run { o: vec![0.0; 9], state: vec![0.0; 12] };
        assert!(unstack(&run, &[&a], 12).is_ok());
        assert!(matches!(unstack(&run, &[&a], 11), Err(AlgebraError::Length { .. })));
        assert!(matches!(unstack(&run, &[&a, &a], 6), Err(AlgebraError::Length { .. })));
    }
}
