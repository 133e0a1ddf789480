//! When a wait has lasted too long, and whose fault it is. Knows no transport and reads no clock.
//!
//! Every rank publishes its [`Standing`]: a count of the units of work and communication that it
//! has done, and the rank that it waits for, if it waits. A waiter looks at these from time to time,
//! follows the chain of waits to its end, the first rank that waits for nobody, and lets the time
//! run only while that rank and its count stay the same. So:
//!
//! - a step that lasts an hour is no failure as long as it counts its units;
//! - a rank that itself waits is never blamed for standing still, the rank at the end of its chain is;
//! - a wait that ends adds to the count, so a rank that is seen twice with the same count at the end
//!   of the chain has done nothing in between;
//! - a chain that runs into a circle is a deadlock, once no rank of it has moved for the timeout;
//! - when the whole process was suspended (SIGSTOP, a sleeping laptop), the gap between two looks
//!   counts as two periods at most, so that nobody is blamed for it.

use ringattn_core::Rank;
use std::time::Duration;

/// What a rank lets its peers see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Units of work and communication done so far.
    pub(crate) count: u64,
    /// The rank that it waits for.
    pub(crate) waiting_for: Option<Rank>,
}

/// All ranks of a world, as their peers see them.
pub(crate) trait Observe {
    /// The number of ranks.
    fn size(&self) -> u32;
    /// How `rank < size` stands now.
    fn standing(&self, rank: Rank) -> Standing;
}

/// Who has stood still for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The rank at the end of the chain of waits.
    Stuck(Rank),
    /// Ranks that wait for one another, in the order of waiting.
    Deadlock(Vec<Rank>),
}

/// The end of a chain of waits and the count that must change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sighting {
    blame: Blame,
    count: u64,
}

/// The time that one wait has left.
#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    timeout: Duration,
    still: Duration,
    last: Option<Sighting>,
}

impl Deadline {
    /// For a wait that starts now.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, still: Duration::ZERO, last: None }
    }

    /// How often to look: an eighth of the timeout, at most a quarter of a second.
    pub(crate) fn period(&self) -> Duration {
        (self.timeout / 8).clamp(Duration::from_millis(1), Duration::from_millis(250))
    }

    /// Looks at the rank that is waited for, `elapsed` after the look before. Some when the wait
    /// should end.
    pub(crate) fn look(
        &mut self,
        elapsed: Duration,
        awaited: Rank,
        ranks: &impl Observe,
    ) -> Option<Blame> {
        let sighting = end_of_chain(awaited, ranks);
        if self.last.as_ref() == Some(&sighting) {
            self.still += elapsed.min(2 * self.period());
        } else {
            self.still = Duration::ZERO;
            self.last = Some(sighting.clone());
        }
        (self.still >= self.timeout).then_some(sighting.blame)
    }
}

/// The first rank from `awaited` on that waits for nobody, or the circle that the chain runs into.
fn end_of_chain(awaited: Rank, ranks: &impl Observe) -> Sighting {
    let mut rank = awaited;
    // A chain without a circle has fewer links than there are ranks.
    for _ in 0..ranks.size() {
        let Standing { count, waiting_for } = ranks.standing(rank);
        match waiting_for {
            None => return Sighting { blame: Blame::Stuck(rank), count },
            Some(next) => rank = next,
        }
    }
    circle(rank, ranks)
}

