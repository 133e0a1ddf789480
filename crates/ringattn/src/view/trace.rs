//! Reading a measured timeline from the trace of a run (Chrome/Perfetto JSON). Everything in the file
//! is checked: it may come from anywhere.
//!
//! Read are complete events (`ph` = `X`) named attend, merge, send, receive and wait, with `pid` the rank
//! and `ts`, `dur` in microseconds; all others are left alone.

use super::error::{ViewError, shortened};
use super::headline::Headline;
use ringattn_core::Rank;
use ringattn_plan::{
    Activity, BlockId, Nanos, Operand, QueriesId, Span, Timeline, Transmission, WaitCause,
};
use serde::Deserialize;

/// The whole file.
#[derive(Debug, Deserialize)]
pub(crate) struct TraceFile {
    #[serde(rename = "otherData")]
    pub(crate) headline: Headline,
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
struct Event {
    #[serde(default)]
    ph: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    pid: u64,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: EventArgs,
}

#[derive(Debug, Default, Deserialize)]
struct EventArgs {
    step: Option<u32>,
    layer: Option<u32>,
    queries: Option<u32>,
    block: Option<u32>,
    pairs: Option<u64>,
    flops: Option<u64>,
    bytes: Option<u64>,
    peer: Option<u32>,
    cause: Option<String>,
}

impl TraceFile {
    /// The spans, counted from the first one's start.
    pub(crate) fn timeline(&self) -> Result<Timeline, ViewError> {
        let world_size = self.headline.ranks;
        let complete = self.events.iter().filter(|event| event.ph == "X");
        let spans: Result<Vec<_>, _> =
            complete.filter_map(|event| event.span(world_size).transpose()).collect();
        let mut spans = spans?;
        let first = spans.iter().map(|span| span.start).min().unwrap_or_default();
        for span in &mut spans {
            (span.start, span.end) = (span.start.since(first), span.end.since(first));
        }
        let timeline = Timeline { world_size, spans };
        timeline.check()?;
        Ok(timeline)
    }
}

impl Event {
    /// The span that the event is; none for events of other names.
    fn span(&self, ranks: u32) -> Result<Option<Span>, ViewError> {
        let Some(activity) = self.activity(ranks)? else { return Ok(None) };
        let rank = self.rank(ranks)?;
        let step = required("args.step", self.args.step)?;
        if step >= ranks.max(1) {
            return Err(wrong("args.step", &below(ranks), &step.to_string()));
        }
        let start = nanoseconds("ts", self.ts)?;
        let end = nanoseconds("ts + dur", self.ts + self.dur)?;
        nanoseconds("dur", self.dur)?;
        let layer = self.args.layer.unwrap_or(0);
        Ok(Some(Span { rank, layer, step, activity, start, end }))
    }

    fn rank(&self, ranks: u32) -> Result<Rank, ViewError> {
        let rank = u32::try_from(self.pid).ok().filter(|&rank| rank < ranks);
        rank.map(Rank).ok_or_else(|| wrong("pid", &below(ranks), &self.pid.to_string()))
    }

    fn activity(&self, ranks: u32) -> Result<Option<Activity>, ViewError> {
        let args = &self.args;
        let peer =
            || required("args.peer", args.peer).and_then(|peer| within("args.peer", peer, ranks));
        let block = || args.block.map(|block| within("args.block", block, ranks)).transpose();
        let queries =
            || args.queries.map(|queries| within("args.queries", queries, ranks)).transpose();
        let message = || {
            let block = block()?.map(|block| Operand::Block(BlockId(block)));
            let queries = queries()?.map(|queries| Operand::Queries(QueriesId(queries)));
            Ok::<_, ViewError>(Transmission {
                operand: block.or(queries),
                peer: peer()?,
                bytes: args.bytes.unwrap_or(0),
            })
        };
        Ok(Some(match self.name.as_str() {
            "attend" => Activity::Attend {
                // Without a word on it they are the rank's own.
                queries: QueriesId(queries()?.unwrap_or(self.rank(ranks)?)),
                block: BlockId(required("args.block", block()?)?),
                pairs: args.pairs.unwrap_or(0),
                flops: args.flops.unwrap_or(0),
            },
            "merge" => Activity::Merge { peer: peer()? },
            "send" => Activity::Send(message()?),
            "receive" => Activity::Receive(message()?),
            "wait" => Activity::Wait {
                cause: match args.cause.as_deref() {
                    Some("transfer") => WaitCause::Transfer,
                    Some("peer") => WaitCause::Peer,
                    other => {
                        let actual = other.unwrap_or("nothing");
                        return Err(wrong("args.cause", "transfer or peer", actual));
                    }
                },
                peer: peer()?,
            },
            _ => return Ok(None),
        }))
    }
}

fn nanoseconds(field: &'static str, microseconds: f64) -> Result<Nanos, ViewError> {
    // 2^53 ns, a hundred days: up to there f64 counts whole nanoseconds.
    const MOST: f64 = 9_007_199_254_740_992.0;
    let nanoseconds = (microseconds * 1e3).round();
    if (0.0..MOST).contains(&nanoseconds) {
        return Ok(Nanos(nanoseconds as u64));
    }
    Err(wrong(field, "microseconds from 0 to 9e12", &microseconds.to_string()))
}

fn required<T>(field: &'static str, value: Option<T>) -> Result<T, ViewError> {
    value.ok_or_else(|| wrong(field, "a number", "nothing"))
}

fn within(field: &'static str, rank: u32, ranks: u32) -> Result<Rank, ViewError> {
    if rank < ranks { Ok(Rank(rank)) } else { Err(wrong(field, &below(ranks), &rank.to_string())) }
}

fn below(ranks: u32) -> String {
    format!("0 to {}", ranks.saturating_sub(1))
}

fn wrong(field: &'static str, expected: &str, actual: &str) -> ViewError {
    ViewError::Field { field, expected: expected.to_owned(), actual: shortened(actual) }
}
