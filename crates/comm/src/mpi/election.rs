//! Which one of the ranks that know of a failure reports it. Knows no transport and no clock.
//!
//! Each rank chooses a speaker by what it has heard (see [`super::verdict`]), and two that have heard
//! different things may both choose themselves. So nobody reports before the others have left it to that rank:
//!
//! - A rank tells whom it leaves the report to; one that names itself offers to report.
//! - A choice gives way to a rank that offers to report, an offer to a lower one, and both to a rank that
//!   reports already. What was left to another rank is not taken back.
//! - A rank reports once every peer that is heard and has returned from its run leaves it to that rank, and
//!   says so before it does.
//!
//! Of two ranks that report, at least one has heard that the other is back from its run, since it was told so
//! before the other chose, and would have waited until the other, which offers to report, left it to that one.

use super::peers::Peers;
use super::wire::Stage;
use ringattn_core::Rank;

/// One rank's part in the election after a failed run.
pub(super) struct Election {
    own: Rank,
    number: u64,
    choice: Rank,
    has_won: bool,
}

impl Election {
    /// After run `number`, in which `own` chose who should report.
    pub(super) fn new(own: Rank, number: u64, choice: Rank) -> Self {
        Self { own, number, choice, has_won: false }
    }

    /// Looks at what the peers say; the speaker, once that is certain.
    pub(super) fn look(&mut self, peers: &Peers) -> Option<Rank> {
        if let Some(speaking) = peers.speaking(self.number) {
            self.choice = speaking;
            return Some(speaking);
        }
        let offer = (self.choice == self.own).then_some(self.own);
        let offers = peers.offering(self.number).into_iter().chain(offer);
        self.choice = offers.min().unwrap_or(self.choice);
        self.has_won = self.choice == self.own && peers.have_all_yielded(self.number);
        self.has_won.then_some(self.own)
    }

    /// No more can be waited for: the speaker.
    pub(super) fn end(&mut self) -> Rank {
        self.has_won = self.choice == self.own;
        self.choice
    }

    /// What this rank says of itself.
    pub(super) fn stage(&self) -> Stage {
        if self.has_won { Stage::Speaking } else { Stage::Yielded(self.choice) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::Notice;
    use super::*;
    use crate::deadline::Standing;
    use std::collections::VecDeque;
    use std::time::{Duration, Instant};

    const RUN: u64 = 1;

    fn notice(stage: Stage) -> Notice {
        Notice { run: RUN, standing: Standing { count: 0, waiting_for: None }, stage, cause: None }
    }

    /// A few bits of a random number.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) as usize % end
        }
    }

    struct Ranks {
        /// `None` until the rank has returned from the failed run and chosen.
        elections: Vec<Option<Election>>,
        peers: Vec<Peers>,
        told: Vec<Stage>,
        /// What is on its way, by sender and receiver.
        letters: Vec<Vec<VecDeque<Stage>>>,
        /// A rank that chooses itself.
        willing: Option<usize>,
    }

    impl Ranks {
        fn new(size: usize) -> Self {
            let now = Instant::now();
            let of = |rank| Peers::new(Rank(rank as u32), size as u32, Duration::MAX, now);
            Self {
                elections: (0..size).map(|_| None).collect(),
                peers: (0..size).map(of).collect(),
                told: vec![Stage::Working; size],
                letters: vec![vec![VecDeque::new(); size]; size],
                willing: None,
            }
        }

        fn says(&mut self, rank: usize, stage: Stage) {
            if self.told[rank] != stage {
                self.told[rank] = stage;
                for (to, letters) in self.letters[rank].iter_mut().enumerate() {
                    letters.extend((to != rank).then_some(stage));
                }
            }
        }

        /// Anything that can happen next.
        fn step(&mut self, random: &mut Random) {
            let size = self.told.len();
            let (rank, other) = (random.below(size), random.below(size));
            if random.below(2) == 0 && rank != other {
                if let Some(stage) = self.letters[other][rank].pop_front() {
                    self.peers[rank].hear(Rank(other as u32), notice(stage), Instant::now());
                }
                return;
            }
            match &mut self.elections[rank] {
                None if self.told[rank] == Stage::Working => self.says(rank, Stage::Settled),
                // Before it chooses it waits for longer than a letter takes.
                None if self.letters[rank].iter().all(VecDeque::is_empty) => {
                    // Whom it chooses is anybody; one that is heard to offer stands.
                    let chosen = self.willing.filter(|&willing| willing == rank).unwrap_or(other);
                    let chosen = Rank(chosen as u32);
                    let choice = self.peers[rank].offering(RUN).unwrap_or(chosen);
                    self.elections[rank] = Some(Election::new(Rank(rank as u32), RUN, choice));
                }
                Some(election) if !election.has_won => {
                    let _ = election.look(&self.peers[rank]);
                    let stage = election.stage();
                    self.says(rank, stage);
                }
                None | Some(_) => {}
            }
        }

        fn speakers(&self) -> usize {
            self.told.iter().filter(|&&stage| stage == Stage::Speaking).count()
        }
    }

    #[test]
    fn no_two_ranks_report_whatever_they_have_heard_when() {
        let mut elected = 0;
        for seed in 0..2000 {
            let mut random = Random(seed);
            let mut ranks = Ranks::new(2 + seed as usize % 4);
            for _ in 0..1000 {
                ranks.step(&mut random);
                assert!(ranks.speakers() <= 1, "seed {seed}: {:?}", ranks.told);
            }
            elected += ranks.speakers();
        }
        // Nobody reports where all choose ranks that choose others: then time ends the election.
        assert!(elected > 1200, "{elected}");
    }

    #[test]
    fn one_rank_reports_where_one_offers_to() {
        for seed in 0..2000 {
            let mut random = Random(seed);
            let mut ranks = Ranks::new(2 + seed as usize % 4);
            ranks.willing = Some(random.below(ranks.told.len()));
            (0..4000).for_each(|_| ranks.step(&mut random));
            assert_eq!(ranks.speakers(), 1, "seed {seed}: {:?}", ranks.told);
        }
    }
}
