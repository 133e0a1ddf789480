//! A plan's steps in time: what each rank would do when, on machines that differ and links that falter.
//!
//! Follows the engine's loop. In a step a rank posts its receives and its sends, attends its block, waits
//! for the receives and then for the sends. Messages between two ranks match in order. A transfer begins
//! when both sides have posted and takes `latency + bytes / bandwidth` of its link; two that a rank
//! receives in one step share its bandwidth, so one follows the other. A send is over when the receiver
//! has matched it (synchronous, as the engine's). Noise comes from a seed, so that the same conditions
//! give the same timeline. Knows no clock: times are computed.

use crate::cost::{MAX_ENUMERATED_RANKS, Machine, MachineError, pair_counter};
use crate::plan::Plan;
use crate::step::{Attend, Step, Transfer};
use crate::timeline::{Activity, Nanos, Span, Timeline, Transmission, WaitCause};
use ringattn_core::Rank;
use std::collections::BTreeMap;
use thiserror::Error;

/// The most steps of all ranks and layers that are simulated.
const MAX_STEPS: u64 = 1 << 23;

/// Under which conditions a plan is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions {
    /// What every rank and link does at best.
    pub machine: Machine,
    /// Attentions, one after another; a rank begins the next when it has ended the one before.
    pub layers: u32,
    /// Ranks that compute so many times slower.
    pub slow_ranks: Vec<(Rank, f64)>,
    /// Ranks whose sends take so many times longer, latency included.
    pub slow_links: Vec<(Rank, f64)>,
    /// Every message takes up to so many seconds more, uniformly.
    pub jitter: f64,
    /// Decides the jitter.
    pub seed: u64,
    /// Messages that take longer than all others.
    pub spikes: Vec<Spike>,
}

/// One message that is late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spike {
    /// Who sends it.
    pub rank: Rank,
    /// In which step of its receiver.
    pub step: u32,
    /// By how many seconds.
    pub seconds: f64,
}

/// Why there is no simulation.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SimulationError {
    /// A machine that cannot be.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// More than is simulated in sensible time and memory.
    #[error(
        "{layers} layers on {ranks} ranks are too many to simulate: at most \
         {MAX_ENUMERATED_RANKS} ranks and {MAX_STEPS} steps"
    )]
    TooLarge {
        /// Ranks of the plan.
        ranks: u32,
        /// Layers.
        layers: u32,
    },
    /// A condition for a rank that is not there.
    #[error("rank {rank} is outside a world of {world_size}")]
    Rank {
        /// As the condition names it.
        rank: Rank,
        /// Ranks there are.
        world_size: u32,
    },
    /// A factor or a time that cannot be.
    #[error("{what} is {actual}, expected a finite number {expected}")]
    Number {
        /// What is wrong.
        what: &'static str,
        /// What it may be.
        expected: &'static str,
        /// The number.
        actual: f64,
    },
    /// Ranks that wait for each other for ever.
    #[error("rank {rank} waits for ever in step {step}")]
    Deadlock {
        /// The first rank that does.
        rank: Rank,
        /// Its step.
        step: u32,
    },
}

impl Conditions {
    /// One layer, nothing slow and nothing late.
    pub fn of(machine: Machine) -> Self {
        let (slow_ranks, slow_links, spikes) = (Vec::new(), Vec::new(), Vec::new());
        Self { machine, layers: 1, slow_ranks, slow_links, jitter: 0.0, seed: 0, spikes }
    }

    fn check(&self, world_size: u32) -> Result<(), SimulationError> {
        self.machine.validate()?;
        let number = |what, expected, actual: f64, fine: bool| {
            let error = || SimulationError::Number { what, expected, actual };
            (actual.is_finite() && fine).then_some(()).ok_or_else(error)
        };
        let slow = self.slow_ranks.iter().chain(&self.slow_links);
        let late = self.spikes.iter().map(|spike| spike.rank);
        let mut ranks = slow.clone().map(|&(rank, _)| rank).chain(late);
        if let Some(rank) = ranks.find(|rank| rank.0 >= world_size) {
            return Err(SimulationError::Rank { rank, world_size });
        }
        for &(_, factor) in slow {
            number("the factor of a slow rank or link", "above 0", factor, factor > 0.0)?;
        }
        let seconds = self.spikes.iter().map(|spike| ("a spike", spike.seconds));
        for (what, actual) in seconds.chain([("the jitter", self.jitter)]) {
            number(what, "of at least 0", actual, actual >= 0.0)?;
        }
        let (ranks, layers) = (world_size, self.layers);
        let steps = u64::from(ranks).pow(2).saturating_mul(u64::from(layers));
        if ranks > MAX_ENUMERATED_RANKS || steps > MAX_STEPS {
            return Err(SimulationError::TooLarge { ranks, layers });
        }
        Ok(())
    }

