//! The loop over a rank's steps. It exists once, for every schedule, backend and communicator.
//!
//! In each step sends and receives are started first, so that the next operand is under way while the
//! present ones are computed; all are waited for before the step ends. A state that came is merged then,
//! the lower rank's as first operand.

use crate::backend::{Backend, MergeOrder};
use crate::error::EngineError;
use crate::finite::{self, NonFinite};
use crate::measured::{Law, Measured};
use crate::record::Trace;
use crate::states::States;
use ringattn_comm::{CommError, Communicator, ReceiveRequest, SendRequest, Tag};
use ringattn_core::{Interval, Message, Rank, Slot};
use ringattn_plan::{
    Activity, Attend, BlockId, Cargo, Expectation, Operand, Plan, Prepared, QueriesId, Step,
    Transfer, Transmission, expect,
};
use std::collections::BTreeMap;

/// The tag of K,V blocks.
const BLOCKS: Tag = Tag(1);
/// The tag of partial states.
const STATES: Tag = Tag(2);
/// The tag of queries.
const QUERIES: Tag = Tag(3);

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

/// Whether blocks and queries travel while others are attended.
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
    let (state, mut measured) = (walk.states.into_own(), walk.measured);
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

    fn not_held<E: std::error::Error>(&self, step: Step) -> EngineError<E> {
        EngineError::NotHeld { rank: self.rank, step: step.index }
    }
}

/// A receive under way.
enum Receiving<B: Backend, C: Communicator> {
    Block(BlockId, C::ReceiveRequest<B::Block>),
    Queries(QueriesId, C::ReceiveRequest<B::Queries>),
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
    blocks: BTreeMap<BlockId, B::Block>,
    queries: BTreeMap<QueriesId, B::Queries>,
    intervals: Vec<Interval<Slot>>,
    states: States<'s, B>,
    /// Bytes of the states that leave in this step.
    leaving: u64,
    measured: Measured,
}

impl<'a, 's, B: Backend, C: Communicator> Walk<'a, 's, B, C> {
    fn new(job: &'a Job<'a, B>, state: B::State<'s>, backend: &'a B, comm: &'a C) -> Self {
        let RankPlan { plan, rank, .. } = *job.plan;
        let own = plan.own_queries(rank);
        let blocks = BTreeMap::from([(BlockId(rank), job.block.clone())]);
        let queries = BTreeMap::from([(own, job.queries.clone())]);
        let mut measured = Measured::default();
        measured.counts.resident_kv_bytes = job.block.byte_len();
        measured.counts.peak_kv_bytes = job.block.byte_len();
        let (watch, intervals, states) = (comm.progress(), Vec::new(), States::new(own, state));
        let leaving = 0;
        Self { job, backend, comm, watch, blocks, queries, intervals, states, leaving, measured }
    }

    fn step(&mut self, step: Step) -> Result<(), EngineError<B::Error>> {
        let receives = step
            .receive
            .iter()
            .map(|transfer| Ok::<_, CommError>((transfer, self.begin_receive(transfer)?)));
        let receives = receives.collect::<Result<Vec<_>, _>>()?;
        let mut sends = Vec::new();
        self.leaving = 0;
        for transfer in step.send.iter() {
            sends.push((transfer, self.begin_send(step, transfer)?));
        }
        let posted = self.job.trace.now();
        let attend =
            |walk: &mut Self| step.attend.map(|attend| walk.attend(step, attend)).transpose();
        let overlaps = self.job.overlap == Overlap::On;
        let begun = if overlaps { attend(self)? } else { None };
        let mut arrived = Vec::new();
        for (transfer, receive) in receives {
            arrived.extend(self.end_receive(step, (transfer, receive))?);
        }
        let held = self.blocks.values().map(Message::byte_len).sum();
        self.measured.counts.peak_kv_bytes = self.measured.counts.peak_kv_bytes.max(held);
        for (transfer, request) in sends {
            request.wait()?;
            let message = self.transmission(transfer);
            self.job.trace.sent(step.index, message, (posted, self.comm.counters().last_wait));
        }
        let work = if overlaps { begun } else { attend(self)? };
        if let Some(token) = work {
            self.backend.wait(token).map_err(|source| self.failed(step, source))?;
        }
        self.count_visitors(&arrived);
        for state in arrived {
            self.merge(step, state)?;
        }
        match step.drop {
            None => {}
            Some(Operand::Block(block)) => drop(self.blocks.remove(&block)),
            Some(Operand::Queries(queries)) => drop(self.queries.remove(&queries)),
        }
        Ok(())
    }

    fn begin_receive(
        &self,
        Transfer { cargo, peer }: Transfer,
    ) -> Result<Receiving<B, C>, CommError> {
        Ok(match cargo {
            Cargo::Block(block) => {
                Receiving::Block(block, self.comm.immediate_receive(peer, BLOCKS)?)
            }
            Cargo::Queries(queries) => {
                Receiving::Queries(queries, self.comm.immediate_receive(peer, QUERIES)?)
            }
            Cargo::State(..) => Receiving::State(peer, self.comm.immediate_receive(peer, STATES)?),
        })
    }

