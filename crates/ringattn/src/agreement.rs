//! What all ranks of a job must have in common, compared before any data moves.

use crate::engines::Engine;
use crate::error::Error;
use crate::options::RunOptions;
use ringattn_comm::{CommError, Communicator};
use ringattn_core::{Message, MessageError, Payload, Rank};
use ringattn_plan::Plan;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use thiserror::Error;

/// Ranks that do not do the same.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AgreementError {
    /// A term has different values.
    #[error(
        "rank {rank} has {what} {actual}, rank {other} has {expected}: start all ranks with the \
         same program, options and inputs"
    )]
    Differs {
        /// What differs.
        what: String,
        /// The rank that saw it.
        rank: Rank,
        /// Its value.
        actual: String,
        /// The rank that it is compared with.
        other: Rank,
        /// The value there.
        expected: String,
    },
    /// The terms could not be exchanged.
    #[error(transparent)]
    Comm(#[from] CommError),
}

/// What a rank is about to do, as names and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms(Vec<(String, String)>);

impl Terms {
    /// Of the command under these options.
    pub(crate) fn new(command: &str, options: &RunOptions) -> Self {
        let mut terms = Self(Vec::new());
        terms.add("the version", env!("CARGO_PKG_VERSION"));
        terms.add("the command", command);
        terms.add("the instruction set", options.isa);
        terms.add("the timeout", format_args!("{:?}", options.timeout));
        terms.add(
            "the rule for values that are not finite",
            format_args!("{:?}", options.non_finite),
        );
        terms.add("recording", format_args!("{:?}", options.recording));
        terms.add("overlap", format_args!("{:?}", options.overlap));
        terms
    }

    pub(crate) fn add(&mut self, what: &str, value: impl ToString) {
        self.0.push((what.to_owned(), value.to_string()));
    }

    /// What the plan is about in words, and a digest of all of it.
    pub(crate) fn add_plan(&mut self, plan: &Plan) {
        let problem = plan.problem();
        let shape = problem.shape;
        let heads = format!("{} on {}", shape.query_heads(), shape.key_heads());
        self.add("the number of queries", problem.queries);
        self.add("the number of keys", problem.keys);
        self.add("the heads", heads);
        self.add("the head dimension", shape.head_dim());
        self.add("the mask", &problem.mask);
        self.add("the type of K and V", problem.kv_dtype);
        self.add("the layout", plan.key_layout());
        self.add("the schedule", plan.schedule());
        self.add("a plan with the digest", format_args!("{:016x}", digest(plan)));
    }
}

/// The same number for equal values in every process of one program.
pub(crate) fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Compares the terms of all ranks, where they are not one process's.
pub(crate) fn agree(
    options: &RunOptions,
    terms: impl FnOnce() -> Result<Terms, Error>,
) -> Result<(), Error> {
    match &options.engine {
        Engine::Local => Ok(()),
        Engine::Mpi(job) => {
            // In a run of its own, so that a rank that cannot say its terms is everybody's failure.
            let terms = options.engine.together(&options.stop, terms)?;
            Ok(job.run(options.timeout, &options.stop, |comm| compare(&comm, terms))?)
        }
    }
}

/// Compares this rank's terms with those of rank 0.
fn compare<C: Communicator>(comm: &C, own: Terms) -> Result<(), AgreementError> {
    let root = Rank(0);
    let given = comm.broadcast((comm.rank() == root).then(|| own.clone()), root)?;
    let rank = comm.rank();
    for (index, (what, actual)) in own.0.iter().enumerate() {
        let expected = given.0.get(index).filter(|(other, _)| other == what);
        let expected = expected.map_or("nothing of that kind", |(_, value)| value);
        if expected != actual {
            let (what, actual) = (what.clone(), actual.clone());
            let expected = expected.to_owned();
            return Err(AgreementError::Differs { what, rank, actual, other: root, expected });
        }
    }
    Ok(())
}

/// Texts as their lengths in the header and their bytes in the payload.
impl Message for Terms {
    const KIND: &'static str = "terms";

    fn byte_len(&self) -> u64 {
        self.texts().map(|text| text.len() as u64).sum()
    }

    fn header(&self) -> Vec<u64> {
        self.texts().map(|text| text.len() as u64).collect()
    }

    fn payload(&self) -> Payload {
        self.texts().flat_map(str::bytes).collect::<Vec<_>>().into()
    }

    fn from_payload(header: &[u64], payload: Vec<u8>) -> Result<Self, MessageError> {
        let (kind, actual) = (Self::KIND, payload.len() as u64);
        let expected = header.iter().fold(0_u64, |sum, &length| sum.saturating_add(length));
        if actual != expected {
            return Err(MessageError::Payload { kind, expected, actual });
        }
        let mut rest = &payload[..];
        let mut texts = header.iter().map(|&length| {
            let (text, others) = rest.split_at(length as usize);
            rest = others;
            String::from_utf8_lossy(text).into_owned()
        });
        let mut terms = Vec::new();
        while let (Some(what), Some(value)) = (texts.next(), texts.next()) {
            terms.push((what, value));
        }
        Ok(Self(terms))
    }
}

impl Terms {
    fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|(what, value)| [&**what, &**value])
    }
}
