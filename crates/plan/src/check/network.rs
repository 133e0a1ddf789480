//! Ranks that walk their steps over channels of one message each, and what their states come to hold.
//!
//! A message is a block or the sender's state as it was when its step began. Knows no mask.

use super::CheckError;
use crate::step::{BlockId, Cargo, Handover, Step};
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

/// A message on its way.
enum Message {
    Block(BlockId),
    State(Holding),
}

impl Message {
    fn cargo(&self) -> Cargo {
        match self {
            Self::Block(block) => Cargo::Block(*block),
            Self::State(_) => Cargo::State(Handover::Copied),
        }
    }
}

/// One rank on its way.
#[derive(Default)]
struct Walker {
    step: usize,
    /// Whether the present step has begun.
    begun: bool,
    /// What the present step has yet to send.
    sending: Option<Message>,
    received: bool,
    state: Holding,
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

    /// Walks all steps; what each rank's state holds in the end.
    pub(super) fn run(mut self) -> Result<Vec<Holding>, CheckError> {
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
        Ok(self.walkers.into_iter().map(|walker| walker.state).collect())
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
        if let Some(transfer) = step.send
            && walker.sending.is_some()
        {
            let queue = self.channels.entry((rank, transfer.peer)).or_default();
            if queue.len() < Self::CAPACITY {
                queue.extend(walker.sending.take());
                *moved = true;
            }
        }
        match step.receive {
            Some(transfer) if !walker.received => {
                let queue = self.channels.entry((transfer.peer, rank)).or_default();
                if let Some(message) = queue.pop_front() {
                    walker.take(rank, step, message)?;
                    (walker.received, *moved) = (true, true);
                }
            }
            _ => walker.received = true,
        }
        let done = walker.sending.is_none() && walker.received;
        if done {
            (walker.step, walker.begun) = (walker.step + 1, false);
            *moved = true;
        }
        Ok(done)
    }
}

impl Walker {
    /// Takes what is to be sent as it is now, then attends.
    fn begin(&mut self, rank: Rank, step: &Step) {
        self.sending = step.send.map(|transfer| match transfer.cargo {
            Cargo::Block(block) => Message::Block(block),
            Cargo::State(Handover::Copied) => Message::State(self.state.clone()),
            Cargo::State(Handover::Given) => Message::State(std::mem::take(&mut self.state)),
        });
        if let Some(block) = step.attend {
            self.state.attend(rank, block);
        }
        (self.begun, self.received) = (true, false);
    }

    /// Merges a state that came, the lower rank's first; a block is looked at elsewhere.
    fn take(&mut self, rank: Rank, step: &Step, message: Message) -> Result<(), CheckError> {
        let Some(transfer) = step.receive else { return Ok(()) };
        match (transfer.cargo, message) {
            (Cargo::Block(expected), Message::Block(actual)) if expected == actual => Ok(()),
            (Cargo::State(_), Message::State(theirs)) => {
                let own = std::mem::take(&mut self.state);
                let theirs_first = transfer.peer < rank;
                let (first, second) = if theirs_first { (theirs, own) } else { (own, theirs) };
                self.state = Holding::merge(first, second);
                Ok(())
            }
            (expected, message) => {
                let (step, actual) = (step.index, message.cargo());
                Err(CheckError::WrongPayload { rank, step, expected, actual })
            }
        }
    }
}
