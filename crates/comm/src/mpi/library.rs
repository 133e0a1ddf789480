//! The MPI library, as the link thread uses it: small safe types over its non-blocking calls. The
//! only file with `unsafe`. Knows no rank's state and no message's meaning.
//!
//! A [`Library`] and everything that it makes stay on the thread that made it (they hold raw
//! handles, so they are neither `Send` nor `Sync`): MPI is called by one thread (MPI_THREAD_FUNNELED;
//! MPI 4.1, 11.6). Buffers belong to the requests that use them; a request that is given up while
//! MPI may still use its buffer leaks the buffer.

#![allow(unsafe_code)]

use mpi::environment::{Threading, Universe};
use mpi::ffi;
use mpi::topology::{Communicator as _, SimpleCommunicator};
use mpi::traits::{AsRaw, CommunicatorCollectives as _};
use ringattn_core::{Payload, Rank};
use std::collections::VecDeque;
use std::ffi::{c_char, c_int};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Range;
use thiserror::Error;

/// A call that MPI refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{call} failed: {reason}")]
pub struct LibraryError {
    /// The function.
    pub call: &'static str,
    /// The library's words.
    pub reason: String,
}

impl LibraryError {
    /// Not the library's fault, but nothing goes on after it either.
    pub(super) fn panicked() -> Self {
        Self { call: "the link thread", reason: "it panicked".to_owned() }
    }
}

/// Why the library could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotStarted {
    /// It was, by somebody else.
    Already,
    /// It allows no thread but one in the process.
    SingleThreaded,
}

/// Most pieces of one message that are under way at a time.
const WINDOW: usize = 4;

/// The longest error text or name that is asked for.
const TEXT: usize = 1024;

fn check(call: &'static str, code: c_int) -> Result<(), LibraryError> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = [0_u8; TEXT];
    let mut length: c_int = 0;
    // SAFETY: TEXT is above MPI_MAX_ERROR_STRING of Open MPI (256) and MPICH (512); both pointers
    // are valid for the call.
    let known =
        unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &mut length) };
    let length = usize::try_from(length).unwrap_or(0).min(TEXT);
    let reason = if known == ffi::MPI_SUCCESS as c_int {
        String::from_utf8_lossy(&text[..length]).into_owned()
    } else {
        format!("error {code}")
    };
    Err(LibraryError { call, reason })
}

/// Lets all threads allocate from one heap. The C library would give several threads one each, and reserve
/// 64 MiB of address space for it: as much as a small shard, which limits on address space count.
pub(super) fn share_one_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// `M_ARENA_MAX` of malloc.h.
        const ARENA_MAX: c_int = -8;
        unsafe extern "C" {
            fn mallopt(parameter: c_int, value: c_int) -> c_int;
        }
        // SAFETY: glibc's mallopt may be called by any thread at any time, takes the lock of the heap,
        // and changes only where later allocations come from. A refusal changes nothing.
        unsafe { mallopt(ARENA_MAX, 1) };
    }
}

/// Which of the two streams of messages; they never match each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// Envelopes and notices.
    Envelopes,
    /// The payloads that envelopes announce.
    Payloads,
}

/// When a send is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// When MPI has the bytes (MPI_Isend).
    Standard,
    /// When the receiver has matched the message (MPI_Issend).
    Synchronous,
}

/// Between which ranks' streams bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Channel {
    pub(super) stream: Stream,
    pub(super) peer: Rank,
    pub(super) tag: u32,
}

/// The started library.
pub(super) struct Library {
    universe: ManuallyDrop<Universe>,
    world: SimpleCommunicator,
    envelopes: ManuallyDrop<SimpleCommunicator>,
    payloads: ManuallyDrop<SimpleCommunicator>,
}

impl Library {
    /// Starts MPI on the calling thread (MPI_Init_thread); all processes of the job do.
    pub(super) fn start() -> Result<Self, NotStarted> {
        let (universe, granted) =
            mpi::initialize_with_threading(Threading::Funneled).ok_or(NotStarted::Already)?;
        let universe = ManuallyDrop::new(universe);
        if granted < Threading::Funneled {
            return Err(NotStarted::SingleThreaded);
        }
        let world = universe.world();
        let [envelopes, payloads] = [(); 2].map(|()| ManuallyDrop::new(world.duplicate()));
        for communicator in [&envelopes, &payloads] {
            // SAFETY: the handle is that of a live communicator, and the error handler is MPI's own.
            unsafe {
                ffi::MPI_Comm_set_errhandler(communicator.as_raw(), ffi::RSMPI_ERRORS_RETURN);
            }
        }
        Ok(Self { universe, world, envelopes, payloads })
    }

