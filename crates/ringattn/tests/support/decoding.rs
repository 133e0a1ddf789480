//! Decoders of tiny models on rings of threads, driven step by step.

use ringattn::comm::local::{self, LocalCommunicator};
use ringattn::core::DType;
use ringattn::engine::cpu::{Affinity, Device};
use ringattn::engine::{NonFinite, Overlap};
use ringattn::model::{
    Decoder, DecoderJob, DensePlacement, GenerateError, Model, Placement, StoredCache, Wanted,
};
use ringattn::plan::Layout;
use std::path::PathBuf;

pub fn model(name: &str) -> Model {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    Model::open(&folder).unwrap()
}

pub fn prompt(len: u32) -> Vec<u32> {
    (0..len).map(|i| (i * 37 + i * i) % 256).collect()
}

/// What every rank of a ring does to its decoder.
#[derive(Clone, Debug)]
pub enum Step {
    Extend(Vec<u32>, Placement, Wanted),
    /// An extension that is to fail.
    Fail(Vec<u32>, Placement),
    Truncate(u64),
}

/// The steps' logits on rank 0, one entry per extension, and which rank has which token in the end.
#[derive(Debug)]
pub struct Played {
    pub logits: Vec<Vec<f32>>,
    pub layout: Layout,
}

impl Played {
    /// The logits of the last extension.
    pub fn last(&self) -> &[f32] {
        self.logits.last().unwrap()
    }
}

impl Step {
    /// The logits, where an extension gives some.
    pub fn take(
        &self,
        decoder: &mut Decoder<'_, LocalCommunicator>,
    ) -> Result<Option<Vec<f32>>, GenerateError> {
        match self {
            Self::Extend(tokens, placement, wanted) => decoder.extend(tokens, *placement, *wanted),
            Self::Fail(tokens, placement) => {
                decoder.extend(tokens, *placement, Wanted::All).unwrap_err();
                Ok(None)
            }
            Self::Truncate(len) => decoder.truncate(*len).map(|()| None),
        }
    }
}

/// Ranks that are threads.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    pub model: &'a Model,
    pub ranks: u32,
    pub dense: DensePlacement,
    /// A cache to begin with, laid out like this.
    pub stored: Option<(&'a StoredCache, &'a Layout)>,
}

impl<'a> Ring<'a> {
    pub fn new(model: &'a Model, ranks: u32) -> Self {
        Self { model, ranks, dense: DensePlacement::Root { threads: 1 }, stored: None }
    }

    /// Gives every rank a decoder.
    pub fn run<T: Send>(
        &self,
        work: impl Fn(Decoder<'_, LocalCommunicator>, &LocalCommunicator) -> Result<T, GenerateError>
        + Sync,
    ) -> Result<Vec<T>, GenerateError> {
        let device = Device { isa: self.model.isa(), threads: 1, affinity: Affinity::Free };
        let done = local::run(self.ranks, local::DEFAULT_TIMEOUT, |comm| {
            let job = DecoderJob {
                model: self.model,
                device,
                dense: self.dense,
                non_finite: NonFinite::Refuse,
                overlap: Overlap::On,
                recorder: None,
                layer_done: &|_| (),
            };
            let decoder = match self.stored {
                None => Decoder::new(job, DType::F32, &comm)?,
                Some((stored, layout)) => {
                    let cache =
                        stored.restore(layout, ringattn::comm::Communicator::rank(&comm), 0);
                    Decoder::with_cache(job, cache.unwrap(), &comm)?
                }
            };
            work(decoder, &comm)
        });
        done.map_err(|error| match error {
            ringattn::comm::RunError::Rank { error, .. } => error,
            other => panic!("{other}"),
        })
    }

    pub fn try_play(&self, steps: &[Step]) -> Result<Played, GenerateError> {
        let mut ranks = self.run(|mut decoder, _| {
            let mut logits = Vec::new();
            for step in steps {
                logits.extend(step.take(&mut decoder)?);
            }
            Ok(Played { logits, layout: decoder.cache().layout().clone() })
        })?;
        assert!(
            ranks[1..].iter().all(|rank| rank.logits.is_empty() && rank.layout == ranks[0].layout)
        );
        Ok(ranks.swap_remove(0))
    }

    pub fn play(&self, steps: &[Step]) -> Played {
        self.try_play(steps).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Whether both place every token on the same rank.
pub fn same_places(a: &Layout, b: &Layout) -> bool {
    a.len() == b.len() && a.ranks().all(|rank| a.positions(rank).eq(b.positions(rank)))
}

/// Two ways of computing the same logits in f32.
///
/// Each layer is five products in a row (Q, K, V; the attention; the output; gate and up; down), then
/// comes the head. Each sums at most `I` terms (the intermediate size) and so adds a relative error of about
/// `sqrt(I) 2^-24`, of its largest value; the norms between them keep relative errors what they are. Two
/// ways differ by twice that.
pub fn assert_close(model: &Model, ours: &[f32], theirs: &[f32], what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let config = &model.config;
    let stages = (5 * config.layers + 1) as f32;
    let largest = theirs.iter().fold(0.0, |most: f32, logit| most.max(logit.abs()));
    let sum = (config.intermediate_size as f32).sqrt();
    let bound = 2.0 * stages * sum * 2_f32.powi(-24) * largest;
    let errors = ours.iter().zip(theirs).map(|(ours, theirs)| (ours - theirs).abs());
    let worst = errors.fold(0.0, f32::max);
    assert!(worst <= bound, "{what}: {worst:e}, allowed are {bound:e}");
}
