//! Builds the tables of a pass.

use std::collections::HashMap;

use seam_kernels::tables as t;

use super::chains::{ChainSpec, split};
use super::shape::{AttentionLaunch, ConvLaunch, PassShape, TailLaunch, Tiles, bucket};
use super::tiles;
use crate::error::{OpError, ensure};

/// A slab of a pool: private ones are written inside a pass, shared ones are only read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlabId {
    /// A slab of running requests and of segments under construction.
    Private(u32),
    /// A slab of cached entries.
    Shared(u32),
}

impl SlabId {
    /// The slab's number in the tables: shared slabs have the highest bit set.
    #[must_use]
    pub fn code(self) -> u32 {
        match self {
            Self::Private(i) => i,
            Self::Shared(i) => i | 1 << 31,
        }
    }
}

/// Where one raw input of a linear layer's convolution lies: `[channels]` f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Zeros: before the first token.
    Zero,
    /// A row of this pass.
    Row(u32),
    /// Words of a slab.
    Words(SlabId, u32),
}

/// Keys and values that rows may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanSpec {
    /// KV slab.
    pub slab: SlabId,
    /// First KV row.
    pub row: u32,
    /// Keys.
    pub len: u32,
    /// Position of the first key in the prompt.
    pub pos: u32,
    /// Position of the first token of its segment: keys are rotated by their distance from it.
    pub origin: u32,
}

/// Consecutive rows of one request.
#[derive(Clone, Debug)]
pub struct RunSpec<'a> {
    /// Token ids, one a row.
    pub tokens: &'a [u32],
    /// Position of the first row.
    pub pos: u32,
    /// Position of the first token of its segment.
    pub origin: u32,
    /// Private KV slab and row of each token; empty for a model without attention.
    pub kv: &'a [(u32, u32)],
    /// First span and number of spans (see [`PassBuilder::spans`]).
    pub spans: (u32, u32),
    /// The `k−1` raw inputs before the first row, oldest first; empty for a model without convolution.
    pub history: &'a [Source],
}

/// A finished pass.
#[derive(Clone, Debug)]
pub struct PassTables {
    /// What a recorded list depends on.
    pub shape: PassShape,
    /// The tables, to be written to the device as they are.
    pub words: Vec<u32>,
}

struct Run {
    first: u32,
    rows: u32,
    spans: (u32, u32),
    history: Vec<Source>,
}

struct Tail {
    private: u32,
    word: u32,
    sources: Vec<Source>,
}

/// Collects the runs, spans, chains and tails of a pass.
pub struct PassBuilder {
    history: usize,
    rot: usize,
    inv_freq: Vec<f64>,
    rows: Vec<[u32; t::ROW_WORDS]>,
    runs: Vec<Run>,
    spans: Vec<SpanSpec>,
    span_angles: Vec<u32>,
    tails: Vec<Tail>,
    chains: Vec<ChainSpec>,
    logits: Vec<u32>,
    budget: u32,
    group: Option<u32>,
    angle_of: HashMap<i64, u32>,
    angles: Vec<u32>,
}

impl PassBuilder {
    /// A pass for a model whose convolutions have `kernel` taps (0 without) and whose attention rotates `rot`
    /// dimensions with frequencies `theta^(−2i/rot)` (0 without).
    #[must_use]
    pub fn new(kernel: u32, rot: u32, theta: f64) -> Self {
        let rot = rot as usize;
        Self {
            history: kernel.saturating_sub(1) as usize,
            rot,
            inv_freq: (0..rot / 2).map(|i| theta.powf(-2.0 * i as f64 / rot as f64)).collect(),
            rows: Vec::new(),
            runs: Vec::new(),
            spans: Vec::new(),
            span_angles: Vec::new(),
            tails: Vec::new(),
            chains: Vec::new(),
            logits: Vec::new(),
            budget: u32::MAX,
            group: None,
            angle_of: HashMap::new(),
            angles: Vec::new(),
        }
    }

    /// Rotates by these inverse frequencies, radians a position, one a pair of dims.
    #[must_use]
    pub fn with_frequencies(mut self, inv_freq: Vec<f64>) -> Self {
        self.rot = 2 * inv_freq.len();
        self.inv_freq = inv_freq;
        self
    }

    /// Cuts chains where one launch would run about more than `tokens` tokens of one: what keeps a launch short.
    #[must_use]
    pub fn with_budget(mut self, tokens: u32) -> Self {
        self.budget = tokens;
        self
    }

