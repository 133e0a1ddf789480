//! Processor time of the calling thread, which other load on the machine does not stretch.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Processor time that the calling thread has used.
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The clock counts up from the thread's start: neither part is negative.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
