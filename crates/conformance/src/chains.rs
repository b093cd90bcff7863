//! Chains of the gated delta rule on a device, from and to host memory: what kernel goldens and laws share.
//!
//! Everything that a walk should write is filled with NaN first, so that a kernel that writes nothing cannot pass on
//! what an earlier walk left behind.

use std::sync::Arc;

use seam_device::{Buffer, BufferRange, BufferUse, Device, DeviceError, Lane, align_up};
use seam_kernels::tables::SHARED_SLABS;
use seam_ops::{ChainSpec, DeltaChain, Form, OpError, Operation, PassBuilder, RunSpec, SlabId, Step, Tensor};

/// Heads and sizes of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Key heads H.
    pub(crate) heads: u32,
    /// Value heads HV.
    pub(crate) value_heads: u32,
    /// K.
    pub(crate) key: u32,
    /// V.
    pub(crate) value: u32,
}

impl Shape {
    /// Checks that no size is 0 and that a slot and a row can be addressed.
    pub(crate) fn new(heads: usize, value_heads: usize, key: usize, value: usize) -> Result<Self, OpError> {
        let sizes = [heads, value_heads, key, value];
        let narrow = sizes.map(|n| u32::try_from(n).ok().filter(|n| (1..1 << 14).contains(n)));
        let [Some(heads), Some(value_heads), Some(key), Some(value)] = narrow else {
            return Err(too_large(&sizes));
        };
        let shape = Self { heads, value_heads, key, value };
        let most = u64::from(value_heads) * u64::from(key) * (2 * u64::from(value) + u64::from(key));
        if most >= 1 << 30 { Err(too_large(&sizes)) } else { Ok(shape) }
    }

    /// Elements of a row of q, k and v.
    pub(crate) fn row(&self) -> u32 {
        2 * self.heads * self.key + self.value_heads * self.value
    }

    /// Elements of a row of outputs.
    pub(crate) fn out(&self) -> u32 {
        self.value_heads * self.value
    }

    /// Words of a state `[HV, K, V]`.
    pub(crate) fn state(&self) -> u32 {
        self.value_heads * self.key * self.value
    }

    /// Words of a transition `[HV, K, K]`.
    pub(crate) fn transition(&self) -> u32 {
        self.value_heads * self.key * self.key
    }

    fn slot(&self) -> u32 {
        2 * self.state() + self.transition()
    }
}

fn too_large(sizes: &[usize]) -> OpError {
    OpError::Shape { op: "delta_chain", what: format!("{sizes:?} are no sizes [H, HV, K, V] of a chain") }
}

/// Rows of a pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    /// `[rows, 2·H·K + HV·V]`.
    pub(crate) qkv: Vec<f32>,
    /// `[rows, 2·HV]`: g, then beta.
    pub(crate) gates: Vec<f32>,
    /// How many.
    pub(crate) count: u32,
}

impl Rows {
    /// Appends the rows of one sequence: q, k `[T, H, K]`, v `[T, HV, V]`, g, beta `[T, HV]`. The kernel wants q scaled;
    /// goldens and oracles scale the output, which differs by one f32 rounding of q.
    pub(crate) fn push(&mut self, shape: &Shape, scale: f64, [q, k, v, g, beta]: [&[f64]; 5]) {
        let keys = (shape.heads * shape.key) as usize;
        let heads = shape.value_heads as usize;
        let rows = q.chunks_exact(keys).zip(k.chunks_exact(keys)).zip(v.chunks_exact(shape.out() as usize));
        for ((q, k), v) in rows {
            self.qkv.extend(q.iter().map(|q| (q * scale) as f32));
            self.qkv.extend(k.iter().chain(v).map(|x| *x as f32));
        }
        for (g, beta) in g.chunks_exact(heads).zip(beta.chunks_exact(heads)) {
            self.gates.extend(g.iter().chain(beta).map(|x| *x as f32));
            self.count += 1;
        }
    }
}

/// The operator of all heads, as it is uploaded.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// `[HV, K, V]`.
    pub(crate) s: Vec<f32>,
    /// `[HV, K, K]` if the form is dense, otherwise unused.
    pub(crate) t: Vec<f32>,
    /// How T is applied.
    pub(crate) form: Form,
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
    /// Run, begin and apply steps.
    pub(crate) steps: Vec<Step>,
    /// Whether operator columns are built.
    pub(crate) operator: bool,
}

