//! The machine that a run is on: its name, its cores, and the time and memory of this process.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The machine's name.
pub(crate) fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Cores that this process may use, at least 1.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Processor time that all threads of this process have used so far.
pub(crate) fn process_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // The clock counts up from the process's start: neither part is negative.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Bytes of memory that programs can still have on this machine; `None` where the system does not tell.
pub(crate) fn available_memory_bytes() -> Option<u64> {
    kib_of("/proc/meminfo", "MemAvailable:")
}

/// Most bytes of memory that this process has had resident so far; `None` where the system does not
/// tell.
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    kib_of("/proc/self/status", "VmHWM:")
}

/// The bytes of a line `NAME 123 kB`.
fn kib_of(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
