//! A sequence on its way through passes: what is left to do, and where its state, keys and conv inputs lie.
//!
//! A request or a cold segment is a list of [`Item`]s. [`Sequence::emit`] puts as many of its rows as a pass has room
//! for into the pass: a run per stretch of rows, one chain from the slot back to the slot, the spans before each run,
//! and the conv tail. Cutting it anywhere changes nothing: the state waits in the slot, keys in private KV rows.

use std::collections::VecDeque;
use std::sync::Arc;

use seam_device::Place;
use seam_model::{Memory, StackSpec};
use seam_ops::{ChainSpec, Form, OpError, PassBuilder, PoolFull, RunSpec, SlabId, Source, SpanSpec, Step};

use crate::resident::Resident;

/// What of the state before a cached segment is left behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carry {
    /// What its stored transition leaves: `T·h`.
    Operator,
    /// All of it: `T := 1`.
    All,
    /// Nothing: `T := 0`.
    Nothing,
}

/// One step of a sequence.
#[derive(Clone, Debug)]
pub enum Item {
    /// Tokens to compute.
    Rows {
        /// Token ids.
        tokens: Vec<u32>,
        /// Position of the first token of their segment.
        origin: u32,
        /// The logits of tokens from this index on are wanted; `tokens.len()` for none.
        logits_from: usize,
    },
    /// The stored part of a cached segment.
    Reuse {
        /// The entry.
        entry: Arc<Resident>,
        /// Position of the first token of its segment.
        origin: u32,
        /// What it leaves of the state before it.
        carry: Carry,
    },
    /// The operator of the following rows starts here.
    Begin,
}

/// What one [`Sequence::emit`] put into a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Emitted {
    /// First row in the pass.
    pub first: u32,
    /// Rows.
    pub rows: u32,
    /// Index of the first logits row in the pass.
    pub first_logit: u32,
    /// Logits rows.
    pub logits: u32,
}

/// A stretch of rows of one segment within a pass.
struct Piece {
    tokens: Vec<u32>,
    pos: u32,
    origin: u32,
    kv: usize,
    spans: u32,
    history: Vec<Source>,
    logits: Vec<u32>,
}

/// A sequence and its private memory. It must be given back with [`Sequence::release`].
#[derive(Debug)]
pub struct Sequence {
    items: VecDeque<Item>,
    /// Tokens of the front item that are done.
    done: usize,
    pos: u32,
    slot: Option<Place>,
    operator: bool,
    begun: bool,
    started: bool,
    kv_places: Vec<Place>,
    /// Slab and row of each private KV row, in order.
    kv: Vec<(u32, u32)>,
    kv_used: usize,
    spans: Vec<SpanSpec>,
    recent: VecDeque<Source>,
}

impl Sequence {
    /// A sequence of `items` with room for `extra` rows more; `operator` if an item begins an operator.
    ///
    /// # Errors
    /// [`PoolFull`]; nothing stays allocated.
    pub fn new(
        memory: &mut Memory,
        spec: &StackSpec,
        items: Vec<Item>,
        extra: u32,
        operator: bool,
    ) -> Result<Self, PoolFull> {
        let rows: usize = items.iter().map(|i| if let Item::Rows { tokens, .. } = i { tokens.len() } else { 0 }).sum();
        let rows = u32::try_from(rows).unwrap_or(u32::MAX).saturating_add(extra);
        let slot = spec.linear.map(|l| memory.states.alloc(l.slot_words(operator))).transpose()?;
        let kv_places = match spec.kv {
            Some(_) => memory.kv_private.alloc_blocks(rows),
            None => Ok(Vec::new()),
        };
        let kv_places = match kv_places {
            Ok(places) => places,
            Err(full) => {
                slot.into_iter().for_each(|slot| memory.states.free(slot));
                return Err(full);
            }
        };
        let kv = kv_places.iter().flat_map(|p| (p.offset..p.offset + p.len).map(|row| (p.slab, row))).collect();
        let history = spec.linear.map_or(0, |l| l.kernel as usize - 1);
        Ok(Self {
            items: items.into(),
            done: 0,
            pos: 0,
            slot,
            operator,
            begun: false,
            started: false,
            kv_places,
            kv,
            kv_used: 0,
            spans: Vec::new(),
            recent: std::iter::repeat_n(Source::Zero, history).collect(),
        })
    }

