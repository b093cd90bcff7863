//! Requests: entries are found or computed, spliced, and the answer is generated.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use seam_device::{DType, Device, Precision};
use seam_pic::{
    Budgets, Cache, EntryKey, Item, KeyParts, Lookup, MissReason, Mode, Part, Policy, Resident, ResidentError, Role,
    Sequence, Tier, plan,
};

use crate::error::EngineError;
use crate::report::{Answer, SegmentReport, Stop, Work};
use crate::request::Request;
use crate::runner::{Chosen, RunStats, Runner, RunnerOptions};
use crate::sampling::{Sampler, SamplingError};

/// Cold segments that are under construction at once: their slots hold `S_run`, `S` and `T` of every layer.
const COLD_AT_ONCE: usize = 8;

/// How an engine is made.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// Sizes of passes and slabs.
    pub runner: RunnerOptions,
    /// Byte budgets of the cache.
    pub budgets: Budgets,
    /// Directory of the disk tier.
    pub cache_dir: Option<PathBuf>,
}

/// A model on a device with a cache of segments.
pub struct Engine {
    pub(crate) runner: Runner,
    pub(crate) cache: Cache,
}

/// The cached segments of a request, each with its entry or the reason why it has none. The entries are pinned.
pub(crate) struct Prepared {
    pub(crate) entries: Vec<Option<Arc<Resident>>>,
    found: Vec<Result<Tier, MissReason>>,
    pinned: Vec<Arc<Resident>>,
}

/// What generation adds to an [`Answer`]; `prompt` holds the counters after the prompt's passes.
struct Generated {
    tokens: Vec<u32>,
    logprobs: Vec<f32>,
    stop: Stop,
    ttft: Duration,
    prompt: (RunStats, u64),
}

impl Engine {
    /// Loads the model in `dir`.
    ///
    /// # Errors
    /// [`EngineError`] naming what is wrong with the model, the device or the cache directory.
    pub fn load(device: Arc<dyn Device>, dir: &Path, options: EngineOptions) -> Result<Self, EngineError> {
        let runner = Runner::load(device, dir, options.runner)?;
        let compute = match runner.device().caps().precision {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::BF16,
        };
        let dtypes = (compute, runner.spec().kv.map_or(compute, |kv| kv.dtype));
        let cache = Cache::open(runner.fingerprint(), dtypes, options.budgets, options.cache_dir.as_deref())?;
        Ok(Self { runner, cache })
    }

    /// The model and its device.
    #[must_use]
    pub fn runner(&self) -> &Runner {
        &self.runner
    }

    /// The model and its device, to run sequences directly.
    #[must_use]
    pub fn runner_mut(&mut self) -> &mut Runner {
        &mut self.runner
    }

    /// The cache.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// What went wrong between the cache's tiers since the last call.
    pub fn warnings(&mut self) -> Vec<seam_pic::Warning> {
        self.cache.warnings()
    }

    /// Drops every entry from the device tier; lower tiers keep theirs.
    pub fn forget_device_entries(&mut self) -> usize {
        self.cache.clear_device(&mut self.runner.memory)
    }

    /// Answers a request; `on_token` sees each token of the answer as soon as it is chosen.
    ///
    /// # Errors
    /// A malformed request, or what the device says. The cache stays sound.
    pub fn answer(&mut self, request: &Request, on_token: &mut dyn FnMut(u32)) -> Result<Answer, EngineError> {
        let start = Instant::now();
        let spec = self.runner.spec();
        let (parts, query) = request.check(spec.vocab, spec.max_position)?;
        let before = self.counters();
        let prepared = self.prepare(parts, request)?;
        let cold_rows = self.runner.stats().rows - before.0.rows;
        let result = self.generate(request, parts, query, &prepared, start, on_token);
        self.cache.unpin(&prepared.pinned);
        let Generated { tokens, logprobs, stop, ttft, prompt } = result?;
        let segments = reports(request, parts, &prepared);
        let work = Work {
            cold_rows,
            prompt_rows: prompt.0.rows - before.0.rows - cold_rows,
            reused_tokens: segments.iter().map(|s| s.reused as u64).sum(),
            uploaded_bytes: prompt.1 - before.1,
            passes: prompt.0.passes - before.0.passes,
            table_bytes: prompt.0.table_bytes - before.0.table_bytes,
        };
        Ok(Answer { tokens, logprobs, stop, segments, ttft, total: start.elapsed(), work })
    }