/// The circle through `start`. The ranks may move on while it is walked; then it is no circle, and
/// the next look sees other counts.
fn circle(start: Rank, ranks: &impl Observe) -> Sighting {
    let mut members = Vec::new();
    let mut sum: u64 = 0;
    let mut rank = start;
    for _ in 0..ranks.size() {
        let Standing { count, waiting_for } = ranks.standing(rank);
        sum = sum.wrapping_add(count);
        members.push(rank);
        match waiting_for {
            None => return Sighting { blame: Blame::Stuck(rank), count },
            Some(next) if next == start => break,
            Some(next) => rank = next,
        }
    }
    let first = members.iter().enumerate().min_by_key(|(_, rank)| **rank).map_or(0, |(i, _)| i);
    members.rotate_left(first);
    Sighting { blame: Blame::Deadlock(members), count: sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PERIOD: Duration = Duration::from_millis(125);

    struct Ranks(Vec<Standing>);

    impl Ranks {
        /// Rank `i` waits for `waits[i]`.
        fn new(waits: &[Option<u32>]) -> Self {
            let standing = |wait: &Option<u32>| Standing { count: 0, waiting_for: wait.map(Rank) };
            Self(waits.iter().map(standing).collect())
        }
    }

    impl Observe for Ranks {
        fn size(&self) -> u32 {
            self.0.len() as u32
        }
        fn standing(&self, rank: Rank) -> Standing {
            self.0[rank.index()]
        }
    }

    /// How many looks, one period apart, until the wait for rank 1 ends.
    fn looks_until_blame(
        ranks: &mut Ranks,
        mut between: impl FnMut(&mut Ranks),
    ) -> Option<(u32, Blame)> {
        let mut deadline = Deadline::new(SECOND);
        assert_eq!(deadline.period(), PERIOD);
        (0..100).find_map(|look| {
            between(ranks);
            Some((look, deadline.look(PERIOD, Rank(1), ranks)?))
        })
    }

    #[test]
    fn a_rank_that_stands_still_is_blamed_after_the_timeout() {
        let mut ranks = Ranks::new(&[Some(1), None]);
        assert_eq!(looks_until_blame(&mut ranks, |_| ()), Some((8, Blame::Stuck(Rank(1)))));
    }

    #[test]
    fn the_end_of_the_chain_is_blamed() {
        let mut ranks = Ranks::new(&[Some(1), Some(2), Some(3), None]);
        assert_eq!(looks_until_blame(&mut ranks, |_| ()), Some((8, Blame::Stuck(Rank(3)))));
    }

    #[test]
    fn a_chain_whose_end_moves_is_waited_for() {
        let mut ranks = Ranks::new(&[Some(1), Some(2), None]);
        let mut look = 0;
        let moves_every_seventh = |ranks: &mut Ranks| {
            look += 1;
            ranks.0[2].count += u64::from(look % 7 == 0);
        };
        assert_eq!(looks_until_blame(&mut ranks, moves_every_seventh), None);
    }

    #[test]
    fn the_time_of_one_rank_is_not_counted_against_another() {
        let mut ranks = Ranks::new(&[Some(1), Some(2), None, None]);
        let mut look = 0;
        let passes_on = |ranks: &mut Ranks| {
            look += 1;
            ranks.0[1].waiting_for = Some(Rank(if look <= 6 { 2 } else { 3 }));
        };
        let (looks, blame) = looks_until_blame(&mut ranks, passes_on).unwrap();
        assert_eq!((looks, blame), (14, Blame::Stuck(Rank(3))));
    }

    #[test]
    fn a_circle_is_a_deadlock_from_wherever_it_is_seen() {
        let mut ranks = Ranks::new(&[Some(1), Some(3), Some(1), Some(2)]);
        let circle = Blame::Deadlock(vec![Rank(1), Rank(3), Rank(2)]);
        assert_eq!(looks_until_blame(&mut ranks, |_| ()), Some((8, circle)));
    }

    #[test]
    fn a_circle_in_which_one_moves_is_none() {
        let mut ranks = Ranks::new(&[Some(1), Some(2), Some(1)]);
        let moves = |ranks: &mut Ranks| ranks.0[2].count += 1;
        assert_eq!(looks_until_blame(&mut ranks, moves), None);
    }

    #[test]
    fn a_suspended_process_blames_nobody() {
        let ranks = Ranks::new(&[Some(1), None]);
        let mut deadline = Deadline::new(SECOND);
        assert_eq!(deadline.look(PERIOD, Rank(1), &ranks), None);
        assert_eq!(deadline.look(Duration::from_secs(3600), Rank(1), &ranks), None);
    }
}
