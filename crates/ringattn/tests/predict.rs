//! Predictions through the public interface.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ringattn::core::{AttentionShape, DType, Mask, Rank};
use ringattn::model::{Flow, Listener, Model, TokenScore};
use ringattn::plan::{Conditions, LayoutKind, MACHINES, WaitCause};
use ringattn::predict::{
    Details, LayerMask, ModelOutline, NamedOrMeasured, PlanRequest, PredictError, predict,
    predicted_timeline,
};
use ringattn::{Error, ErrorKind, GenerateInput, RunOptions, generate};
use std::path::Path;

fn request() -> PlanRequest {
    let named = MACHINES[2];
    let (name, source) = (Some(named.name.to_owned()), named.source.to_owned());
    let simulation =
        Conditions { slow_ranks: vec![(Rank(1), 2.0)], ..Conditions::of(named.machine) };
    PlanRequest {
        shape: AttentionShape::new(8, 2, 64).unwrap(),
        kv_dtype: DType::Bf16,
        masks: vec![LayerMask { mask: Mask::Causal, layers: 3 }],
        tokens: 5000,
        ranks: 4,
        layouts: vec![(LayoutKind::Zigzag, None)],
        machine: NamedOrMeasured { name, source, machine: named.machine },
        model: None,
        details: Details { simulation: Some(simulation), ..Details::default() },
    }
}

/// The timeline that is drawn and the sums that are printed are of one simulation.
#[test]
fn the_timeline_adds_up_to_the_simulation() {
    let request = request();
    let timeline = predicted_timeline(&request).unwrap();
    timeline.check().unwrap();
    let summary = timeline.summary();
    let report = predict(&request).unwrap();
    let simulated = &report.simulation.unwrap()[0];
    assert_eq!(summary.end.seconds(), simulated.end_s);
    for (rank, total) in summary.totals.iter().enumerate() {
        assert_eq!(total.attend.seconds(), simulated.compute_s[rank]);
        assert_eq!(total.transfer_wait.seconds(), simulated.transfer_wait_s[rank]);
        assert_eq!(total.peer_wait.seconds(), simulated.peer_wait_s[rank]);
    }
    // Over 1 Gbit/s this little computing hides no hop.
    assert!(summary.waits().iter().any(|edge| edge.cause == WaitCause::Transfer));
}

struct Silent;

impl Listener for Silent {
    fn token(&self, _: TokenScore) -> Flow {
        Flow::Continue
    }
}

/// What a step of decoding is said to move by the tree is what it then moves.
#[test]
fn a_decoding_step_counts_what_was_predicted() {
    for name in ["tiny-llama3", "tiny-mistral"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
        let model = Model::open(&path).unwrap();
        let outline = ModelOutline::read(&path).unwrap();
        for ranks in [1, 2, 3, 5, 8] {
            // The second token is the one step.
            let input = GenerateInput::new((0..130).collect(), 2);
            let options = RunOptions { threads: Some(1), ..RunOptions::new(ranks) };
            let (_, report) = generate(&model, &input, &options, &Silent).unwrap().unwrap();
            let measured = report.result.decode;
            let request = PlanRequest {
                shape: model.config.attention,
                kv_dtype: DType::F32,
                masks: outline.masks(),
                tokens: 130,
                ranks,
                layouts: vec![(LayoutKind::Striped, None)],
                details: Details { decode: true, ..Details::default() },
                ..request()
            };
            let decode = predict(&request).unwrap().decode.unwrap();
            let schedules: Vec<_> = decode.iter().map(|step| step.schedule.as_str()).collect();
            assert_eq!(schedules, ["tree-reduce", "tree", "ring-pass-kv", "gather"]);
            let tree = &decode[0];
            assert_eq!(tree.schedule, measured.schedule);
            let most = |counts: &[f64]| counts.iter().copied().fold(0.0, f64::max);
            assert_eq!(measured.steps, 1);
            assert_eq!(tree.rounds_per_layer, measured.rounds_per_layer, "{name} p={ranks}");
            assert_eq!(tree.hops as f64, most(&measured.messages_per_token));
            assert_eq!(tree.received_bytes as f64, most(&measured.received_bytes_per_token));
            let moved: f64 = measured.received_bytes_per_token.iter().sum();
            assert_eq!(tree.moved_bytes as f64, moved, "{name} p={ranks}");
        }
    }
}

#[test]
fn what_cannot_be_predicted_is_refused() {
    let refused = |request: PlanRequest| predict(&request).unwrap_err();
    let none = refused(PlanRequest { layouts: Vec::new(), ..request() });
    assert!(matches!(none, Error::Predict(PredictError::NoLayout)), "{none}");
    let many = refused(PlanRequest { ranks: 1025, ..request() });
    assert!(matches!(many, Error::Predict(PredictError::Ranks { limit: 1024, .. })), "{many}");
    let mut still = request();
    still.machine.machine.bandwidth = 0.0;
    assert_eq!(refused(still).kind(), ErrorKind::Usage);
    let no_layer = PlanRequest { masks: Vec::new(), ..request() };
    assert!(predict(&no_layer).is_err() && predicted_timeline(&no_layer).is_err());
}
