//! The collective operations (MPI 4.1, chapter 6), once for all communicators, over point-to-point
//! messages with reserved tags. Knows no transport.
//!
//! Because every wait in here is a point-to-point wait for one peer, the deadline follows the chain
//! of waits to the rank that holds everyone up.

use crate::{CommError, Communicator, ReceiveRequest, SendRequest, Tag};
use ringattn_core::{Message, MessageError, Payload, Rank};

/// What the ranks exchange in a barrier: nothing.
struct Arrival;

impl Message for Arrival {
    const KIND: &'static str = "barrier";
    fn byte_len(&self) -> u64 {
        0
    }
    fn header(&self) -> Vec<u64> {
        Vec::new()
    }
    fn payload(&self) -> Payload {
        Payload::default()
    }
    fn from_payload(_: &[u64], _: Vec<u8>) -> Result<Self, MessageError> {
        Ok(Self)
    }
}

/// The rank `distance` places further round the ring.
fn after(rank: Rank, distance: u32, size: u32) -> Rank {
    Rank(((u64::from(rank.0) + u64::from(distance)) % u64::from(size)) as u32)
}

/// The rank `distance < size` places back round the ring.
fn before(rank: Rank, distance: u32, size: u32) -> Rank {
    after(rank, size - distance, size)
}

/// Dissemination: in round `k` each rank tells the one `2^k` further on, `ceil(log2 p)` rounds.
pub(crate) fn barrier<C: Communicator>(comm: &C) -> Result<(), CommError> {
    let (rank, size) = (comm.rank(), comm.size());
    let mut distance = 1;
    while distance < size {
        let from = before(rank, distance, size);
        let receive = comm.immediate_receive::<Arrival>(from, Tag::BARRIER)?;
        let send = comm.immediate_send(Arrival, after(rank, distance, size), Tag::BARRIER)?;
        receive.wait()?;
        send.wait()?;
        distance = distance.saturating_mul(2);
    }
    Ok(())
}

/// Linear: the root posts a receive per rank.
pub(crate) fn gather<C: Communicator, M: Message>(
    comm: &C,
    message: M,
    root: Rank,
) -> Result<Option<Vec<M>>, CommError> {
    if comm.rank() != root {
        comm.immediate_send(message, root, Tag::GATHER)?.wait()?;
        return Ok(None);
    }
    let receives = (0..comm.size())
        .map(|from| comm.immediate_receive::<M>(Rank(from), Tag::GATHER))
        .collect::<Result<Vec<_>, _>>()?;
    let own = comm.immediate_send(message, root, Tag::GATHER)?;
    let messages = receives.into_iter().map(ReceiveRequest::wait).collect::<Result<Vec<_>, _>>()?;
    own.wait()?;
    Ok(Some(messages))
}

/// This rank and how many there are, if `root` is one of them.
fn place<C: Communicator>(comm: &C, root: Rank) -> Result<(Rank, u32), CommError> {
    let (rank, size) = (comm.rank(), comm.size());
    if root.0 >= size {
        return Err(CommError::NoSuchRank { rank, peer: root, size });
    }
    Ok((rank, size))
}

/// Binomial tree, by the distance from the root: `d` receives from `d` without its highest bit and
/// sends to `d + 2^k` for every `2^k > d`.
pub(crate) fn broadcast_binomial<C: Communicator, M: Message + Clone>(
    comm: &C,
    message: Option<M>,
    root: Rank,
) -> Result<M, CommError> {
    let (rank, size) = place(comm, root)?;
    let distance = before(rank, root.0, size).0;
    let message = match (distance.checked_ilog2(), message) {
        (None, Some(message)) => message,
        (None, None) => return Err(CommError::NothingToBroadcast { root }),
        (Some(bit), _) => {
            let from = after(root, distance - (1 << bit), size);
            comm.immediate_receive::<M>(from, Tag::BROADCAST)?.wait()?
        }
    };
    let first = distance.checked_ilog2().map_or(0, |bit| bit + 1);
    let sends = (first..u32::BITS)
        .map_while(|bit| (1_u32 << bit).checked_add(distance).filter(|&further| further < size))
        .map(|further| {
            comm.immediate_send(message.clone(), after(root, further, size), Tag::BROADCAST)
        })
        .collect::<Result<Vec<_>, _>>()?;
    sends.into_iter().try_for_each(SendRequest::wait)?;
    Ok(message)
}

/// Linear: the root tells every rank itself, the last one first, and none has to be woken to pass it on. For
/// ranks to which a message is a handle. States that are then reduced to lower ranks have the longer way from
/// the higher ones, so these begin first.
pub(crate) fn broadcast_linear<C: Communicator, M: Message + Clone>(
    comm: &C,
    message: Option<M>,
    root: Rank,
) -> Result<M, CommError> {
    let (rank, size) = place(comm, root)?;
    if rank != root {
        return comm.immediate_receive::<M>(root, Tag::BROADCAST)?.wait();
    }
    let message = message.ok_or(CommError::NothingToBroadcast { root })?;
    let others = (0..size).rev().map(Rank).filter(|&other| other != root);
    let sends = others
        .map(|other| comm.immediate_send(message.clone(), other, Tag::BROADCAST))
        .collect::<Result<Vec<_>, _>>()?;
    sends.into_iter().try_for_each(SendRequest::wait)?;
    Ok(message)
}

/// Round the ring: in each of `p - 1` hops a rank passes on what it got in the hop before.
pub(crate) fn all_gather<C: Communicator, M: Message + Clone>(
    comm: &C,
    message: M,
) -> Result<Vec<M>, CommError> {
    let (rank, size) = (comm.rank(), comm.size());
    let (next, previous) = (after(rank, 1, size), before(rank, 1, size));
    // Collected from this rank backwards: rank, rank - 1, rank - 2, ...
    let mut messages = vec![message];
    for hop in 1..size as usize {
        let receive = comm.immediate_receive::<M>(previous, Tag::ALL_GATHER)?;
        let send = comm.immediate_send(messages[hop - 1].clone(), next, Tag::ALL_GATHER)?;
        messages.push(receive.wait()?);
        send.wait()?;
    }
    messages.reverse();
    messages.rotate_right((rank.index() + 1) % size as usize);
    Ok(messages)
}
