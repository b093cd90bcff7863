//! The chain of a warm request: operators of cached segments between the runs of seams and query.

use std::sync::Arc;

use seam_algebra::Family;
use seam_algebra::families::GatedDeltaRule;
use seam_algebra::{Operator, Transition, apply_heads};
use seam_conformance::tolerance::{CHAIN_OUTPUT, CHAIN_STATE};
use seam_device::Device;
use seam_kernels::tables::SHARED_SLABS;
use seam_ops::{Form, SlabId, Step};

use super::chain::{SEAM, checks, inputs, record, row_bytes, run_flops, sizes, words, words_of};
use crate::case::{Case, Cost};
use crate::error::BenchError;
use crate::lab::Lab;
use crate::random::Random;
use crate::reference::{norms, wide};
use crate::registry::Scale;

/// Documents, and rows of the query.
fn request(scale: Scale) -> (u32, u32) {
    match scale {
        Scale::Small => (4, 12),
        Scale::Real => (16, 32),
    }
}

pub(crate) fn shape(scale: Scale) -> String {
    let (documents, query) = request(scale);
    format!("{documents} operators, {}", words(&sizes(scale, documents * SEAM + query)))
}

pub(crate) fn prepare(name: &'static str, device: &Arc<dyn Device>, scale: Scale) -> Result<Case, BenchError> {
    let (documents, query) = request(scale);
    let mut random = Random::new(5);
    let x = inputs(&mut random, sizes(scale, documents * SEAM + query));
    let s = x.sizes;
    let (state, transition) = words_of(&s);
    let head = random.signed(state);
    // A uniform K×K matrix of this size has a norm near 0.8: a contraction, as those of segments are.
    let size = 0.4 * (3.0 / s.key_dim as f32).sqrt();
    let operators: Vec<(Vec<f32>, Vec<f32>)> =
        (0..documents).map(|_| (random.signed(state), random.reals(transition, -size, size))).collect();

    let mut lab = Lab::new(device);
    let mut slabs = vec![Vec::new(); SHARED_SLABS];
    // A head needs no T: it stands at the beginning, where the state is zero.
    let mut steps = vec![Step::Apply { slab: SlabId::Shared(0), s: 0, t: 0, form: Form::Zero, moved: None }];
    slabs[0].extend_from_slice(&head);
    for (i, (written, matrix)) in operators.iter().enumerate() {
        steps.push(Step::Run { first: i as u32 * SEAM, rows: SEAM });
        let slab = i % SHARED_SLABS;
        let at = slabs[slab].len() as u32;
        let form = Form::Dense;
        steps.push(Step::Apply { slab: SlabId::Shared(slab as u32), s: at, t: at + state, form, moved: None });
        slabs[slab].extend(written.iter().chain(matrix));
    }
    steps.push(Step::Run { first: documents * SEAM, rows: query });
    // The launch binds the slabs in the order in which the chain comes to them, which is that of their numbers.
    let shared =
        [lab.slab("operators", &slabs[0])?, lab.slab("operators", &slabs[1])?, lab.slab("operators", &slabs[2])?];
    let private = record(&mut lab, &x, steps, false, shared.each_ref().map(|slab| slab.all()))?;
    lab.written(&private, 0, state)?;

    let (state, transition, documents64) = (u64::from(state), u64::from(transition), u64::from(documents));
    let applied = documents64 * state * (2 * s.key_dim as u64 + 1);
    let cost = Cost {
        bytes: Some(row_bytes(&s) + 4 * (2 * state + documents64 * (state + transition))),
        flops: Some(run_flops(&s, s.tokens as u64) + applied),
        tokens: None,
    };
    let tolerances = [CHAIN_OUTPUT, CHAIN_STATE].map(|t| lab.tolerance(t));
    lab.finish(name, cost, move |outputs| {
        let mut state = wide(&head);
        let mut o = Vec::new();
        let (k, v) = (s.key_dim, s.value_dim);
        // The largest norm that each head's state had: what later roundings are relative to.
        let mut largest = vec![0.0f64; s.value_heads];
        let mut raise = |state: &[f64]| {
            largest.iter_mut().zip(norms(state, k * v)).for_each(|(most, norm)| *most = most.max(norm));
        };
        raise(&state);
        for (i, (written, matrix)) in operators.iter().enumerate() {
            let first = i * SEAM as usize;
            let run = GatedDeltaRule.run(&x.slice(first..first + SEAM as usize)?, &state)?;
            o.extend(run.o);
            let heads = written.chunks_exact(k * v).zip(matrix.chunks_exact(k * k));
            let heads: Result<Vec<Operator>, _> = heads
                .map(|(written, matrix)| Operator::new(k, v, Transition::Dense { matrix: wide(matrix) }, wide(written)))
                .collect();
            state = apply_heads(&heads?, &run.state)?.strict()?;
            raise(&state);
        }
        let run = GatedDeltaRule.run(&x.slice(operators.len() * SEAM as usize..s.tokens)?, &state)?;
        o.extend(run.o);
        raise(&run.state);
        Ok(checks(&x, outputs, &o, &run.state, &largest, tolerances))
    })
}
