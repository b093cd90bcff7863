//! Chains of any recurrence on a device, from and to host memory: what kernel goldens and laws share.
//!
//! Everything that a walk should write is filled with NaN first, so that a kernel that writes nothing cannot pass on
//! what an earlier walk left behind.

use std::sync::Arc;

use seam_device::{Buffer, BufferRange, BufferUse, Device, DeviceError, Lane, align_up};
use seam_kernels::tables::SHARED_SLABS;
use seam_ops::{ChainSpec, Form, OpError, Operation, PassBuilder, RunSpec, Skip, SlabId, Step, Tensor, record};

use crate::machine::{Launch, Machine};

/// Rows of a pass.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// `[rows, …]`: q, k, v, then a and b for a rank-one update, as the machine's row says.
    pub qkv: Vec<f32>,
    /// `[rows, …]`: g, then beta; one row for a fixed decay.
    pub gates: Vec<f32>,
    /// `D` `[HV]`, by which values are added to the outputs; empty where there is none.
    pub skip: Vec<f32>,
    /// How many.
    pub count: u32,
}

/// The arrays of one sequence, as the kernels name them; those that a recurrence does not have are empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrays<'a> {
    /// `[T, H, K]`.
    pub q: &'a [f64],
    /// `[T, H, K]`.
    pub k: &'a [f64],
    /// `[T, HV, V]`.
    pub v: &'a [f64],
    /// Log-gates `[HV]` (fixed), `[T, HV]` or `[T, HV, K]`.
    pub g: &'a [f64],
    /// `[T, HV]`; for log-scaled states the input gates.
    pub beta: &'a [f64],
    /// a and b of a rank-one update, `[T, H, K]` each.
    pub rank_one: [&'a [f64]; 2],
}

impl Rows {
    /// Appends the rows of one sequence. The kernels want q scaled; goldens and oracles scale the output, which differs by
    /// one f32 rounding of q.
    pub fn push(&mut self, machine: &Machine, scale: f64, x: &Arrays<'_>) {
        let (keys, values) = (machine.keys() as usize, machine.out() as usize);
        let tokens = x.v.len() / values;
        let row = |array: &[f64], t: usize, width: usize| -> Vec<f64> {
            array.get(t * width..(t + 1) * width).unwrap_or_default().to_vec()
        };
        for t in 0..tokens {
            let q = row(x.q, t, keys).into_iter().map(|q| q * scale);
            let rest = [(x.k, keys), (x.v, values), (x.rank_one[0], keys), (x.rank_one[1], keys)];
            let rest = rest.into_iter().flat_map(|(array, width)| row(array, t, width));
            let joined: Vec<f32> = q.chain(rest).map(|x| x as f32).collect();
            let filled = self.qkv.len() + machine.row() as usize;
            let (first, rank_one) = joined.split_at(2 * keys + values);
            self.qkv.extend(first);
            self.qkv.resize(filled - rank_one.len(), 0.0);
            self.qkv.extend(rank_one);
            self.qkv.resize(filled, 0.0);
            let fixed = machine.fixed();
            if !fixed || self.gates.is_empty() {
                let g = row(x.g, if fixed { 0 } else { t }, machine.log_gates() as usize);
                let before = self.gates.len();
                self.gates.extend(g.into_iter().chain(row(x.beta, t, machine.heads() as usize)).map(|x| x as f32));
                // Kernels without gates bind something.
                self.gates.resize(self.gates.len().max(before + 1), 0.0);
            }
        }
        self.count += tokens as u32;
    }
}

/// The operator of all heads, as it is uploaded.
#[derive(Clone, Debug)]
pub struct Stored {
    /// `[HV, K, V]`.
    pub s: Vec<f32>,
    /// T in its form: `[HV, K, K]`, logarithms `[HV, K]` or `[HV]`, or nothing.
    pub t: Vec<f32>,
    /// How T is applied.
    pub form: Form,
    /// Positions by which it moves.
    pub moved: i64,
}

/// Where a chain begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start<'a> {
    /// From zero.
    Zero,
    /// From a state `[HV, K, V]` that is loaded from the slot.
    State(&'a [f32]),
    /// From what the chain of the same number left in its slot at the last walk, with its operator columns if it had
    /// some.
    Kept,
}

