//! Drafted tokens: verified in one extension, taken back, and no trace of them in what follows.
//!
//! Two ways to the same numbers give the same bits where every token lies on the same rank and its
//! attention takes the same path of the kernel (up to 8 query rows of up to 64 queries a key head); else they
//! differ by rounding.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "its main is for the command line")]
#[path = "../examples/prompt_lookup.rs"]
mod prompt_lookup;
mod support;

use ringattn::model::{
    CacheContents, DensePlacement, GenerateError, Placement, StoredCache, Wanted, save_rank,
};
use ringattn::plan::{Layout, LayoutKind};
use support::decoding::{Ring, Step, assert_close, model, prompt, same_places};

/// Two that see everything and one with a window of 96.
const MODELS: [&str; 3] = ["tiny-llama3", "tiny-qwen3", "tiny-mistral"];
const LAYOUTS: [(LayoutKind, Option<u64>); 4] = [
    (LayoutKind::Contiguous, None),
    (LayoutKind::Striped, None),
    (LayoutKind::Striped, Some(2)),
    (LayoutKind::Zigzag, None),
];
/// Tokens of a block of drafts.
const GENERATED: Placement = Placement::Generated(2);

/// So many tokens that differ from those of [`prompt`].
fn drafts(len: u32) -> Vec<u32> {
    (0..len).map(|i| (i * 91 + 50) % 256).collect()
}

fn others(len: u32) -> Vec<u32> {
    (0..len).map(|i| (i * 53 + 7) % 256).collect()
}

fn extend(tokens: &[u32], placement: Placement) -> Step {
    Step::Extend(tokens.to_vec(), placement, Wanted::All)
}

/// After drafts were taken back to every length, other tokens get the logits that they get where there
/// never were any.
#[test]
fn rejected_drafts_leave_no_trace() {
    let (text, drafted, others) = (prompt(9), drafts(6), others(3));
    let (mut equal, mut close) = (0, 0);
    for (index, name) in MODELS.into_iter().enumerate() {
        let model = model(name);
        // Each model on other layouts keeps the table small and every pair of both covered once.
        for (layout, block) in LAYOUTS.into_iter().skip(index) {
            for ranks in 1..=5 {
                let ring = Ring::new(&model, ranks);
                let whole = Placement::Prompt(layout, block);
                for drafts_go in [GENERATED, Placement::Prompt(layout, block)] {
                    for len in 0..=15_u64 {
                        let back = ring.play(&[
                            extend(&text, whole),
                            extend(&drafted, drafts_go),
                            Step::Truncate(len),
                            extend(&others, GENERATED),
                        ]);
                        let kept = (len as usize).min(9);
                        let never = ring.play(&[
                            extend(&text[..kept], whole),
                            extend(&drafted[..len as usize - kept], drafts_go),
                            extend(&others, GENERATED),
                        ]);
                        let what = format!("{name} {layout} p={ranks} {drafts_go:?} cut to {len}");
                        // A prompt in one piece of more than 8 rows takes another path than one of
                        // fewer, and its layout depends on its length.
                        let same = same_places(&back.layout, &never.layout);
                        let (ours, theirs) = (back.last(), never.last());
                        if same && drafts_go == GENERATED && (len == 0 || len >= 9) {
                            assert_eq!(ours, theirs, "{what}");
                            equal += 1;
                        } else {
                            assert_close(&model, ours, theirs, &what);
                            close += 1;
                        }
                    }
                }
            }
        }
    }
    // Every cut behind the prompt was held to the bit: 9 layouts of a model, 5 rings, 8 cuts.
    assert_eq!((equal, close), (9 * 5 * 8, 9 * 5 * 24));
}

/// The logits of `T` drafted tokens in one extension are those of `T` steps.
#[test]
fn verification_gives_the_logits_of_single_steps() {
    let drafted = drafts(70);
    for name in ["tiny-llama3", "tiny-mistral"] {
        let model = model(name);
        for ranks in [1, 2, 3, 5] {
            let ring = Ring::new(&model, ranks);
            // None, fewer than there are ranks, and more than the window shows.
            for len in [0, 1, 100] {
                let text = prompt(len);
                let whole = Placement::Prompt(LayoutKind::Striped, None);
                let start = extend(&text, whole);
                let steps = drafted.iter().map(|&token| extend(&[token], GENERATED));
                let steps: Vec<_> = [start.clone()].into_iter().chain(steps).collect();
                let single = ring.play(&steps).logits;
                let single = single[single.len() - drafted.len()..].concat();
                for count in (1..=8).chain([70]) {
                    let expected = &single[..count * model.config.vocab_size];
                    for placement in [
                        GENERATED,
                        Placement::Prompt(LayoutKind::Striped, None),
                        Placement::Prompt(LayoutKind::Contiguous, None),
                    ] {
                        let drafts = extend(&drafted[..count], placement);
                        let together = ring.play(&[start.clone(), drafts]);
                        let what = format!("{name} p={ranks} {len}+{count} {placement:?}");
                        match placement {
                            Placement::Generated(_) if count <= 8 => {
                                assert_eq!(together.last(), expected, "{what}");
                            }
                            _ => assert_close(&model, together.last(), expected, &what),
                        }
                    }
                }
            }
        }
    }
}