    /// Also cuts the queries of every run into tiles, for keys in bf16 (see [`super::Tiles`]); `group` query heads read
    /// one KV head.
    #[must_use]
    pub fn with_tiles(mut self, group: u32) -> Self {
        self.group = Some(group.max(1));
        self
    }

    /// Rows so far.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.rows.len() as u32
    }

    /// Rows that want logits so far.
    #[must_use]
    pub fn logits(&self) -> u32 {
        self.logits.len() as u32
    }

    /// cos and sin of `distance·theta^(−2i/rot)`, as f64 products rounded once: f32 products lose 1e-5 beyond 4k.
    ///
    /// The index of the pair's record, for [`super::Step::Apply`]; a negative distance turns back.
    pub fn angle(&mut self, distance: i64) -> u32 {
        let next = self.angle_of.len() as u32;
        *self.angle_of.entry(distance).or_insert_with(|| {
            let angles = self.inv_freq.iter().map(|f| distance as f64 * f);
            self.angles.extend(angles.clone().map(|a| (a.cos() as f32).to_bits()));
            self.angles.extend(angles.map(|a| (a.sin() as f32).to_bits()));
            next
        })
    }

    /// Adds spans of one request, in the order of their positions; returns the index of the first.
    pub fn spans(&mut self, spans: &[SpanSpec]) -> u32 {
        let first = self.spans.len() as u32;
        for span in spans {
            let angle = self.angle(i64::from(span.origin));
            self.span_angles.push(angle);
            self.spans.push(*span);
        }
        first
    }

    /// Adds rows; returns the first row.
    ///
    /// # Errors
    /// [`OpError::Shape`] if there are no tokens, the KV places do not match them, positions lie before the origin, or
    /// the history has another length than the convolution.
    pub fn run(&mut self, run: &RunSpec<'_>) -> Result<u32, OpError> {
        let (n, op) = (run.tokens.len(), "run");
        ensure(op, n > 0 && (run.kv.is_empty() || run.kv.len() == n), || {
            format!("{n} tokens, {} KV rows", run.kv.len())
        })?;
        ensure(op, run.origin <= run.pos && run.pos.checked_add(n as u32).is_some(), || {
            format!("position {} of {n} tokens, origin {}", run.pos, run.origin)
        })?;
        ensure(op, run.history.len() == self.history, || {
            format!("{} history sources, the convolution needs {}", run.history.len(), self.history)
        })?;
        let first = self.rows.len() as u32;
        for (i, token) in run.tokens.iter().enumerate() {
            let pos = run.pos + i as u32;
            let (query, key) = (self.angle(i64::from(pos)), self.angle(i64::from(pos - run.origin)));
            let (slab, kv_row) = run.kv.get(i).copied().unwrap_or((u32::MAX, 0));
            self.rows.push([self.runs.len() as u32, pos, query, key, slab, kv_row, *token, 0]);
        }
        self.runs.push(Run { first, rows: n as u32, spans: run.spans, history: run.history.to_vec() });
        Ok(first)
    }

    /// Asks for the logits of a row; returns their index.
    pub fn logit(&mut self, row: u32) -> u32 {
        self.logits.push(row);
        self.logits.len() as u32 - 1
    }

    /// Writes `k−1` raw inputs, oldest first, to `word` of private slab `private` after the convolution ran.
    ///
    /// # Errors
    /// [`OpError::Shape`] if there are not `k−1` sources.
    pub fn tail(&mut self, private: u32, word: u32, sources: &[Source]) -> Result<(), OpError> {
        ensure("tail", sources.len() == self.history, || {
            format!("{} sources, the convolution needs {}", sources.len(), self.history)
        })?;
        self.tails.push(Tail { private, word, sources: sources.to_vec() });
        Ok(())
    }

    /// Adds a chain.
    pub fn chain(&mut self, chain: ChainSpec) {
        self.chains.push(chain);
    }

    /// Ends the pass.
    ///
    /// # Errors
    /// [`OpError::Shape`] for a pass without rows, or a source in a second private slab.
    pub fn finish(self) -> Result<PassTables, OpError> {
        ensure("pass", !self.rows.is_empty(), || "no rows".to_owned())?;
        let mut words = vec![0u32; t::HEADER];
        let mut shape = PassShape { rows: bucket(self.rows()), logits: bucket(self.logits()), ..Default::default() };
        words[t::ROWS] = self.rows();
        words[t::LOGITS] = self.logits();
        words[t::RUNS] = self.runs.len() as u32;
        put(&mut words, t::ROW_TABLE, self.rows.iter().flatten().copied());
        let spans = self.spans.iter().zip(&self.span_angles);
        put(
            &mut words,
            t::SPAN_TABLE,
            spans.flat_map(|(s, angle)| [s.slab.code(), s.row, s.len, s.pos, *angle, 0, 0, 0]),
        );
        put(&mut words, t::LOGIT_TABLE, self.logits.iter().copied());
        put(&mut words, t::ANGLE_TABLE, self.angles.iter().copied());
        self.put_conv(&mut words, &mut shape)?;
        self.put_tails(&mut words, &mut shape)?;
        self.put_chains(&mut words, &mut shape);
        self.put_attention(&mut words, &mut shape);
        if let Some(group) = self.group {
            let (table, counts) = tiles::cut(self.runs.iter().map(|run| run.rows), group);
            [words[t::WIDE_TILES], words[t::NARROW_TILES]] = counts;
            put(&mut words, t::TILE_TABLE, table);
            let [wide, narrow] = counts.map(bucket);
            shape.tiles = Some(Tiles { group, wide, narrow });
        }
        debug_assert_eq!(self.angles.len(), self.angle_of.len() * self.rot);
        shape.words = bucket((words.len() as u32).div_ceil(1024)) * 1024;
        Ok(PassTables { shape, words })
    }

    fn put_conv(&self, words: &mut Vec<u32>, shape: &mut PassShape) -> Result<(), OpError> {
        let (mut history, mut runs, mut launches) = (Vec::new(), Vec::new(), Vec::new());
        let mut slabs = Bound::default();
        let mut begin = 0;
        for (i, run) in self.runs.iter().enumerate() {
            if !slabs.admit(&run.history)? {
                launches.push((begin, i, std::mem::take(&mut slabs)));
                begin = i;
                slabs.admit(&run.history)?;
            }
            let first_source = history.len() as u32 / t::SOURCE_WORDS as u32;
            for source in &run.history {
                history.extend(slabs.encode(*source));
            }
            runs.extend([run.first, run.rows, run.spans.0, run.spans.1, first_source, 0, 0, 0]);
        }
        launches.push((begin, self.runs.len(), slabs));
        put(words, t::RUN_TABLE, runs);
        put(words, t::HISTORY_TABLE, history);
        let records = launches.iter().flat_map(|(begin, end, _)| {
            let (first, last) = (&self.runs[*begin], &self.runs[end - 1]);
            let rows = last.first + last.rows - first.first;
            [*begin as u32, (end - begin) as u32, first.first, rows]
        });
        put(words, t::CONV_LAUNCHES, records);
        for (begin, end, slabs) in launches {
            let (first, last) = (&self.runs[begin], &self.runs[end - 1]);
            let rows = bucket(last.first + last.rows - first.first);
            shape.conv.push(ConvLaunch { rows, private: slabs.private, shared: slabs.shared });
        }
        Ok(())
    }

    fn put_tails(&self, words: &mut Vec<u32>, shape: &mut PassShape) -> Result<(), OpError> {
        let (mut records, mut launches) = (Vec::new(), Vec::new());
        let mut order: Vec<&Tail> = self.tails.iter().collect();
        order.sort_by_key(|tail| tail.private);
        let mut open: Option<(u32, u32, Bound)> = None;
        for (i, tail) in order.iter().enumerate() {
            let fits = match &mut open {
                Some((_, _, slabs)) => slabs.private == Some(tail.private) && slabs.admit(&tail.sources)?,
                None => false,
            };
            if !fits {
                launches.extend(open.take());
                let mut slabs = Bound { private: Some(tail.private), shared: Vec::new() };
                ensure("tail", slabs.admit(&tail.sources)?, || "sources in two private slabs".to_owned())?;
                open = Some((i as u32, 0, slabs));
            }
            if let Some((_, count, slabs)) = &mut open {
                *count += 1;
                records.extend([tail.word, 0]);
                records.extend(tail.sources.iter().flat_map(|s| slabs.encode(*s)));
            }
        }
        launches.extend(open);
        put(words, t::TAIL_TABLE, records);
        put(words, t::TAIL_LAUNCHES, launches.iter().flat_map(|(first, count, _)| [*first, *count]));
        shape.tails = launches
            .into_iter()
            .map(|(_, count, slabs)| TailLaunch {
                tails: bucket(count),
                private: slabs.private.unwrap_or_default(),
                shared: slabs.shared,
            })
            .collect();
        Ok(())
    }

    fn put_chains(&self, words: &mut Vec<u32>, shape: &mut PassShape) {
        let (mut launches, mut chains, mut steps, mut chunks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (launch, mut pieces) in split(&self.chains, self.budget) {
            launches.extend([chains.len() as u32 / t::CHAIN_WORDS as u32, pieces.len() as u32]);
            shape.chains.push(launch);
            for step in pieces.iter_mut().flat_map(|(_, steps)| steps).filter(|step| step[0] == t::STEP_RUN) {
                step[3] = chunks.len() as u32 / t::CHUNK_WORDS as u32;
                let end = step[1] + step[2];
                chunks.extend(
                    (step[1]..end)
                        .step_by(t::CHUNK_TOKENS)
                        .zip(0..)
                        .flat_map(|(first, i)| [first, (end - first).min(t::CHUNK_TOKENS as u32), end - first, i]),
                );
            }
            for (flags, piece) in pieces {
                chains.extend([steps.len() as u32 / t::STEP_WORDS as u32, piece.len() as u32, flags, 0]);
                steps.extend(piece.into_iter().flatten());
            }
        }
        put(words, t::CHAIN_LAUNCHES, launches);
        put(words, t::CHAIN_TABLE, chains);
        put(words, t::STEP_TABLE, steps);
        words[t::CHUNKS] = chunks.len() as u32 / t::CHUNK_WORDS as u32;
        shape.chunks = bucket(words[t::CHUNKS]);
        put(words, t::CHUNK_TABLE, chunks);
    }

    fn put_attention(&self, words: &mut Vec<u32>, shape: &mut PassShape) {
        let mut kv: Vec<u32> = self.rows.iter().map(|row| row[4]).filter(|&slab| slab != u32::MAX).collect();
        kv.sort_unstable();
        kv.dedup();
        shape.kv = kv;
        let mut slabs: Vec<SlabId> = Vec::new();
        for span in &self.spans {
            if !slabs.contains(&span.slab) {
                slabs.push(span.slab);
            }
        }
        let mut records = Vec::new();
        for group in slabs.chunks(t::KV_SLABS) {
            let mut codes = [u32::MAX; t::KV_SLABS];
            group.iter().zip(&mut codes).for_each(|(slab, code)| *code = slab.code());
            records.extend([group.len() as u32, 0, 0, 0]);
            records.extend(codes);
            shape.attention.push(AttentionLaunch { slabs: group.to_vec() });
        }
        put(words, t::ATTENTION_LAUNCHES, records);
    }
}

