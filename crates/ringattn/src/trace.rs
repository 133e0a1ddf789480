//! A recorded run as a Chrome trace (JSON object format), which Perfetto and `chrome://tracing` open.
//!
//! A process per rank, a thread per track, a complete event (`ph` = `X`) per span, times in microseconds. What
//! was run stands in `otherData`, in the words of the report. Knows no file.

use crate::report::Report;
use ringattn_core::Rank;
use ringattn_plan::{
    Activity, BlockId, Operand, QueriesId, Span, Timeline, Track, Transmission, WaitCause,
};
use serde::{Serialize, Serializer};

/// The trace of a run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace<'a> {
    display_time_unit: &'static str,
    other_data: Headline<'a>,
    trace_events: Events<'a>,
}

/// What was run, named as in the report.
#[derive(Debug, Serialize)]
struct Headline<'a> {
    schema: &'static str,
    command: &'a str,
    engine: &'a str,
    ranks: u32,
    layout: &'a str,
    block: u64,
    schedule: &'a str,
    mask: &'a str,
    layers: usize,
    tokens: u64,
    q_heads: usize,
    kv_heads: usize,
    head_dim: usize,
    kv_dtype: &'a str,
}

impl<'a> Trace<'a> {
    /// The trace of the run that `report` is of; `None` when it was not recorded.
    pub fn new<R>(report: &'a Report<R>) -> Option<Self> {
        let timeline = report.timeline.as_ref()?;
        let hosts = report.per_rank.iter().map(|rank| &rank.host[..]).collect();
        let other_data = Headline {
            schema: "ringattn.trace/1",
            command: report.command,
            engine: &report.engine,
            ranks: report.ranks,
            layout: &report.layout,
            block: report.block,
            schedule: &report.schedule,
            mask: &report.mask,
            layers: report.layers,
            tokens: report.tokens,
            q_heads: report.q_heads,
            kv_heads: report.kv_heads,
            head_dim: report.head_dim,
            kv_dtype: &report.kv_dtype,
        };
        let trace_events = Events { timeline, hosts };
        Some(Self { display_time_unit: "ns", other_data, trace_events })
    }
}

/// The events, made while they are written.
#[derive(Debug)]
struct Events<'a> {
    timeline: &'a Timeline,
    /// By rank.
    hosts: Vec<&'a str>,
}

impl Serialize for Events<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = self.hosts.iter().zip(0..).flat_map(|(host, rank)| {
            let process = Name::new("process_name", (rank, 0), format!("rank {rank} on {host}"));
            let thread =
                move |track: Track| Name::new("thread_name", (rank, tid(track)), track.to_string());
            std::iter::once(process).chain(Track::ALL.map(thread))
        });
        let spans = self.timeline.spans.iter().map(|span| Event::Complete(Complete::of(span)));
        serializer.collect_seq(names.map(Event::Name).chain(spans))
    }
}

/// The thread that stands for a track.
fn tid(track: Track) -> u32 {
    match track {
        Track::Compute => 0,
        Track::Send => 1,
        Track::Receive => 2,
        Track::Wait => 3,
        Track::SendState => 4,
        Track::ReceiveState => 5,
    }
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Event {
    Name(Name),
    Complete(Complete),
}

/// A metadata event: the name of a process or thread.
#[derive(Debug, Serialize)]
struct Name {
    name: &'static str,
    ph: &'static str,
    pid: u32,
    tid: u32,
    args: NameArgs,
}

#[derive(Debug, Serialize)]
struct NameArgs {
    name: String,
}

impl Name {
    fn new(name: &'static str, (pid, tid): (u32, u32), text: String) -> Self {
        Self { name, ph: "M", pid, tid, args: NameArgs { name: text } }
    }
}

/// A span.
#[derive(Debug, Serialize)]
struct Complete {
    name: &'static str,
    cat: &'static str,
    ph: &'static str,
    pid: u32,
    tid: u32,
    ts: f64,
    dur: f64,
    args: Args,
}

#[derive(Debug, Default, Serialize)]
struct Args {
    layer: u32,
    step: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    queries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pairs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flops: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
}

impl Complete {
    fn of(span: &Span) -> Self {
        let mut args = Args { layer: span.layer, step: span.step, ..Args::default() };
        let mut message = |sent: &Transmission| {
            match sent.operand {
                None => {}
                Some(Operand::Block(BlockId(Rank(owner)))) => args.block = Some(owner),
                Some(Operand::Queries(QueriesId(Rank(owner)))) => args.queries = Some(owner),
            }
            args.peer = Some(sent.peer.0);
            args.bytes = Some(sent.bytes);
        };
        let name = match &span.activity {
            Activity::Send(sent) => {
                message(sent);
                "send"
            }
            Activity::Receive(received) => {
                message(received);
                "receive"
            }
            Activity::Attend { queries, block, pairs, flops } => {
                (args.queries, args.block) = (Some(queries.0.0), Some(block.0.0));
                args.pairs = Some(*pairs);
                args.flops = Some(*flops);
                "attend"
            }
            Activity::Merge { peer: Rank(peer) } => {
                args.peer = Some(*peer);
                "merge"
            }
            Activity::Wait { cause, peer: Rank(peer) } => {
                args.peer = Some(*peer);
                args.cause = Some(match cause {
                    WaitCause::Transfer => "transfer",
                    WaitCause::Peer => "peer",
                });
                "wait"
            }
        };
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        Self {
            name,
            cat: "ringattn",
            ph: "X",
            pid: span.rank.0,
            tid: tid(span.activity.track()),
            ts: microseconds(span.start.0),
            dur: microseconds(span.end.since(span.start).0),
            args,
        }
    }
}
