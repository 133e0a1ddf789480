//! What one rank brings to the report, and how it travels: as plain words.

mod spans;

use crate::host;
use ringattn_comm::{Communicator, Counters};
use ringattn_engine::Measured;
use ringattn_plan::{Expectation, Span};
use std::time::Duration;

/// What one rank measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RankRecord {
    /// Counts and times of attention.
    pub(crate) measured: Measured,
    /// What the plan says of the counts.
    pub(crate) expected: Expectation,
    /// Processor time of the dense layers.
    pub(crate) dense: Duration,
    /// Processor time of checksums, which the rank's own thread does not spend.
    pub(crate) checksum: Duration,
    /// Most memory of the rank's process so far.
    pub(crate) peak_rss_bytes: Option<u64>,
    /// What it did when, if that was recorded.
    pub(crate) spans: Vec<Span>,
}

/// Words of a record without its spans.
const WORDS: usize = 25;

impl RankRecord {
    /// The record of the calling rank, whose work is done.
    pub(crate) fn new<C: Communicator>(
        comm: &C,
        (measured, expected): (Measured, Expectation),
        dense: Duration,
    ) -> Self {
        let Counters { checksum, .. } = comm.counters();
        let (peak_rss_bytes, spans) = (host::peak_rss_bytes(), Vec::new());
        Self { measured, expected, dense, checksum, peak_rss_bytes, spans }
    }

    /// As bytes, for a message.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let spans = self.spans.iter().flat_map(spans::words);
        self.words().into_iter().chain(spans).flat_map(u64::to_ne_bytes).collect()
    }

    /// The record in the bytes of a message; `None` when they hold none.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let words: Vec<_> =
            bytes.as_chunks().0.iter().map(|&word| u64::from_ne_bytes(word)).collect();
        let (first, rest) = words.split_first_chunk::<WORDS>()?;
        let spans = rest.as_chunks().0.iter().map(spans::span).collect::<Option<_>>()?;
        Some(Self { spans, ..Self::from_words(first) })
    }

    fn words(&self) -> [u64; WORDS] {
        let counts = |counts: &Expectation| {
            let Expectation { resident_kv_bytes, peak_kv_bytes, sent_bytes, .. } = *counts;
            let Expectation { received_bytes, received_kv_bytes, hops, pairs, .. } = *counts;
            let Expectation { peak_query_bytes, peak_state_bytes, .. } = *counts;
            [
                resident_kv_bytes,
                peak_kv_bytes,
                sent_bytes,
                received_bytes,
                received_kv_bytes,
                hops,
                pairs,
                peak_query_bytes,
                peak_state_bytes,
            ]
        };
        let Measured { compute, transfer, transfer_wait, peer_wait, .. } = self.measured;
        let times = [compute, transfer, transfer_wait, peer_wait, self.dense, self.checksum];
        let times = times.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let mut words = [0; WORDS];
        words[..9].copy_from_slice(&counts(&self.measured.counts));
        words[9..18].copy_from_slice(&counts(&self.expected));
        words[18..24].copy_from_slice(&times);
        words[24] = self.peak_rss_bytes.unwrap_or(0);
        words
    }

    fn from_words(words: &[u64; WORDS]) -> Self {
        let counts = |first: usize| Expectation {
            resident_kv_bytes: words[first],
            peak_kv_bytes: words[first + 1],
            sent_bytes: words[first + 2],
            received_bytes: words[first + 3],
            received_kv_bytes: words[first + 4],
            hops: words[first + 5],
            pairs: words[first + 6],
            peak_query_bytes: words[first + 7],
            peak_state_bytes: words[first + 8],
        };
        let time = |index: usize| Duration::from_nanos(words[index]);
        Self {
            measured: Measured {
                counts: counts(0),
                compute: time(18),
                transfer: time(19),
                transfer_wait: time(20),
                peer_wait: time(21),
            },
            expected: counts(9),
            dense: time(22),
            checksum: time(23),
            peak_rss_bytes: Some(words[24]).filter(|&bytes| bytes > 0),
            spans: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_arrives_as_it_was_sent() {
        let words = std::array::from_fn(|index| index as u64 + 1);
        let record = RankRecord::from_words(&words);
        assert_eq!(record.words(), words);
        assert_eq!((record.expected.pairs, record.measured.peer_wait.as_nanos()), (16, 22));
        for spans in [Vec::new(), spans::examples()] {
            let record = RankRecord { spans, ..record.clone() };
            assert_eq!(RankRecord::from_bytes(&record.to_bytes()), Some(record));
        }
        assert_eq!(RankRecord::from_bytes(&record.to_bytes()[8..]), None);
    }
}
