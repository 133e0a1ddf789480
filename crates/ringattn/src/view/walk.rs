//! A plan walked step by step: what every rank holds, attends, sends, receives and drops, and the
//! readouts that belong to the step.
//!
//! Frame `s` is step `s` of the plan, the last frame the result. In frame `s` the blocks that came in
//! the steps before are there, the block of step `s` is being attended, and the next one is under way.

use super::quantity::{bytes, count, listed, of, percent};
use ringattn_core::Rank;
use ringattn_plan::{Attend, BlockId, Plan, Step, pair_counter};
use serde::Serialize;

/// One plan, ready to be stepped through.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Walk {
    /// For each rank and block the step in which the rank absorbs it; none when it sees nothing there.
    pub(crate) absorbed_in: Vec<Vec<Option<u32>>>,
    /// For each rank the tokens of its shard.
    pub(crate) shards: Vec<Shard>,
    /// The steps, and the result after them.
    pub(crate) frames: Vec<Frame>,
}

/// What a rank owns.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Shard {
    /// How many tokens.
    pub(crate) tokens: u64,
    /// Their positions in words: `0 to 3`, `0, 4, 8, 12`.
    pub(crate) positions: String,
}

/// The state of all ranks in one step.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Frame {
    /// `Step 1 of 3`, counted from 0, or the result.
    pub(crate) title: String,
    /// What happens, in words.
    pub(crate) words: String,
    /// What each rank does.
    pub(crate) ranks: Vec<RankFrame>,
    /// The numbers of this step.
    pub(crate) readouts: Vec<Readout>,
}

/// What one rank does in one step.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RankFrame {
    /// Blocks that it holds at the start of the step, its own first.
    pub(crate) held: Vec<u32>,
    /// The block that its queries attend.
    pub(crate) attend: Option<u32>,
    /// (query, key) pairs of that, per query head.
    pub(crate) pairs: u64,
    /// The same in words: `10 pairs`, or why there are none.
    pub(crate) label: String,
    /// A block that leaves, and to whom.
    pub(crate) send: Option<Move>,
    /// A block that comes, and from whom.
    pub(crate) receive: Option<Move>,
    /// A block that is let go at the end of the step.
    pub(crate) drop: Option<u32>,
}

/// One hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Move {
    /// The block.
    pub(crate) block: u32,
    /// The other rank.
    pub(crate) peer: u32,
}

/// A number that belongs to the step.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Readout {
    /// What it is called in the data: `step`, `resident`, `held`, `moved`, `hops` or `pairs`.
    pub(crate) id: &'static str,
    /// What it is called on the page.
    pub(crate) label: &'static str,
    /// The number as text.
    pub(crate) text: String,
    /// What it is made of.
    pub(crate) detail: String,
    /// The number.
    pub(crate) value: u64,
    /// How far it is, 0 to 1.
    pub(crate) progress: f64,
}

impl Walk {
    /// Walks the plan.
    pub(crate) fn new(plan: &Plan) -> Self {
        let prepared = plan.prepare();
        let ranks: Vec<_> = plan.key_layout().ranks().collect();
        let steps: Vec<Vec<Step>> =
            ranks.iter().map(|&rank| prepared.steps(rank).collect()).collect();
        let absorbed_in = steps.iter().map(|steps| absorbed_in(steps, ranks.len())).collect();
        let shards = ranks.iter().map(|&rank| shard(plan, rank)).collect();
        let counter = pair_counter(plan);
        let pairs: Vec<Vec<u64>> = ranks
            .iter()
            .zip(&steps)
            .map(|(&rank, steps)| {
                let pairs =
                    |step: &Step| step.attend.map_or(0, |attend| counter(rank, attend.block));
                steps
                    .iter()
                    .map(pairs)
                    .map(|pairs| u64::try_from(pairs).unwrap_or(u64::MAX))
                    .collect()
            })
            .collect();
        let mut walker = Walker::new(plan, &pairs);
        let mut frames: Vec<_> = (0..ranks.len())
            .map(|index| {
                let now: Vec<_> = steps.iter().map(|steps| steps.get(index).copied()).collect();
                walker.frame(index as u32, &now)
            })
            .collect();
        frames.push(walker.result());
        Self { absorbed_in, shards, frames }
    }
}

fn absorbed_in(steps: &[Step], ranks: usize) -> Vec<Option<u32>> {
    let mut absorbed = vec![None; ranks];
    for step in steps {
        if let Some(Attend { block: BlockId(rank), .. }) = step.attend {
            absorbed[rank.index()] = Some(step.index);
        }
    }
    absorbed
}