    /// Logits `[answer, vocab]` before each token of a given answer (teacher forcing), with the prompt spliced as the
    /// request says.
    ///
    /// # Errors
    /// As [`Engine::answer`].
    pub fn score(&mut self, request: &Request, answer: &[u32]) -> Result<Vec<f32>, EngineError> {
        let spec = self.runner.spec();
        let mut request = request.clone();
        let given = answer.len().saturating_sub(1);
        if let Some(query) = request.segments.last_mut() {
            query.extend_from_slice(&answer[..given]);
        }
        request.max_new = 0;
        let (parts, query) = request.check(spec.vocab, spec.max_position)?;
        let prepared = self.prepare(parts, &request)?;
        let items = items(&request, parts, query, &prepared, query.len() - 1 - given);
        let result = self.run_once(items);
        self.cache.unpin(&prepared.pinned);
        result
    }

    fn run_once(&mut self, items: Vec<Item>) -> Result<Vec<f32>, EngineError> {
        let spec = self.runner.spec().clone();
        let mut sequence = Sequence::new(&mut self.runner.memory, &spec, items, 0, false)?;
        let logits = self.runner.advance(&mut [&mut sequence]);
        sequence.release(&mut self.runner.memory);
        Ok(logits?.pop().unwrap_or_default())
    }

    fn counters(&self) -> (RunStats, u64) {
        (self.runner.stats(), self.cache.uploaded())
    }

    /// Finds or computes the entries of `parts`.
    pub(crate) fn prepare(&mut self, parts: &[Vec<u32>], request: &Request) -> Result<Prepared, EngineError> {
        let mut prepared = Prepared { entries: Vec::new(), found: Vec::new(), pinned: Vec::new() };
        let result = self.fill(parts, request, &mut prepared);
        if result.is_err() {
            self.cache.unpin(&prepared.pinned);
        }
        result.map(|()| prepared)
    }

