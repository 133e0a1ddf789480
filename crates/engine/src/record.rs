//! Recording of what a rank does when, as spans of a plan's timeline. Knows no file and no other rank's
//! clock.

use ringattn_comm::Wait;
use ringattn_core::Rank;
use ringattn_plan::{Activity, Nanos, Span, Transmission, WaitCause};
use std::cell::RefCell;
use std::time::Instant;

/// The spans of one rank. A span costs two readings of the clock and a few words of memory.
#[derive(Debug)]
pub struct Recorder {
    rank: Rank,
    epoch: Instant,
    spans: RefCell<Vec<Span>>,
}

impl Recorder {
    /// A recorder of `rank` that counts time from `epoch` on.
    pub fn new(rank: Rank, epoch: Instant) -> Self {
        Self { rank, epoch, spans: RefCell::default() }
    }

    /// What was recorded, in the order of the spans' ends.
    pub fn into_spans(self) -> Vec<Span> {
        self.spans.into_inner()
    }

    fn at(&self, moment: Instant) -> Nanos {
        let nanoseconds = moment.saturating_duration_since(self.epoch).as_nanos();
        Nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
}

/// Where one attention is recorded, if it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trace<'a> {
    recorder: Option<&'a Recorder>,
    layer: u32,
}

impl<'a> Trace<'a> {
    /// Nowhere.
    pub fn off() -> Self {
        Self::default()
    }

    /// In `recorder`, as the attention `layer` of the run.
    pub fn new(recorder: Option<&'a Recorder>, layer: u32) -> Self {
        Self { recorder, layer }
    }

    /// The present moment, where it matters.
    pub(crate) fn now(&self) -> Option<Instant> {
        self.recorder.map(|_| Instant::now())
    }

    /// Records an activity that began at a moment that [`Trace::now`] gave, and ends now.
    pub(crate) fn ends(&self, step: u32, activity: Activity, begun: Option<Instant>) {
        if let Some(begun) = begun {
            self.span(step, activity, (begun, Instant::now()));
        }
    }

    /// Records a message that was received, and the wait for it.
    pub(crate) fn received(&self, step: u32, message: Transmission, wait: Option<Wait>) {
        let Some(wait) = wait.filter(|_| self.recorder.is_some()) else { return };
        if let Some(transfer) = wait.transfer {
            self.span(step, Activity::Receive(message), transfer);
        }
        self.waited(step, message.peer, wait);
    }

    /// Records a message that was posted at a moment that [`Trace::now`] gave and has been matched, and
    /// the wait for that.
    pub(crate) fn sent(
        &self,
        step: u32,
        message: Transmission,
        (posted, wait): (Option<Instant>, Option<Wait>),
    ) {
        let (Some(posted), Some(wait)) = (posted, wait) else { return };
        self.span(step, Activity::Send(message), (posted, wait.wait.1));
        self.waited(step, message.peer, wait);
    }

    fn waited(&self, step: u32, peer: Rank, wait: Wait) {
        let ((begun, ended), (first, last)) = (wait.wait, wait.for_transfer());
        for (cause, span) in [
            (WaitCause::Peer, (begun, first)),
            (WaitCause::Transfer, (first, last)),
            (WaitCause::Peer, (last, ended)),
        ] {
            if span.1 > span.0 {
                self.span(step, Activity::Wait { cause, peer }, span);
            }
        }
    }

    fn span(&self, step: u32, activity: Activity, (begun, ended): (Instant, Instant)) {
        if let Some(recorder) = self.recorder {
            let (start, end) = (recorder.at(begun), recorder.at(ended));
            let (rank, layer) = (recorder.rank, self.layer);
            recorder.spans.borrow_mut().push(Span { rank, layer, step, activity, start, end });
        }
    }
}
