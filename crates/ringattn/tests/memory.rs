//! A caller's vectors are read in place, and the output is written where it is returned. The only test
//! of its process, whose memory it watches.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use ringattn::core::Mask;
use ringattn::{AttendInput, RunOptions, Tensor, attend};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SHAPE: (usize, usize, usize) = (8, 8192, 64);

/// Bytes of anonymous memory of this process.
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() * 1024
}

/// Numbers between -1 and 1 that `seed` decides.
fn tensor(seed: u32) -> Tensor {
    let (heads, tokens, head_dim) = SHAPE;
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let values: Vec<f32> = (0..heads * tokens * head_dim).map(|_| next()).collect();
    Tensor::new(values, SHAPE).unwrap()
}

#[test]
fn inputs_and_outputs_exist_once() {
    let input = AttendInput {
        queries: tensor(1),
        keys: tensor(2),
        values: tensor(3),
        mask: Mask::Causal,
        positions: None,
        softmax_scale: None,
        kv_dtype: None,
    };
    let elements = (SHAPE.0 * SHAPE.1 * SHAPE.2) as u64;
    let (inputs, outputs) = (3 * 4 * elements, 4 * (elements + elements / SHAPE.2 as u64));
    let before = anonymous();
    assert!(before >= inputs);
    let ended = AtomicBool::new(false);
    let (result, peak) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut peak = 0;
            while !ended.load(Ordering::Relaxed) {
                peak = peak.max(anonymous());
                std::thread::sleep(Duration::from_millis(1));
            }
            peak
        });
        let mut options = RunOptions::new(4);
        options.threads = Some(1);
        let result = attend(&input, &options);
        ended.store(true, Ordering::Relaxed);
        (result, watch.join().unwrap())
    });
    let (output, report) = result.unwrap().unwrap();
    assert_eq!(output.out.len() as u64, elements);
    assert_eq!(report.unique_kv_bytes, inputs / 3 * 2);
    let added = peak - before;
    // Beside the outputs there are about 3 MB of tiles for each of the four ranks.
    let limit = outputs + inputs / 2;
    assert!(
        outputs <= added && added <= limit,
        "{added} bytes, at least {outputs}, at most {limit}"
    );
}