/// Appends a table and writes its offset into the header. An empty table points at the end.
fn put(words: &mut Vec<u32>, header: usize, table: impl IntoIterator<Item = u32>) {
    words[header] = words.len() as u32;
    words.extend(table);
}

/// The slabs that one launch binds.
#[derive(Default)]
struct Bound {
    private: Option<u32>,
    shared: Vec<u32>,
}

impl Bound {
    /// Adds the slabs of `sources` if they fit; otherwise changes nothing.
    fn admit(&mut self, sources: &[Source]) -> Result<bool, OpError> {
        let (mut private, mut shared) = (self.private, self.shared.clone());
        for source in sources {
            match source {
                Source::Words(SlabId::Private(slab), _) => match private {
                    Some(bound) if bound != *slab => return Ok(false),
                    _ => private = Some(*slab),
                },
                Source::Words(SlabId::Shared(slab), _) if !shared.contains(slab) => shared.push(*slab),
                _ => {}
            }
        }
        let own: std::collections::HashSet<u32> = sources
            .iter()
            .filter_map(|s| if let Source::Words(SlabId::Shared(slab), _) = s { Some(*slab) } else { None })
            .collect();
        ensure("conv", own.len() <= t::SHARED_SLABS, || {
            format!("a run's history lies in {} shared slabs, a launch binds {}", own.len(), t::SHARED_SLABS)
        })?;
        if shared.len() > t::SHARED_SLABS {
            return Ok(false);
        }
        (self.private, self.shared) = (private, shared);
        Ok(true)
    }

    fn encode(&self, source: Source) -> [u32; t::SOURCE_WORDS] {
        match source {
            Source::Zero => [t::SOURCE_ZERO, 0],
            Source::Row(row) => [t::SOURCE_ROW, row],
            Source::Words(SlabId::Private(_), word) => [t::SOURCE_PRIVATE, word],
            Source::Words(SlabId::Shared(slab), word) => {
                let at = self.shared.iter().position(|&s| s == slab).unwrap_or_default();
                [t::SOURCE_SHARED + at as u32, word]
            }
        }
    }
}
