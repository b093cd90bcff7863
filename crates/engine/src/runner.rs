//! One model on one device: runs passes.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use seam_device::{Buffer, BufferUse, CommandList, DType, Device, Lane, Ticket, align_up};
use seam_model::config::ModelConfig;
use seam_model::layers::PassContext;
use seam_model::weights::{Weights, fingerprint};
use seam_model::{Capture, Memory, ModelError, NoProbe, Stack, StackSpec, Workspace, load};
use seam_ops::{BAD_LOGITS, Checked, Choice, PassBuilder, PassShape, PassTables, Sample};
use seam_pic::{Resident, Sequence};

use crate::checked::ScanProbe;
use crate::error::EngineError;

/// Lists that are kept for replay.
const KEPT_LISTS: usize = 64;

/// Tokens of one chain in one launch, as a multiple of the rows that a pass should have: a chain's step touches one state
/// where a row of a pass goes through every product of a layer.
const CHAIN_ROWS: u32 = 16;

/// Sizes that an engine is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunnerOptions {
    /// Bytes of a slab per layer, at most what the device can bind.
    pub slab_bytes: u64,
    /// Rows of a pass; `None` for what the device suggests.
    pub max_rows: Option<u32>,
    /// Rows of a pass that may want logits.
    pub max_logits: u32,
    /// Whether every intermediate result is looked through: a value that is not finite, or a log-gate above 0, then fails
    /// the pass by name ([`seam_ops::Finding`]), and nothing of it is cached.
    pub checked: bool,
}

impl Default for RunnerOptions {
    fn default() -> Self {
        Self { slab_bytes: 16 << 20, max_rows: None, max_logits: 64, checked: false }
    }
}

/// Counters since the runner was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Passes.
    pub passes: u64,
    /// Rows computed.
    pub rows: u64,
    /// Bytes of tables written.
    pub table_bytes: u64,
    /// Lists recorded, as opposed to replayed.
    pub recorded: u64,
    /// Time of the device, where it measures it.
    pub device_time: Duration,
}

/// Rows of an intermediate result.
#[derive(Clone, Debug, PartialEq)]
pub struct Tap {
    /// Name, as the stack calls it.
    pub name: String,
    /// Elements of a row.
    pub cols: usize,
    /// `[rows, cols]`.
    pub values: Vec<f32>,
}

/// Intermediate results to look at, and where they go.
struct Watch<'a> {
    filter: &'a dyn Fn(&str) -> bool,
    taps: &'a mut Vec<Tap>,
}

/// A token that the device chose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chosen {
    /// Its id.
    pub token: u32,
    /// Its log-probability under the unmodified logits.
    pub logprob: f32,
}

/// What becomes of the rows that want logits, by sequence.
enum Want<'a> {
    /// The host reads them.
    Logits(&'a mut [Vec<f32>]),
    /// The device chooses a token of each, as its sequence says.
    Tokens(&'a [Choice], &'a mut [Vec<Chosen>]),
}

/// What the host reads of a pass.
enum Read {
    Logits(Vec<f32>),
    Tokens(Vec<Chosen>),
}

struct Recorded {
    list: CommandList,
    used: u64,
    /// Flags of checked mode.
    checked: Option<Checked>,
}

/// A model on a device with its memory.
pub struct Runner {
    device: Arc<dyn Device>,
    config: ModelConfig,
    fingerprint: [u8; 32],
    stack: Box<dyn Stack>,
    /// Slabs of running work and of entries.
    pub memory: Memory,
    work: Workspace,
    tables: Buffer,
    /// By shape, and whether the device chooses tokens.
    lists: HashMap<(PassShape, bool), Recorded>,
    max_rows: u32,
    max_logits: u32,
    checked: bool,
    stats: RunStats,
}

