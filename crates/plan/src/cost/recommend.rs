//! Which of several priced layouts to take, and why.
//!
//! The fastest in lockstep; of those as fast within [`ALIKE`] the one that moves the least. Knows
//! layouts only by name.

use super::{Cost, Timing};
use crate::layout::LayoutKind;
use std::fmt;

/// Times within this factor count as equal: the model is not that exact.
const ALIKE: f64 = 1.005;

/// A layout with its price.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Its name.
    pub kind: LayoutKind,
    /// Its counts.
    pub cost: &'a Cost,
    /// Its seconds.
    pub timing: Timing,
}

/// The layout to take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recommendation {
    /// Which of the candidates.
    pub index: usize,
    /// Why.
    pub reason: Reason,
}

/// Why a layout is the one to take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// There is no other.
    Only,
    /// Nothing tells them apart.
    Alike,
    /// As fast as another, and it moves less.
    LeastTraffic {
        /// Most bytes that a rank receives.
        received: u64,
        /// The same of the one that receives the most.
        other: u64,
    },
    /// Faster than the others.
    Fastest {
        /// The share of the ranks' time that is spent computing when no transfer is waited for.
        utilisation: f64,
        /// The slowest layout.
        other: LayoutKind,
        /// Its utilisation.
        other_utilisation: f64,
        /// How many times longer it takes.
        factor: f64,
    },
}

/// Chooses among `candidates`; `None` when there are none.
pub fn recommend(candidates: &[Candidate<'_>]) -> Option<Recommendation> {
    let by_time =
        |a: &&Candidate<'_>, b: &&Candidate<'_>| a.timing.total.total_cmp(&b.timing.total);
    let best = candidates.iter().min_by(by_time)?.timing.total;
    let slowest = candidates.iter().max_by(by_time)?;
    let received = |candidate: &Candidate<'_>| candidate.cost.most(|rank| rank.received_bytes);
    let alike = |candidate: &Candidate<'_>| candidate.timing.total <= best * ALIKE;
    let order = |a: &Candidate<'_>, b: &Candidate<'_>| {
        received(a).cmp(&received(b)).then(a.timing.total.total_cmp(&b.timing.total))
    };
    let (index, chosen) = candidates
        .iter()
        .enumerate()
        .filter(|(_, candidate)| alike(candidate))
        .min_by(|(_, a), (_, b)| order(a, b))?;
    let most = candidates.iter().map(received).max()?;
    let reason = if candidates.len() == 1 {
        Reason::Only
    } else if !alike(slowest) {
        Reason::Fastest {
            utilisation: chosen.cost.utilisation(),
            other: slowest.kind,
            other_utilisation: slowest.cost.utilisation(),
            factor: slowest.timing.total / chosen.timing.total,
        }
    } else if received(chosen) < most {
        Reason::LeastTraffic { received: received(chosen), other: most }
    } else {
        Reason::Alike
    };
    Some(Recommendation { index, reason })
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only => f.write_str("the only layout that was asked for"),
            Self::Alike => f.write_str("all layouts take the same time and move the same bytes"),
            Self::LeastTraffic { received, other } => write!(
                f,
                "all layouts take the same time, and its ranks receive at most {received} bytes \
                 instead of {other}"
            ),
            Self::Fastest { utilisation, other, other_utilisation, factor } => {
                let (busy, other_busy) = (100.0 * utilisation, 100.0 * other_utilisation);
                write!(f, "{other} takes {factor:.2} times as long: ")?;
                if other_busy < busy - 0.5 {
                    write!(
                        f,
                        "after every step its ranks wait for the busiest, and compute \
                         {other_busy:.1} % of the time, here {busy:.1} %"
                    )
                } else {
                    f.write_str("computing hides less of its transfers")
                }
            }
        }
    }
}