    /// This process's rank (MPI_Comm_rank).
    pub(super) fn rank(&self) -> Rank {
        Rank(self.world.rank().unsigned_abs())
    }

    /// The number of ranks (MPI_Comm_size).
    pub(super) fn size(&self) -> u32 {
        self.world.size().unsigned_abs()
    }

    /// Every rank's words, in rank order (MPI_Allgather). Blocks until all ranks call it.
    pub(super) fn all_gather(&self, own: &[u64]) -> Vec<u64> {
        let mut all = vec![0_u64; own.len() * self.size() as usize];
        self.world.all_gather_into(own, &mut all[..]);
        all
    }

    /// Ends MPI (MPI_Finalize). Blocks until all ranks call it.
    pub(super) fn finalize(self) {
        drop(ManuallyDrop::into_inner(self.envelopes));
        drop(ManuallyDrop::into_inner(self.payloads));
        drop(ManuallyDrop::into_inner(self.universe));
    }

    /// Ends all processes of the job (MPI_Abort).
    pub(super) fn abort(&self, code: u8) -> ! {
        self.world.abort(c_int::from(code))
    }

    fn raw(&self, stream: Stream) -> ffi::MPI_Comm {
        match stream {
            Stream::Envelopes => self.envelopes.as_raw(),
            Stream::Payloads => self.payloads.as_raw(),
        }
    }

    /// Takes a message of the envelopes' stream that has come, if there is one: from any rank
    /// without `from`, with any tag without `tag` (MPI_Improbe).
    pub(super) fn probe(
        &self,
        from: Option<Rank>,
        tag: Option<u32>,
    ) -> Result<Option<Arrival>, LibraryError> {
        let mut found: c_int = 0;
        let mut status = MaybeUninit::<ffi::MPI_Status>::zeroed();
        // SAFETY: the handles are MPI's constants and a live communicator; the pointers are valid
        // for the call, which writes message and status when it sets the flag. A status of zero
        // bytes is a valid value: it consists of integers.
        unsafe {
            let source = from.map_or(ffi::RSMPI_ANY_SOURCE, |rank| rank.0 as c_int);
            let tag = tag.map_or(ffi::RSMPI_ANY_TAG, |tag| tag as c_int);
            let mut message = ffi::RSMPI_MESSAGE_NULL;
            let communicator = self.raw(Stream::Envelopes);
            let code = ffi::MPI_Improbe(
                source,
                tag,
                communicator,
                &mut found,
                &mut message,
                status.as_mut_ptr(),
            );
            check("MPI_Improbe", code)?;
            if found == 0 {
                return Ok(None);
            }
            let status = status.assume_init();
            Ok(Some(Arrival {
                message,
                from: Rank(status.MPI_SOURCE.unsigned_abs()),
                tag: status.MPI_TAG.unsigned_abs(),
                len: count(&status)?,
            }))
        }
    }
}

/// Bytes of the message of a status that MPI has filled.
fn count(status: &ffi::MPI_Status) -> Result<usize, LibraryError> {
    let mut bytes: c_int = 0;
    // SAFETY: the datatype is MPI's constant and both pointers are valid for the call.
    let code = unsafe { ffi::MPI_Get_count(status, ffi::RSMPI_UINT8_T, &mut bytes) };
    check("MPI_Get_count", code)?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// One non-blocking call under way, and the bytes that it moves.
struct Pending {
    request: ffi::MPI_Request,
    bytes: usize,
    /// What it moves, where the piece crosses parts of a payload. Its heap memory stays in place.
    #[allow(dead_code, reason = "MPI reads it")]
    joined: Option<Vec<u8>>,
}

/// Counts the calls at the front of `pending` that are complete (MPI_Test) and gives their bytes.
fn completed(pending: &mut VecDeque<Pending>, kind: Kind) -> Result<Done, LibraryError> {
    let mut done = Done::default();
    while let Some(first) = pending.front_mut() {
        let mut flag: c_int = 0;
        let mut status = MaybeUninit::<ffi::MPI_Status>::zeroed();
        // SAFETY: the request is one that MPI gave out and that has not been completed; a completed
        // one is removed below and never tested again. The pointers are valid for the call.
        let (code, status) = unsafe {
            let code = ffi::MPI_Test(&mut first.request, &mut flag, status.as_mut_ptr());
            (code, status.assume_init())
        };
        check("MPI_Test", code)?;
        if flag == 0 {
            break;
        }
        let bytes = first.bytes;
        if kind == Kind::Receive {
            let actual = count(&status)?;
            if actual != bytes {
                let reason = format!("a piece of {actual} bytes came instead of one of {bytes}");
                return Err(LibraryError { call: "MPI_Test", reason });
            }
        }
        pending.pop_front();
        done.pieces += 1;
        done.bytes += bytes;
    }
    Ok(done)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    Receive,
}

/// What has been completed since the look before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) pieces: u64,
    pub(super) bytes: usize,
}

