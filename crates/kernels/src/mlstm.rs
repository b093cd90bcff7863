//! Chains of mLSTM (xLSTM): a matrix memory with a normaliser and a running maximum as a log-scale.
//!
//! A head's state is `[K, V + 2]` = `C | n | m`, with `m` the same in every row: it stands for `e^m·(C, n)`. A token does
//! `m' = max(f + m, ĩ)`, `(C, n) ← e^(f + m − m')·(C, n) + e^(ĩ − m')·k (v | 1)ᵀ` and gives `Cᵀq / max(|nᵀq|, e^(−m'))`. An
//! operator is `(F, S, M)`: the sum of the forget gates and the end state of a run from the zero state, whose log-scale is
//! minus infinity. Applied it gives `m' = max(F + m, M)`, `h' = e^(F + m − m')·h + e^(M − m')·S`, which is the running
//! maximum of the sequential run.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;
use seam_device::KernelId;

use crate::chain::{LOG_ZERO, Left, ROTATION_NONE, Shared, put, rotate};
use crate::manifest::{Binding, Kernel, Workgroup};
use crate::tables::{
    CHAIN_LAUNCHES, CHAIN_TABLE, CHAIN_WORDS, FORM_IDENTITY, FORM_SCALAR, LAUNCH_WORDS, STEP_APPLY, STEP_BEGIN,
    STEP_LOAD, STEP_RUN, STEP_SNAPSHOT, STEP_STORE, STEP_TABLE, STEP_WORDS, STEP_ZERO, View,
};
use crate::twin::Args;

/// Parameters of [`MLSTM_CHAIN`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct MlstmParams {
    /// Key heads H.
    pub heads: u32,
    /// Value heads HV, a multiple of H.
    pub value_heads: u32,
    /// K, any size.
    pub key: u32,
    /// V.
    pub value: u32,
    /// Elements from one row of `qkv` to the next.
    pub row: u32,
    /// Which chain launch of the tables.
    pub launch: u32,
    /// Which key dims turn together, as the constant ROTATION of the chain kernels.
    pub pairing: u32,
    /// Rotated key dims of moved operators.
    pub rot: u32,
}

/// mLSTM along the steps of each chain, token by token.
///
/// `qkv` is `[rows, 2·H·K + HV·V]` (q scaled), `gates` `[rows, 2·HV]`: forget gates f ≤ 0 (logarithms), then input gates ĩ
/// (logarithms, any size); `out` `[rows, HV·V]`; all f32. A slot is `S_run` `[HV, K, V + 2]`, `S` the same, then the
/// sums of f `[HV]`. Grid: x = 1, y = HV, z = chains of the launch.
pub static MLSTM_CHAIN: Kernel = Kernel {
    id: KernelId(15),
    name: "mlstm_chain",
    wgsl: None,
    cuda: None,
    twin: Some(twin),
    bindings: &[
        Binding::read("tables"),
        Binding::read("qkv"),
        Binding::read("gates"),
        Binding::write("out"),
        Binding::write("private_slab"),
        Binding::read("shared0"),
        Binding::read("shared1"),
        Binding::read("shared2"),
    ],
    params: size_of::<MlstmParams>(),
    workgroup: Workgroup::new(1, 0),
    constants: &[],
};

/// One head's state: `C | n` `[K, V + 1]` in units of `e^m`.
#[derive(Clone)]
struct Scaled {
    values: Vec<f32>,
    m: f32,
}

struct Walk<'a> {
    p: MlstmParams,
    t: View<'a>,
    qkv: &'a [f32],
    gates: &'a [f32],
    private: &'a [f32],
    shared: Shared<'a>,
}

/// `a + b` for log-scales, which stay finite.
fn add(a: f32, b: f32) -> f32 {
    (a + b).max(LOG_ZERO)
}

impl Scaled {
    fn zero(len: usize) -> Self {
        Self { values: vec![0.0; len], m: LOG_ZERO }
    }

    /// From `C | n | m`.
    fn read(words: &[f32], columns: usize) -> Self {
        let values = words.chunks_exact(columns).flat_map(|row| &row[..columns - 1]).copied().collect();
        Self { values, m: words[columns - 1].max(LOG_ZERO) }
    }

    fn write(&self, columns: usize) -> Vec<f32> {
        self.values.chunks_exact(columns - 1).flat_map(|row| row.iter().copied().chain([self.m])).collect()
    }

    /// The same state in units of `e^m` after a decay `e^log` of what it stands for.
    fn decay(&mut self, log: f32, m: f32) {
        let factor = (add(log, self.m) - m).exp();
        self.values.iter_mut().for_each(|x| *x *= factor);
        self.m = m;
    }

    /// `h ← e^log·h + S`.
    fn apply(&mut self, log: f32, own: &Self) {
        let m = add(log, self.m).max(own.m);
        self.decay(log, m);
        let factor = (own.m - m).exp();
        self.values.iter_mut().zip(&own.values).for_each(|(h, s)| *h += factor * s);
    }
}

