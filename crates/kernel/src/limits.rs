//! What the machine can do at best, measured: the roofs that kernel speeds are compared with.
//!
//! Speeds only make sense beside a limit taken in the same minute on the same machine.

use crate::pages::ask_for_large_pages;
use crate::{Isa, thread_cpu_time};
use pulp::{Simd, WithSimd};
use rayon::ThreadPoolBuilder;
use ringattn_core::{OutOfMemory, try_reserved};
use std::fs::read_to_string;
use std::hint::black_box;
use std::time::Instant;

/// Floating-point operations per second of independent fused multiply-adds in registers on one core
/// under `isa`; 0 when this processor lacks it.
///
/// Takes the best of many windows of a fraction of a millisecond, about 50 ms in all, so that other
/// work on the machine hardly shows.
pub fn fma_peak(isa: Isa) -> f64 {
    const WINDOWS: usize = 200;
    let mut best: f64 = 0.0;
    for _ in 0..WINDOWS {
        let start = Instant::now();
        let Some(operations) = isa.run(Multiplications { steps: 8192 }) else { return 0.0 };
        best = best.max(operations / start.elapsed().as_secs_f64().max(1e-9));
    }
    best
}

/// A loop of nothing but multiply-adds.
struct Multiplications {
    steps: usize,
}

impl WithSimd for Multiplications {
    /// Floating-point operations done.
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        // Latency 4 times two units: 12 chains fill the units, and fit 16 registers.
        const CHAINS: usize = 12;
        // The compiler must not know that chains start alike, or it merges them into one.
        let mut sums = [simd.splat_f32s(0.0); CHAINS];
        for sum in &mut sums {
            *sum = simd.splat_f32s(black_box(1.0));
        }
        let (factor, term) = (simd.splat_f32s(black_box(0.5)), simd.splat_f32s(black_box(0.25)));
        for _ in 0..self.steps {
            for sum in &mut sums {
                *sum = simd.mul_add_e_f32s(*sum, factor, term);
            }
        }
        for sum in sums {
            black_box(simd.reduce_sum_f32s(sum));
        }
        (2 * CHAINS * S::F32_LANES * self.steps) as f64
    }
}

/// Bytes per second that `threads` threads together read from main memory under `isa`, each its own
/// part of a buffer that no cache holds; 0 when this processor lacks `isa` or the threads cannot be
/// started. At least one thread reads.
///
/// The best of several sweeps of a plain sum, 0.2 s in all; a sweep lasts as long as its slowest
/// thread, on that thread's own clock, so that other work on the machine shows less. The pages are
/// large where the system gives them, as those of a cache's keys and values are.
///
/// # Errors
/// When the buffer, at least 256 MiB, cannot be had.
pub fn read_bandwidth(isa: Isa, threads: usize) -> Result<f64, OutOfMemory> {
    const SWEEPS: usize = 8;
    let threads = threads.max(1);
    let Ok(pool) = ThreadPoolBuilder::new().num_threads(threads).build() else { return Ok(0.0) };
    let len = beyond_caches(threads) / size_of::<f32>() / threads;
    // Filled by its reader: where memory has a place, it lies beside the reader's core.
    let parts: Vec<Vec<f32>> = (pool.broadcast(|_| on_large_pages(len)).into_iter())
        .collect::<Result<_, OutOfMemory>>()?;
    let bytes = (threads * len * size_of::<f32>()) as f64;
    let mut best: f64 = 0.0;
    for _ in 0..SWEEPS {
        let seconds = pool.broadcast(|context| {
            let start = thread_cpu_time();
            black_box(isa.run(Sweep { values: &parts[context.index()] })?);
            Some((thread_cpu_time() - start).as_secs_f64())
        });
        let slowest = seconds.into_iter().try_fold(1e-9, |slowest, s| Some(f64::max(slowest, s?)));
        let Some(slowest) = slowest else { return Ok(0.0) };
        best = best.max(bytes / slowest);
    }
    Ok(best)
}

