//! Ranks that walk their steps over channels of one message each, and what their states come to hold.
//!
//! A message is a block, queries, or a state as it was at the sender when its step began. Knows no mask.

use super::CheckError;
use crate::step::{Attend, BlockId, Cargo, Handover, QueriesId, Step, Transfer};
use ringattn_core::Rank;
use std::collections::{BTreeMap, VecDeque};

/// What a state has come to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Holding {
    /// The blocks folded into it, each with the rank whose queries attended it there.
    pub(super) folded: Vec<(Rank, BlockId)>,
    /// In which order the sums were formed: merges are parentheses.
    pub(super) order: String,
}

impl Holding {
    fn attend(&mut self, rank: Rank, block: BlockId) {
        self.folded.push((rank, block));
        self.order.push_str(&format!(" {block}"));
    }

    /// `first` and `second` merged; an empty one leaves no trace.
    fn merge(first: Self, second: Self) -> Self {
        let order = match (first.folded.is_empty(), second.folded.is_empty()) {
            (true, _) => second.order,
            (_, true) => first.order,
            _ => format!("({}){}", first.order, second.order),
        };
        let mut folded = first.folded;
        folded.extend(second.folded);
        Self { folded, order }
    }
}

/// What each rank has in its states, by whose queries they are.
type States = BTreeMap<QueriesId, Holding>;

/// A message on its way.
enum Message {
    Operand(Cargo),
    State(QueriesId, Holding),
}

impl Message {
    fn cargo(&self) -> Cargo {
        match self {
            Self::Operand(cargo) => *cargo,
            Self::State(queries, _) => Cargo::State(*queries, Handover::Copied),
        }
    }
}

/// One rank on its way.
#[derive(Default)]
struct Walker {
    step: usize,
    /// Whether the present step has begun.
    begun: bool,
    /// What the present step has yet to send, and to whom.
    sending: Vec<(Rank, Message)>,
    /// What it has yet to receive.
    receiving: Vec<Transfer>,
    /// States that came, to be merged when the step ends.
    arrived: Vec<(Rank, QueriesId, Holding)>,
    states: States,
}

/// Ranks that walk their steps.
pub(super) struct Network<'a> {
    steps: &'a [Vec<Step>],
    walkers: Vec<Walker>,
    channels: BTreeMap<(Rank, Rank), VecDeque<Message>>,
}

impl<'a> Network<'a> {
    const CAPACITY: usize = 1;

    pub(super) fn new(steps: &'a [Vec<Step>]) -> Self {
        let walkers = steps.iter().map(|_| Walker::default()).collect();
        Self { steps, walkers, channels: BTreeMap::new() }
    }

    /// Walks all steps; what each rank's states hold in the end.
    pub(super) fn run(mut self) -> Result<Vec<States>, CheckError> {
        loop {
            let mut moved = false;
            for rank in 0..self.steps.len() {
                while self.advance(Rank(rank as u32), &mut moved)? {}
            }
            if !moved {
                break;
            }
        }
        let stuck = self.walkers.iter().zip(self.steps).position(|(w, steps)| w.step < steps.len());
        if let Some(rank) = stuck {
            let step = self.walkers[rank].step as u32;
            return Err(CheckError::Deadlock { rank: Rank(rank as u32), step });
        }
        for (&(from, to), queue) in &self.channels {
            if let Some(message) = queue.front() {
                return Err(CheckError::Unreceived { from, to, cargo: message.cargo() });
            }
        }
        Ok(self.walkers.into_iter().map(|walker| walker.states).collect())
    }

    /// Moves one rank as far as its channels allow within a step; true when it finished the step.
    fn advance(&mut self, rank: Rank, moved: &mut bool) -> Result<bool, CheckError> {
        let walker = &mut self.walkers[rank.index()];
        let Some(step) = self.steps[rank.index()].get(walker.step) else {
            return Ok(false);
        };
        if !walker.begun {
            walker.begin(rank, step);
        }
        for (peer, message) in std::mem::take(&mut walker.sending) {
            let queue = self.channels.entry((rank, peer)).or_default();
            if queue.len() < Self::CAPACITY {
                queue.push_back(message);
                *moved = true;
            } else {
                walker.sending.push((peer, message));
            }
        }
        for transfer in std::mem::take(&mut walker.receiving) {
            let queue = self.channels.entry((transfer.peer, rank)).or_default();
            match queue.pop_front() {
                None => walker.receiving.push(transfer),
                Some(message) => {
                    walker.take(rank, step, (transfer, message))?;
                    *moved = true;
                }
            }
        }
        let done = walker.sending.is_empty() && walker.receiving.is_empty();
        if done {
            walker.end(rank);
            *moved = true;
        }
        Ok(done)
    }
}

impl Walker {
    /// Takes what is to be sent as it is now, then attends.
    fn begin(&mut self, rank: Rank, step: &Step) {
        let states = &mut self.states;
        let mut message = |cargo| match cargo {
            Cargo::Block(_) | Cargo::Queries(_) => Message::Operand(cargo),
            Cargo::State(queries, handover) => {
                let state = states.entry(queries).or_default();
                let sent = match handover {
                    Handover::Copied => state.clone(),
                    Handover::Given => std::mem::take(state),
                };
                Message::State(queries, sent)
            }
        };
        self.sending = step.send.iter().map(|send| (send.peer, message(send.cargo))).collect();
        self.receiving = step.receive.iter().collect();
        if let Some(Attend { queries, block }) = step.attend {
            self.states.entry(queries).or_default().attend(rank, block);
        }
        self.begun = true;
    }

    /// Takes a message, which must be the expected one; an operand is looked at elsewhere.
    fn take(
        &mut self,
        rank: Rank,
        step: &Step,
        (transfer, message): (Transfer, Message),
    ) -> Result<(), CheckError> {
        let (expected, step, peer) = (transfer.cargo, step.index, transfer.peer);
        match (expected, message) {
            (Cargo::State(queries, _), Message::State(theirs, state)) if queries == theirs => {
                self.arrived.push((peer, queries, state));
                Ok(())
            }
            (_, Message::Operand(actual)) if expected == actual => Ok(()),
            (_, message) => {
                let actual = message.cargo();
                Err(CheckError::WrongPayload { rank, step, expected, actual })
            }
        }
    }

    /// Merges the states that came, the lower rank's first.
    fn end(&mut self, rank: Rank) {
        for (peer, queries, theirs) in std::mem::take(&mut self.arrived) {
            let state = self.states.entry(queries).or_default();
            let own = std::mem::take(state);
            let (first, second) = if peer < rank { (theirs, own) } else { (own, theirs) };
            *state = Holding::merge(first, second);
        }
        (self.step, self.begun) = (self.step + 1, false);
    }
}
