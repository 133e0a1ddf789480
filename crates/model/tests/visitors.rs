//! What is known before a generation of what ranks hold of each other, against what they then held.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ringattn_comm::{Communicator, local};
use ringattn_core::DType;
use ringattn_engine::cpu::{Affinity, Device};
use ringattn_engine::{NonFinite, Overlap};
use ringattn_model::{
    Counted, Decoder, DecoderJob, DensePlacement, Model, Placement, Visitors, Wanted, visitors,
};
use ringattn_plan::{Expectation, Layout, LayoutKind};
use std::path::Path;

const ROOT: DensePlacement = DensePlacement::Root { threads: 1 };

const WAYS: [(LayoutKind, Overlap, DensePlacement); 4] = [
    (LayoutKind::Contiguous, Overlap::On, DensePlacement::Repeated),
    (LayoutKind::Striped, Overlap::Off, DensePlacement::Repeated),
    (LayoutKind::Striped, Overlap::On, ROOT),
    (LayoutKind::Zigzag, Overlap::On, ROOT),
];

/// What this rank counts of each piece of a prompt, one behind the other.
fn counts<C: Communicator>(
    model: &Model,
    (kind, overlap, dense): (LayoutKind, Overlap, DensePlacement),
    pieces: &[u64],
    comm: &C,
) -> Vec<Counted> {
    let job = DecoderJob {
        model,
        device: Device { isa: model.isa(), threads: 1, affinity: Affinity::Free },
        dense,
        non_finite: NonFinite::Refuse,
        overlap,
        recorder: None,
        layer_done: &|_| (),
    };
    let mut decoder = Decoder::new(job, DType::F32, comm).unwrap();
    let mut extend = |&len: &u64| {
        let tokens: Vec<_> = (0..len as u32).map(|i| (i * 37 + i * i) % 256).collect();
        decoder.extend(&tokens, Placement::Prompt(kind, None), Wanted::Nothing).unwrap();
        decoder.take_counted()
    };
    pieces.iter().map(&mut extend).collect()
}

/// The most of each kind in any of the pieces. Layers are alike, and what visits one is gone in the next.
fn most(pieces: &[Counted], layers: u64) -> Visitors {
    let most = |count: &dyn Fn(&Expectation) -> u64| {
        pieces.iter().map(|piece| count(&piece.measured.counts)).max().unwrap()
    };
    Visitors {
        kv_bytes: most(&|counts| (counts.peak_kv_bytes - counts.resident_kv_bytes) / layers),
        query_bytes: most(&|counts| counts.peak_query_bytes),
        state_bytes: most(&|counts| counts.peak_state_bytes),
    }
}

#[test]
fn what_visits_is_known_before() {
    // Keys and values go round first; then queries do, a few tokens meet in the tree, and one.
    let prompts: [&[u64]; 5] = [&[1], &[9], &[130], &[150, 40, 7, 1], &[60, 60, 60]];
    for name in ["tiny-llama3", "tiny-mistral"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
        let model = Model::open(&folder).unwrap();
        let layers = model.config.layers as u64;
        let mut of_any = [0; 3];
        for (pieces, ranks) in prompts.iter().flat_map(|pieces| (1..=5).map(move |p| (pieces, p))) {
            for way @ (kind, _, dense) in WAYS {
                let (empty, dealt) = (Layout::empty(ranks).unwrap(), (kind, None));
                let lengths = pieces.iter().copied();
                let known =
                    visitors(&model.config, DType::F32, empty, (dealt, dense), lengths).unwrap();
                let work = |comm| Ok::<_, String>(counts(&model, way, pieces, &comm));
                let counted = local::run(ranks, local::DEFAULT_TIMEOUT, work).unwrap();
                for (known, counted) in known.iter().zip(&counted) {
                    let measured = most(counted, layers);
                    assert_eq!(*known, measured, "{name}: {pieces:?} over {ranks}, {kind}");
                    let Visitors { kv_bytes, query_bytes, state_bytes } = measured;
                    let bytes = [kv_bytes, query_bytes, state_bytes];
                    of_any = std::array::from_fn(|of| bytes[of].max(of_any[of]));
                }
            }
        }
        assert!(of_any.iter().all(|&bytes| bytes > 0), "{name}: {of_any:?}");
    }
}