    fn fill(&mut self, parts: &[Vec<u32>], request: &Request, out: &mut Prepared) -> Result<(), EngineError> {
        let spec = self.runner.spec().clone();
        let device = Arc::clone(self.runner.device());
        let mut cold: Vec<(usize, KeyParts<'_>)> = Vec::new();
        for (i, tokens) in parts.iter().enumerate() {
            out.entries.push(None);
            let policy = match Policy::for_mode(request.mode, request.seam) {
                _ if tokens.is_empty() => Err(MissReason::Empty),
                None => Err(MissReason::Disabled),
                Some(policy) => Ok(policy.for_role(Role::of(i))),
            };
            let policy = match policy {
                Ok(policy) if policy.stores(tokens.len()) => policy,
                Ok(policy) => {
                    out.found.push(Err(MissReason::TooShort { tokens: tokens.len(), seam: policy.seam }));
                    continue;
                }
                Err(reason) => {
                    out.found.push(Err(reason));
                    continue;
                }
            };
            let parts = self.cache.key_parts(tokens, policy, Role::of(i), &request.tenant);
            match self.cache.find(&*device, &mut self.runner.memory, &spec, &parts)? {
                Lookup::Hit((resident, tier)) => {
                    out.pinned.push(Arc::clone(&resident));
                    out.entries[i] = Some(resident);
                    out.found.push(Ok(tier));
                }
                Lookup::Miss(reason) => {
                    if !matches!(reason, MissReason::Disabled) {
                        cold.push((i, parts));
                    }
                    out.found.push(Err(reason));
                }
            }
        }
        self.build(&cold, out)
    }

    /// Computes cold segments alone, each once however often it stands in the prompt.
    fn build(&mut self, cold: &[(usize, KeyParts<'_>)], out: &mut Prepared) -> Result<(), EngineError> {
        let mut unique: Vec<KeyParts<'_>> = Vec::new();
        for (_, parts) in cold {
            if !unique.contains(parts) {
                unique.push(*parts);
            }
        }
        let mut built: HashMap<EntryKey, Arc<Resident>> = HashMap::new();
        for group in unique.chunks(COLD_AT_ONCE) {
            for resident in self.build_group(group)? {
                out.pinned.push(Arc::clone(&resident));
                built.insert(resident.key, resident);
            }
        }
        for (i, parts) in cold {
            out.entries[*i] = built.get(&parts.key()).cloned();
            if out.entries[*i].is_none() {
                out.found[*i] = Err(MissReason::NoRoom);
            }
        }
        Ok(())
    }

    /// Computes a few segments in shared passes and publishes them. Those without room are left out.
    fn build_group(&mut self, group: &[KeyParts<'_>]) -> Result<Vec<Arc<Resident>>, EngineError> {
        let spec = self.runner.spec().clone();
        let device = Arc::clone(self.runner.device());
        let mut jobs: Vec<(KeyParts<'_>, Resident, Sequence)> = Vec::new();
        let mut failed = None;
        // Room for all is made before anything is computed, so that entries of one group cannot evict each other:
        // budget is taken when they are committed.
        let mut reserved = 0;
        for parts in group {
            let bytes = Resident::size(&spec, parts);
            if self.cache.device_tier().check(reserved + bytes).is_err() {
                continue;
            }
            match self.begin(&*device, &spec, parts, reserved) {
                Ok((resident, sequence)) => {
                    reserved += bytes;
                    jobs.push((*parts, resident, sequence));
                }
                Err(EngineError::Entry(ResidentError::NoRoom(_)) | EngineError::Pool(_)) => {}
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let result = match failed {
            Some(error) => Err(error),
            None => self.compute(&mut jobs),
        };
        let mut residents = Vec::new();
        for (parts, resident, sequence) in jobs {
            sequence.release(&mut self.runner.memory);
            if result.is_err() {
                resident.release(&mut self.runner.memory);
            } else if let Some(resident) = self.cache.commit(&mut self.runner.memory, resident, &parts) {
                residents.push((parts, resident));
            }
        }
        result?;
        for at in 0..residents.len() {
            let (parts, resident) = &residents[at];
            if let Err(error) = self.cache.write_through(&*device, &self.runner.memory, &spec, resident, parts) {
                // None of the group is handed out, so that all its pins go back; the entry that could not be read, or
                // holds non-finite values, must not be found again.
                let pinned: Vec<Arc<Resident>> = residents.iter().map(|(_, r)| Arc::clone(r)).collect();
                self.cache.unpin(&pinned);
                self.cache.discard(&mut self.runner.memory, &pinned[at]);
                return Err(error.into());
            }
        }
        Ok(residents.into_iter().map(|(_, resident)| resident).collect())
    }

    fn begin(
        &mut self,
        device: &dyn Device,
        spec: &seam_model::StackSpec,
        parts: &KeyParts<'_>,
        reserved: u64,
    ) -> Result<(Resident, Sequence), EngineError> {
        let resident = self.cache.make_room(device, &mut self.runner.memory, spec, parts, reserved)?;
        let mut items = plan::cold(parts.tokens, &parts.policy);
        // The last token's logits are computed too: a non-finite state shows in them, and such an entry is never kept.
        if let Some(Item::Rows { tokens, logits_from, .. }) = items.last_mut() {
            *logits_from = tokens.len() - 1;
        }
        match Sequence::new(&mut self.runner.memory, spec, items, 0, resident.transition) {
            Ok(sequence) => Ok((resident, sequence)),
            Err(full) => {
                resident.release(&mut self.runner.memory);
                Err(full.into())
            }
        }
    }

    fn compute(&mut self, jobs: &mut [(KeyParts<'_>, Resident, Sequence)]) -> Result<(), EngineError> {
        if jobs.is_empty() {
            return Ok(());
        }
        let mut sequences: Vec<&mut Sequence> = jobs.iter_mut().map(|(_, _, sequence)| sequence).collect();
        if self.runner.chooses() {
            // The device looks whether the last logits are finite; the tokens mean nothing.
            self.runner.choose(&mut sequences, &[])?;
        } else {
            self.runner.advance(&mut sequences)?;
        }
        let finished: Vec<(&Resident, &Sequence)> = jobs.iter().map(|(_, r, s)| (r, s)).collect();
        self.runner.publish(&finished)
    }

    fn generate(
        &mut self,
        request: &Request,
        parts: &[Vec<u32>],
        query: &[u32],
        prepared: &Prepared,
        start: Instant,
        on_token: &mut dyn FnMut(u32),
    ) -> Result<Generated, EngineError> {
        let spec = self.runner.spec().clone();
        let items = items(request, parts, query, prepared, query.len() - 1);
        let extra = u32::try_from(request.max_new).unwrap_or(u32::MAX);
        let mut sequence = Sequence::new(&mut self.runner.memory, &spec, items, extra, false)?;
        let result = self.decode(request, &mut sequence, start, on_token);
        sequence.release(&mut self.runner.memory);
        result
    }

    fn decode(
        &mut self,
        request: &Request,
        sequence: &mut Sequence,
        start: Instant,
        on_token: &mut dyn FnMut(u32),
    ) -> Result<Generated, EngineError> {
        let mut sampler = Sampler::new(request.sampling)?;
        let mut history: Vec<u32> = request.segments.concat();
        let (mut tokens, mut logprobs) = (Vec::new(), Vec::new());
        if request.max_new == 0 {
            self.runner.advance(&mut [sequence])?;
            return Ok(Generated {
                tokens,
                logprobs,
                stop: Stop::Length,
                ttft: start.elapsed(),
                prompt: self.counters(),
            });
        }
        let mut chosen = self.next(sequence, &mut sampler, &history, 0)?;
        let (prompt, ttft) = (self.counters(), start.elapsed());
        loop {
            if request.stop.contains(&chosen.token) {
                return Ok(Generated { tokens, logprobs, stop: Stop::Token, ttft, prompt });
            }
            on_token(chosen.token);
            tokens.push(chosen.token);
            logprobs.push(chosen.logprob);
            history.push(chosen.token);
            if tokens.len() >= request.max_new {
                return Ok(Generated { tokens, logprobs, stop: Stop::Length, ttft, prompt });
            }
            sequence.push(chosen.token);
            chosen = self.next(sequence, &mut sampler, &history, tokens.len() as u64)?;
        }
    }

    /// Runs what is left of a sequence and chooses the token of its last row: on the device, where it can and nothing needs
    /// the logits on the host.
    fn next(
        &mut self,
        sequence: &mut Sequence,
        sampler: &mut Sampler,
        history: &[u32],
        step: u64,
    ) -> Result<Chosen, EngineError> {
        let choice = sampler.params().choice(step).filter(|_| self.runner.chooses());
        if let Some(choice) = choice {
            let last = self.runner.choose(&mut [sequence], &[choice])?.pop().and_then(|tokens| tokens.last().copied());
            return last.ok_or(EngineError::Sampling(SamplingError::NoLogits));
        }
        let logits = self.runner.advance(&mut [sequence])?.pop().unwrap_or_default();
        let sampled = sampler.sample(&logits, history, step)?;
        Ok(Chosen { token: sampled.token, logprob: sampled.logprob })
    }
}

/// The items of a request with its entries; logits from query token `logits_from` on.
pub(crate) fn items(
    request: &Request,
    parts: &[Vec<u32>],
    query: &[u32],
    prepared: &Prepared,
    logits_from: usize,
) -> Vec<Item> {
    let parts: Vec<Part<'_>> =
        parts.iter().zip(&prepared.entries).map(|(tokens, entry)| Part { tokens, entry: entry.clone() }).collect();
    plan::request(&parts, query, request.mode, logits_from)
}

impl Prepared {
    /// The pinned entries, to be unpinned when the request ends.
    pub(crate) fn pinned(&self) -> &[Arc<Resident>] {
        &self.pinned
    }
}

fn reports(request: &Request, parts: &[Vec<u32>], prepared: &Prepared) -> Vec<SegmentReport> {
    let mut out: Vec<SegmentReport> = parts
        .iter()
        .zip(prepared.entries.iter().zip(&prepared.found))
        .enumerate()
        .map(|(index, (tokens, (entry, found)))| {
            let reused = entry.as_ref().map_or(0, |e| e.stored() as usize);
            SegmentReport {
                index,
                role: Some(Role::of(index)),
                tokens: tokens.len(),
                reused,
                computed: tokens.len() - reused,
                hit: found.as_ref().ok().copied(),
                miss: found.as_ref().err().map(MissReason::name),
                why: found.as_ref().err().map(ToString::to_string),
                bytes: entry.as_ref().map_or(0, |e| e.bytes),
            }
        })
        .collect();
    let query = request.segments.last().map_or(0, Vec::len);
    let reason = if request.mode == Mode::Full { MissReason::Disabled } else { MissReason::QueryNeverCached };
    out.push(SegmentReport {
        index: parts.len(),
        role: None,
        tokens: query,
        reused: 0,
        computed: query,
        hit: None,
        miss: Some(reason.name()),
        why: Some(reason.to_string()),
        bytes: 0,
    });
    out
}