/// Bytes on their way to another rank, in pieces.
pub(super) struct Outbound {
    payload: Payload,
    len: usize,
    channel: Channel,
    mode: Mode,
    piece: usize,
    posted: usize,
    pending: VecDeque<Pending>,
}

impl Outbound {
    /// To be sent in pieces of `piece` bytes.
    pub(super) fn new(payload: Payload, channel: Channel, piece: usize) -> Self {
        let (len, pending) = (payload.len(), VecDeque::new());
        Self { payload, len, channel, mode: Mode::Standard, piece, posted: 0, pending }
    }

    /// One message, sent at once.
    pub(super) fn whole(
        library: &Library,
        payload: Payload,
        channel: Channel,
        mode: Mode,
    ) -> Result<Self, LibraryError> {
        let piece = payload.len();
        let mut outbound = Self::new(payload, channel, piece);
        outbound.mode = mode;
        outbound.post(library, piece)?;
        Ok(outbound)
    }

    fn post(&mut self, library: &Library, bytes: usize) -> Result<(), LibraryError> {
        let Channel { stream, peer, tag } = self.channel;
        let range = self.posted..self.posted + bytes;
        let joined = match within_one_part(&self.payload, range.clone()) {
            Some(_) => None,
            None => Some(joined(&self.payload, range.clone())),
        };
        let piece = joined.as_deref().or_else(|| within_one_part(&self.payload, range));
        let piece = piece.unwrap_or_default();
        let data = piece.as_ptr().cast();
        let length = c_int::try_from(piece.len()).unwrap_or(c_int::MAX);
        let (peer, tag) = (peer.0 as c_int, tag as c_int);
        // SAFETY: `data` points to `length` bytes, either borrowed from a shared source, whose
        // `Arc` `payload` holds, or of `joined`, a vector that never grows. Nobody can free or change
        // the bytes while that `Arc` or that vector lives; both are kept as long as `pending` holds the
        // request, and leaked if it is dropped before. Handles are MPI's constants, a live communicator
        // and a request that the call writes.
        let (code, request) = unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            let communicator = library.raw(stream);
            let send = match self.mode {
                Mode::Standard => ffi::MPI_Isend,
                Mode::Synchronous => ffi::MPI_Issend,
            };
            let kind = ffi::RSMPI_UINT8_T;
            (send(data, length, kind, peer, tag, communicator, &mut request), request)
        };
        check("MPI_Isend", code)?;
        self.pending.push_back(Pending { request, bytes, joined });
        self.posted += bytes;
        Ok(())
    }

    /// Sends further pieces while the window has room and says what has been completed.
    pub(super) fn progress(&mut self, library: &Library) -> Result<Done, LibraryError> {
        let done = completed(&mut self.pending, Kind::Send)?;
        while !self.is_posted() && self.pending.len() < WINDOW {
            self.post(library, self.piece.min(self.len - self.posted))?;
        }
        Ok(done)
    }

    /// Whether every piece has been handed to MPI.
    pub(super) fn is_posted(&self) -> bool {
        self.posted == self.len
    }

    /// Whether MPI is done with the buffer.
    pub(super) fn is_done(&self) -> bool {
        self.is_posted() && self.pending.is_empty()
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        if !self.pending.is_empty() {
            std::mem::forget(std::mem::take(&mut self.payload));
            std::mem::forget(std::mem::take(&mut self.pending));
        }
    }
}

/// The bytes of `range`, if they lie in one part.
fn within_one_part(payload: &Payload, range: Range<usize>) -> Option<&[u8]> {
    let mut start = 0;
    payload.parts().find_map(|part| {
        let inside = range.start.checked_sub(start).zip(range.end.checked_sub(start));
        start += part.len();
        inside.and_then(|(first, end)| part.get(first..end))
    })
}

/// The bytes of `range`, copied.
fn joined(payload: &Payload, range: Range<usize>) -> Vec<u8> {
    let (mut start, mut bytes) = (0, Vec::with_capacity(range.len()));
    for part in payload.parts() {
        let clip = |at: usize| at.saturating_sub(start).min(part.len());
        bytes.extend_from_slice(&part[clip(range.start)..clip(range.end)]);
        start += part.len();
    }
    bytes
}