/// One chain: a start, steps, and a store to its slot at the end.
#[derive(Clone, Debug)]
pub(crate) struct Walk<'a> {
    /// Where it begins.
    pub(crate) start: Start<'a>,
    /// Run, begin and apply steps, each with the distance by which an operator moves.
    pub(crate) steps: Vec<(Step, i64)>,
    /// Whether operator columns are built.
    pub(crate) operator: bool,
}

/// What a chain left in its slot.
#[derive(Clone, Debug)]
pub struct Slot {
    /// The running state `[HV, K, V]`.
    pub state: Vec<f64>,
    /// S of the operator `[HV, K, V]`; NaN where none was built.
    pub s: Vec<f64>,
    /// The transition in its form; NaN where none was built.
    pub t: Vec<f64>,
}

/// The outcome of a walk.
#[derive(Clone, Debug)]
pub(crate) struct Walked {
    /// Outputs `[rows, HV·V]`; NaN for rows that no chain ran.
    pub(crate) o: Vec<f64>,
    /// The slot of each chain, then the extra ones.
    pub(crate) slots: Vec<Slot>,
}

#[derive(Clone)]
struct Work {
    machine: Machine,
    rows: u32,
    qkv: Tensor,
    gates: Tensor,
    out: Tensor,
}

/// Memory on a device in which chains walk; it is kept from one walk to the next and grows as needed.
pub(crate) struct Chains {
    device: Arc<dyn Device>,
    work: Option<Work>,
    tables: Option<Buffer>,
    private: Option<Buffer>,
    scratch: Option<Buffer>,
    /// Inverse frequencies with which operators move.
    pub(crate) frequencies: Vec<f64>,
    /// Tokens of a chain in one launch.
    pub(crate) budget: u32,
    /// Slots behind those of the chains, for steps that name them; they begin as NaN.
    pub(crate) extra_slots: usize,
    shared: [Option<Buffer>; SHARED_SLABS],
}

impl Chains {
    pub(crate) fn new(device: &Arc<dyn Device>) -> Self {
        Self {
            device: Arc::clone(device),
            work: None,
            tables: None,
            private: None,
            scratch: None,
            frequencies: Vec::new(),
            budget: u32::MAX,
            extra_slots: 0,
            shared: [None, None, None],
        }
    }

    /// Puts operators into shared slabs, in turn over as many as one launch binds, and gives the steps that apply them;
    /// `moved` of a step is a distance until [`Self::walk`] makes it an angle of its pass.
    pub(crate) fn upload(&mut self, machine: &Machine, operators: &[Stored]) -> Result<Vec<(Step, i64)>, OpError> {
        let mut words: [Vec<f32>; SHARED_SLABS] = Default::default();
        let mut steps = Vec::new();
        for (operator, slab) in operators.iter().zip((0..SHARED_SLABS).cycle()) {
            let words = &mut words[slab];
            let s = words.len() as u32;
            words.extend_from_slice(&operator.s);
            let t = words.len() as u32;
            words.extend_from_slice(&operator.t);
            let stored = words.len() as u32 - s;
            let wanted = machine.state() + machine.form_words(operator.form);
            if stored != wanted {
                let what = format!("an operator of {stored} values, {wanted} are needed");
                return Err(OpError::Shape { op: "chain", what });
            }
            let slab = SlabId::Shared(slab as u32);
            steps.push((Step::Apply { slab, s, t, form: operator.form, moved: None }, operator.moved));
        }
        for (words, slab) in words.iter().zip(&mut self.shared) {
            if !words.is_empty() {
                let buffer = grown(&*self.device, slab, "operators", words.len() as u64 * 4)?;
                self.device.write(&buffer.all(), bytemuck::cast_slice(words))?;
            }
        }
        Ok(steps)
    }

