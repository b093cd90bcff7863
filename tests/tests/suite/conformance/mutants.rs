//! Devices with one defect each: the goldens and the laws that must see it do.

use std::sync::Arc;
use std::time::Duration;

use seam_algebra::laws::Options;
use seam_conformance::{Check, Method, laws};
use seam_device::{
    Buffer, BufferRange, BufferUse, Caps, CommandList, Device, DeviceError, DeviceId, Dispatch, Gemm, HostBytes,
    KernelId, Lane, Pending, Recorder, Stats, Ticket,
};
use seam_kernels::chain::CHAIN;
use seam_kernels::chunk::CHUNK_CHAIN;
use seam_kernels::conv::CONV_TAIL;
use seam_kernels::elementwise::GDN_GATE;
use seam_kernels::gate::{GLA_GATE, KDA_GATE, MAMBA_GATE};
use seam_kernels::norm::{GATED_RMS_NORM, L2_NORM, RMS_NORM};
use seam_kernels::rope::ROPE;
use seam_kernels::router::ROUTER;
use seam_kernels::tables::{
    CHUNK_TABLE, CONV_LAUNCHES, FORM_DENSE, FORM_IDENTITY, FORM_ZERO, HISTORY_TABLE, ROW_TABLE, ROW_WORDS,
    SOURCE_WORDS, SOURCE_ZERO, SPAN_TABLE, STEP_APPLY, STEP_BEGIN, STEP_LOAD, STEP_RUN, STEP_STORE, STEP_TABLE,
    STEP_WORDS, STEP_ZERO, TAIL_LAUNCHES, TAIL_TABLE,
};
use seam_tests::cpu;

use super::{failed, goldens};

/// What goes wrong between the host and a device.
#[derive(Clone, Copy)]
enum Defect {
    /// In the tables of a pass.
    Tables(fn(&mut [u32])),
    /// In a dispatch; `None` for one that never runs.
    Dispatch(fn(Dispatch) -> Option<Dispatch>),
}

struct Mutant {
    inner: Arc<dyn Device>,
    defect: Defect,
}

struct MutantRecorder {
    inner: Box<dyn Recorder>,
    defect: Defect,
}

impl Device for Mutant {
    fn id(&self) -> DeviceId {
        self.inner.id()
    }

    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }

    fn alloc(&self, label: &str, bytes: u64, usage: BufferUse) -> Result<Buffer, DeviceError> {
        self.inner.alloc(label, bytes, usage)
    }

    fn constant(&self, label: &str, bytes: HostBytes) -> Result<Buffer, DeviceError> {
        self.inner.constant(label, bytes)
    }

    fn write(&self, range: &BufferRange, bytes: &[u8]) -> Result<(), DeviceError> {
        match self.defect {
            Defect::Tables(change) if range.buffer.label() == "tables" => {
                let mut words: Vec<u32> =
                    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
                change(&mut words);
                self.inner.write(range, bytemuck::cast_slice(&words))
            }
            _ => self.inner.write(range, bytes),
        }
    }

    fn recorder(&self) -> Box<dyn Recorder> {
        Box::new(MutantRecorder { inner: self.inner.recorder(), defect: self.defect })
    }

    fn submit(&self, list: &CommandList, lane: Lane, after: &[Ticket]) -> Result<Ticket, DeviceError> {
        self.inner.submit(list, lane, after)
    }

    fn poll(&self, ticket: Ticket) -> Result<bool, DeviceError> {
        self.inner.poll(ticket)
    }

    fn wait(&self, ticket: Ticket) -> Result<(), DeviceError> {
        self.inner.wait(ticket)
    }

    fn elapsed(&self, ticket: Ticket) -> Option<Duration> {
        self.inner.elapsed(ticket)
    }

    fn read(&self, range: &BufferRange, after: &[Ticket]) -> Result<Box<dyn Pending>, DeviceError> {
        self.inner.read(range, after)
    }
}

impl Recorder for MutantRecorder {
    fn dispatch(&mut self, dispatch: Dispatch) -> Result<(), DeviceError> {
        match self.defect {
            Defect::Dispatch(change) => change(dispatch).map_or(Ok(()), |d| self.inner.dispatch(d)),
            Defect::Tables(_) => self.inner.dispatch(dispatch),
        }
    }