/// A message that has come and is to be received.
pub(super) struct Arrival {
    message: ffi::MPI_Message,
    pub(super) from: Rank,
    pub(super) tag: u32,
    len: usize,
}

impl Arrival {
    /// Starts to receive it (MPI_Imrecv).
    pub(super) fn receive(mut self) -> Result<Inbound, LibraryError> {
        let channel = Channel { stream: Stream::Envelopes, peer: self.from, tag: self.tag };
        let mut inbound = Inbound::new(Vec::with_capacity(self.len), self.len, channel, self.len);
        let data = inbound.buffer.as_mut_ptr().cast();
        let length = c_int::try_from(self.len).unwrap_or(c_int::MAX);
        // SAFETY: `data` points to `length` writable bytes of the vector's spare capacity, which is
        // neither read nor freed nor moved while `pending` holds the request: dropping leaks it. The
        // message is one that MPI_Improbe gave out, used once: `self` is consumed.
        let (code, request) = unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            let kind = ffi::RSMPI_UINT8_T;
            (ffi::MPI_Imrecv(data, length, kind, &mut self.message, &mut request), request)
        };
        check("MPI_Imrecv", code)?;
        inbound.pending.push_back(Pending { request, bytes: self.len, joined: None });
        inbound.posted = self.len;
        Ok(inbound)
    }
}

/// Bytes on their way from another rank, in pieces.
pub(super) struct Inbound {
    /// Its length is the number of bytes that have arrived, its capacity at least `len`.
    buffer: Vec<u8>,
    len: usize,
    channel: Channel,
    piece: usize,
    posted: usize,
    pending: VecDeque<Pending>,
}

impl Inbound {
    /// `len` bytes to be received in pieces of `piece` bytes into `buffer`, which is empty and has
    /// the capacity for them.
    pub(super) fn new(buffer: Vec<u8>, len: usize, channel: Channel, piece: usize) -> Self {
        assert!(buffer.is_empty() && buffer.capacity() >= len, "a buffer without room");
        Self { buffer, len, channel, piece, posted: 0, pending: VecDeque::new() }
    }

    /// Posts receives of further pieces while the window has room and says what has arrived.
    pub(super) fn progress(&mut self, library: &Library) -> Result<Done, LibraryError> {
        let done = completed(&mut self.pending, Kind::Receive)?;
        // SAFETY: the pieces complete in order, each with exactly its bytes (`completed` checks
        // it), so MPI has written the `done.bytes` bytes after the present length, within `len`.
        unsafe { self.buffer.set_len(self.buffer.len() + done.bytes) };
        while !self.is_posted() && self.pending.len() < WINDOW {
            self.post(library)?;
        }
        Ok(done)
    }

    fn post(&mut self, library: &Library) -> Result<(), LibraryError> {
        let Channel { stream, peer, tag } = self.channel;
        let bytes = self.piece.min(self.len - self.posted);
        let length = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        let (peer, tag) = (peer.0 as c_int, tag as c_int);
        // SAFETY: `posted + bytes <= len <= capacity`, so `data` points to `length` writable bytes of
        // the vector's spare capacity, disjoint from those of other requests and neither read nor freed nor moved (the vector never grows
        // beyond its capacity) while `pending` holds the request: dropping leaks it. Handles are
        // MPI's constants, a live communicator and a request that the call writes.
        let (code, request) = unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            let (kind, communicator) = (ffi::RSMPI_UINT8_T, library.raw(stream));
            let data = self.buffer.as_mut_ptr().add(self.posted).cast();
            let code = ffi::MPI_Irecv(data, length, kind, peer, tag, communicator, &mut request);
            (code, request)
        };
        check("MPI_Irecv", code)?;
        self.pending.push_back(Pending { request, bytes, joined: None });
        self.posted += bytes;
        Ok(())
    }

    /// Whether a receive of every piece has been posted.
    pub(super) fn is_posted(&self) -> bool {
        self.posted == self.len
    }

    /// Whether everything has arrived.
    pub(super) fn is_done(&self) -> bool {
        self.is_posted() && self.pending.is_empty()
    }

    /// What has arrived so far.
    pub(super) fn arrived(&self) -> &[u8] {
        &self.buffer
    }

    /// What has arrived, once all has.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        if self.is_done() { std::mem::take(&mut self.buffer) } else { Vec::new() }
    }
}

impl Drop for Inbound {
    fn drop(&mut self) {
        if !self.pending.is_empty() {
            std::mem::forget(std::mem::take(&mut self.buffer));
        }
    }
}