/// What a chain left in its slot.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// The running state `[HV, K, V]`.
    pub(crate) state: Vec<f64>,
    /// S of the operator `[HV, K, V]`; NaN where none was built.
    pub(crate) s: Vec<f64>,
    /// T of the operator `[HV, K, K]`; NaN where none was built.
    pub(crate) t: Vec<f64>,
}

/// The outcome of a walk.
#[derive(Clone, Debug)]
pub(crate) struct Walked {
    /// Outputs `[rows, HV·V]`; NaN for rows that no chain ran.
    pub(crate) o: Vec<f64>,
    /// The slot of each chain.
    pub(crate) slots: Vec<Slot>,
}

#[derive(Clone)]
struct Work {
    shape: Shape,
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
    shared: [Option<Buffer>; SHARED_SLABS],
}

impl Chains {
    pub(crate) fn new(device: &Arc<dyn Device>) -> Self {
        Self { device: Arc::clone(device), work: None, tables: None, private: None, shared: [None, None, None] }
    }

    /// Puts operators into shared slabs, in turn over as many as one launch binds, and gives the steps that apply them.
    pub(crate) fn upload(&mut self, shape: &Shape, operators: &[Stored]) -> Result<Vec<Step>, OpError> {
        let mut words: [Vec<f32>; SHARED_SLABS] = Default::default();
        let mut steps = Vec::new();
        for (operator, slab) in operators.iter().zip((0..SHARED_SLABS).cycle()) {
            let words = &mut words[slab];
            let s = words.len() as u32;
            words.extend_from_slice(&operator.s);
            let t = words.len() as u32;
            if operator.form == Form::Dense {
                words.extend_from_slice(&operator.t);
            }
            let stored = words.len() as u32 - s;
            let wanted = shape.state() + if operator.form == Form::Dense { shape.transition() } else { 0 };
            if stored != wanted {
                let what = format!("an operator of {stored} values, {wanted} are needed");
                return Err(OpError::Shape { op: "delta_chain", what });
            }
            steps.push(Step::Apply { slab: SlabId::Shared(slab as u32), s, t, form: operator.form });
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
    pub(crate) fn walk(&mut self, shape: &Shape, rows: &Rows, walks: &[Walk<'_>]) -> Result<Walked, OpError> {
        let mut pass = PassBuilder::new(0, 0, 1.0);
        // A pass has at least one row; no chain runs it where there is none.
        let tokens = vec![0; rows.count.max(1) as usize];
        pass.run(&RunSpec { tokens: &tokens, pos: 0, origin: 0, kv: &[], spans: (0, 0), history: &[] })?;
        let private = grown(&*self.device, &mut self.private, "states", walks.len() as u64 * slot_bytes(shape))?;
        for (i, walk) in walks.iter().enumerate() {
            let base = i as u32 * shape.slot();
            let mut steps = vec![match walk.start {
                Start::Zero => Step::Zero,
                Start::State(_) => Step::Load { base, operator: false },
                Start::Kept => Step::Load { base, operator: walk.operator },
            }];
            steps.extend_from_slice(&walk.steps);
            steps.push(Step::Store { base, operator: walk.operator });
            pass.chain(ChainSpec { private: 0, base, operator: walk.operator, steps });
            let mut slot = vec![f32::NAN; shape.slot() as usize];
            match walk.start {
                Start::Kept => continue,
                Start::Zero => {}
                Start::State(state) => match slot.get_mut(..state.len()) {
                    Some(place) if state.len() == shape.state() as usize => place.copy_from_slice(state),
                    _ => {
                        let what = format!("a state of {} values, {} are needed", state.len(), shape.state());
                        return Err(OpError::Shape { op: "delta_chain", what });
                    }
                },
            }
            let range = private.range(u64::from(base) * 4, slot_bytes(shape))?;
            self.device.write(&range, bytemuck::cast_slice(&slot))?;
        }
        let pass = pass.finish()?;
        let bytes = u64::from(pass.shape.words) * 4;
        let tables = grown(&*self.device, &mut self.tables, "tables", bytes)?.range(0, bytes)?;
        self.device.write(&tables, bytemuck::cast_slice(&pass.words))?;
        let work = self.work_for(shape, rows)?;

        let empty = self.device.alloc("no slab", 256, BufferUse::Storage)?;
        let shared = |i: Option<&u32>| {
            let buffer = i.and_then(|&i| self.shared.get(i as usize)).and_then(Option::as_ref);
            buffer.unwrap_or(&empty).all()
        };
        let mut recorder = self.device.recorder();
        for (i, launch) in pass.shape.chains.iter().enumerate() {
            let [a, b, c] = [0, 1, 2].map(|i| shared(launch.shared.get(i)));
            DeltaChain {
                tables: &tables,
                qkv: &work.qkv,
                gates: &work.gates,
                out: &work.out,
                heads: (shape.heads, shape.value_heads),
                sizes: (shape.key, shape.value),
                launch: (i as u32, launch.chains, launch.operator),
                slabs: [private.all(), a, b, c],
            }
            .record(&mut *recorder, self.device.caps())?;
        }
        let ticket = self.device.submit(&recorder.finish()?, Lane::Compute, &[])?;
        let slots = self.device.read(&private.range(0, walks.len() as u64 * slot_bytes(shape))?, &[ticket])?;
        let o = match u64::from(rows.count) * u64::from(shape.out()) * 4 {
            0 => Vec::new(),
            bytes => floats(&self.device.read(&work.out.range().slice(0, bytes)?, &[ticket])?.wait()?),
        };
        let (state, s) = (shape.state() as usize, 2 * shape.state() as usize);
        let slots = floats(&slots.wait()?)
            .chunks_exact(shape.slot() as usize)
            .map(|w| Slot { state: w[..state].to_vec(), s: w[state..s].to_vec(), t: w[s..].to_vec() })
            .collect();
        Ok(Walked { o, slots })
    }

    /// Makes room for the rows and writes them.
    fn work_for(&mut self, shape: &Shape, rows: &Rows) -> Result<Work, OpError> {
        let device = &*self.device;
        let work = match self.work.take() {
            Some(work) if work.shape == *shape && work.rows >= rows.count => work,
            _ => {
                // A multiple of 4, so that the rows are whole vectors of four: kernels read q, k and v as such.
                let count = rows.count.max(4).next_power_of_two();
                Work {
                    shape: *shape,
                    rows: count,
                    qkv: Tensor::new(device, "q, k and v", count, shape.row())?,
                    gates: Tensor::new(device, "gates", count, 2 * shape.value_heads)?,
                    out: Tensor::new(device, "outputs", count, shape.out())?,
                }
            }
        };
        if rows.count > 0 {
            device.write(&work.qkv.range(), bytemuck::cast_slice(&rows.qkv))?;
            device.write(&work.gates.range(), bytemuck::cast_slice(&rows.gates))?;
        }
        let nothing = vec![f32::NAN; rows.count.max(1) as usize * shape.out() as usize];
        device.write(&work.out.range(), bytemuck::cast_slice(&nothing))?;
        Ok(self.work.insert(work).clone())
    }
}

fn slot_bytes(shape: &Shape) -> u64 {
    u64::from(shape.slot()) * 4
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

    #[test]
    fn sizes_that_no_chain_has() {
        let shape = Shape::new(2, 4, 8, 12).unwrap();
        assert_eq!((shape.row(), shape.out(), shape.state(), shape.transition()), (80, 48, 384, 256));
        for sizes in [[0, 1, 8, 8], [1, 1, 8, 0], [1, usize::MAX, 8, 8], [1, 1 << 13, 1 << 13, 1 << 13]] {
            let [h, hv, k, v] = sizes;
            assert!(matches!(Shape::new(h, hv, k, v), Err(OpError::Shape { .. })), "{sizes:?}");
        }
    }

    /// q, k and v of a row stand side by side, g before beta, and q alone is scaled.
    #[test]
    fn rows_are_laid_out_as_the_kernel_reads_them() {
        let shape = Shape::new(1, 2, 4, 1).unwrap();
        let q: Vec<f64> = (0..8).map(f64::from).collect();
        let k: Vec<f64> = (10..18).map(f64::from).collect();
        let mut rows = Rows::default();
        rows.push(&shape, 0.5, [&q, &k, &[20.0, 21.0, 22.0, 23.0], &[-1.0, -2.0, -3.0, -4.0], &[0.1, 0.2, 0.3, 0.4]]);
        assert_eq!(rows.count, 2);
        assert_eq!(rows.qkv[..10], [0.0, 0.5, 1.0, 1.5, 10.0, 11.0, 12.0, 13.0, 20.0, 21.0]);
        assert_eq!(rows.qkv[10..], [2.0, 2.5, 3.0, 3.5, 14.0, 15.0, 16.0, 17.0, 22.0, 23.0]);
        assert_eq!(rows.gates, [-1.0, -2.0, 0.1, 0.2, -3.0, -4.0, 0.3, 0.4]);
    }
}
