//! The trait that the engine is written against. Knows no transport and no attention.

use crate::{CommError, Counters, ReceiveRequest, SendRequest, Tag, collective};
use ringattn_core::{Message, Progress, Rank};

/// One rank's end of a world of `size` ranks (MPI_Comm; MPI 4.1, chapters 3, 6 and 7).
///
/// There is one value per rank, used by the rank's main thread alone; it need be neither `Send` nor
/// `Sync`. The compute threads of the rank hold its [`Communicator::progress`].
///
/// Every rank calls the collective operations (`barrier`, `gather`, `broadcast`, `all_gather`) in
/// the same order. They are written over point-to-point messages, so an implementation has them,
/// and the deadline of their waits, for free.
///
/// Every operation fails at once after the run was aborted, with the cause that all ranks name.
pub trait Communicator {
    /// A send under way.
    type SendRequest: SendRequest;
    /// A receive under way.
    type ReceiveRequest<M: Message>: ReceiveRequest<M>;
    /// The rank's progress counter, for its compute threads.
    type Watch: Progress + Clone + Send + Sync + 'static;

    /// This rank (MPI_Comm_rank).
    fn rank(&self) -> Rank;

    /// The number of ranks, at least 1 (MPI_Comm_size).
    fn size(&self) -> u32;

    /// Starts a send in synchronous mode: it is complete once `to` has posted the receive
    /// (MPI_Issend; MPI 4.1, 3.7.2). Never blocks; `to` may be this rank.
    ///
    /// # Errors
    /// When the rank or the tag does not exist, or the run has ended.
    fn immediate_send<M: Message>(
        &self,
        message: M,
        to: Rank,
        tag: Tag,
    ) -> Result<Self::SendRequest, CommError>;

    /// Starts a receive; receives match the messages of one source and tag in the order posted
    /// (MPI_Irecv; MPI 4.1, 3.5 and 3.7.2). Never blocks.
    ///
    /// # Errors
    /// When the rank or the tag does not exist, or the run has ended.
    fn immediate_receive<M: Message>(
        &self,
        from: Rank,
        tag: Tag,
    ) -> Result<Self::ReceiveRequest<M>, CommError>;

    /// Ends the run on every rank at once, with this rank as the culprit (MPI_Abort). The first
    /// abort is the one that counts.
    fn abort(&self, reason: String);

    /// This rank's progress counter. `advance` counts one unit and fails once the run was aborted.
    fn progress(&self) -> Self::Watch;

    /// What this rank has sent, received and waited for so far.
    fn counters(&self) -> Counters;

    /// Waits until every rank has called it (MPI_Barrier; MPI 4.1, 6.3).
    ///
    /// # Errors
    /// When the run was aborted, stopped or timed out; the culprit is a rank that has not arrived.
    fn barrier(&self) -> Result<(), CommError>
    where
        Self: Sized,
    {
        collective::barrier(self)
    }

    /// Every rank's message in rank order, at `root`; `None` elsewhere (MPI_Gather; MPI 4.1, 6.5).
    ///
    /// # Errors
    /// As for sends and receives.
    fn gather<M: Message>(&self, message: M, root: Rank) -> Result<Option<Vec<M>>, CommError>
    where
        Self: Sized,
    {
        collective::gather(self, message, root)
    }

    /// `root`'s message, on every rank (MPI_Bcast; MPI 4.1, 6.4). The other ranks' `message` is
    /// dropped.
    ///
    /// # Errors
    /// As for sends and receives, and when `root` has no message.
    fn broadcast<M: Message + Clone>(&self, message: Option<M>, root: Rank) -> Result<M, CommError>
    where
        Self: Sized,
    {
        collective::broadcast_binomial(self, message, root)
    }

    /// Every rank's message in rank order, on every rank (MPI_Allgather; MPI 4.1, 6.7). Passes the
    /// messages round the ring: `p - 1` hops.
    ///
    /// # Errors
    /// As for sends and receives.
    fn all_gather<M: Message + Clone>(&self, message: M) -> Result<Vec<M>, CommError>
    where
        Self: Sized,
    {
        collective::all_gather(self, message)
    }
}