    /// Gives its memory back.
    pub fn release(self, memory: &mut Memory) {
        self.slot.into_iter().for_each(|slot| memory.states.free(slot));
        self.kv_places.into_iter().for_each(|place| memory.kv_private.free(place));
    }

    /// Rows still to compute.
    #[must_use]
    pub fn rows_left(&self) -> usize {
        let all: usize =
            self.items.iter().map(|i| if let Item::Rows { tokens, .. } = i { tokens.len() } else { 0 }).sum();
        all - self.done
    }

    /// Position of the next token.
    #[must_use]
    pub fn pos(&self) -> u32 {
        self.pos
    }

    /// The state slot, if the model has linear layers.
    #[must_use]
    pub fn slot(&self) -> Option<Place> {
        self.slot
    }

    /// Slab and row of each private KV row that is written, in order.
    #[must_use]
    pub fn kv_rows(&self) -> &[(u32, u32)] {
        &self.kv[..self.kv_used]
    }

    /// Appends an item.
    pub fn append(&mut self, item: Item) {
        self.items.push_back(item);
    }

    /// Appends a token to compute, as decoding does. Its segment is the one of the rows before it.
    pub fn push(&mut self, token: u32) {
        let origin = self.spans.last().map_or(0, |span| span.origin);
        self.items.push_back(Item::Rows { tokens: vec![token], origin, logits_from: 0 });
    }

    /// Puts at most `max_rows` rows, of which at most `max_logits` want logits, into the pass.
    ///
    /// # Errors
    /// [`OpError::Shape`] if the private KV rows are used up, or what the builder says.
    pub fn emit(
        &mut self,
        pass: &mut PassBuilder,
        spec: &StackSpec,
        max_rows: u32,
        max_logits: u32,
    ) -> Result<Emitted, OpError> {
        let mut out = Emitted { first: pass.rows(), first_logit: pass.logits(), ..Emitted::default() };
        let mut pieces: Vec<Piece> = Vec::new();
        let mut steps = Vec::new();
        if let Some(slot) = self.slot {
            steps.push(if self.started { Step::Load { base: slot.offset, operator: self.begun } } else { Step::Zero });
        }
        while let Some(item) = self.items.front() {
            match item {
                Item::Begin => {
                    steps.push(Step::Begin);
                    self.begun = true;
                    self.items.pop_front();
                }
                Item::Reuse { entry, origin, carry } => {
                    let (entry, origin, carry) = (Arc::clone(entry), *origin, *carry);
                    self.reuse(pass, spec, (&entry, origin, carry), &mut steps);
                    self.items.pop_front();
                }
                Item::Rows { tokens, origin, logits_from } => {
                    let room = (max_rows - out.rows) as usize;
                    let mut n = (tokens.len() - self.done).min(room);
                    // Cut before the row whose logits would not fit.
                    let free = (max_logits - out.logits) as usize;
                    n = n.min(logits_from.max(&self.done).saturating_add(free) - self.done);
                    if n == 0 {
                        break;
                    }
                    let range = self.done..self.done + n;
                    let first = out.first + out.rows;
                    let wanted = range.clone().filter(|i| i >= logits_from);
                    let piece = Piece {
                        tokens: tokens[range.clone()].to_vec(),
                        pos: self.pos,
                        origin: *origin,
                        kv: self.kv_used,
                        spans: 0,
                        history: self.recent.iter().copied().collect(),
                        logits: wanted.map(|i| first + (i - self.done) as u32).collect(),
                    };
                    let finished = range.end == tokens.len();
                    out.rows += n as u32;
                    out.logits += piece.logits.len() as u32;
                    self.rows(piece, first, spec, &mut steps, &mut pieces)?;
                    if finished {
                        self.items.pop_front();
                        self.done = 0;
                    } else {
                        self.done = range.end;
                    }
                }
            }
        }
        if steps.len() > 1 || !pieces.is_empty() {
            self.close(pass, spec, steps, pieces)?;
        }
        Ok(out)
    }

