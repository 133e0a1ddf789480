//! Spans as words: rank, layer, step, start, end, the kind of activity, and three numbers of it.

use ringattn_core::Rank;
use ringattn_plan::{Activity, BlockId, Nanos, Span, Transmission, WaitCause};

/// Words of a span.
const WORDS: usize = 9;

/// A block that is none: the message holds a state.
const NO_BLOCK: u64 = u64::MAX;

pub(super) fn words(span: &Span) -> [u64; WORDS] {
    let number = |rank: Rank| u64::from(rank.0);
    let message = |message: Transmission| {
        let block = message.block.map_or(NO_BLOCK, |block| number(block.0));
        [number(message.peer), block, message.bytes]
    };
    let (kind, [a, b, c]) = match span.activity {
        Activity::Attend { block, pairs, flops } => (0, [number(block.0), pairs, flops]),
        Activity::Merge { peer } => (1, [number(peer), 0, 0]),
        Activity::Send(sent) => (2, message(sent)),
        Activity::Receive(received) => (3, message(received)),
        Activity::Wait { cause: WaitCause::Transfer, peer } => (4, [number(peer), 0, 0]),
        Activity::Wait { cause: WaitCause::Peer, peer } => (5, [number(peer), 0, 0]),
    };
    let (layer, step) = (u64::from(span.layer), u64::from(span.step));
    [number(span.rank), layer, step, span.start.0, span.end.0, kind, a, b, c]
}

/// The span of these words; `None` when they are none.
pub(super) fn span(words: &[u64; WORDS]) -> Option<Span> {
    let [rank, layer, step, start, end, kind, a, b, c] = *words;
    let narrow = |word| u32::try_from(word).ok();
    let peer = Rank(narrow(a)?);
    let message = || {
        let block = if b == NO_BLOCK { None } else { Some(BlockId(Rank(narrow(b)?))) };
        Some(Transmission { block, peer, bytes: c })
    };
    let activity = match kind {
        0 => Activity::Attend { block: BlockId(peer), pairs: b, flops: c },
        1 => Activity::Merge { peer },
        2 => Activity::Send(message()?),
        3 => Activity::Receive(message()?),
        4 => Activity::Wait { cause: WaitCause::Transfer, peer },
        5 => Activity::Wait { cause: WaitCause::Peer, peer },
        _ => return None,
    };
    let (rank, layer, step) = (Rank(narrow(rank)?), narrow(layer)?, narrow(step)?);
    Some(Span { rank, layer, step, activity, start: Nanos(start), end: Nanos(end) })
}

/// A span of every kind.
#[cfg(test)]
pub(super) fn examples() -> Vec<Span> {
    let message = |block| Transmission { block, peer: Rank(4), bytes: 5 };
    let activities = [
        Activity::Attend { block: BlockId(Rank(1)), pairs: 2, flops: 3 },
        Activity::Merge { peer: Rank(6) },
        Activity::Send(message(Some(BlockId(Rank(7))))),
        Activity::Receive(message(None)),
        Activity::Wait { cause: WaitCause::Transfer, peer: Rank(8) },
        Activity::Wait { cause: WaitCause::Peer, peer: Rank(9) },
    ];
    let (rank, layer, step) = (Rank(10), 11, 12);
    let span = |activity| Span { rank, layer, step, activity, start: Nanos(13), end: Nanos(14) };
    activities.map(span).to_vec()
}
