//! One rank's decoder: a model over a sharded cache that grows by any number of tokens at a time.
//!
//! An extension places its tokens, computes their keys and values layer by layer, adds those of this
//! rank to the cache and attends it by the plan. Many new tokens are sharded like their keys, and either
//! keys and values or queries go round; few are on every rank, and partial states meet in a tree. Where the
//! dense layers of those few are computed [`DensePlacement`] says, and the tree leads there and no further.
//! Knows no sampling and no text.

use super::GenerateError;
use super::extension::{Extension, newest, prompt_segment};
use super::message::{HiddenRows, Projections};
use crate::forward::{DensePassError, Head, LayerPass, RotaryTable, Workers};
use crate::load::Model;
use ringattn_comm::Communicator;
use ringattn_core::DType;
use ringattn_core::{Elements, Position, Rank, try_filled};
use ringattn_engine::cpu::{
    Arrangement, CacheShape, CpuBackend, CpuState, Device, Isa, Kernel, KvCache, OutputRows,
    SharedRows,
};
use ringattn_engine::{Job, Measured, NonFinite, Overlap, RankPlan, Recorder, Trace, run};
use ringattn_plan::{Expectation, Layout, LayoutKind, QueryPlacement, Schedule};
use std::sync::Arc;
use std::time::Duration;

/// Who computes the dense layers of tokens that are on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DensePlacement {
    /// Rank 0 alone, with so many threads, and hands queries, keys and values to the others: for ranks
    /// of one process, which would otherwise repeat the same reading of the same weights.
    Root {
        /// The threads of the process.
        threads: usize,
    },
    /// Every rank for itself: for ranks with memory of their own, which spares a message per layer.
    Repeated,
}

impl DensePlacement {
    /// By which schedule tokens that are on every rank are attended: the answer is needed where the dense
    /// layers are computed.
    pub fn tree(self) -> Schedule {
        match self {
            Self::Root { .. } => Schedule::TreeReduce,
            Self::Repeated => Schedule::Tree,
        }
    }
}

/// What every rank is told.
#[derive(Clone, Copy)]
pub struct DecoderJob<'a> {
    /// The model, shared by all ranks of the process.
    pub model: &'a Model,
    /// Where each rank computes.
    pub device: Device,
    /// Where dense layers of few tokens are computed.
    pub dense: DensePlacement,
    /// What to do about values that are not finite.
    pub non_finite: NonFinite,
    /// Whether blocks travel while others are attended.
    pub overlap: Overlap,
    /// Records the rank's attentions.
    pub recorder: Option<&'a Recorder>,
    /// Is told after each layer how many new tokens have their keys on this rank.
    pub layer_done: &'a (dyn Fn(u64) + Sync),
}

/// Where the keys and values of new tokens go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// A segment of its own in this layout, with the layout's block where it has one to choose.
    Prompt(LayoutKind, Option<u64>),
    /// Generated tokens, in blocks of so many from the least loaded rank on.
    Generated(u64),
}

/// Of which of the new tokens the logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// None.
    Nothing,
    /// The last.
    Last,
    /// All, as for the verification of drafts. Until the next extension the cache keeps what is needed
    /// to take any of the new tokens back, see [`Decoder::truncate`].
    All,
}

/// Counts of several attentions, measured and as the plans say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Measured, where it happened.
    pub measured: Measured,
    /// What the plans say.
    pub expected: Expectation,
}

impl Counted {
    /// Adds the attention of another layer.
    fn add_layer(&mut self, measured: Measured, expected: Expectation) {
        self.measured += measured;
        self.expected += expected;
    }