    fn reuse(
        &mut self,
        pass: &mut PassBuilder,
        spec: &StackSpec,
        (entry, origin, carry): (&Resident, u32, Carry),
        steps: &mut Vec<Step>,
    ) {
        let mut pos = origin + entry.seam;
        for place in &entry.kv {
            let slab = SlabId::Shared(place.slab);
            self.spans.push(SpanSpec { slab, row: place.offset, len: place.len, pos, origin });
            pos += place.len;
        }
        if let (Some(place), Some(linear)) = (entry.operator, spec.linear) {
            let slab = SlabId::Shared(place.slab);
            let t = place.offset + linear.state_words();
            let form = match carry {
                Carry::Operator => linear.recurrence.form(),
                Carry::All => Form::Identity,
                Carry::Nothing => Form::Zero,
            };
            // The entry was computed at position 0. Where keys are rotated its operator moves with its segment.
            let moved = linear.recurrence.rotation.filter(|_| origin > 0).map(|_| pass.angle(i64::from(origin)));
            steps.push(Step::Apply { slab, s: place.offset, t, form, moved });
            let tail = t + if entry.transition { linear.transition_words() } else { 0 };
            let history = linear.kernel - 1;
            // Of an entry shorter than the history only its own tokens count: older inputs are the true ones.
            for i in history.saturating_sub(entry.stored())..history {
                self.recent.pop_front();
                self.recent.push_back(Source::Words(slab, tail + i * linear.channels));
            }
        }
        self.pos = origin + entry.tokens;
    }

    fn rows(
        &mut self,
        mut piece: Piece,
        first: u32,
        spec: &StackSpec,
        steps: &mut Vec<Step>,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), OpError> {
        let n = piece.tokens.len();
        if spec.kv.is_some() {
            let Some(rows) = self.kv.get(self.kv_used..self.kv_used + n) else {
                return Err(OpError::Shape {
                    op: "sequence",
                    what: format!("{} private KV rows, {} needed", self.kv.len(), self.kv_used + n),
                });
            };
            for (i, &(slab, row)) in rows.iter().enumerate() {
                let (slab, pos) = (SlabId::Private(slab), piece.pos + i as u32);
                match self.spans.last_mut() {
                    Some(last)
                        if last.slab == slab
                            && last.row + last.len == row
                            && last.pos + last.len == pos
                            && last.origin == piece.origin =>
                    {
                        last.len += 1;
                    }
                    _ => self.spans.push(SpanSpec { slab, row, len: 1, pos, origin: piece.origin }),
                }
            }
            self.kv_used += n;
        }
        if self.slot.is_some() {
            steps.push(Step::Run { first, rows: n as u32 });
            for i in 0..n as u32 {
                if self.recent.pop_front().is_some() {
                    self.recent.push_back(Source::Row(first + i));
                }
            }
        }
        self.pos += n as u32;
        piece.spans = self.spans.len() as u32;
        pieces.push(piece);
        Ok(())
    }

    /// Writes the pieces into the pass and the state back to the slot.
    fn close(
        &mut self,
        pass: &mut PassBuilder,
        spec: &StackSpec,
        mut steps: Vec<Step>,
        pieces: Vec<Piece>,
    ) -> Result<(), OpError> {
        let first_span = pass.spans(&self.spans);
        for piece in &pieces {
            let kv = self.kv.get(piece.kv..piece.kv + piece.tokens.len()).unwrap_or_default();
            pass.run(&RunSpec {
                tokens: &piece.tokens,
                pos: piece.pos,
                origin: piece.origin,
                kv,
                spans: (first_span, piece.spans),
                history: &piece.history,
            })?;
            for &row in &piece.logits {
                pass.logit(row);
            }
        }
        if let (Some(slot), Some(linear)) = (self.slot, spec.linear) {
            steps.push(Step::Store { base: slot.offset, operator: self.begun });
            pass.chain(ChainSpec { private: slot.slab, base: slot.offset, operator: self.operator, steps });
            let tail = slot.offset + linear.tail_offset(self.operator);
            if self.recent.is_empty() {
                self.started = true;
                return Ok(());
            }
            pass.tail(slot.slab, tail, self.recent.make_contiguous())?;
            for (i, source) in self.recent.iter_mut().enumerate() {
                *source = Source::Words(SlabId::Private(slot.slab), tail + i as u32 * linear.channels);
            }
        }
        self.started = true;
        Ok(())
    }
}