    /// Walks all chains in one pass.
    pub(crate) fn walk(&mut self, machine: &Machine, rows: &Rows, walks: &[Walk<'_>]) -> Result<Walked, OpError> {
        let mut pass = PassBuilder::new(0, 0, 1.0).with_budget(self.budget);
        if machine.moves() {
            pass = pass.with_frequencies(self.frequencies.clone());
        }
        // A pass has at least one row; no chain runs it where there is none.
        let tokens = vec![0; rows.count.max(1) as usize];
        pass.run(&RunSpec { tokens: &tokens, pos: 0, origin: 0, kv: &[], spans: (0, 0), history: &[] })?;
        let slots = (walks.len() + self.extra_slots) as u64;
        let private = grown(&*self.device, &mut self.private, "states", slots * slot_bytes(machine))?;
        let extra =
            private.range(walks.len() as u64 * slot_bytes(machine), self.extra_slots as u64 * slot_bytes(machine))?;
        self.device.write(&extra, &vec![0xff; extra.len as usize])?;
        for (i, walk) in walks.iter().enumerate() {
            let base = i as u32 * machine.slot();
            let mut steps = vec![match walk.start {
                Start::Zero => Step::Zero,
                Start::State(_) => Step::Load { base, operator: false },
                Start::Kept => Step::Load { base, operator: walk.operator },
            }];
            for (step, moved) in &walk.steps {
                let mut step = *step;
                if let (Step::Apply { moved: angle, .. }, true) = (&mut step, *moved != 0) {
                    *angle = Some(pass.angle(*moved));
                }
                steps.push(step);
            }
            steps.push(Step::Store { base, operator: walk.operator });
            pass.chain(ChainSpec { private: 0, base, operator: walk.operator, steps });
            let mut slot = vec![f32::NAN; machine.slot() as usize];
            match walk.start {
                Start::Kept => continue,
                Start::Zero => {}
                Start::State(state) => match slot.get_mut(..state.len()) {
                    Some(place) if state.len() == machine.state() as usize => place.copy_from_slice(state),
                    _ => {
                        let what = format!("a state of {} values, {} are needed", state.len(), machine.state());
                        return Err(OpError::Shape { op: "chain", what });
                    }
                },
            }
            let range = private.range(u64::from(base) * 4, slot_bytes(machine))?;
            self.device.write(&range, bytemuck::cast_slice(&slot))?;
        }
        let pass = pass.finish()?;
        let bytes = u64::from(pass.shape.words) * 4;
        let tables = grown(&*self.device, &mut self.tables, "tables", bytes)?.range(0, bytes)?;
        self.device.write(&tables, bytemuck::cast_slice(&pass.words))?;
        let work = self.work_for(machine, rows)?;

        let empty = self.device.alloc("no slab", 256, BufferUse::Storage)?;
        let shared = |i: Option<&u32>| {
            let buffer = i.and_then(|&i| self.shared.get(i as usize)).and_then(Option::as_ref);
            buffer.unwrap_or(&empty).all()
        };
        let scratch = match machine.scratch_words(work.rows, pass.shape.chunks) {
            0 => None,
            words => Some(grown(&*self.device, &mut self.scratch, "chunks", words * 4)?.range(0, words * 4)?),
        };
        let mut recorder = self.device.recorder();
        if let Some(scratch) = &scratch {
            // What an earlier pass left there must not serve this one.
            self.device.write(scratch, &vec![0xff; scratch.len as usize])?;
            let commands =
                machine.prepare(&tables, (&work.qkv, &work.gates), scratch, pass.shape.chunks, self.device.caps())?;
            record(&mut *recorder, commands)?;
        }
        for (i, launch) in pass.shape.chains.iter().enumerate() {
            let [a, b, c] = [0, 1, 2].map(|i| shared(launch.shared.get(i)));
            let launch = Launch {
                tables: &tables,
                qkv: &work.qkv,
                gates: &work.gates,
                out: &work.out,
                scratch: scratch.as_ref(),
                launch: (i as u32, launch.chains, launch.operator),
                slabs: [private.all(), a, b, c],
            };
            record(&mut *recorder, machine.plan(&launch, self.device.caps())?)?;
        }
        if !rows.skip.is_empty() {
            let d = Tensor::constant(&*self.device, "D", 1, rows.skip.len() as u32, &rows.skip)?;
            let offset = 2 * machine.keys();
            let skip = Skip { tables: &tables, qkv: &work.qkv, offset, d: &d, out: &work.out };
            skip.record(&mut *recorder, self.device.caps())?;
        }
        let ticket = self.device.submit(&recorder.finish()?, Lane::Compute, &[])?;
        let slots = self.device.read(&private.range(0, slots * slot_bytes(machine))?, &[ticket])?;
        let o = match u64::from(rows.count) * u64::from(machine.out()) * 4 {
            0 => Vec::new(),
            bytes => floats(&self.device.read(&work.out.range().slice(0, bytes)?, &[ticket])?.wait()?),
        };
        let (state, s) = (machine.state() as usize, 2 * machine.state() as usize);
        let slots = floats(&slots.wait()?)
            .chunks_exact(machine.slot() as usize)
            .map(|w| Slot { state: w[..state].to_vec(), s: w[state..s].to_vec(), t: w[s..].to_vec() })
            .collect();
        Ok(Walked { o, slots })
    }

    /// Makes room for the rows and writes them.
    fn work_for(&mut self, machine: &Machine, rows: &Rows) -> Result<Work, OpError> {
        let device = &*self.device;
        let work = match self.work.take() {
            Some(work) if work.machine == *machine && work.rows >= rows.count => work,
            _ => {
                // A multiple of 4, so that the rows are whole vectors of four: kernels read q, k and v as such.
                let count = rows.count.max(4).next_power_of_two();
                let gates = if machine.fixed() { 1 } else { count };
                Work {
                    machine: *machine,
                    rows: count,
                    qkv: Tensor::new(device, "q, k and v", count, machine.row())?,
                    gates: Tensor::new(device, "gates", gates, machine.gate_row())?,
                    out: Tensor::new(device, "outputs", count, machine.out())?,
                }
            }
        };
        if rows.count > 0 {
            device.write(&work.qkv.range(), bytemuck::cast_slice(&rows.qkv))?;
            device.write(&work.gates.range(), bytemuck::cast_slice(&rows.gates))?;
        }
        let nothing = vec![f32::NAN; rows.count.max(1) as usize * machine.out() as usize];
        device.write(&work.out.range(), bytemuck::cast_slice(&nothing))?;
        Ok(self.work.insert(work).clone())
    }
}

fn slot_bytes(machine: &Machine) -> u64 {
    u64::from(machine.slot()) * 4
}

/// The buffer, replaced by a larger one if it is too small.
fn grown(device: &dyn Device, buffer: &mut Option<Buffer>, label: &str, bytes: u64) -> Result<Buffer, DeviceError> {
    match buffer {
        Some(buffer) if buffer.bytes() >= bytes => Ok(buffer.clone()),
        _ => {
            let new = device.alloc(label, align_up(bytes.max(1)), BufferUse::Storage)?;
            Ok(buffer.insert(new).clone())
        }
    }
}

/// Little-endian f32 as f64.
pub(crate) fn floats(bytes: &[u8]) -> Vec<f64> {
    bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect()
}

/// Reads a range after what was submitted.
pub(crate) fn read(device: &dyn Device, range: &BufferRange) -> Result<Vec<f64>, DeviceError> {
    Ok(floats(&device.read(range, &[])?.wait()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Method;
    use seam_ops::{Decay, Recurrence, Update};

    /// q, k and v of a row stand side by side, g before beta, and q alone is scaled.
    #[test]
    fn rows_are_laid_out_as_the_kernel_reads_them() {
        let machine = |decay, update| {
            let recurrence = Recurrence { decay, update, heads: 1, value_heads: 2, key: 4, value: 1, rotation: None };
            Machine::Chain { recurrence, method: Method::Recurrent }
        };
        let q: Vec<f64> = (0..8).map(f64::from).collect();
        let k: Vec<f64> = (10..18).map(f64::from).collect();
        let (g, beta) = ([-1.0, -2.0, -3.0, -4.0], [0.1, 0.2, 0.3, 0.4]);
        let x = Arrays { q: &q, k: &k, v: &[20.0, 21.0, 22.0, 23.0], g: &g, beta: &beta, ..Arrays::default() };
        let mut rows = Rows::default();
        rows.push(&machine(Decay::Scalar, Update::Delta), 0.5, &x);
        assert_eq!(rows.count, 2);
        assert_eq!(rows.qkv[..12], [0.0, 0.5, 1.0, 1.5, 10.0, 11.0, 12.0, 13.0, 20.0, 21.0, 0.0, 0.0]);
        assert_eq!(rows.qkv[12..], [2.0, 2.5, 3.0, 3.5, 14.0, 15.0, 16.0, 17.0, 22.0, 23.0, 0.0, 0.0]);
        assert_eq!(rows.gates, [-1.0, -2.0, 0.1, 0.2, -3.0, -4.0, 0.3, 0.4]);

        let mut rows = Rows::default();
        rows.push(&machine(Decay::Fixed, Update::Add), 1.0, &Arrays { g: &g[..2], beta: &[], ..x });
        assert_eq!((rows.count, rows.gates.as_slice()), (2, [-1.0, -2.0].as_slice()));
        let mut rows = Rows::default();
        rows.push(&machine(Decay::None, Update::Add), 1.0, &Arrays { g: &[], beta: &[], ..x });
        assert_eq!(rows.gates, [0.0, 0.0], "one a row where there are none");
    }
}