/// `len` ones.
fn on_large_pages(len: usize) -> Result<Vec<f32>, OutOfMemory> {
    let mut values = try_reserved(len)?;
    ask_for_large_pages(&mut values);
    values.resize(len, 1.0);
    Ok(values)
}

/// Bytes of which the last caches of `threads` cores hold a quarter at most; at least 256 MiB.
fn beyond_caches(threads: usize) -> usize {
    const LEAST: usize = 256 << 20;
    LEAST.max(last_caches(threads).saturating_mul(4))
}

/// Bytes of the last caches that so many threads fill at least; 0 where the system tells none.
pub fn last_caches(threads: usize) -> usize {
    let (bytes, sharers) = (0..8).filter_map(cache).max().unwrap_or_default();
    bytes.saturating_mul(threads.div_ceil(sharers.max(1)))
}

/// Bytes of the first core's cache `index`, and how many cores share it, as Linux tells them.
fn cache(index: usize) -> Option<(usize, usize)> {
    let read = |name: &str| {
        read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}")).ok()
    };
    let kibibytes: usize = read("size")?.trim().strip_suffix('K')?.parse().ok()?;
    Some((kibibytes.checked_mul(1024)?, sharers(&read("shared_cpu_map")?)))
}

/// Processors in a map of them, hexadecimal digits in groups.
fn sharers(map: &str) -> usize {
    map.chars().filter_map(|digit| digit.to_digit(16)).map(|bits| bits.count_ones() as usize).sum()
}

/// One pass of sums over both halves of `values` at once: like keys and values, two streams, of which
/// one crosses into a new page while the other keeps the memory busy (a single one is slower).
struct Sweep<'a> {
    values: &'a [f32],
}

impl WithSimd for Sweep<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        const CHAINS: usize = 4;
        let mut sums = [simd.splat_f32s(0.0); 2 * CHAINS];
        let (first, second) = self.values.split_at(self.values.len() / 2);
        let (first, second) = (S::as_simd_f32s(first).0, S::as_simd_f32s(second).0);
        for (first, second) in first.as_chunks::<CHAINS>().0.iter().zip(second.as_chunks().0) {
            let lines: [&[_; CHAINS]; 2] = [first, second];
            for (sum, &values) in sums.iter_mut().zip(lines.into_iter().flatten()) {
                *sum = simd.add_f32s(*sum, values);
            }
        }
        sums.into_iter().map(|sum| simd.reduce_sum_f32s(sum)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_no_slower_than_scalars() {
        let peaks: Vec<f64> = Isa::available().into_iter().map(fma_peak).collect();
        assert!(peaks.iter().all(|&peak| peak > 1e6), "{peaks:?}");
        assert!(peaks[0] >= peaks[peaks.len() - 1] * 0.8, "{peaks:?}");
    }

    #[test]
    fn reading_takes_as_long_as_memory_does() {
        for isa in Isa::available() {
            for threads in [1, 2] {
                // From a slow board to a core that would stream from its first cache.
                let bandwidth = read_bandwidth(isa, threads).unwrap();
                assert!(bandwidth > 1e8 && bandwidth < 4e11, "{isa} {threads} {bandwidth:e}");
            }
        }
    }

    #[test]
    fn the_buffer_grows_with_the_caches_of_the_threads() {
        assert!(beyond_caches(1) >= 256 << 20);
        assert!(beyond_caches(4096) >= beyond_caches(1));
        assert!(last_caches(1) <= last_caches(4096));
        assert_eq!((sharers("00000000,0000ff03\n"), sharers("3"), sharers("\n")), (10, 2, 0));
        assert!((0..8).filter_map(cache).all(|(bytes, cores)| bytes >= 1024 && cores >= 1));
    }

    #[test]
    fn what_cannot_run_has_no_bandwidth() {
        let foreign = if cfg!(target_arch = "aarch64") { Isa::Avx2 } else { Isa::Neon };
        assert_eq!(read_bandwidth(foreign, 1), Ok(0.0));
        assert!(read_bandwidth(Isa::detect(), 0).unwrap() > 0.0);
    }
}