    /// What was counted up to the end of a later extension: traffic and work add up, what is resident
    /// is what it holds, the peak is the higher one.
    #[must_use]
    pub fn then(self, later: Self) -> Self {
        let counts = |earlier: Expectation, later: Expectation| {
            let mut sum = earlier;
            sum += later;
            sum.resident_kv_bytes = later.resident_kv_bytes;
            sum.peak_kv_bytes = earlier.peak_kv_bytes.max(later.peak_kv_bytes);
            sum
        };
        let mut measured = self.measured;
        measured += later.measured;
        measured.counts = counts(self.measured.counts, later.measured.counts);
        Self { measured, expected: counts(self.expected, later.expected) }
    }
}

/// One rank's model, cache and threads.
pub struct Decoder<'a, C: Communicator> {
    job: DecoderJob<'a>,
    comm: &'a C,
    cache: KvCache,
    backend: CpuBackend,
    /// The rank's own threads.
    workers: Workers,
    /// The threads for dense layers of few tokens; `None` where these are the rank's own.
    root_workers: Option<Workers>,
    counted: Counted,
    /// Of the present extension, summed over its layers.
    extension: Counted,
    /// Attentions so far.
    attentions: u32,
}

/// The new tokens as this rank deals with them.
struct Batch<'t> {
    /// Their ids, on every rank.
    tokens: &'t [u32],
    /// Positions of those whose queries are here.
    positions: Vec<Position>,
    /// Which of these have their keys here, by index.
    owned: Vec<usize>,
    /// Where their queries are.
    queries: QueryPlacement,
    /// Whether this rank computes their dense layers.
    computes: bool,
}

impl<'a, C: Communicator> Decoder<'a, C> {
    /// A decoder over an empty cache of this type.
    ///
    /// # Errors
    /// When threads or the cache cannot be had.
    pub fn new(job: DecoderJob<'a>, dtype: DType, comm: &'a C) -> Result<Self, GenerateError> {
        let config = &job.model.config;
        let shape = CacheShape { attention: config.attention, layers: config.layers, dtype };
        Self::with_cache(job, KvCache::new(shape, comm.rank(), comm.size())?, comm)
    }

    /// A decoder that goes on with a cache, this rank's.
    ///
    /// # Errors
    /// When threads cannot be had.
    pub fn with_cache(
        job: DecoderJob<'a>,
        cache: KvCache,
        comm: &'a C,
    ) -> Result<Self, GenerateError> {
        let team = job.device.team(comm.rank())?;
        let root_workers = match job.dense {
            DensePlacement::Root { threads }
                if comm.rank() == ROOT && threads != team.threads() =>
            {
                Some(Workers::new(job.device.process_team(threads)?))
            }
            _ => None,
        };
        let attention = job.model.config.attention;
        let scale = (1.0 / (attention.head_dim() as f64).sqrt()) as f32;
        let kernel = Kernel::with_team(job.device.isa, Arc::clone(&team))?;
        Ok(Self {
            job,
            comm,
            cache,
            backend: CpuBackend::new(kernel, attention, scale),
            workers: Workers::new(team),
            root_workers,
            counted: Counted::default(),
            extension: Counted::default(),
            attentions: 0,
        })
    }

    /// The rank's shard of the cache.
    pub fn cache(&self) -> &KvCache {
        &self.cache
    }

    /// Makes room for more tokens of the sequence.
    ///
    /// # Errors
    /// When the memory cannot be had.
    pub fn reserve(&mut self, tokens: u64) -> Result<(), GenerateError> {
        Ok(self.cache.reserve(tokens)?)
    }

    /// Counts of attention since they were last taken, summed over layers.
    pub fn take_counted(&mut self) -> Counted {
        std::mem::take(&mut self.counted)
    }

    /// The instruction set that computes.
    pub(super) fn isa(&self) -> Isa {
        self.job.device.isa
    }

    /// Processor time of the dense layers so far.
    pub fn dense_time(&self) -> Duration {
        self.workers.busy() + self.root_workers.as_ref().map_or(Duration::ZERO, Workers::busy)
    }

    /// Gives the cache back.
    pub fn into_cache(self) -> KvCache {
        self.cache
    }

