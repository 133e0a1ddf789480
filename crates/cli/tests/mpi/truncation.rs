//! The end of a decoder's sequence taken back over processes: the logits and refusals of threads.
//!
//! No command takes tokens back, so that the ranks of the job are this test program itself, each at
//! [`rank_of_a_job`] with a folder to write to.

use super::job::Job;
use super::support::{Sandbox, fixture};
use super::{SMALL, succeeded};
use ringattn::comm::mpi::{Options, World};
use ringattn::comm::{Communicator, StopSignal, local};
use ringattn::core::DType;
use ringattn::engine::cpu::{Affinity, Device};
use ringattn::engine::{NonFinite, Overlap};
use ringattn::model::{
    Decoder, DecoderJob, DensePlacement, GenerateError, Model, Placement, Wanted,
};
use ringattn::plan::LayoutKind;
use std::fs;

/// What every rank does to its decoder.
enum Step {
    /// So many tokens as a prompt.
    Prompt(u32),
    /// So many tokens to be verified.
    Drafts(u32),
    /// One token.
    Next,
    /// The sequence is cut to so many.
    Cut(u64),
    /// A cut that every rank must refuse.
    Refused(u64),
}

/// A model that sees everything, and one with a window of 96, which forgets what it no longer needs.
const STEPS: [(&str, &[Step]); 2] = [
    (
        "tiny-llama3",
        &[
            Step::Prompt(9),
            Step::Drafts(6),
            Step::Cut(11),
            Step::Drafts(3),
            Step::Cut(4),
            Step::Next,
            Step::Cut(0),
            Step::Prompt(12),
            Step::Drafts(2),
        ],
    ),
    (
        "tiny-mistral",
        &[
            Step::Prompt(100),
            Step::Drafts(5),
            Step::Cut(102),
            Step::Next,
            Step::Refused(100),
            Step::Next,
        ],
    ),
];

/// What a rank saw: a line per step, logits as their bits.
fn play<C: Communicator>(
    model: &Model,
    steps: &[Step],
    comm: &C,
) -> Result<Vec<String>, GenerateError> {
    let job = DecoderJob {
        model,
        device: Device { isa: model.isa(), threads: 1, affinity: Affinity::Free },
        dense: DensePlacement::Repeated,
        non_finite: NonFinite::Refuse,
        overlap: Overlap::On,
        recorder: None,
        layer_done: &|_| (),
    };
    let mut decoder = Decoder::new(job, DType::F32, comm)?;
    let mut seen = Vec::new();
    for (index, step) in (1..).zip(steps) {
        // Other tokens in every step, so that what was cut off would show.
        let tokens = |len: u32| (0..len).map(|i| (i * 37 + index * 91) % 256).collect::<Vec<_>>();
        let whole = Placement::Prompt(LayoutKind::Striped, None);
        let logits = match step {
            Step::Prompt(len) => decoder.extend(&tokens(*len), whole, Wanted::Last)?,
            Step::Drafts(len) => {
                decoder.extend(&tokens(*len), Placement::Generated(2), Wanted::All)?
            }
            Step::Next => decoder.extend(&tokens(1), Placement::Generated(2), Wanted::Last)?,
            Step::Cut(len) => decoder.truncate(*len).map(|()| None)?,
            Step::Refused(len) => {
                seen.push(decoder.truncate(*len).unwrap_err().to_string());
                None
            }
        };
        let bits = logits.iter().flatten().map(|logit| logit.to_bits());
        seen.push(format!(
            "{:?} {} tokens",
            bits.collect::<Vec<_>>(),
            decoder.cache().layout().len()
        ));
    }
    Ok(seen)
}

fn file_of(model: &str, rank: u32) -> String {
    format!("{model}-{rank}.txt")
}

#[test]
fn tokens_are_taken_back_as_between_threads() {
    for ranks in 1..=4 {
        let sandbox = Sandbox::new();
        let job = Job::test(&sandbox.arg(""), ranks, "truncation::rank_of_a_job");
        succeeded(&job.end(SMALL));
        for (name, steps) in STEPS {
            let model = Model::open(&fixture(name)).unwrap();
            let play = |comm| play(&model, steps, &comm);
            let local = local::run(ranks, local::DEFAULT_TIMEOUT, play).unwrap();
            for (rank, seen) in (0..).zip(local) {
                let written = fs::read_to_string(sandbox.path(&file_of(name, rank))).unwrap();
                assert_eq!(written.lines().collect::<Vec<_>>(), seen, "{name}, {rank} of {ranks}");
                // Only rank 0 has logits.
                let extensions =
                    steps.iter().filter(|step| !matches!(step, Step::Cut(_) | Step::Refused(_)));
                let expected = if rank == 0 { extensions.count() } else { 0 };
                let has_logits = |line: &&String| line.starts_with('[') && !line.starts_with("[]");
                assert_eq!(seen.iter().filter(has_logits).count(), expected, "{seen:?}");
            }
        }
    }
}

#[test]
#[ignore = "a rank of the job that the test above starts"]
fn rank_of_a_job() {
    let folder = std::env::args().next_back().unwrap();
    let mut world = World::init(Options::default(), "here").unwrap();
    for (name, steps) in STEPS {
        let model = Model::open(&fixture(name)).unwrap();
        let stop = StopSignal::new();
        let seen = world.run(local::DEFAULT_TIMEOUT, &stop, |comm| play(&model, steps, &comm));
        let file = format!("{folder}/{}", file_of(name, world.rank().0));
        fs::write(file, seen.unwrap().join("\n")).unwrap();
    }
    world.finalize().unwrap();
}