    fn factor(slow: &[(Rank, f64)], rank: Rank) -> f64 {
        slow.iter().filter(|(slow, _)| *slow == rank).map(|(_, factor)| factor).product()
    }
}

/// The timeline of a plan.
///
/// # Errors
/// For conditions that cannot be, or more steps than are simulated.
pub fn simulate(plan: &Plan, conditions: &Conditions) -> Result<Timeline, SimulationError> {
    let mut timeline = Timeline { world_size: plan.world_size(), spans: Vec::new() };
    simulate_into(plan, conditions, &mut |span| timeline.spans.push(span))?;
    Ok(timeline)
}

/// Gives every span of the timeline to `record`, which may keep sums alone.
///
/// # Errors
/// As for [`simulate`].
pub fn simulate_into(
    plan: &Plan,
    conditions: &Conditions,
    record: &mut dyn FnMut(Span),
) -> Result<(), SimulationError> {
    conditions.check(plan.world_size())?;
    let prepared = plan.prepare();
    let steps = plan.key_layout().ranks().map(|rank| prepared.steps(rank).collect()).collect();
    let pairs = pair_counter(plan);
    let pairs = |step: &Step| step.attend.map_or(0, |attend| pairs(attend.queries.0, attend.block));
    let ranks = plan.key_layout().ranks();
    let speeds = ranks
        .map(|rank| conditions.machine.flops / Conditions::factor(&conditions.slow_ranks, rank))
        .collect();
    Simulation { plan, conditions, steps, speeds, channels: BTreeMap::new() }.run(&pairs, record)
}

/// Sends and receives between two ranks in the order in which they were posted.
#[derive(Default)]
struct Channel {
    sends: Vec<Nanos>,
    receives: Vec<Nanos>,
}

/// A rank on its way through the steps of all layers.
#[derive(Clone, Copy, Default)]
struct Walker {
    layer: u32,
    step: usize,
    /// When the step began.
    start: Nanos,
    /// Where its messages stand in their channels; `None` before the step is posted.
    posted: Option<Posted>,
}

/// Entries of the step's transfers, in their order.
#[derive(Clone, Copy, Default)]
struct Posted {
    sends: [usize; 2],
    receives: [usize; 2],
}

/// When the peers of a step's transfers posted, in their order; 0 where there is none.
#[derive(Clone, Copy, Default)]
struct Peers {
    sent: [Nanos; 2],
    awaited: [Nanos; 2],
}

struct Simulation<'a> {
    plan: &'a Plan,
    conditions: &'a Conditions,
    /// Entry `u`: the steps of rank `u`.
    steps: Vec<Vec<Step>>,
    /// FLOP/s of each rank.
    speeds: Vec<f64>,
    /// By sender and receiver.
    channels: BTreeMap<(Rank, Rank), Channel>,
}

/// A span of a step, still without its rank, layer and step.
type Part = (Activity, Nanos, Nanos);

