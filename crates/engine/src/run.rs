//! The loop over a rank's steps. It exists once, for every schedule, backend and communicator.
//!
//! In each step the send and the receive are started first, so that the next block is under way
//! while the present one is computed; both are waited for before the step ends. A state that came is
//! merged then, the lower rank's as first operand.

use crate::backend::{Backend, MergeOrder};
use crate::error::EngineError;
use crate::finite::{self, NonFinite};
use crate::measured::{Law, Measured};
use crate::record::Trace;
use ringattn_comm::{CommError, Communicator, ReceiveRequest, SendRequest, Tag};
use ringattn_core::{Interval, Message, Rank, Slot};
use ringattn_plan::{
    Activity, BlockId, Cargo, Expectation, Plan, Prepared, Step, Transfer, Transmission, expect,
};
use std::collections::BTreeMap;

/// The tag of K,V blocks.
const BLOCKS: Tag = Tag(1);
/// The tag of partial states.
const STATES: Tag = Tag(2);

/// One rank's part of a plan, worked out once and run any number of times (once per layer).
#[derive(Clone, Debug)]
pub struct RankPlan<'a> {
    plan: &'a Plan,
    rank: Rank,
    steps: Vec<Step>,
    expectation: Expectation,
}

impl<'a> RankPlan<'a> {
    /// The part of `rank`.
    pub fn new(prepared: &Prepared<'a>, rank: Rank) -> Self {
        let steps = prepared.steps(rank).collect();
        Self { plan: prepared.plan(), rank, steps, expectation: expect(prepared, rank) }
    }

    /// The whole plan.
    pub fn plan(&self) -> &'a Plan {
        self.plan
    }

    /// Whose part this is.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// What one run must count.
    pub fn expectation(&self) -> &Expectation {
        &self.expectation
    }
}

/// Whether blocks travel while others are attended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// They do.
    #[default]
    On,
    /// Each step waits for its messages before it computes, to show what overlap is worth.
    Off,
}

/// One attention as one rank sees it.
pub struct Job<'a, B: Backend> {
    /// The rank's part of the plan.
    pub plan: &'a RankPlan<'a>,
    /// The rank's queries.
    pub queries: &'a B::Queries,
    /// The rank's own K,V.
    pub block: B::Block,
    /// What to do about values that are not finite.
    pub non_finite: NonFinite,
    /// Is told the pairs of each block when it has been attended.
    pub attended: &'a (dyn Fn(u64) + Sync),
    /// Where what happens is recorded.
    pub trace: Trace<'a>,
    /// When the blocks that arrive are waited for.
    pub overlap: Overlap,
}

/// Runs one attention, from the empty `state` of the queries, and proves that it counted what the
/// plan says.
///
/// # Errors
/// When a message, a wait or the device fails, when values are not finite, and when the law breaks.
pub fn run<'s, B: Backend, C: Communicator>(
    job: &Job<'_, B>,
    state: B::State<'s>,
    backend: &B,
    comm: &C,
) -> Result<(B::Output<'s>, Measured), EngineError<B::Error>> {
    if job.non_finite == NonFinite::Refuse {
        finite::check_inputs(backend, job)?;
    }
    let before = (comm.counters(), backend.compute_time());
    let mut walk = Walk::new(job, state, backend, comm);
    for &step in &job.plan.steps {
        walk.step(step)?;
    }
    let (state, mut measured) = (walk.state, walk.measured);
    let traffic = comm.counters().since(&before.0);
    measured.counts.sent_bytes = traffic.sent_bytes;
    measured.counts.received_bytes = traffic.received_bytes;
    measured.counts.hops = traffic.received_messages;
    measured.transfer = traffic.transfer;
    measured.transfer_wait = traffic.transfer_wait;
    measured.peer_wait = traffic.peer_wait;

    let failed = |source| job.plan.device_error(job.plan.steps.len() as u32, source);
    let output = backend.finish(state).map_err(failed)?;
    measured.compute = backend.compute_time() - before.1;
    if job.non_finite != NonFinite::Allow {
        finite::check_results(backend, job.plan, &output)?;
    }
    match Law::broken(job.plan.expectation(), &measured.counts) {
        Some(law) => Err(EngineError::Law { rank: job.plan.rank, law }),
        None => Ok((output, measured)),
    }
}

impl RankPlan<'_> {
    fn device_error<E: std::error::Error>(&self, step: u32, source: E) -> EngineError<E> {
        EngineError::Backend { rank: self.rank, step, source }
    }
}

/// A receive under way.
enum Receiving<B: Backend, C: Communicator> {
    Block(BlockId, C::ReceiveRequest<B::Block>),
    State(Rank, C::ReceiveRequest<B::Partial>),
}

/// A state that came, and from whom.
type Arrived<B> = Option<(Rank, <B as Backend>::Partial)>;

/// A rank on its way through the steps.
struct Walk<'a, 's, B: Backend, C: Communicator> {
    job: &'a Job<'a, B>,
    backend: &'a B,
    comm: &'a C,
    watch: C::Watch,
    held: BTreeMap<BlockId, B::Block>,
    intervals: Vec<Interval<Slot>>,
    state: B::State<'s>,
    measured: Measured,
}