    fn gemm(&mut self, gemm: Gemm) -> Result<(), DeviceError> {
        self.inner.gemm(gemm)
    }

    fn copy(&mut self, src: &BufferRange, dst: &BufferRange) -> Result<(), DeviceError> {
        self.inner.copy(src, dst)
    }

    fn zero(&mut self, dst: &BufferRange) -> Result<(), DeviceError> {
        self.inner.zero(dst)
    }

    fn finish(self: Box<Self>) -> Result<CommandList, DeviceError> {
        self.inner.finish()
    }
}

fn mutant(defect: Defect) -> Arc<dyn Device> {
    Arc::new(Mutant { inner: cpu(), defect })
}

/// The records of a table between two header words.
fn records(words: &mut [u32], from: usize, to: usize, size: usize) -> std::slice::ChunksExactMut<'_, u32> {
    let range = words[from] as usize..words[to] as usize;
    words[range].chunks_exact_mut(size)
}

/// Changes every chain step of one kind.
fn steps(words: &mut [u32], kind: u32, change: impl Fn(&mut [u32])) {
    for step in records(words, STEP_TABLE, CHUNK_TABLE, STEP_WORDS).filter(|s| s[0] == kind) {
        change(step);
    }
}

fn dense_as(words: &mut [u32], form: u32) {
    steps(words, STEP_APPLY, |s| {
        if s[4] == FORM_DENSE {
            s[4] = form;
        }
    });
}

/// A step that no kernel knows does nothing.
const NOTHING: u32 = 99;

/// Sets a word of a kernel's parameters.
fn parameter(mut dispatch: Dispatch, kernel: KernelId, word: usize, value: u32) -> Option<Dispatch> {
    if dispatch.kernel == kernel {
        dispatch.params[word * 4..][..4].copy_from_slice(&value.to_le_bytes());
    }
    Some(dispatch)
}

/// Sets a constant of a kernel.
fn constant(mut dispatch: Dispatch, kernel: KernelId, which: usize, value: u32) -> Option<Dispatch> {
    if dispatch.kernel == kernel {
        dispatch.constants[which] = value;
    }
    Some(dispatch)
}

