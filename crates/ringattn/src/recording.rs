//! Recording a run: where each rank's spans come from, and their common clock.

use crate::clock;
use crate::engines::Engine;
use crate::options::RunOptions;
use ringattn_comm::{CommError, Communicator};
use ringattn_engine::Recorder;
use ringattn_plan::{Span, Timeline};
use std::time::Instant;

/// Whether what ranks do is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recording {
    /// No.
    #[default]
    Off,
    /// Every span of every rank.
    On,
}

/// The recorder of one rank, and how its clock differs from that of rank 0.
pub(crate) struct RankRecording {
    recorder: Option<Recorder>,
    offset: i64,
}

impl RankRecording {
    /// Begins, on every rank, to count from this process's `epoch` on.
    pub(crate) fn begin<C: Communicator>(
        options: &RunOptions,
        comm: &C,
        epoch: Instant,
    ) -> Result<Self, CommError> {
        if options.recording == Recording::Off {
            return Ok(Self { recorder: None, offset: 0 });
        }
        let offset = match options.engine {
            // Threads of one process read one clock.
            Engine::Local => 0,
            Engine::Mpi(_) => clock::offset(comm, epoch)?,
        };
        Ok(Self { recorder: Some(Recorder::new(comm.rank(), epoch)), offset })
    }

    pub(crate) fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref()
    }

    /// What was recorded, on the clock of rank 0.
    pub(crate) fn into_spans(self) -> Vec<Span> {
        let mut spans = self.recorder.map(Recorder::into_spans).unwrap_or_default();
        clock::align(&mut spans, self.offset);
        spans
    }
}

/// The timeline of all ranks, from the first thing on that any of them did.
pub(crate) fn timeline(options: &RunOptions, spans: Vec<Span>) -> Option<Timeline> {
    if options.recording == Recording::Off {
        return None;
    }
    let first = spans.iter().map(|span| span.start).min().unwrap_or_default();
    let mut timeline = Timeline { world_size: options.ranks, spans };
    for span in &mut timeline.spans {
        (span.start, span.end) = (span.start.since(first), span.end.since(first));
    }
    Some(timeline)
}
