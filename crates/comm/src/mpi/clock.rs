//! The time in which this process listened to its peers. Knows no peer and reads no clock.
//!
//! A process that stood still (SIGSTOP, Ctrl-Z, a sleeping machine, a crowded processor) has heard
//! nobody in that time, and what was told to it lies unread. So how long a peer is silent, and how
//! long its word is waited for, is *listened* time, of looks at `w_0 < w_1 < ... < w_n`:
//!
//! ```text
//! listened = sum of min(w_i - w_(i-1), GAP)
//! ```
//!
//! A look is all that the link thread does in one round. What it reads right after a long gap was told
//! to it during the gap, and is no sign that its author is still there: see [`Clock::gap`].

use std::time::{Duration, Instant};

/// The longest time between two looks that counts in full. Some looks that came late by as much are
/// far from making a peer silent.
const GAP: Duration = Duration::from_millis(100);

/// How long was listened, and when was looked last.
#[derive(Debug)]
pub(super) struct Clock {
    listened: Duration,
    looked: Instant,
    gap: Duration,
}

impl Clock {
    /// Listens from `now` on.
    pub(super) fn new(now: Instant) -> Self {
        Self { listened: Duration::ZERO, looked: now, gap: Duration::ZERO }
    }

    /// A new look begins.
    pub(super) fn begin_look(&mut self, now: Instant) {
        self.gap = Duration::ZERO;
        self.go_on(now);
    }

    /// The look goes on.
    pub(super) fn go_on(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.looked);
        self.listened += passed.min(GAP);
        self.gap = self.gap.max(passed);
        self.looked = self.looked.max(now);
    }

    /// How long was listened.
    pub(super) fn listened(&self) -> Duration {
        self.listened
    }

    /// When was looked last, on the wall.
    pub(super) fn looked(&self) -> Instant {
        self.looked
    }

    /// The longest time that passed at once before or in this look.
    pub(super) fn gap(&self) -> Duration {
        self.gap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_long_gap_counts_little() {
        // Milliseconds between looks; listened, and the gap of the last look.
        let cases: [(&[u32], u32, u32); 5] = [
            (&[], 0, 0),
            (&[1, 1, 50], 52, 50),
            (&[100, 101], 200, 101),
            (&[3_600_000], 100, 3_600_000),
            (&[20, 2000, 20, 2000, 1], 241, 1),
        ];
        for (gaps, listened, gap) in cases {
            let mut now = Instant::now();
            let mut clock = Clock::new(now);
            for gap in gaps {
                now += *gap * MS;
                clock.begin_look(now);
            }
            assert_eq!((clock.listened(), clock.gap()), (listened * MS, gap * MS), "{gaps:?}");
            assert_eq!(clock.looked(), now);
        }
    }

    #[test]
    fn a_gap_within_a_look_belongs_to_it() {
        let begin = Instant::now();
        let mut clock = Clock::new(begin);
        clock.begin_look(begin + 2 * MS);
        clock.go_on(begin + 900 * MS);
        clock.go_on(begin + 901 * MS);
        assert_eq!((clock.listened(), clock.gap()), (103 * MS, 898 * MS));
    }

    #[test]
    fn an_earlier_time_changes_nothing() {
        let begin = Instant::now();
        let mut clock = Clock::new(begin + 10 * MS);
        clock.begin_look(begin);
        clock.go_on(begin + 10 * MS);
        assert_eq!((clock.listened(), clock.gap()), (Duration::ZERO, Duration::ZERO));
    }
}