    fn begin_send(
        &mut self,
        step: Step,
        Transfer { cargo, peer }: Transfer,
    ) -> Result<C::SendRequest, EngineError<B::Error>> {
        let not_held = || self.job.plan.not_held(step);
        Ok(match cargo {
            Cargo::Block(block) => {
                let block = self.blocks.get(&block).ok_or_else(not_held)?.clone();
                self.comm.immediate_send(block, peer, BLOCKS)?
            }
            Cargo::Queries(queries) => {
                let queries = self.queries.get(&queries).ok_or_else(not_held)?.clone();
                self.comm.immediate_send(queries, peer, QUERIES)?
            }
            Cargo::State(queries, handover) => {
                let parted = self.states.part_with(self.backend, (queries, handover));
                let state = parted.map_err(|source| self.failed(step, source))?;
                let state = state.ok_or_else(not_held)?;
                self.leaving += state.byte_len();
                self.comm.immediate_send(state, peer, STATES)?
            }
        })
    }

    /// Holds an operand that came; gives out a state that came, and from whom.
    fn end_receive(
        &mut self,
        step: Step,
        (transfer, receiving): (Transfer, Receiving<B, C>),
    ) -> Result<Arrived<B>, CommError> {
        let state = match receiving {
            Receiving::Block(block, request) => {
                let arrived = request.wait()?;
                self.measured.counts.received_kv_bytes += arrived.byte_len();
                self.blocks.insert(block, arrived);
                None
            }
            Receiving::Queries(queries, request) => {
                self.queries.insert(queries, request.wait()?);
                None
            }
            Receiving::State(peer, request) => Some((peer, request.wait()?)),
        };
        let message = self.transmission(transfer);
        self.job.trace.received(step.index, message, self.comm.counters().last_wait);
        Ok(state)
    }

    /// Counts what is held for others in a step: their queries, and the states that are here, that leave and
    /// that came.
    fn count_visitors(&mut self, arrived: &[(Rank, B::Partial)]) {
        let RankPlan { plan, rank, .. } = *self.job.plan;
        let own = plan.own_queries(rank);
        let visiting = self.queries.iter().filter(|(owner, _)| **owner != own);
        let queries = visiting.map(|(_, queries)| queries.byte_len()).sum();
        let arrived: u64 = arrived.iter().map(|(_, state)| state.byte_len()).sum();
        let states = self.states.visiting_bytes() + self.leaving + arrived;
        let counts = &mut self.measured.counts;
        counts.peak_query_bytes = counts.peak_query_bytes.max(queries);
        counts.peak_state_bytes = counts.peak_state_bytes.max(states);
    }

    fn merge(
        &mut self,
        step: Step,
        (peer, partial): (Rank, B::Partial),
    ) -> Result<(), EngineError<B::Error>> {
        let first = peer < self.job.plan.rank;
        let order = if first { MergeOrder::ArrivedFirst } else { MergeOrder::OwnFirst };
        let begun = self.job.trace.now();
        let merged = self.states.merge(self.backend, partial, order);
        merged.map_err(|source| self.failed(step, source))?;
        self.job.trace.ends(step.index, Activity::Merge { peer }, begun);
        Ok(())
    }

    fn transmission(&self, Transfer { cargo, peer }: Transfer) -> Transmission {
        let bytes = self.job.plan.plan.cargo_bytes(cargo);
        Transmission { operand: cargo.operand(), peer, bytes }
    }

    fn attend(
        &mut self,
        step: Step,
        Attend { queries: owner, block }: Attend,
    ) -> Result<B::Token, EngineError<B::Error>> {
        let RankPlan { plan, .. } = *self.job.plan;
        let not_held = || self.job.plan.not_held(step);
        let failed = |source| self.job.plan.device_error(step.index, source);
        self.intervals.clear();
        self.intervals.extend(plan.intervals(owner.0, block));
        let pairs: u64 = self.intervals.iter().map(|interval| interval.len()).sum();
        let queries = self.queries.get(&owner).ok_or_else(not_held)?;
        let operands = (queries, self.blocks.get(&block).ok_or_else(not_held)?);
        let begun = self.job.trace.now();
        let state = self.states.accumulator(self.backend, (owner, queries)).map_err(failed)?;
        let token = self.backend.absorb(operands, &self.intervals, state, &self.watch);
        let token = token.map_err(failed)?;
        let flops = pairs.saturating_mul(4 * plan.problem().shape.query_width() as u64);
        let activity = Activity::Attend { queries: owner, block, pairs, flops };
        self.job.trace.ends(step.index, activity, begun);
        self.measured.counts.pairs += pairs;
        (self.job.attended)(pairs);
        Ok(token)
    }

    fn failed(&self, step: Step, source: B::Error) -> EngineError<B::Error> {
        self.job.plan.device_error(step.index, source)
    }
}
