//! The states that a rank keeps while it walks: that of its own queries, and those of visitors.
//!
//! A visiting state begins with the first block that its queries attend here, and is gone, memory and all,
//! when it is given away: no state is the empty state. Knows no message and no step.

use crate::backend::{Accumulator, Backend, MergeOrder};
use ringattn_core::Message;
use ringattn_plan::{Handover, QueriesId};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// One rank's states, by whose queries they are.
pub(crate) struct States<'s, B: Backend> {
    owner: QueriesId,
    own: B::State<'s>,
    visiting: BTreeMap<QueriesId, B::Partial>,
}

impl<'s, B: Backend> States<'s, B> {
    /// The state of the rank's own queries alone.
    pub(crate) fn new(owner: QueriesId, own: B::State<'s>) -> Self {
        Self { owner, own, visiting: BTreeMap::new() }
    }

    /// The state of these queries, to be added to.
    pub(crate) fn accumulator(
        &mut self,
        backend: &B,
        (owner, queries): (QueriesId, &B::Queries),
    ) -> Result<Accumulator<'_, 's, B>, B::Error> {
        if owner == self.owner {
            return Ok(Accumulator::Own(&mut self.own));
        }
        Ok(Accumulator::Visiting(match self.visiting.entry(owner) {
            Entry::Occupied(state) => state.into_mut(),
            Entry::Vacant(place) => place.insert(backend.empty(queries)?),
        }))
    }

    /// The state of these queries as it can travel; `None` when there is none.
    pub(crate) fn part_with(
        &mut self,
        backend: &B,
        (owner, handover): (QueriesId, Handover),
    ) -> Result<Option<B::Partial>, B::Error> {
        if owner == self.owner {
            return backend.part_with(&mut self.own, handover).map(Some);
        }
        Ok(match handover {
            Handover::Copied => self.visiting.get(&owner).cloned(),
            Handover::Given => self.visiting.remove(&owner),
        })
    }

    /// Merges a state that came into that of the rank's own queries.
    pub(crate) fn merge(
        &mut self,
        backend: &B,
        arrived: B::Partial,
        order: MergeOrder,
    ) -> Result<(), B::Error> {
        backend.merge(&mut self.own, arrived, order)
    }

    /// Bytes of the states of visitors.
    pub(crate) fn visiting_bytes(&self) -> u64 {
        self.visiting.values().map(Message::byte_len).sum()
    }

    /// The state of the rank's own queries.
    pub(crate) fn into_own(self) -> B::State<'s> {
        self.own
    }
}
