//! The steps of a chain on the CPU, all but the run step, which the recurrent and the chunk form do each in its way.

use crate::tables::{
    CHAIN_OPERATOR, CHAIN_TABLE, CHAIN_WORDS, FORM_DENSE, FORM_DIAGONAL, FORM_IDENTITY, FORM_SCALAR, STEP_APPLY,
    STEP_BEGIN, STEP_LOAD, STEP_RUN, STEP_SNAPSHOT, STEP_STORE, STEP_TABLE, STEP_WORDS, STEP_ZERO, View,
};

use super::{
    ChainParams, DECAY_DIAGONAL, DECAY_NONE, LOG_ZERO, ROTATION_INTERLEAVED, ROTATION_NONE, Shared, UPDATE_DELTA,
};

/// The constants and sizes of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) k: usize,
    pub(crate) v: usize,
    pub(crate) value_heads: usize,
    pub(crate) decay: u32,
    pub(crate) update: u32,
    rotation: u32,
    rot: usize,
}

impl Rule {
    pub(crate) fn new([k, decay, update, rotation]: [u32; 4], p: &ChainParams) -> Self {
        let (v, value_heads) = (p.value as usize, p.value_heads as usize);
        Self { k: k as usize, v, value_heads, decay, update, rotation, rot: p.rot as usize }
    }

    /// Whether the transition is a matrix.
    pub(crate) fn dense(&self) -> bool {
        self.update >= UPDATE_DELTA
    }

    /// Columns of T.
    fn transition(&self) -> usize {
        if self.dense() { self.k } else { 0 }
    }

    /// Logarithms of a head's transition.
    pub(crate) fn logs(&self) -> usize {
        match self.decay {
            _ if self.dense() => 0,
            DECAY_NONE => 0,
            DECAY_DIAGONAL => self.k,
            _ => 1,
        }
    }

    /// Word of block `block` (0 `S_run`, 1 `S`, 2 the transition) of `head` in the slot at `base`.
    fn slot(&self, base: u32, block: usize, head: usize) -> usize {
        let state = self.k * self.v;
        let transition = if self.dense() { self.k * self.k } else { self.logs() };
        base as usize + block * self.value_heads * state + head * if block == 2 { transition } else { state }
    }
}

/// What one (chain, head) leaves behind: outputs `[rows, V]` from a row on, and stores by word of the private slab.
#[derive(Default)]
pub(crate) struct Left {
    pub(crate) outputs: Vec<(usize, Vec<f32>)>,
    pub(crate) stores: Vec<(usize, Vec<f32>)>,
}

impl Left {
    /// What this walk itself stored last at a word: it stays here until the launch ends.
    pub(crate) fn stored(&self, word: usize) -> Option<&[f32]> {
        self.stores.iter().rev().find(|(at, _)| *at == word).map(|(_, block)| block.as_slice())
    }
}

/// The state of one head: columns `S_run | S | T` of `[K, width]`, and the log-sums.
pub(crate) struct Columns {
    pub(crate) data: Vec<f32>,
    pub(crate) width: usize,
    /// Columns that take part: all after the operator was begun or loaded, else those of `S_run`.
    pub(crate) active: usize,
    /// Log-sums, if they take part.
    pub(crate) logs: Option<Vec<f32>>,
}

/// One launch: rules, tables and slabs.
pub(crate) struct Walk<'a> {
    pub(crate) rule: Rule,
    pub(crate) t: View<'a>,
    pub(crate) private: &'a [f32],
    pub(crate) shared: Shared<'a>,
}

/// Runs rows: the columns, first row, rows, first chunk; gives the outputs `[rows, V]`.
pub(crate) type Runner<'a> = dyn FnMut(&mut Columns, usize, usize, usize) -> Vec<f32> + 'a;