    /// Adds `tokens`, the same on every rank, and computes the logits that are wanted: `[wanted,
    /// vocabulary]` on rank 0, nothing elsewhere.
    ///
    /// # Errors
    /// When a peer, the device or memory fails, when a token is outside the vocabulary, and when values
    /// are not finite.
    pub fn extend(
        &mut self,
        tokens: &[u32],
        placement: Placement,
        wanted: Wanted,
    ) -> Result<Option<Vec<f32>>, GenerateError> {
        if tokens.is_empty() {
            return Ok(None);
        }
        let start = self.cache.layout().len();
        let new = self.place(tokens.len() as u64, placement)?;
        let config = &self.job.model.config;
        let layouts = (&new, self.cache.layout());
        let how = (placement, self.job.dense.tree());
        let extension = Extension::new((config, self.cache.shape().dtype), layouts, how)?;
        let prepared = extension.prepare();
        let plans: Vec<_> =
            prepared.iter().map(|plan| RankPlan::new(plan, self.comm.rank())).collect();
        let queries = extension.schedule().query_placement();
        let batch = self.batch(tokens, (start, &new), queries);
        let hidden = self.forward(&batch, |layer| &plans[extension.of_layer(layer)])?;
        self.counted = self.counted.then(std::mem::take(&mut self.extension));
        let rows = self.collect(&batch, hidden, &new, wanted)?;
        self.forget(match wanted {
            Wanted::All => start,
            Wanted::Last | Wanted::Nothing => self.cache.layout().len(),
        })?;
        let Some(rows) = rows else { return Ok(None) };
        let watch = self.comm.progress();
        let (config, isa) = (&self.job.model.config, self.job.device.isa);
        let (weights, workers) = (&self.job.model.weights, self.dense_workers(&batch));
        let head = Head { config, weights, workers, isa, progress: &watch };
        Ok(Some(head.logits(&rows)?))
    }

    /// Takes the tokens from position `len` on back out of the cache, as when drafts are rejected: the
    /// next extension goes on behind the first `len`. Every rank must do the same; nothing is sent, and
    /// nothing that stays moves. An extension that failed can be taken back too.
    ///
    /// # Errors
    /// Where every layer has a window, when the shorter sequence needs tokens that were forgotten. Those of
    /// the last extension can always be taken back when the logits of all of them were wanted.
    pub fn truncate(&mut self, len: u64) -> Result<(), GenerateError> {
        Ok(self.cache.truncate(len, self.first_seen(len))?)
    }

    /// Places new tokens; their layout alone, counted from 0.
    fn place(&mut self, len: u64, placement: Placement) -> Result<Layout, GenerateError> {
        match placement {
            Placement::Generated(block) => self.cache.place_generated(len, block)?,
            Placement::Prompt(kind, block) => {
                let segment = prompt_segment(self.cache.layout(), len, (kind, block));
                if let Some(segment) = segment.map_err(GenerateError::from_layout)? {
                    self.cache.place(segment)?;
                }
            }
        }
        newest(self.cache.layout(), len).map_err(GenerateError::from_layout)
    }