impl Walk<'_> {
    /// Words of one head's state, and its columns.
    fn sizes(&self) -> (usize, usize) {
        let columns = self.p.value as usize + 2;
        (self.p.key as usize * columns, columns)
    }

    fn slot(&self, base: u32, block: usize, head: usize) -> usize {
        let (len, _) = self.sizes();
        base as usize + block * self.p.value_heads as usize * len + head * if block == 2 { 1 } else { len }
    }

    fn walk(&self, chain: usize, head: usize) -> Left {
        let record = self.t.record(CHAIN_TABLE, chain, CHAIN_WORDS);
        let (len, columns) = self.sizes();
        let zero = || Scaled::zero(self.p.key as usize * (columns - 1));
        let (mut running, mut operator, mut left) = (zero(), None, Left::default());
        for i in record[0]..record[0] + record[1] {
            let step = self.t.record(STEP_TABLE, i as usize, STEP_WORDS);
            let at = |block| self.slot(step[1], block, head);
            match step[0] {
                STEP_ZERO => running = zero(),
                STEP_LOAD => {
                    let words = |block| left.stored(at(block)).unwrap_or_else(|| &self.private[at(block)..]);
                    running = Scaled::read(&words(0)[..len], columns);
                    if step[2] == 1 {
                        operator = Some((Scaled::read(&words(1)[..len], columns), words(2)[0]));
                    }
                }
                STEP_RUN => {
                    let (first, rows) = (step[1] as usize, step[2] as usize);
                    let o = (first..first + rows).flat_map(|row| self.token(&mut running, &mut operator, row, head));
                    left.outputs.push((first, o.collect()));
                }
                STEP_BEGIN => operator = Some((zero(), 0.0)),
                STEP_APPLY => self.apply(&mut running, &mut operator, step, head),
                STEP_STORE | STEP_SNAPSHOT => {
                    left.stores.push((at(0), running.write(columns)));
                    if let (STEP_STORE, 1, Some((own, sum))) = (step[0], step[2], &operator) {
                        left.stores.push((at(1), own.write(columns)));
                        left.stores.push((at(2), vec![*sum]));
                    }
                }
                _ => {}
            }
        }
        left
    }

    fn apply(&self, running: &mut Scaled, operator: &mut Option<(Scaled, f32)>, step: &[u32], head: usize) {
        let (len, columns) = self.sizes();
        let slab = self.shared.get(step[1] as usize).copied().unwrap_or(self.private);
        let mut own = Scaled::read(&slab[step[2] as usize + head * len..][..len], columns);
        if step[5] > 0 && self.p.pairing != ROTATION_NONE {
            let how = (self.p.pairing, self.p.rot as usize);
            rotate(self.t, how, &mut own.values, columns - 1, (step[5] as usize - 1, 1.0));
        }
        let log = match step[4] {
            FORM_IDENTITY => 0.0,
            FORM_SCALAR => slab[step[3] as usize + head],
            _ => LOG_ZERO,
        };
        running.apply(log, &own);
        if let Some((fresh, sum)) = operator {
            fresh.apply(log, &own);
            *sum = add(*sum, log);
        }
    }

    fn token(&self, running: &mut Scaled, operator: &mut Option<(Scaled, f32)>, row: usize, head: usize) -> Vec<f32> {
        let p = &self.p;
        let (k, v, hv) = (p.key as usize, p.value as usize, p.value_heads as usize);
        let (keys, key_head) = (p.heads as usize * k, head / (hv / p.heads as usize));
        let qkv = &self.qkv[row * p.row as usize..];
        let (q, key, value) =
            (&qkv[key_head * k..][..k], &qkv[keys + key_head * k..][..k], &qkv[2 * keys + head * v..][..v]);
        let gates = &self.gates[row * 2 * hv..];
        let (forget, input) = (gates[head], gates[hv + head].max(LOG_ZERO));
        let step = |state: &mut Scaled| {
            let m = add(forget, state.m).max(input);
            state.decay(forget, m);
            let strength = (input - m).exp();
            for (key, row) in key.iter().zip(state.values.chunks_exact_mut(v + 1)) {
                let write = strength * key;
                row.iter_mut().zip(value.iter().chain([&1.0])).for_each(|(s, v)| *s += write * v);
            }
        };
        step(running);
        if let Some((own, sum)) = operator {
            step(own);
            *sum = add(*sum, forget);
        }
        let mut read = vec![0.0f32; v + 1];
        for (q, row) in q.iter().zip(running.values.chunks_exact(v + 1)) {
            read.iter_mut().zip(row).for_each(|(o, s)| *o += q * s);
        }
        // The 1 of the true denominator, in units of e^m.
        let under = read[v].abs().max((-running.m).exp());
        read.truncate(v);
        read.iter_mut().for_each(|o| *o = if under > 0.0 { *o / under } else { 0.0 });
        read
    }
}

fn twin(args: &mut Args<'_>) {
    let p: MlstmParams = args.params();
    let t = View(args.words(0));
    let (out, private) = (args.take(3), args.take(4));
    let launch = t.record(CHAIN_LAUNCHES, p.launch as usize, LAUNCH_WORDS);
    let (first, heads) = (launch[0] as usize, p.value_heads as usize);
    let left: Vec<(usize, Left)> = {
        let shared = [args.floats(5), args.floats(6), args.floats(7)];
        let walk = Walk { p, t, qkv: args.floats(1), gates: args.floats(2), private, shared };
        let one = |i: usize| (i % heads, walk.walk(first + i / heads, i % heads));
        (0..launch[1] as usize * heads).into_par_iter().map(one).collect()
    };
    put(left, (p.value as usize, heads), out, private);
}
