//! Tiny models over rings of every size and layout, against Hugging Face transformers in float64.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use ringattn::RunOptions;
use ringattn::model::Model;
use ringattn::plan::LayoutKind;
use std::path::PathBuf;

const LAYOUTS: [(LayoutKind, Option<u64>); 5] = [
    (LayoutKind::Contiguous, None),
    (LayoutKind::Striped, None),
    (LayoutKind::Striped, Some(16)),
    (LayoutKind::Zigzag, None),
    (LayoutKind::Zigzag, Some(7)),
];

/// f32 against float64 through three layers of random weights.
const TOLERANCE: f64 = 5e-5;

fn check(name: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    let model = Model::open(&folder).unwrap();
    let text = std::fs::read_to_string(folder.join("reference.json")).unwrap();
    let reference: serde_json::Value = serde_json::from_str(&text).unwrap();
    let numbers = |key: &str| reference[key].as_array().unwrap().iter();
    let tokens: Vec<u32> = numbers("tokens").map(|t| t.as_u64().unwrap() as u32).collect();
    let expected: Vec<f64> = numbers("next_token_logprob").map(|x| x.as_f64().unwrap()).collect();
    for ranks in 1..=5 {
        for (layout, block) in LAYOUTS {
            let options = RunOptions { layout, block, ..RunOptions::new(ranks) };
            let (output, report) = ringattn::score(&model, &tokens, &options).unwrap().unwrap();
            assert_eq!(output.scores.len(), tokens.len() - 1);
            for (index, (score, &expected)) in output.scores.iter().zip(&expected).enumerate() {
                let error = (score.logprob - expected).abs();
                assert!(error < TOLERANCE, "{name} p={ranks} {layout} token {index}: {error:e}");
            }
            assert!(report.law.holds);
        }
    }
}

#[test]
fn tiny_llama3() {
    check("tiny-llama3");
}

#[test]
fn tiny_mistral() {
    check("tiny-mistral");
}

#[test]
fn tiny_qwen3() {
    check("tiny-qwen3");
}

#[test]
fn threads_change_no_bit() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tiny-qwen3");
    let model = Model::open(&folder).unwrap();
    let tokens: Vec<u32> = (0..777).map(|i| i * 37 % 256).collect();
    for ranks in [1, 3] {
        let scores = |threads| {
            let options = RunOptions { threads: Some(threads), ..RunOptions::new(ranks) };
            ringattn::score(&model, &tokens, &options).unwrap().unwrap().0.scores
        };
        let one = scores(1);
        assert!([2, 3, 1].iter().all(|&threads| scores(threads) == one), "p = {ranks}");
    }
}
