//! What a run left behind: its trace as charts per layer, or its report's sums and counts per rank.

use super::chart::{Chart, Shown, Totals};
use super::error::{ViewError, shortened};
use super::headline::Headline;
use super::pace::Effort;
use super::quantity::{bytes, count};
use ringattn_plan::Timeline;
use serde::{Deserialize, Serialize};

/// Bars that are drawn at most; a page with more would not be smooth.
const MAX_BARS: usize = 20_000;

/// What was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Measured {
    /// The name of the layout that ran.
    pub(crate) layout: String,
    /// A timeline per layer, of a trace.
    pub(crate) layers: Vec<Chart>,
    /// Sums per rank, of a report.
    pub(crate) totals: Vec<Totals>,
    /// Counts beside the plan's, of a report.
    pub(crate) counts: Vec<Count>,
    /// What has to be known about all this.
    pub(crate) notes: Vec<String>,
}

/// One count of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Count {
    /// The rank.
    pub(crate) rank: u32,
    /// What is counted.
    pub(crate) what: &'static str,
    /// By the run.
    pub(crate) measured: String,
    /// By the plan, before the run.
    pub(crate) expected: String,
    /// Whether the two are equal.
    pub(crate) equal: bool,
}

/// A report, as far as it is drawn.
#[derive(Debug, Deserialize)]
pub(crate) struct ReportFile {
    #[serde(flatten)]
    pub(crate) headline: Headline,
    pub(crate) command: String,
    threads: Option<u64>,
    overlap: OverlapEntry,
    per_rank: Vec<RankEntry>,
}

#[derive(Debug, Deserialize)]
struct OverlapEntry {
    transfer_s: f64,
}

impl ReportFile {
    /// Work, traffic and their times, summed over the ranks. Attention's time is that of processors, of
    /// which each rank has several.
    pub(crate) fn effort(&self) -> Effort {
        let head = &self.headline;
        let per_pair = 4.0 * head.head_dim as f64 * head.q_heads as f64;
        let sum = |value: fn(&RankEntry) -> f64| self.per_rank.iter().map(value).sum::<f64>();
        Effort {
            flops: sum(|rank| rank.pairs as f64) * per_pair,
            compute_s: sum(|rank| rank.attention_s) / self.threads.unwrap_or(1).max(1) as f64,
            bytes: sum(|rank| rank.received_bytes as f64),
            transfer_s: self.overlap.transfer_s,
        }
    }
}

#[derive(Debug, Deserialize)]
struct RankEntry {
    rank: u32,
    attention_s: f64,
    transfer_wait_s: f64,
    peer_wait_s: f64,
    pairs: u64,
    pairs_expected: u64,
    resident_kv_bytes: u64,
    resident_kv_bytes_expected: u64,
    peak_kv_bytes: u64,
    peak_kv_bytes_expected: u64,
    received_bytes: u64,
    received_bytes_expected: u64,
    hops: u64,
    hops_expected: u64,
}

impl Measured {
    /// A chart per layer, each from its own first span; as many as can be drawn.
    pub(crate) fn of_trace(layout: String, timeline: &Timeline) -> Self {
        let mut layers: Vec<u32> = timeline.spans.iter().map(|span| span.layer).collect();
        layers.sort_unstable();
        layers.dedup();
        let total = layers.len();
        let (mut charts, mut bars) = (Vec::new(), 0);
        for layer in layers {
            let timeline = of_layer(timeline, layer);
            bars += timeline.spans.len();
            if bars > MAX_BARS && !charts.is_empty() {
                break;
            }
            charts.push(Chart::new("measured", format!("Layer {layer}"), &timeline));
        }
        let notes = if charts.len() == total {
            Vec::new()
        } else {
            vec![format!("The first {} of {total} layers are drawn.", charts.len())]
        };
        Self { layout, layers: charts, notes, ..Self::default() }
    }

    /// Sums and counts of a report.
    pub(crate) fn of_report(report: &ReportFile) -> Result<Self, ViewError> {
        let ranks = report.headline.ranks;
        if report.per_rank.len() as u64 != u64::from(ranks) {
            return Err(ViewError::Field {
                field: "per_rank",
                expected: format!("{ranks} entries"),
                actual: report.per_rank.len().to_string(),
            });
        }
        let mut measured = Self {
            layout: report.headline.layout.clone(),
            notes: vec![
                "A report holds sums over the whole run; where each step began is in a trace."
                    .to_owned(),
            ],
            ..Self::default()
        };
        for (index, entry) in report.per_rank.iter().enumerate() {
            if u64::from(entry.rank) != index as u64 {
                return Err(ViewError::Field {
                    field: "per_rank.rank",
                    expected: index.to_string(),
                    actual: entry.rank.to_string(),
                });
            }
            measured.totals.push(entry.totals()?);
            measured.counts.extend(entry.counts());
        }
        Ok(measured)
    }
}

impl RankEntry {
    fn totals(&self) -> Result<Totals, ViewError> {
        let none = Shown::new(0);
        Ok(Totals {
            compute: time("attention_s", self.attention_s)?,
            transfer: none,
            transfer_wait: time("transfer_wait_s", self.transfer_wait_s)?,
            peer_wait: time("peer_wait_s", self.peer_wait_s)?,
        })
    }

    fn counts(&self) -> [Count; 5] {
        let rank = self.rank;
        let entry = |what, show: fn(u64) -> String, (measured, expected): (u64, u64)| Count {
            rank,
            what,
            measured: show(measured),
            expected: show(expected),
            equal: measured == expected,
        };
        let resident = (self.resident_kv_bytes, self.resident_kv_bytes_expected);
        let received = (self.received_bytes, self.received_bytes_expected);
        [
            entry("pairs", count, (self.pairs, self.pairs_expected)),
            entry("resident K,V", bytes, resident),
            entry("peak K,V", bytes, (self.peak_kv_bytes, self.peak_kv_bytes_expected)),
            entry("received", bytes, received),
            entry("hops", count, (self.hops, self.hops_expected)),
        ]
    }
}

fn of_layer(timeline: &Timeline, layer: u32) -> Timeline {
    let mut spans: Vec<_> =
        timeline.spans.iter().filter(|span| span.layer == layer).copied().collect();
    let first = spans.iter().map(|span| span.start).min().unwrap_or_default();
    for span in &mut spans {
        (span.start, span.end) = (span.start.since(first), span.end.since(first));
    }
    Timeline { world_size: timeline.world_size, spans }
}

fn time(field: &'static str, seconds: f64) -> Result<Shown, ViewError> {
    if (0.0..1e9).contains(&seconds) {
        return Ok(Shown::new(ringattn_plan::Nanos::from_seconds(seconds).0));
    }
    let (expected, actual) = ("seconds from 0 to 1e9".to_owned(), shortened(&seconds.to_string()));
    Err(ViewError::Field { field, expected, actual })
}
