//! Spans as words: rank, layer, step, start, end, the kind of activity, and three numbers of it.

use ringattn_core::Rank;
use ringattn_plan::{Activity, BlockId, Nanos, Operand, QueriesId, Span, Transmission, WaitCause};

/// Words of a span.
const WORDS: usize = 9;

/// An operand that is none: the message holds a state.
const NO_OPERAND: u64 = u64::MAX;
/// Added to the rank whose queries a message holds; without it, it is a block's.
const QUERIES: u64 = 1 << 32;

pub(super) fn words(span: &Span) -> [u64; WORDS] {
    let number = |rank: Rank| u64::from(rank.0);
    let message = |message: Transmission| {
        let operand = match message.operand {
            None => NO_OPERAND,
            Some(Operand::Block(block)) => number(block.0),
            Some(Operand::Queries(queries)) => QUERIES + number(queries.0),
        };
        [number(message.peer), operand, message.bytes]
    };
    let (kind, [a, b, c]) = match span.activity {
        Activity::Attend { queries, block, pairs, flops } => {
            // Ranks are below 2^32.
            (0, [number(block.0) + (number(queries.0) << 32), pairs, flops])
        }
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
    let peer = || Some(Rank(narrow(a)?));
    let message = || {
        let operand = match b {
            NO_OPERAND => None,
            b if b < QUERIES => Some(Operand::Block(BlockId(Rank(narrow(b)?)))),
            b => Some(Operand::Queries(QueriesId(Rank(narrow(b - QUERIES)?)))),
        };
        Some(Transmission { operand, peer: peer()?, bytes: c })
    };
    let activity = match kind {
        0 => {
            let (block, queries) = (a & u64::from(u32::MAX), a >> 32);
            let (block, queries) =
                (BlockId(Rank(narrow(block)?)), QueriesId(Rank(narrow(queries)?)));
            Activity::Attend { queries, block, pairs: b, flops: c }
        }
        1 => Activity::Merge { peer: peer()? },
        2 => Activity::Send(message()?),
        3 => Activity::Receive(message()?),
        4 => Activity::Wait { cause: WaitCause::Transfer, peer: peer()? },
        5 => Activity::Wait { cause: WaitCause::Peer, peer: peer()? },
        _ => return None,
    };
    let (rank, layer, step) = (Rank(narrow(rank)?), narrow(layer)?, narrow(step)?);
    Some(Span { rank, layer, step, activity, start: Nanos(start), end: Nanos(end) })
}

/// A span of every kind.
#[cfg(test)]
pub(super) fn examples() -> Vec<Span> {
    let message = |operand| Transmission { operand, peer: Rank(4), bytes: 5 };
    let (block, queries) = (BlockId(Rank(7)), QueriesId(Rank(15)));
    let activities = [
        Activity::Attend { queries, block: BlockId(Rank(1)), pairs: 2, flops: 3 },
        Activity::Merge { peer: Rank(6) },
        Activity::Send(message(Some(Operand::Block(block)))),
        Activity::Send(message(Some(Operand::Queries(queries)))),
        Activity::Receive(message(None)),
        Activity::Wait { cause: WaitCause::Transfer, peer: Rank(8) },
        Activity::Wait { cause: WaitCause::Peer, peer: Rank(9) },
    ];
    let (rank, layer, step) = (Rank(10), 11, 12);
    let span = |activity| Span { rank, layer, step, activity, start: Nanos(13), end: Nanos(14) };
    activities.map(span).to_vec()
}