fn shard(plan: &Plan, rank: Rank) -> Shard {
    Shard { tokens: plan.key_layout().count(rank), positions: positions(plan, rank) }
}

/// The rank's positions in words, the first few runs of them.
fn positions(plan: &Plan, rank: Rank) -> String {
    const MOST: usize = 4;
    let runs: Vec<_> = plan.key_layout().runs(rank).take(MOST + 1).collect();
    if runs.is_empty() {
        return "none".to_owned();
    }
    let text = |run: &ringattn_plan::Run| match (run.positions.start().0, run.positions.end().0 - 1)
    {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first} to {last}"),
    };
    let mut all: Vec<_> = runs.iter().take(MOST).map(text).collect();
    if runs.len() > MOST {
        all.push("\u{2026}".to_owned());
    }
    all.join(", ")
}

/// What has happened up to the present step.
struct Walker<'a> {
    plan: &'a Plan,
    /// By rank and step.
    pairs_of: &'a [Vec<u64>],
    held: Vec<Vec<u32>>,
    received_bytes: Vec<u64>,
    hops: Vec<u64>,
    pairs: u64,
    total_pairs: u64,
}

impl<'a> Walker<'a> {
    fn new(plan: &'a Plan, pairs_of: &'a [Vec<u64>]) -> Self {
        let ranks = plan.world_size();
        Self {
            plan,
            pairs_of,
            held: (0..ranks).map(|rank| vec![rank]).collect(),
            received_bytes: vec![0; ranks as usize],
            hops: vec![0; ranks as usize],
            pairs: 0,
            total_pairs: pairs_of.iter().flatten().sum(),
        }
    }

    fn frame(&mut self, index: u32, steps: &[Option<Step>]) -> Frame {
        let ranks: Vec<_> =
            steps.iter().enumerate().map(|(rank, step)| self.rank_frame(rank, *step)).collect();
        self.pairs += ranks.iter().map(|rank| rank.pairs).sum::<u64>();
        let peak = self.peak(&ranks);
        let last = self.plan.world_size() - 1;
        let frame = Frame {
            title: format!("Step {index} of {last}"),
            words: step_words(index, &ranks),
            readouts: self.readouts(format!("{index} of {last}"), index, peak),
            ranks,
        };
        self.advance(&frame.ranks);
        frame
    }

    fn rank_frame(&self, rank: usize, step: Option<Step>) -> RankFrame {
        let held = self.held[rank].clone();
        // The schedules that are walked move blocks alone.
        let moved = |transfer: ringattn_plan::Transfer| {
            Some(Move { block: transfer.cargo.block()?.0.0, peer: transfer.peer.0 })
        };
        let attend = step.and_then(|step| step.attend);
        let pairs = step.map_or(0, |step| self.pairs_of[rank][step.index as usize]);
        let send = step.and_then(|step| step.send.iter().find_map(moved));
        let label = match (attend, send) {
            (Some(_), _) => of(pairs, "pair"),
            (None, Some(_)) => "passes on".to_owned(),
            (None, None) => "idle".to_owned(),
        };
        RankFrame {
            held,
            attend: attend.map(|attend| attend.block.0.0),
            pairs,
            label,
            send,
            receive: step.and_then(|step| step.receive.iter().find_map(moved)),
            drop: step.and_then(|step| step.drop?.block()).map(|block| block.0.0),
        }
    }

    /// The most bytes that a rank holds in the step, the arriving block among them.
    fn peak(&self, ranks: &[RankFrame]) -> u64 {
        let bytes = |block: u32| self.plan.block_bytes(BlockId(Rank(block)));
        let held = |rank: &RankFrame| {
            let arriving = rank.receive.map_or(0, |transfer| bytes(transfer.block));
            rank.held.iter().map(|&block| bytes(block)).sum::<u64>() + arriving
        };
        ranks.iter().map(held).max().unwrap_or(0)
    }

    fn advance(&mut self, ranks: &[RankFrame]) {
        for (rank, frame) in ranks.iter().enumerate() {
            if let Some(transfer) = frame.receive {
                self.held[rank].push(transfer.block);
                self.received_bytes[rank] += self.plan.block_bytes(BlockId(Rank(transfer.block)));
                self.hops[rank] += 1;
            }
            self.held[rank].retain(|&block| Some(block) != frame.drop);
        }
    }