impl Walk<'_> {
    /// Walks the steps of a chain for one head.
    pub(crate) fn walk(&self, chain: usize, head: usize, run: &mut Runner<'_>) -> Left {
        let record = self.t.record(CHAIN_TABLE, chain, CHAIN_WORDS);
        let (k, v) = (self.rule.k, self.rule.v);
        let operator = record[2] & CHAIN_OPERATOR != 0;
        let width = if operator { 2 * v + self.rule.transition() } else { v };
        let mut state = Columns { data: vec![0.0; k * width], width, active: v, logs: None };
        let mut left = Left::default();
        for i in record[0]..record[0] + record[1] {
            let step = self.t.record(STEP_TABLE, i as usize, STEP_WORDS);
            match step[0] {
                STEP_ZERO => state.block_mut(0, v).for_each(|row| row.fill(0.0)),
                STEP_LOAD => self.load(&mut state, step[1], operator && step[2] == 1, head, &left),
                STEP_RUN => {
                    let [first, rows, chunk] = [1, 2, 3].map(|i| step[i] as usize);
                    left.outputs.push((first, run(&mut state, first, rows, chunk)));
                }
                STEP_BEGIN if operator => self.begin(&mut state),
                STEP_APPLY => self.apply(&mut state, step, head),
                STEP_STORE => self.store(&state, step[1], operator && step[2] == 1, head, &mut left),
                STEP_SNAPSHOT => self.store(&state, step[1], false, head, &mut left),
                _ => {}
            }
        }
        left
    }

    fn begin(&self, state: &mut Columns) {
        let (k, v, width) = (self.rule.k, self.rule.v, state.width);
        state.block_mut(v, width).for_each(|row| row.fill(0.0));
        for i in 0..self.rule.transition() {
            state.data[i * width + 2 * v + i] = 1.0;
        }
        state.active = width;
        state.logs = Some(vec![0.0; self.rule.logs()]);
        debug_assert!(state.data.len() == k * width);
    }

    fn load(&self, state: &mut Columns, base: u32, operator: bool, head: usize, left: &Left) {
        let (v, t) = (self.rule.v, self.rule.transition());
        let at = |block| {
            left.stored(self.rule.slot(base, block, head))
                .unwrap_or_else(|| &self.private[self.rule.slot(base, block, head)..])
        };
        state.load(0, v, at(0));
        if operator {
            state.load(v, v, at(1));
            state.load(2 * v, t, at(2));
            state.active = state.width;
            state.logs = Some(at(2)[..self.rule.logs()].to_vec());
        }
    }

    fn store(&self, state: &Columns, base: u32, operator: bool, head: usize, left: &mut Left) {
        let (v, at) = (self.rule.v, |block| self.rule.slot(base, block, head));
        left.stores.push((at(0), state.block(0, v)));
        if operator {
            left.stores.push((at(1), state.block(v, v)));
            let logs = state.logs.clone().unwrap_or_default();
            left.stores.push((at(2), if self.rule.dense() { state.block(2 * v, self.rule.k) } else { logs }));
        }
    }

    /// `h ← T·h + S` for the running columns and a started S, `T·h` for a started T, a sum for log-sums.
    fn apply(&self, state: &mut Columns, step: &[u32], head: usize) {
        let (k, v) = (self.rule.k, self.rule.v);
        let [slab, s, t, form, angle] = [1, 2, 3, 4, 5].map(|i| step[i] as usize);
        let slab = self.shared.get(slab).copied().unwrap_or(self.private);
        let moved = if angle > 0 && self.rule.rotation != ROTATION_NONE { Some(angle - 1) } else { None };
        match form as u32 {
            FORM_IDENTITY => {}
            FORM_SCALAR => {
                let factor = slab[t + head].exp();
                state.block_mut(0, state.active).for_each(|row| row.iter_mut().for_each(|s| *s *= factor));
            }
            FORM_DIAGONAL => {
                let logs = &slab[t + head * k..][..k];
                for (row, log) in state.block_mut(0, state.active).zip(logs) {
                    let factor = log.exp();
                    row.iter_mut().for_each(|s| *s *= factor);
                }
            }
            FORM_DENSE if self.rule.dense() => {
                let matrix = &slab[t + head * k * k..][..k * k];
                if let Some(angle) = moved {
                    self.rotate(&mut state.data, state.width, angle, -1.0);
                }
                state.multiply(matrix);
                if let Some(angle) = moved {
                    self.rotate(&mut state.data, state.width, angle, 1.0);
                }
            }
            _ => state.block_mut(0, state.active).for_each(|row| row.fill(0.0)),
        }
        if let Some(sums) = &mut state.logs {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = match form as u32 {
                    FORM_IDENTITY => *sum,
                    FORM_SCALAR => (*sum + slab[t + head]).max(LOG_ZERO),
                    FORM_DIAGONAL => (*sum + slab[t + head * k + i]).max(LOG_ZERO),
                    _ => LOG_ZERO,
                };
            }
        }
        let mut add = slab[s + head * k * v..][..k * v].to_vec();
        if let Some(angle) = moved {
            self.rotate(&mut add, v, angle, 1.0);
        }
        for (row, add) in state.data.chunks_exact_mut(state.width).zip(add.chunks_exact(v)) {
            row.iter_mut().zip(add).for_each(|(s, add)| *s += *add);
            if state.active > v {
                row[v..].iter_mut().zip(add).for_each(|(s, add)| *s += *add);
            }
        }
    }

    fn rotate(&self, data: &mut [f32], width: usize, angle: usize, sign: f32) {
        rotate(self.t, (self.rule.rotation, self.rule.rot), data, width, (angle, sign));
    }
}

/// `R·X` of `[K, width]`, in place, by an angle record; the inverse for a sign of −1.
pub(crate) fn rotate(
    t: View<'_>,
    (pairing, rot): (u32, usize),
    data: &mut [f32],
    width: usize,
    (angle, sign): (usize, f32),
) {
    let (cos, sin) = t.angle(angle as u32, rot);
    for (i, (cos, sin)) in cos.iter().zip(sin).enumerate() {
        let (a, b) = if pairing == ROTATION_INTERLEAVED { (2 * i, 2 * i + 1) } else { (i, i + rot / 2) };
        let (upper, lower) = data.split_at_mut(b * width);
        for (x, y) in upper[a * width..][..width].iter_mut().zip(&mut lower[..width]) {
            (*x, *y) = (cos * *x - sign * sin * *y, sign * sin * *x + cos * *y);
        }
    }
}

impl Columns {
    fn block_mut(&mut self, from: usize, to: usize) -> impl Iterator<Item = &mut [f32]> {
        self.data.chunks_exact_mut(self.width).map(move |row| &mut row[from..to])
    }

    fn block(&self, from: usize, len: usize) -> Vec<f32> {
        self.data.chunks_exact(self.width).flat_map(|row| &row[from..from + len]).copied().collect()
    }

    fn load(&mut self, from: usize, len: usize, words: &[f32]) {
        for (row, words) in self.block_mut(from, from + len).zip(words.chunks_exact(len.max(1))) {
            row.copy_from_slice(&words[..len]);
        }
    }

    /// The active columns times `T` `[K, K]` from the left.
    fn multiply(&mut self, t: &[f32]) {
        let (width, active) = (self.width, self.active);
        let new = vec![0.0; self.data.len()];
        let old = std::mem::replace(&mut self.data, new);
        let k = old.len() / width;
        for (row, t) in self.data.chunks_exact_mut(width).zip(t.chunks_exact(k)) {
            for (old, t) in old.chunks_exact(width).zip(t) {
                for (s, old) in row[..active].iter_mut().zip(old) {
                    *s += *t * *old;
                }
            }
        }
    }
}
