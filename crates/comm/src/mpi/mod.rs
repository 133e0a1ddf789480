//! The MPI communicator: ranks are processes, started by `mpirun`, `mpiexec` or `srun`.
//!
//! ```text
//! rank's main thread ── MpiCommunicator ──► Desk ◄── link thread ──► MPI ──► other processes
//!   waits, converts                        (locks)   polls, sends, receives, tells and hears notices
//! ```
//!
//! **To build it**, the feature `mpi` needs an MPI library with its compiler wrapper `mpicc` (Debian,
//! Ubuntu: `libopenmpi-dev openmpi-bin`; or `MPICC` set to the wrapper's path) and libclang
//! (`libclang-dev clang`; or `LIBCLANG_PATH`). Where one is missing, the build script of `mpi-sys`
//! fails: with "This process has failed to find an MPI library", or "Unable to find libclang". The
//! kind of MPI is fixed by the build.
//!
//! One *link thread* per process makes every call of the MPI library (`library.rs` is the only file
//! with `unsafe`), so FUNNELED thread support is enough. It polls with short sleeps, because common
//! builds of MPI make no progress between calls: that is what hides transfers behind compute.
//!
//! - **A message** is an envelope, sent in synchronous mode (MPI_Issend), and its payload in pieces
//!   (so longer than MPI's 2^31 bytes), which follows on a second communicator. The receiver takes
//!   an envelope only when a receive for it has been posted (MPI_Improbe), so nothing is cancelled
//!   inside MPI. Envelope and payload carry checksums.
//! - **Deadlines**: the link threads tell each other how their ranks stand (notices), about
//!   four times a second, and each writes what it hears into its own `World` of standings, where
//!   the waits of all communicators look. Each piece of a payload counts as progress of both ranks.
//! - **Failure**: a cause travels with the notices. When a run has failed, the ranks let each other
//!   know their first cause and take the weightiest, so that all name the same, and one of them tells
//!   the user, once the others have left it to that one. A panic is told to the peers before its hook
//!   reports it. How long a peer is silent is counted in the time in which this process listened: one
//!   that was stopped reads what was told to it before it judges or speaks.
//! - A message to the rank itself never becomes bytes: it takes the local communicator's way.
//!
//! A rank between two runs (before the first it may load a model for minutes) counts as moving
//! while its link thread lives.

mod clock;
mod communicator;
mod desk;
mod election;
mod landing;
mod last_words;
mod library;
mod link;
mod options;
mod outbox;
mod peers;
mod process;
mod transfer;
mod verdict;
mod wire;

pub use communicator::{MpiCommunicator, MpiReceive};
pub use library::LibraryError;
#[cfg(feature = "fault-injection")]
pub use options::Fault;
pub use options::Options;
pub use process::{StartError, World};