impl<'a, 's, B: Backend, C: Communicator> Walk<'a, 's, B, C> {
    fn new(job: &'a Job<'a, B>, state: B::State<'s>, backend: &'a B, comm: &'a C) -> Self {
        let held = BTreeMap::from([(BlockId(job.plan.rank), job.block.clone())]);
        let mut measured = Measured::default();
        measured.counts.resident_kv_bytes = job.block.byte_len();
        measured.counts.peak_kv_bytes = job.block.byte_len();
        let (watch, intervals) = (comm.progress(), Vec::new());
        Self { job, backend, comm, watch, held, intervals, state, measured }
    }

    fn step(&mut self, step: Step) -> Result<(), EngineError<B::Error>> {
        let receive = step.receive.map(|transfer| self.begin_receive(transfer)).transpose()?;
        let send = step.send.map(|transfer| self.begin_send(step, transfer)).transpose()?;
        let posted = self.job.trace.now();
        let attend =
            |walk: &mut Self| step.attend.map(|block| walk.attend(step, block)).transpose();
        let overlaps = self.job.overlap == Overlap::On;
        let begun = if overlaps { attend(self)? } else { None };
        let arrived = receive.map(|receive| self.end_receive(step, receive)).transpose()?.flatten();
        let held = self.held.values().map(Message::byte_len).sum();
        self.measured.counts.peak_kv_bytes = self.measured.counts.peak_kv_bytes.max(held);
        if let (Some(request), Some(transfer)) = (send, step.send) {
            request.wait()?;
            let message = self.transmission(transfer);
            self.job.trace.sent(step.index, message, (posted, self.comm.counters().last_wait));
        }
        let work = if overlaps { begun } else { attend(self)? };
        let failed = |source| self.job.plan.device_error(step.index, source);
        if let Some(token) = work {
            self.backend.wait(token).map_err(failed)?;
        }
        if let Some((peer, partial)) = arrived {
            let first = peer < self.job.plan.rank;
            let order = if first { MergeOrder::ArrivedFirst } else { MergeOrder::OwnFirst };
            let begun = self.job.trace.now();
            self.backend.merge(&mut self.state, partial, order).map_err(failed)?;
            self.job.trace.ends(step.index, Activity::Merge { peer }, begun);
        }
        if let Some(block) = step.drop {
            self.held.remove(&block);
        }
        Ok(())
    }

    fn begin_receive(&self, transfer: Transfer) -> Result<Receiving<B, C>, EngineError<B::Error>> {
        let peer = transfer.peer;
        Ok(match transfer.cargo {
            Cargo::Block(block) => {
                Receiving::Block(block, self.comm.immediate_receive::<B::Block>(peer, BLOCKS)?)
            }
            Cargo::State(_) => {
                Receiving::State(peer, self.comm.immediate_receive::<B::Partial>(peer, STATES)?)
            }
        })
    }

    fn begin_send(
        &mut self,
        step: Step,
        transfer: Transfer,
    ) -> Result<C::SendRequest, EngineError<B::Error>> {
        let peer = transfer.peer;
        Ok(match transfer.cargo {
            Cargo::Block(block) => {
                let rank = self.job.plan.rank;
                let block = self.held.get(&block).ok_or(not_held(step, rank))?.clone();
                self.comm.immediate_send(block, peer, BLOCKS)?
            }
            Cargo::State(handover) => {
                let failed = |source| self.job.plan.device_error(step.index, source);
                let partial = self.backend.part_with(&mut self.state, handover).map_err(failed)?;
                self.comm.immediate_send(partial, peer, STATES)?
            }
        })
    }

    /// Holds a block that came; gives out a state that came, and from whom.
    fn end_receive(
        &mut self,
        step: Step,
        receiving: Receiving<B, C>,
    ) -> Result<Arrived<B>, CommError> {
        let state = match receiving {
            Receiving::Block(block, request) => {
                let arrived = request.wait()?;
                self.measured.counts.received_kv_bytes += arrived.byte_len();
                self.held.insert(block, arrived);
                None
            }
            Receiving::State(peer, request) => Some((peer, request.wait()?)),
        };
        if let Some(transfer) = step.receive {
            let message = self.transmission(transfer);
            self.job.trace.received(step.index, message, self.comm.counters().last_wait);
        }
        Ok(state)
    }

    fn transmission(&self, Transfer { cargo, peer }: Transfer) -> Transmission {
        let RankPlan { plan, rank, .. } = *self.job.plan;
        Transmission { block: cargo.block(), peer, bytes: plan.cargo_bytes(rank, cargo) }
    }

    fn attend(&mut self, step: Step, block: BlockId) -> Result<B::Token, EngineError<B::Error>> {
        let RankPlan { plan, rank, .. } = *self.job.plan;
        self.intervals.clear();
        self.intervals.extend(plan.intervals(rank, block));
        let pairs: u64 = self.intervals.iter().map(|interval| interval.len()).sum();
        let operands = (self.job.queries, self.held.get(&block).ok_or(not_held(step, rank))?);
        let begun = self.job.trace.now();
        let token = self
            .backend
            .absorb(operands, &self.intervals, &mut self.state, &self.watch)
            .map_err(|source| self.job.plan.device_error(step.index, source))?;
        let flops = pairs.saturating_mul(4 * plan.problem().shape.query_width() as u64);
        self.job.trace.ends(step.index, Activity::Attend { block, pairs, flops }, begun);
        self.measured.counts.pairs += pairs;
        (self.job.attended)(pairs);
        Ok(token)
    }
}

fn not_held<E: std::error::Error>(step: Step, rank: Rank) -> EngineError<E> {
    EngineError::NotHeld { rank, step: step.index }
}
