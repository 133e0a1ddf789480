//! The forward kernel: one block of keys and values is folded into the online-softmax state of some
//! query rows, on the vector units of one host.
//!
//! Per query row with logits `s_j = scale * log2(e) * q.k_j` over the slots that the row sees:
//! `m' = max(m, max_j s_j)`, `z' = z 2^(m - m') + sum_j 2^(s_j - m')`, the same for `y` with values.
//!
//! The kernel sees intervals of slots and nothing else. It knows no mask, position, layout, rank,
//! plan or transport. Its sums are ordered by slots alone, so the same inputs give the same bits for
//! any number of threads on one instruction set.

mod absorb;
mod careful;
mod clock;
mod decode;
pub mod dense;
mod dot;
mod finite;
mod geometry;
mod isa;
mod kernel;
pub mod limits;
mod lines;
mod output;
mod pack;
mod pages;
pub mod pointwise;
mod prefetch;
mod problem;
mod quantised;
mod rows;
mod softmax;
mod staged;
mod state;
mod team;
mod tile;
mod tiles;
mod turn;
mod unit;
mod workspace;

pub use clock::{BusyTime, thread_cpu_time};
pub use finite::non_finite;
pub use isa::Isa;
pub use kernel::Kernel;
pub use output::OutputRows;
pub use pages::on_large_pages;
pub use problem::{KernelError, KeysValues, Problem, Work};
pub use rows::{Arrangement, Rows};
pub use state::StateMut;
pub use team::{Pinning, Team, TeamError};
pub use tiles::{TileVisit, tile_visits};
pub use workspace::{KEY_TILE, QUERY_TILE};