impl Runner {
    /// Loads the model in `dir`.
    ///
    /// # Errors
    /// [`EngineError::Model`] naming the file, field or tensor, or what the device says.
    pub fn load(device: Arc<dyn Device>, dir: &Path, options: RunnerOptions) -> Result<Self, EngineError> {
        let config = ModelConfig::from_dir(dir).map_err(ModelError::from)?;
        let weights = Weights::open(dir).map_err(ModelError::from)?;
        let fingerprint = fingerprint(dir, &weights).map_err(ModelError::from)?;
        let stack = load(&*device, &config, &weights)?;
        let spec = stack.spec();
        let memory = Memory::new(&device, spec, options.slab_bytes)?;
        let rows = options.max_rows.unwrap_or(device.caps().rows_hint).max(1);
        let (max_rows, max_logits) = Workspace::fit(spec, device.caps().max_binding, rows, options.max_logits.max(1));
        let work = Workspace::new(&*device, spec, max_rows, max_logits)?;
        let tables = device.alloc("tables", 1 << 16, BufferUse::Storage)?;
        Ok(Self {
            device,
            config,
            fingerprint,
            memory,
            work,
            tables,
            lists: HashMap::new(),
            max_rows,
            max_logits,
            checked: options.checked,
            stats: RunStats::default(),
            stack,
        })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The model's fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// Sizes of the stack.
    #[must_use]
    pub fn spec(&self) -> &StackSpec {
        self.stack.spec()
    }

    /// Rows of a pass at most.
    #[must_use]
    pub fn max_rows(&self) -> u32 {
        self.max_rows
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> RunStats {
        self.stats
    }

    fn builder(&self) -> PassBuilder {
        let spec = self.spec();
        let (rot, theta) = spec.rotary.map_or((0, 1.0), |r| (r.dims, r.theta));
        let budget = self.device.caps().rows_hint.saturating_mul(CHAIN_ROWS);
        let pass = PassBuilder::new(spec.linear.map_or(0, |l| l.kernel), rot, theta).with_budget(budget);
        match spec.kv {
            Some(kv) if kv.dtype == DType::BF16 => pass.with_tiles(kv.group),
            _ => pass,
        }
    }

    /// Runs sequences until nothing of them is left, packing rows of several into each pass; returns the logits each
    /// of them asked for, `[rows, vocab]` in order.
    ///
    /// # Errors
    /// [`EngineError::NonFinite`], or what planning or the device gives. The sequences are then unusable.
    pub fn advance(&mut self, sequences: &mut [&mut Sequence]) -> Result<Vec<Vec<f32>>, EngineError> {
        let mut logits = vec![Vec::new(); sequences.len()];
        while sequences.iter().any(|s| s.rows_left() > 0) {
            self.step(sequences, Want::Logits(&mut logits), None)?;
        }
        Ok(logits)
    }

    /// Whether the device can choose tokens. In checked mode everything is looked at by the host.
    #[must_use]
    pub fn chooses(&self) -> bool {
        !self.checked && Sample::available(self.device.caps())
    }

    /// As [`Runner::advance`], but the device chooses the token of each row that wanted logits: `choices` has one for each
    /// sequence. Only tokens and their log-probabilities are read.
    ///
    /// # Errors
    /// As [`Runner::advance`]; [`EngineError::Op`] where the device lacks the kernel.
    pub fn choose(
        &mut self,
        sequences: &mut [&mut Sequence],
        choices: &[Choice],
    ) -> Result<Vec<Vec<Chosen>>, EngineError> {
        let mut chosen = vec![Vec::new(); sequences.len()];
        while sequences.iter().any(|s| s.rows_left() > 0) {
            self.step(sequences, Want::Tokens(choices, &mut chosen), None)?;
        }
        Ok(chosen)
    }

    /// As [`Runner::advance`] for one sequence, also returning the intermediate results that `filter` admits, with one
    /// row for each row the sequence computed (for `final_norm`: for each row that wanted logits).
    ///
    /// # Errors
    /// As [`Runner::advance`].
    pub fn trace(
        &mut self,
        sequence: &mut Sequence,
        filter: &dyn Fn(&str) -> bool,
    ) -> Result<(Vec<f32>, Vec<Tap>), EngineError> {
        let mut logits = vec![Vec::new()];
        let mut taps: Vec<Tap> = Vec::new();
        while sequence.rows_left() > 0 {
            self.step(&mut [sequence], Want::Logits(&mut logits), Some(Watch { filter, taps: &mut taps }))?;
        }
        Ok((logits.pop().unwrap_or_default(), taps))
    }

    fn step(
        &mut self,
        sequences: &mut [&mut Sequence],
        want: Want<'_>,
        watch: Option<Watch<'_>>,
    ) -> Result<(), EngineError> {
        let mut pass = self.builder();
        let mut emitted = Vec::new();
        for (i, sequence) in sequences.iter_mut().enumerate() {
            let rows = self.max_rows - pass.rows();
            if rows > 0 && sequence.rows_left() > 0 {
                let free = self.max_logits - pass.logits();
                emitted.push((i, sequence.emit(&mut pass, self.stack.spec(), rows, free)?));
            }
        }
        let (rows, wanted) = (pass.rows(), pass.logits());
        let choose = matches!(want, Want::Tokens(..));
        if let (Want::Tokens(choices, _), true) = (&want, wanted > 0) {
            let of = |i: usize| choices.get(i).copied().unwrap_or(Choice::GREEDY);
            let all: Vec<Choice> =
                emitted.iter().flat_map(|(i, e)| std::iter::repeat_n(of(*i), e.logits as usize)).collect();
            let bytes: &[u8] = bytemuck::cast_slice(&all);
            self.device.write(&self.work.choices.range(0, bytes.len() as u64)?, bytes)?;
        }
        let vocab = self.spec().vocab as usize;
        match (self.run(&pass.finish()?, (rows, wanted), choose, watch)?, want) {
            (Read::Logits(all), Want::Logits(logits)) => {
                for (i, e) in emitted {
                    let range = e.first_logit as usize * vocab..(e.first_logit + e.logits) as usize * vocab;
                    if let (Some(out), Some(values)) = (logits.get_mut(i), all.get(range)) {
                        out.extend_from_slice(values);
                    }
                }
            }
            (Read::Tokens(all), Want::Tokens(_, chosen)) => {
                for (i, e) in emitted {
                    let range = e.first_logit as usize..(e.first_logit + e.logits) as usize;
                    if let (Some(out), Some(tokens)) = (chosen.get_mut(i), all.get(range)) {
                        out.extend_from_slice(tokens);
                    }
                }
            }
            (Read::Logits(_), Want::Tokens(..)) | (Read::Tokens(_), Want::Logits(_)) => {}
        }
        Ok(())
    }

    /// Runs one pass; returns its logits, or its tokens if the device chooses them.
    fn run(
        &mut self,
        pass: &PassTables,
        (rows, wanted): (u32, u32),
        choose: bool,
        watch: Option<Watch<'_>>,
    ) -> Result<Read, EngineError> {
        let bytes = u64::from(pass.shape.words) * 4;
        if self.tables.bytes() < bytes {
            // Recorded lists name the old tables.
            self.lists.clear();
            self.tables = self.device.alloc("tables", align_up(bytes), BufferUse::Storage)?;
        }
        self.device.write(&self.tables.all(), bytemuck::cast_slice(&pass.words))?;
        self.stats.passes += 1;
        self.stats.rows += u64::from(rows);
        self.stats.table_bytes += pass.words.len() as u64 * 4;
        let ticket = match watch {
            None => {
                let key = (pass.shape.clone(), choose);
                if !self.lists.contains_key(&key) {
                    let (list, checked) = if self.checked {
                        self.record_checked(&pass.shape, choose)?
                    } else {
                        (self.record(&pass.shape, choose, &mut NoProbe)?, None)
                    };
                    self.keep(key.clone(), list, checked);
                }
                let used = self.stats.passes;
                let Some(recorded) = self.lists.get_mut(&key) else {
                    return Err(EngineError::EmptyPrompt("no pass was recorded"));
                };
                recorded.used = used;
                if let Some(checked) = &recorded.checked {
                    checked.reset(&*self.device)?;
                }
                let ticket = self.device.submit(&recorded.list, Lane::Compute, &[])?;
                if let Some(checked) = &recorded.checked {
                    checked.verify(&*self.device, &[ticket])?;
                }
                ticket
            }
            Some(Watch { filter, taps }) => {
                let device = Arc::clone(&self.device);
                let mut capture = Capture::new(&*device, filter);
                let list = self.record(&pass.shape, choose, &mut capture)?;
                let ticket = self.device.submit(&list, Lane::Compute, &[])?;
                collect(capture, (rows, wanted), taps)?;
                ticket
            }
        };
        let read = match (choose, wanted) {
            (false, 0) => Read::Logits(Vec::new()),
            (true, 0) => Read::Tokens(Vec::new()),
            (false, _) => Read::Logits(self.read_logits(wanted, ticket)?),
            (true, _) => Read::Tokens(self.read_chosen(wanted, ticket)?),
        };
        self.stats.device_time += self.device.elapsed(ticket).unwrap_or_default();
        Ok(read)
    }

    fn read_logits(&self, wanted: u32, ticket: Ticket) -> Result<Vec<f32>, EngineError> {
        let vocab = self.spec().vocab;
        let range = self.work.readback.range(0, u64::from(wanted) * u64::from(vocab) * 4)?;
        let logits = floats(&self.device.read(&range, &[ticket])?.wait()?);
        if let Some(at) = logits.iter().position(|l| !l.is_finite()) {
            let (row, token) = (at / vocab as usize, at % vocab as usize);
            return Err(EngineError::NonFinite { row, token });
        }
        Ok(logits)
    }

    fn read_chosen(&self, wanted: u32, ticket: Ticket) -> Result<Vec<Chosen>, EngineError> {
        let range = self.work.chosen_readback.range(0, u64::from(wanted) * 8)?;
        let words = floats(&self.device.read(&range, &[ticket])?.wait()?);
        let one = |(row, pair): (usize, &[f32])| match pair[0].to_bits() {
            BAD_LOGITS => Err(EngineError::NonFinite { row, token: pair[1].to_bits() as usize }),
            token => Ok(Chosen { token, logprob: pair[1] }),
        };
        words.chunks_exact(2).enumerate().map(one).collect()
    }

    fn record(
        &mut self,
        shape: &PassShape,
        choose: bool,
        probe: &mut dyn seam_model::Probe,
    ) -> Result<CommandList, EngineError> {
        self.stats.recorded += 1;
        let mut recorder = self.device.recorder();
        let tables = self.tables.range(0, u64::from(shape.words) * 4)?;
        let (caps, memory, work) = (self.device.caps(), &self.memory, &self.work);
        let pass = PassContext { caps, tables: &tables, shape, memory, work, choose };
        self.stack.record(&mut *recorder, &pass, probe)?;
        Ok(recorder.finish()?)
    }

    /// The same with a scan of everything the stack shows.
    fn record_checked(
        &mut self,
        shape: &PassShape,
        choose: bool,
    ) -> Result<(CommandList, Option<Checked>), EngineError> {
        let device = Arc::clone(&self.device);
        let tables = self.tables.range(0, u64::from(shape.words) * 4)?;
        let gates = self.spec().linear.map_or(0, |l| l.recurrence.log_gates());
        let mut probe = ScanProbe::new(&*device, &tables, self.spec().layers.len(), gates)?;
        let list = self.record(shape, choose, &mut probe)?;
        Ok((list, Some(probe.finish())))
    }

    fn keep(&mut self, key: (PassShape, bool), list: CommandList, checked: Option<Checked>) {
        if self.lists.len() >= KEPT_LISTS {
            let oldest = self.lists.iter().min_by_key(|(_, r)| r.used).map(|(key, _)| key.clone());
            oldest.map(|key| self.lists.remove(&key));
        }
        self.lists.insert(key, Recorded { list, used: self.stats.passes, checked });
    }

    /// Copies finished cold sequences into their entries' memory: one submission for all.
    ///
    /// # Errors
    /// What recording or submitting gives.
    pub fn publish(&self, finished: &[(&Resident, &Sequence)]) -> Result<(), EngineError> {
        let mut recorder = self.device.recorder();
        for (resident, sequence) in finished {
            resident.publish(&mut *recorder, &self.memory, self.spec(), sequence)?;
        }
        let list = recorder.finish()?;
        self.device.submit(&list, Lane::Compute, &[])?;
        Ok(())
    }

    /// State and conv tail of a sequence in linear layer `layer` (counted among the linear layers): `[HV, K, V]` and
    /// `[k−1, channels]`.
    ///
    /// # Errors
    /// What reading gives.
    pub fn read_state(&self, sequence: &Sequence, layer: usize) -> Result<(Vec<f32>, Vec<f32>), EngineError> {
        let (Some(linear), Some(slot)) = (self.spec().linear, sequence.slot()) else {
            return Ok((Vec::new(), Vec::new()));
        };
        let bytes = self.device.read(&self.memory.states.range(layer, slot)?, &[])?.wait()?;
        let words = floats(&bytes);
        let tail = words.len() - linear.tail_words() as usize;
        Ok((words[..linear.state_words() as usize].to_vec(), words[tail..].to_vec()))
    }

    /// Private keys and values of a sequence in attention layer `layer` (counted among those): each
    /// `[rows, kv_heads·head]`.
    ///
    /// # Errors
    /// What reading gives.
    pub fn read_kv(&self, sequence: &Sequence, layer: usize) -> Result<(Vec<f32>, Vec<f32>), EngineError> {
        let Some(kv) = self.spec().kv else { return Ok((Vec::new(), Vec::new())) };
        let width = kv.width() as usize;
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for &(slab, row) in sequence.kv_rows() {
            let place = seam_device::Place { slab, offset: row, len: 1 };
            let bytes = self.device.read(&self.memory.kv_private.range(layer, place)?, &[])?.wait()?;
            let row = if kv.dtype == DType::BF16 { halves(&bytes) } else { floats(&bytes) };
            keys.extend_from_slice(&row[..width]);
            values.extend_from_slice(&row[width..]);
        }
        Ok((keys, values))
    }
}

/// Appends the rows of a pass to the taps of the same names.
fn collect(capture: Capture<'_>, (rows, wanted): (u32, u32), taps: &mut Vec<Tap>) -> Result<(), EngineError> {
    for (name, cols, values) in capture.read()? {
        let cols = cols as usize;
        let count = if name == "final_norm" { wanted } else { rows } as usize;
        let values = values.get(..count * cols).unwrap_or_default();
        match taps.iter_mut().find(|tap| tap.name == name) {
            Some(tap) => tap.values.extend_from_slice(values),
            None => taps.push(Tap { name, cols, values: values.to_vec() }),
        }
    }
    Ok(())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// bf16 is the upper half of an f32.
fn halves(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(2).map(|b| f32::from_bits(u32::from_le_bytes([0, 0, b[0], b[1]]))).collect()
}
