//! How long a job may take. Shared with the tests of the command under `mpirun`.

use std::thread;
use std::time::{Duration, Instant};

/// How often a job is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// A time limit in looks that came in time. Where a pause of 5 ms takes 50, because the machine is crowded or
/// stood still, the job's processes get their turns no sooner, and that is no fault of theirs.
pub(crate) struct Limit {
    left: Duration,
    looked: Instant,
}

impl Limit {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { left: limit, looked: Instant::now() }
    }

    /// Pauses until the next look; whether the limit is over.
    pub(crate) fn pause(&mut self) -> bool {
        thread::sleep(LOOK);
        self.left = self.left.saturating_sub(self.looked.elapsed().min(2 * LOOK));
        self.looked = Instant::now();
        self.left.is_zero()
    }
}