/// The defect, endings of the goldens' checks of which some must fail, and the laws that must fail.
type Seen = (&'static str, Defect, &'static [&'static str], &'static [&'static str]);

const DEFECTS_OF_CHAINS: &[Seen] = &[
    (
        "a dense T taken for the identity",
        Defect::Tables(|w| dense_as(w, FORM_IDENTITY)),
        &["/s_final (applied)", "/s_final (applied beside an operator)", "/t_c (applied to the identity)"],
        &["split_invariance", "apply_compose", "order_sensitivity", "chain"],
    ),
    (
        "a dense T taken for zero",
        Defect::Tables(|w| dense_as(w, FORM_ZERO)),
        &["/s_final (applied)", "/t_c (applied to the identity)"],
        &["identity", "split_invariance", "apply_compose", "order_sensitivity", "chain"],
    ),
    (
        "the identity taken for a zero T",
        Defect::Tables(|w| {
            steps(w, STEP_APPLY, |s| {
                if s[4] == FORM_IDENTITY {
                    s[4] = FORM_ZERO;
                }
            });
        }),
        &[],
        &["identity"],
    ),
    (
        "S read one word further on",
        Defect::Tables(|w| steps(w, STEP_APPLY, |s| s[2] += u32::from(s[4] == FORM_DENSE))),
        &["/s_final (applied)", "/s_zero (applied to the identity)"],
        &["split_invariance", "apply_compose", "chain"],
    ),
    (
        "every operator read from the first slab",
        Defect::Tables(|w| steps(w, STEP_APPLY, |s| s[1] = 0)),
        &[],
        &["associativity", "split_invariance", "apply_compose", "order_sensitivity"],
    ),
    (
        "an operator that never begins",
        Defect::Tables(|w| steps(w, STEP_BEGIN, |s| s[0] = NOTHING)),
        &["/s_zero", "/t_c", "/s_zero (in two passes)", "/t_c (in two passes)"],
        &["operator", "identity", "split_invariance", "short_lengths", "chain"],
    ),
    (
        "operator columns lost between passes",
        Defect::Tables(|w| steps(w, STEP_LOAD, |s| s[2] = 0)),
        &["/s_zero (in two passes)", "/t_c (in two passes)"],
        &[],
    ),
    (
        "operator columns not stored",
        Defect::Tables(|w| steps(w, STEP_STORE, |s| s[2] = 0)),
        &["/s_zero", "/t_c"],
        &["operator", "short_lengths"],
    ),
    (
        "the last row of a run left out",
        Defect::Tables(|w| steps(w, STEP_RUN, |s| s[2] -= 1)),
        &["/o", "/s_final", "/o (in two passes)", "/s_final (in two passes)"],
        &["oracle", "operator", "split_invariance", "short_lengths", "chain"],
    ),
    (
        "a start state that is not loaded",
        Defect::Tables(|w| steps(w, STEP_LOAD, |s| s[0] = STEP_ZERO)),
        &["/o", "/s_final", "/s_final (applied)"],
        &["oracle", "identity", "split_invariance", "apply_compose", "short_lengths", "chain"],
    ),
    (
        "chains that do not run",
        Defect::Dispatch(|d| (![CHAIN.id, CHUNK_CHAIN.id].contains(&d.kernel)).then_some(d)),
        &["/o", "/s_final", "/s_zero", "/t_c", "/s_final (applied)"],
        &["oracle", "operator", "chain", "batch"],
    ),
];

const DEFECTS_OF_OPS: &[(&str, Defect, &[&str])] = &[
    ("weights never centred", Defect::Dispatch(|d| parameter(d, RMS_NORM.id, 5, 0)), &["rmsnorm_zero_centred/y"]),
    (
        "another epsilon in the gated norm",
        Defect::Dispatch(|d| parameter(d, GATED_RMS_NORM.id, 6, 1e-5f32.to_bits())),
        &["rmsnorm_gated_silu/y"],
    ),
    ("queries not scaled", Defect::Dispatch(|d| parameter(d, L2_NORM.id, 5, 1f32.to_bits())), &["l2norm/y"]),
    (
        "gates that do not run",
        Defect::Dispatch(|d| (d.kernel != GDN_GATE.id).then_some(d)),
        &["gdn_gate/g", "gdn_gate/beta"],
    ),
    (
        "tails that are not written",
        Defect::Dispatch(|d| (d.kernel != CONV_TAIL.id).then_some(d)),
        &["conv_fresh_t3/state_out", "conv_continued_t65/state_out", "conv_continued_t1/state_out (from an entry)"],
    ),
    (
        "a history of zeros",
        Defect::Tables(|w| {
            records(w, HISTORY_TABLE, CONV_LAUNCHES, SOURCE_WORDS).for_each(|source| source[0] = SOURCE_ZERO);
        }),
        &["conv_continued_t65/y", "conv_continued_t1/y (from an entry)"],
    ),
    (
        "tails with the newest input first",
        Defect::Tables(|w| {
            // Of the only tables with tails: one tail of three sources.
            for tail in records(w, TAIL_TABLE, TAIL_LAUNCHES, 2 + 3 * SOURCE_WORDS) {
                tail[2..].rotate_right(SOURCE_WORDS);
            }
        }),
        &["conv_fresh_t2/state_out", "conv_continued_t9/state_out", "conv_continued_t9/state_out (from an entry)"],
    ),
    (
        "far keys rotated as the second row",
        // Angles are numbered in the order of the rows' positions.
        Defect::Tables(|w| {
            records(w, ROW_TABLE, SPAN_TABLE, ROW_WORDS).for_each(|row| row[3] = row[3].min(1));
        }),
        &["rope_neox_full/y", "rope_neox_partial/y"],
    ),
    (
        "far rows rotated as the second one",
        Defect::Tables(|w| {
            records(w, ROW_TABLE, SPAN_TABLE, ROW_WORDS).for_each(|row| row[2] = row[2].min(1));
        }),
        &["rope_neox_full/y (in rows)", "rope_neox_partial/y (in rows)", "rope_interleaved/y (in rows)"],
    ),
    (
        "halves for interleaved pairs",
        Defect::Dispatch(|d| constant(d, ROPE.id, 0, 0)),
        &["rope_interleaved/y (in rows)"],
    ),
    ("rows of another length", Defect::Dispatch(|d| parameter(d, ROPE.id, 0, 36)), &["rope_neox_full/x (kept behind)"]),
    (
        "silu for a sigmoid",
        Defect::Dispatch(|d| constant(d, GATED_RMS_NORM.id, 0, 0)),
        &["rmsnorm_gated_sigmoid/y", "group_rmsnorm_then_sigmoid_g4/y"],
    ),
    (
        "gated after the norm",
        Defect::Dispatch(|d| constant(d, GATED_RMS_NORM.id, 1, 0)),
        &["gate_then_group_rmsnorm_g1/y", "gate_then_group_rmsnorm_g4/y"],
    ),
    (
        "all groups with the weights of the first",
        Defect::Dispatch(|d| parameter(d, GATED_RMS_NORM.id, 7, 0)),
        &["gate_then_group_rmsnorm_g4/y", "group_rmsnorm_then_sigmoid_g4/y"],
    ),
    ("another normaliser", Defect::Dispatch(|d| parameter(d, GLA_GATE.id, 2, 16.001f32.to_bits())), &["gla_gate/gk"]),
    (
        "gates without their bound",
        Defect::Dispatch(|d| constant(d, KDA_GATE.id, 0, 0)),
        &["kda_safe_gate/g", "kda_safe_gate/g (without beta)"],
    ),
    ("no write strengths", Defect::Dispatch(|d| constant(d, KDA_GATE.id, 1, 0)), &["kda_gate/beta of f"]),
    (
        "steps without a lower limit",
        Defect::Dispatch(|d| parameter(d, MAMBA_GATE.id, 2, 0)),
        &["mamba_dt/dt_clamped", "mamba_dt/dt_clamped (as g)"],
    ),
    (
        "all groups of experts kept",
        Defect::Dispatch(|d| parameter(d, ROUTER.id, 3, 4)),
        &["router_grouped_sigmoid/index", "router_grouped_sigmoid/weight"],
    ),
    (
        "weights of experts that do not add up",
        Defect::Dispatch(|d| parameter(d, ROUTER.id, 4, 0)),
        &["router_softmax_topk/weight", "router_grouped_sigmoid/weight"],
    ),
];

/// The wrapper itself changes nothing.
#[test]
fn a_device_without_a_defect_passes() {
    let device = mutant(Defect::Tables(|_| ()));
    for name in ["gated_delta_rule", "ops"] {
        assert!(goldens(&device, name).passed(), "{name}");
    }
    for report in laws::run(&device, &OPTIONS, &mut |_, _| ()) {
        assert!(report.passed, "{report}");
    }
}

const OPTIONS: Options = Options { seed: 5, cases: 16, max_len: 40 };

/// The name of a check without the method by which its results were computed.
fn without_method(name: &str) -> String {
    Method::ALL.iter().fold(name.to_owned(), |name, method| {
        let method = method.name();
        name.replace(&format!(" ({method})"), "").replace(&format!(" ({method}, "), " (")
    })
}

#[test]
fn defects_of_chains_are_seen() {
    for (what, defect, endings, laws_of) in DEFECTS_OF_CHAINS {
        let device = mutant(*defect);
        let report = goldens(&device, "gated_delta_rule");
        for (ending, method) in endings.iter().flat_map(|e| Method::ALL.map(|m| (e, m))) {
            let of = |c: &&&Check| c.name.contains(" (applied") || c.name.contains(method.name());
            let seen = failed(&report).iter().filter(of).any(|c| without_method(&c.name).ends_with(ending));
            assert!(seen, "{what}: no check of {ending} by {} fails", method.name());
        }
        assert_eq!(report.passed(), endings.is_empty(), "{what}");
        let reports = laws::run(&device, &OPTIONS, &mut |_, _| ());
        for law in *laws_of {
            let failed = reports.iter().any(|r| r.law == *law && !r.passed && r.failure.is_some());
            assert!(failed, "{what}: the law {law} holds");
        }
        if laws_of.is_empty() {
            assert!(reports.iter().all(|r| r.passed), "{what}");
        }
    }
}

#[test]
fn defects_of_operations_are_seen() {
    for (what, defect, names) in DEFECTS_OF_OPS {
        let report = goldens(&mutant(*defect), "ops");
        let failed: Vec<&str> = failed(&report).iter().map(|c| c.name.as_str()).collect();
        for name in *names {
            assert!(failed.contains(name), "{what}: {name} passes; {failed:?} fail");
        }
        assert!(failed.len() < report.checks.len(), "{what}: other operations still pass");
    }
}