    fn batch<'t>(
        &self,
        tokens: &'t [u32],
        (start, new): (u64, &Layout),
        queries: QueryPlacement,
    ) -> Batch<'t> {
        let rank = self.comm.rank();
        let replicated = queries == QueryPlacement::Replicated;
        let positions: Vec<_> = if replicated {
            (start..start + tokens.len() as u64).map(Position).collect()
        } else {
            new.positions(rank).map(|position| Position(start + position.0)).collect()
        };
        let mine = |position: Position| {
            self.cache.layout().owner(position).is_some_and(|(owner, _)| owner == rank)
        };
        let owned = (0..positions.len()).filter(|&row| mine(positions[row])).collect();
        let shared = matches!(self.job.dense, DensePlacement::Root { .. });
        let computes = !replicated || !shared || rank == ROOT;
        Batch { tokens, positions, owned, queries, computes }
    }

    fn dense_workers(&self, batch: &Batch<'_>) -> &Workers {
        match (&self.root_workers, batch.queries) {
            (Some(workers), QueryPlacement::Replicated) => workers,
            _ => &self.workers,
        }
    }

    /// All layers; the residual stream of the rows whose dense layers are computed here, `[rows, H]`.
    fn forward<'p>(
        &mut self,
        batch: &Batch<'_>,
        plan: impl Fn(usize) -> &'p RankPlan<'p>,
    ) -> Result<Vec<f32>, GenerateError> {
        let (model, watch) = (self.job.model, self.comm.progress());
        let config = &model.config;
        let frequencies = &config.rope.inverse_frequencies;
        let rows = batch.positions.len();
        let rotary = RotaryTable::new(batch.positions.iter().copied(), rows, frequencies)?;
        let mut hidden = if batch.computes { self.embed(batch)? } else { Vec::new() };
        let mut attended = try_filled(rows * config.attention.query_width(), 0.0)?;
        for (layer, weights) in model.weights.layers.iter().enumerate() {
            let workers = self.dense_workers(batch);
            let isa = self.job.device.isa;
            let pass = LayerPass { config, rotary: &rotary, workers, isa, progress: &watch };
            let projected = match batch.computes {
                false => None,
                true => {
                    let projected = pass.project(weights, &hidden)?;
                    let q = Arc::new(Elements::F32(projected.q));
                    let (k, v) = (Arc::new(projected.k), Arc::new(projected.v));
                    Some(Projections { q, k, v })
                }
            };
            let projected = self.share(batch, projected)?;
            self.remember(layer, batch, &projected)?;
            self.attend((layer, plan(layer)), projected, &mut attended)?;
            if batch.computes {
                let workers = self.dense_workers(batch);
                let pass = LayerPass { config, rotary: &rotary, workers, isa, progress: &watch };
                pass.feed_forward(weights, &attended, &mut hidden)?;
            }
            (self.job.layer_done)(batch.owned.len() as u64);
        }
        Ok(hidden)
    }

    /// Embeddings of the rows' tokens, `[rows, H]`.
    fn embed(&self, batch: &Batch<'_>) -> Result<Vec<f32>, GenerateError> {
        let config = &self.job.model.config;
        let first = self.cache.layout().len() - batch.tokens.len() as u64;
        let mut hidden = try_filled(batch.positions.len() * config.hidden_size, 0.0)?;
        let rows = hidden.chunks_exact_mut(config.hidden_size);
        for (&position, row) in batch.positions.iter().zip(rows) {
            let token = batch.tokens[(position.0 - first) as usize];
            let vocabulary = config.vocab_size;
            if token as usize >= vocabulary {
                return Err(GenerateError::Vocabulary { position, token, vocabulary });
            }
            let embedding = &self.job.model.weights.embedding;
            embedding.row(token as usize, row).map_err(DensePassError::Dense)?;
        }
        Ok(hidden)
    }

    /// Brings projections that one rank computed to all; others pass through.
    fn share(
        &self,
        batch: &Batch<'_>,
        projected: Option<Projections>,
    ) -> Result<Projections, GenerateError> {
        let shared = matches!(self.job.dense, DensePlacement::Root { .. });
        match projected {
            Some(projected) if batch.queries == QueryPlacement::Sharded || !shared => Ok(projected),
            projected => Ok(self.comm.broadcast(projected, ROOT)?),
        }
    }

    /// Puts the keys and values of this rank's tokens into the cache.
    fn remember(
        &mut self,
        layer: usize,
        batch: &Batch<'_>,
        projected: &Projections,
    ) -> Result<(), GenerateError> {
        let width = self.job.model.config.attention.key_width();
        let non_finite = self.job.non_finite;
        if batch.owned.len() == batch.positions.len() {
            let rows = (&projected.k[..], &projected.v[..]);
            return Ok(self.cache.append(layer, rows, non_finite)?);
        }
        let part = |all: &[f32]| -> Vec<f32> {
            let rows = batch.owned.iter().flat_map(|&row| &all[row * width..(row + 1) * width]);
            rows.copied().collect()
        };
        let (keys, values) = (part(&projected.k), part(&projected.v));
        Ok(self.cache.append(layer, (&keys, &values), non_finite)?)
    }

    /// One attention over the cache, into `attended` `[rows, Hq * d]`.
    fn attend(
        &mut self,
        (layer, plan): (usize, &RankPlan<'_>),
        projected: Projections,
        attended: &mut [f32],
    ) -> Result<(), GenerateError> {
        let shape = self.job.model.config.attention;
        let rows = attended.len() / shape.query_width();
        let arrangement = Arrangement::token_major(shape.query_heads(), rows, shape.head_dim());
        let queries = SharedRows::shared(projected.q, arrangement);
        let state = CpuState::empty(OutputRows::whole(attended, arrangement)?)?;
        let block = self.cache.block(layer)?;
        // The cache has looked at every row that it took.
        let non_finite = match self.job.non_finite {
            NonFinite::Allow => NonFinite::Allow,
            NonFinite::Refuse | NonFinite::CheckedInputs => NonFinite::CheckedInputs,
        };
        let trace = Trace::new(self.job.recorder, self.attentions);
        self.attentions = self.attentions.saturating_add(1);
        let (attended, overlap) = (&|_| (), self.job.overlap);
        let job = Job { plan, queries: &queries, block, non_finite, attended, trace, overlap };
        let (_, measured) = run(&job, state, &self.backend, self.comm)
            .map_err(|source| GenerateError::Attention { layer, source })?;
        self.extension.add_layer(measured, *plan.expectation());
        Ok(())
    }

    /// Brings the wanted rows of the residual stream to rank 0, in the order of positions.
    fn collect(
        &self,
        batch: &Batch<'_>,
        hidden: Vec<f32>,
        new: &Layout,
        wanted: Wanted,
    ) -> Result<Option<Vec<f32>>, GenerateError> {
        let (width, len) = (self.job.model.config.hidden_size, new.len());
        let first = match wanted {
            Wanted::Nothing => return Ok(None),
            Wanted::Last => len - 1,
            Wanted::All => 0,
        };
        if batch.queries == QueryPlacement::Replicated {
            let root = self.comm.rank() == ROOT;
            return Ok(root.then(|| hidden[first as usize * width..].to_vec()));
        }
        let from = new.count_below(self.comm.rank(), Position(first)) as usize * width;
        let rows = HiddenRows(hidden[from..].to_vec());
        let Some(parts) = self.comm.gather(rows, ROOT)? else { return Ok(None) };
        let mut all = try_filled((len - first) as usize * width, 0.0)?;
        for (rank, HiddenRows(part)) in new.ranks().zip(parts) {
            let positions = new.positions(rank).filter(|position| position.0 >= first);
            for (position, row) in positions.zip(part.chunks_exact(width)) {
                let at = (position.0 - first) as usize * width;
                all[at..at + width].copy_from_slice(row);
            }
        }
        Ok(Some(all))
    }

    /// Forgets what no query from position `next` on will see.
    fn forget(&mut self, next: u64) -> Result<(), GenerateError> {
        match self.first_seen(next) {
            Position(0) => Ok(()),
            first => Ok(self.cache.forget_before(first)?),
        }
    }

    /// The first position that a query at `next` sees in any layer: itself and `W - 1` before it where
    /// every layer has a window, the widest of `W`; else 0.
    fn first_seen(&self, next: u64) -> Position {
        let windows = self.job.model.config.sliding_window.iter();
        let widest = windows.map(|window| window.unwrap_or(u64::MAX)).max().unwrap_or(u64::MAX);
        Position((next + 1).saturating_sub(widest))
    }
}

/// The rank that samples, and that computes what is not repeated.
pub(super) const ROOT: Rank = Rank(0);