impl Simulation<'_> {
    fn run(
        mut self,
        pairs: &dyn Fn(&Step) -> u128,
        record: &mut dyn FnMut(Span),
    ) -> Result<(), SimulationError> {
        let mut walkers = vec![Walker::default(); self.steps.len()];
        loop {
            let mut moved = false;
            for rank in self.plan.key_layout().ranks() {
                let walker = &mut walkers[rank.index()];
                while self.advance(rank, walker, pairs, record) {
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        let stuck = walkers.iter().position(|walker| walker.layer < self.conditions.layers);
        stuck.map_or(Ok(()), |rank| {
            let step = walkers[rank].step as u32;
            Err(SimulationError::Deadlock { rank: Rank(rank as u32), step })
        })
    }

    /// Ends the rank's step when its peers have come far enough.
    fn advance(
        &mut self,
        rank: Rank,
        walker: &mut Walker,
        pairs: &dyn Fn(&Step) -> u128,
        record: &mut dyn FnMut(Span),
    ) -> bool {
        if walker.layer == self.conditions.layers {
            return false;
        }
        let step = self.steps[rank.index()][walker.step];
        let start = walker.start;
        let posted = *walker.posted.get_or_insert_with(|| self.post(rank, &step, start));
        let Some(peers) = self.peers(rank, &step, posted) else { return false };
        let (parts, end) = self.parts(rank, walker, &step, (peers, pairs(&step)));
        for (activity, start, end) in parts {
            record(Span { rank, layer: walker.layer, step: step.index, activity, start, end });
        }
        walker.step += 1;
        if walker.step == self.steps[rank.index()].len() {
            (walker.layer, walker.step) = (walker.layer + 1, 0);
        }
        (walker.start, walker.posted) = (end, None);
        true
    }

    fn post(&mut self, rank: Rank, step: &Step, now: Nanos) -> Posted {
        let mut posted = Posted::default();
        for (entry, Transfer { peer, .. }) in posted.sends.iter_mut().zip(step.send.iter()) {
            let sends = &mut self.channels.entry((rank, peer)).or_default().sends;
            *entry = sends.len();
            sends.push(now);
        }
        for (entry, Transfer { peer, .. }) in posted.receives.iter_mut().zip(step.receive.iter()) {
            let receives = &mut self.channels.entry((peer, rank)).or_default().receives;
            *entry = receives.len();
            receives.push(now);
        }
        posted
    }

    /// When the peers posted their sides of the step's messages; `None` while one has not.
    fn peers(&self, rank: Rank, step: &Step, posted: Posted) -> Option<Peers> {
        let mut peers = Peers::default();
        let entries = posted.receives.iter().zip(step.receive.iter());
        for (moment, (&entry, Transfer { peer, .. })) in peers.sent.iter_mut().zip(entries) {
            *moment = *self.channels.get(&(peer, rank))?.sends.get(entry)?;
        }
        let entries = posted.sends.iter().zip(step.send.iter());
        for (moment, (&entry, Transfer { peer, .. })) in peers.awaited.iter_mut().zip(entries) {
            *moment = *self.channels.get(&(rank, peer))?.receives.get(entry)?;
        }
        Some(peers)
    }

    /// What the rank does in the step, and when the step ends.
    fn parts(
        &self,
        rank: Rank,
        walker: &Walker,
        step: &Step,
        (peers, pairs): (Peers, u128),
    ) -> (Vec<Part>, Nanos) {
        let start = walker.start;
        let mut parts = Vec::with_capacity(6);
        let mut now = start;
        if let Some(Attend { queries, block }) = step.attend {
            let flops = pairs.saturating_mul(4 * self.plan.problem().shape.query_width() as u128);
            now += Nanos::from_seconds(flops as f64 / self.speeds[rank.index()]);
            let narrow = |count| u64::try_from(count).unwrap_or(u64::MAX);
            let (pairs, flops) = (narrow(pairs), narrow(flops));
            parts.push((Activity::Attend { queries, block, pairs, flops }, start, now));
        }
        let mut link_free = start;
        for (transfer, sent) in step.receive.iter().zip(peers.sent) {
            let peer = transfer.peer;
            let begin = link_free.max(sent);
            let mut end = begin;
            end += self.transfer_time(peer, walker.layer, step.index, transfer);
            link_free = end;
            parts.push((Activity::Receive(self.transmission(transfer)), begin, end));
            let matched = begin.clamp(now, end.max(now));
            parts.extend(wait(WaitCause::Peer, peer, now, matched));
            parts.extend(wait(WaitCause::Transfer, peer, matched, end));
            now = now.max(end);
        }
        for (transfer, awaited) in step.send.iter().zip(peers.awaited) {
            let matched = start.max(awaited);
            parts.push((Activity::Send(self.transmission(transfer)), start, matched));
            parts.extend(wait(WaitCause::Peer, transfer.peer, now, matched));
            now = now.max(matched);
        }
        (parts, now)
    }

    fn transmission(&self, transfer: Transfer) -> Transmission {
        let Transfer { cargo, peer } = transfer;
        Transmission { operand: cargo.operand(), peer, bytes: self.plan.cargo_bytes(cargo) }
    }

    fn transfer_time(&self, sender: Rank, layer: u32, step: u32, transfer: Transfer) -> Nanos {
        let Conditions { machine, slow_links, jitter, seed, spikes, .. } = self.conditions;
        let link = Conditions::factor(slow_links, sender);
        let late = spikes.iter().filter(|spike| spike.rank == sender && spike.step == step);
        let spike: f64 = late.map(|spike| spike.seconds).sum();
        let place = [u64::from(layer), u64::from(sender.0), u64::from(step)];
        let noise = jitter * uniform(place.iter().fold(*seed, |seed, &part| mix(seed ^ part)));
        let hop = machine.hop_seconds(self.plan.cargo_bytes(transfer.cargo));
        Nanos::from_seconds(hop * link + spike + noise)
    }
}

fn wait(cause: WaitCause, peer: Rank, start: Nanos, end: Nanos) -> Option<Part> {
    (end > start).then_some((Activity::Wait { cause, peer }, start, end))
}

/// One step of splitmix64 (Steele, Lea and Flood, 2014): every bit depends on every bit of `seed`.
fn mix(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The upper 53 bits as a number in `[0, 1)`.
fn uniform(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}
