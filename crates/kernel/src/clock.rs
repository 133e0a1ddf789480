//! Processor time of the calling thread, which other load on the machine does not stretch.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Processor time that the calling thread has used.
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The clock counts up from the thread's start: neither part is negative.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Processor time that several threads spent on one kind of work.
#[derive(Debug, Default)]
pub struct BusyTime(AtomicU64);

impl BusyTime {
    /// Runs `body` and adds the processor time that the calling thread used for it.
    pub fn measure<T>(&self, body: impl FnOnce() -> T) -> T {
        let start = thread_cpu_time();
        let result = body();
        let nanos = (thread_cpu_time() - start).as_nanos() as u64;
        self.0.fetch_add(nanos, Ordering::Relaxed);
        result
    }

    /// The sum so far.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}