/// With a window of 96, what 100 tokens no longer see is forgotten, but not what a verification may still
/// go back to.
#[test]
fn a_window_is_taken_back_as_far_as_it_was_kept() {
    let model = model("tiny-mistral");
    let (text, drafted, others) = (prompt(100), drafts(6), others(3));
    let whole = Placement::Prompt(LayoutKind::Zigzag, None);
    for ranks in 1..=5 {
        let ring = Ring::new(&model, ranks);
        let last = |tokens: &[u32]| Step::Extend(tokens.to_vec(), GENERATED, Wanted::Last);
        for len in 100..106 {
            let verified =
                [extend(&text, whole), last(&drafted[..1]), extend(&drafted[1..], GENERATED)];
            let back = [Step::Truncate(len.max(101)), extend(&others, GENERATED)];
            let back = ring.play(&[&verified[..], &back].concat());
            let kept = (len.max(101) - 101) as usize;
            let never = [
                extend(&text, whole),
                last(&drafted[..1]),
                extend(&drafted[1..][..kept], GENERATED),
                extend(&others, GENERATED),
            ];
            assert_eq!(back.last(), ring.play(&never).last(), "p={ranks} cut to {len}");
        }
        // After a step that was not to be verified, what only a shorter sequence sees is gone.
        for (tokens, len, refused) in [(101, 100, true), (101, 99, true), (90, 50, false)] {
            let steps =
                [extend(&prompt(tokens - 1), whole), last(&drafted[..1]), Step::Truncate(len)];
            let result = ring.try_play(&steps);
            assert_eq!(result.is_err(), refused, "p={ranks} {tokens} cut to {len}");
            if let Err(error) = result {
                let text = error.to_string();
                let needed = format!("cut to {len} tokens needs those from position {}", len - 95);
                assert!(text.contains(&needed) && text.contains("forgotten"), "{text}");
            }
        }
    }
}

/// An extension that fails on every rank before anything is sent is taken back like drafts.
#[test]
fn a_failed_extension_is_taken_back() {
    let model = model("tiny-llama3");
    let whole = Placement::Prompt(LayoutKind::Striped, None);
    for ranks in 1..=3 {
        let ring = Ring { dense: DensePlacement::Repeated, ..Ring::new(&model, ranks) };
        let plain = [extend(&prompt(9), whole), extend(&others(3), GENERATED)];
        let failing = [
            extend(&prompt(9), whole),
            Step::Fail(vec![1, 2, 999], GENERATED),
            Step::Truncate(9),
            extend(&others(3), GENERATED),
        ];
        assert_eq!(ring.play(&failing).last(), ring.play(&plain).last(), "p={ranks}");
    }
}

/// What is saved after drafts were rejected is what another ring goes on with.
#[test]
fn a_cut_cache_is_saved_and_loaded() {
    let folder = tempfile::tempdir().unwrap();
    for name in MODELS {
        let model = model(name);
        // So long that of what the window no longer shows the most is really gone.
        let text = prompt(300);
        let (kept, rest) = text.split_at(290);
        let whole = Placement::Prompt(LayoutKind::Zigzag, None);
        let path = folder.path().join(name);
        ringattn::model::check_target(&path).unwrap();
        let steps = [extend(kept, whole), extend(&drafts(7), GENERATED), Step::Truncate(290)];
        Ring::new(&model, 3)
            .run(|mut decoder, comm| {
                for step in &steps {
                    step.take(&mut decoder)?;
                }
                let contents = CacheContents { tokens: kept, pending: &[] };
                save_rank(&path, &model, (decoder.cache(), contents), comm).unwrap();
                Ok(())
            })
            .unwrap();
        let stored = StoredCache::open(&path, &model).unwrap();
        let layout = Layout::new(LayoutKind::Striped, None, 290, 2).unwrap();
        let ring = Ring { stored: Some((&stored, &layout)), ..Ring::new(&model, 2) };
        let loaded = ring.play(&[extend(rest, GENERATED)]);
        let plain = Ring::new(&model, 1).play(&[extend(kept, whole), extend(rest, GENERATED)]);
        assert_close(&model, loaded.last(), plain.last(), name);
        let refused = ring.try_play(&[Step::Truncate(250), extend(rest, GENERATED)]);
        match refused {
            Ok(_) => assert_ne!(name, "tiny-mistral"),
            Err(GenerateError::Cache(error)) => {
                assert_eq!(name, "tiny-mistral", "{error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// The example's text is that of plain greedy decoding, in fewer steps where the text repeats itself.
#[test]
fn prompt_lookup_writes_what_greedy_writes() {
    for name in MODELS {
        let model = model(name);
        for ranks in [1, 2, 3, 5] {
            // Begins with a draft that does not hold: what followed 9, 17 before.
            let mut text: Vec<_> =
                prompt(12).into_iter().flat_map(|token| [9, 17, token]).collect();
            text.extend([9, 17]);
            let speculated = prompt_lookup::speculate(&model, (&text, 150), ranks).unwrap();
            let plain = prompt_lookup::greedy(&model, (&text, 150), ranks).unwrap();
            assert_eq!(speculated.tokens, plain, "{name} p={ranks}");
            let (drafted, held) =
                speculated.steps.iter().fold((0, 0), |sum, step| (sum.0 + step.0, sum.1 + step.1));
            // Some of the drafts held and some were taken back, so that both were tried.
            assert!(0 < held && held < drafted, "{name} p={ranks}: {held} of {drafted}");
            assert!(speculated.steps.len() < plain.len());
        }
    }
}
