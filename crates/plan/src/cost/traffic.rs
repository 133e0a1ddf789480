//! What the ranks of a ring hold and move, from how far each block travels.
//!
//! Block `j` with reach `h` is sent by ranks `j .. j + h` and received by `j + 1 ..= j + h`, one rank
//! further in each step. So every sum is one over arcs of the ring, taken by differences in `O(p)`.
//! Knows no mask and no layout.

use super::RankCost;
use std::collections::BTreeMap;

/// A block that travels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Journey {
    /// Its bytes.
    pub(super) bytes: u64,
    /// How many hops it makes.
    pub(super) reach: u64,
}

/// Numbers for the ranks of a ring, changed an arc at a time.
struct Arcs {
    /// Entry `u`: by how much rank `u` exceeds rank `u - 1`; one more entry than ranks.
    differences: Vec<i128>,
}

impl Arcs {
    fn new(ranks: usize) -> Self {
        Self { differences: vec![0; ranks + 1] }
    }

    /// Adds `value` to `length` ranks from `start` on, at most once around.
    fn add(&mut self, (start, length): (usize, usize), value: u64) {
        let ranks = self.differences.len() - 1;
        let (start, value) = (start % ranks, i128::from(value));
        let end = start + length;
        self.differences[start] += value;
        self.differences[end.min(ranks)] -= value;
        if end > ranks {
            self.differences[0] += value;
            self.differences[end - ranks] -= value;
        }
    }

    fn sums(&self) -> impl Iterator<Item = u64> + '_ {
        let ranks = self.differences.len() - 1;
        self.differences[..ranks].iter().scan(0, |sum, difference| {
            *sum += difference;
            // Only what was added is taken away again.
            Some(u64::try_from(*sum).unwrap_or(u64::MAX))
        })
    }
}

/// Fills in bytes and hops of all ranks.
pub(super) fn count(journeys: &[Journey], ranks: &mut [RankCost]) {
    let p = journeys.len();
    let mut sent = Arcs::new(p);
    let mut received = Arcs::new(p);
    let mut hops = Arcs::new(p);
    for (owner, &Journey { bytes, reach }) in journeys.iter().enumerate() {
        let reach = reach as usize;
        sent.add((owner, reach), bytes);
        received.add((owner + 1, reach), bytes);
        hops.add((owner + 1, reach), 1);
    }
    let visiting = most_visiting(journeys);
    let sums = sent.sums().zip(received.sums()).zip(hops.sums()).zip(visiting);
    for ((rank, journey), (((sent, received), hops), visiting)) in
        ranks.iter_mut().zip(journeys).zip(sums)
    {
        rank.sent_bytes = sent;
        rank.received_bytes = received;
        rank.hops = hops;
        rank.resident_kv_bytes = journey.bytes;
        rank.peak_kv_bytes = journey.bytes + visiting;
    }
}

/// Per rank the most bytes of the block in use and the one arriving, the own shard left out.
///
/// Block `j` visits rank `j + s` from step `s` on, while block `j - 1`, one hop further behind,
/// arrives. There are few different sums, since blocks differ by one run at most.
fn most_visiting(journeys: &[Journey]) -> Vec<u64> {
    let p = journeys.len();
    let mut by_bytes = BTreeMap::new();
    let mut cover = |bytes, arc| {
        by_bytes.entry(bytes).or_insert_with(|| Arcs::new(p)).add(arc, 1);
    };
    for (owner, journey) in journeys.iter().enumerate() {
        let behind = journeys[(owner + p - 1) % p];
        let alone = journey.reach as usize;
        let together = alone.min((behind.reach as usize).saturating_sub(1));
        cover(journey.bytes, (owner + 1, alone));
        cover(journey.bytes + behind.bytes, (owner + 1, together));
    }
    let mut most = vec![0; p];
    for (bytes, arcs) in by_bytes {
        for (most, covered) in most.iter_mut().zip(arcs.sums()) {
            if covered > 0 {
                *most = bytes;
            }
        }
    }
    most
}

/// Per step the bytes of the largest block that is under way.
pub(super) fn largest_hop(journeys: &[Journey]) -> Vec<u64> {
    let mut largest = vec![0; journeys.len()];
    for journey in journeys.iter().filter(|journey| journey.reach > 0) {
        let last = &mut largest[journey.reach as usize - 1];
        *last = journey.bytes.max(*last);
    }
    for step in (1..largest.len()).rev() {
        largest[step - 1] = largest[step - 1].max(largest[step]);
    }
    largest
}