    /// After the last step: everything is absorbed, and only the own shard is left.
    fn result(&self) -> Frame {
        let ranks = self.held.iter().map(|held| RankFrame {
            held: held.clone(),
            attend: None,
            pairs: 0,
            label: "done".to_owned(),
            send: None,
            receive: None,
            drop: None,
        });
        let ranks: Vec<_> = ranks.collect();
        let peak = self.peak(&ranks);
        let steps = self.plan.world_size();
        Frame {
            title: "Result".to_owned(),
            words: format!(
                "Done after {}. Every query has met every key that it may see, the visiting blocks \
                 are gone, and each rank divides: out = y / z. The result is that of dense attention.",
                of(steps.into(), "step")
            ),
            readouts: self.readouts("done".to_owned(), steps, peak),
            ranks,
        }
    }

    fn readouts(&self, step: String, index: u32, peak: u64) -> Vec<Readout> {
        let (plan, ranks) = (self.plan, u64::from(self.plan.world_size()));
        let whole = plan.problem().kv_bytes();
        let shards = || plan.key_layout().ranks().map(|rank| plan.block_bytes(BlockId(rank)));
        let (resident, tokens) = (shards().max().unwrap_or(0), plan.key_layout().len());
        let most = plan.key_layout().ranks().map(|rank| plan.key_layout().count(rank)).max();
        let moved: u64 = self.received_bytes.iter().sum();
        let hops = self.hops.iter().copied().max().unwrap_or(0);
        let all = |part: u64, whole: u64| if whole == 0 { 1.0 } else { part as f64 / whole as f64 };
        let readout = |id, label, text, detail, (value, progress)| Readout {
            id,
            label,
            text,
            detail,
            value,
            progress,
        };
        vec![
            readout(
                "step",
                "Step",
                step,
                format!("{} of attention, one per block", of(ranks, "step")),
                (index.into(), all(index.into(), ranks)),
            ),
            readout(
                "resident",
                "Resident K,V per rank",
                bytes(resident),
                format!(
                    "L/p = {} of {} = {} of the whole",
                    count(most.unwrap_or(0)),
                    of(tokens, "token"),
                    percent(resident as f64, whole as f64)
                ),
                (resident, all(resident, whole)),
            ),
            readout(
                "held",
                "Held at once, at most",
                bytes(peak),
                "own shard, block in use, block arriving".to_owned(),
                (peak, all(peak, whole).min(1.0)),
            ),
            readout(
                "moved",
                "Bytes moved so far",
                bytes(moved),
                format!("all ranks; {} by the busiest", bytes(self.busiest())),
                (moved, all(moved, whole.saturating_mul(ranks - 1))),
            ),
            readout(
                "hops",
                "Hops made",
                format!("{hops} of {}", ranks - 1),
                format!("full coverage takes p \u{2212} 1 = {}", ranks - 1),
                (hops, all(hops, ranks - 1)),
            ),
            readout(
                "pairs",
                "Pairs computed",
                percent(self.pairs as f64, self.total_pairs as f64),
                format!("{} of {} visible", count(self.pairs), count(self.total_pairs)),
                (self.pairs, all(self.pairs, self.total_pairs)),
            ),
        ]
    }

    fn busiest(&self) -> u64 {
        self.received_bytes.iter().copied().max().unwrap_or(0)
    }
}

/// Ranks that are named one by one in a sentence.
const MOST_NAMED: usize = 8;

/// The step for someone who does not see the picture.
fn step_words(index: u32, ranks: &[RankFrame]) -> String {
    let name = |rank: usize| rank.to_string();
    let attends: Vec<_> = ranks
        .iter()
        .enumerate()
        .filter_map(|(rank, frame)| Some(format!("rank {rank} attends block {}", frame.attend?)))
        .collect();
    let idle: Vec<_> =
        (0..ranks.len()).filter(|&rank| ranks[rank].attend.is_none()).map(name).collect();
    let moving = ranks.iter().filter(|frame| frame.send.is_some()).count();
    let many = ranks.len() > MOST_NAMED;
    let mut words = match attends.len() {
        0 => format!("Step {index}: no rank sees anything."),
        attend if many => {
            format!("Step {index}: {attend} of {} ranks attend a block each.", ranks.len())
        }
        _ => format!("Step {index}: {}.", listed(&attends)),
    };
    if !idle.is_empty() && !attends.is_empty() && !many {
        let (noun, verb) = if idle.len() == 1 { ("Rank", "has") } else { ("Ranks", "have") };
        words.push_str(&format!(" {noun} {} {verb} nothing to attend.", listed(&idle)));
    }
    words.push_str(&match moving {
        0 => " No block moves.".to_owned(),
        1 => " Meanwhile one block moves on to its right-hand neighbour.".to_owned(),
        _ => format!(" Meanwhile {moving} blocks move on, each to its right-hand neighbour."),
    });
    words
}
