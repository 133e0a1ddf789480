//! The notices to one peer: one at a time, and none while the last is not gone. Knows no message.

use super::library::{Channel, Library, LibraryError, Mode, Outbound, Stream};
use super::wire::{Notice, Stage};
use crate::Tag;
use ringattn_core::Rank;

/// The tag of notices, among those that belong to this crate.
pub(super) const NOTICES: Tag = Tag(Tag::FIRST_RESERVED.0 + 200);

/// What a peer must be told at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct News {
    run: u64,
    stage: Stage,
    has_cause: bool,
}

impl News {
    pub(super) fn of(notice: &Notice) -> Self {
        Self { run: notice.run, stage: notice.stage, has_cause: notice.cause.is_some() }
    }
}

/// The notices to one peer.
pub(super) struct Outbox {
    peer: Rank,
    under_way: Option<Outbound>,
    told: Option<News>,
}

impl Outbox {
    pub(super) fn new(peer: Rank) -> Self {
        Self { peer, under_way: None, told: None }
    }

    /// Sends `letter`, the written form of a notice with `news`, if it is due or has news for the
    /// peer, and if the last one is gone.
    pub(super) fn tell(
        &mut self,
        library: &Library,
        (news, letter): (News, &[u8]),
        is_due: bool,
    ) -> Result<(), LibraryError> {
        if let Some(mut last) = self.under_way.take() {
            last.progress(library)?;
            if !last.is_done() {
                self.under_way = Some(last);
                return Ok(());
            }
        }
        if is_due || self.told != Some(news) {
            let channel = Channel { stream: Stream::Envelopes, peer: self.peer, tag: NOTICES.0 };
            self.under_way =
                Some(Outbound::whole(library, letter.to_vec().into(), channel, Mode::Standard)?);
            self.told = Some(news);
        }
        Ok(())
    }

    /// Whether MPI has taken over the last notice, which had this news.
    pub(super) fn has_told(&self, news: News) -> bool {
        self.told == Some(news) && self.under_way.is_none()
    }
}
