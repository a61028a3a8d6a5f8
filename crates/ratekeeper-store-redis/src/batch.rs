//! Waiting groups, batched into calls of the script.

use ratekeeper_store::StoreError;

use crate::script::{Group, slot};
use crate::waiting::{Members, Waiting};

/// Groups that are decided in one call of the script: in a cluster those of one slot.
pub(crate) struct Batch {
    pub(crate) groups: Vec<Group>,
    pub(crate) members: Vec<Members>,
    pub(crate) is_asking: bool,
}

impl Batch {
    pub(crate) fn of(waiting: Vec<Waiting>, is_asking: bool) -> Self {
        let (groups, members) = waiting.into_iter().map(|it| (it.group, it.members)).unzip();
        Self {
            groups,
            members,
            is_asking,
        }
    }

    pub(crate) fn into_waiting(self) -> Vec<Waiting> {
        let waiting = self.groups.into_iter().zip(self.members);
        waiting
            .map(|(group, members)| Waiting { group, members })
            .collect()
    }

    pub(crate) fn slot(&self) -> Option<u16> {
        let key = self.groups.first()?.first_key()?;
        Some(slot(key.subject))
    }

    /// Fails every request still waiting, and returns how many there were.
    pub(crate) fn fail(&mut self, error: StoreError) -> usize {
        let members = self.members.iter_mut();
        members.map(|it| it.fail(error)).sum()
    }
}

/// Splits `waiting` into calls that a cluster accepts: one slot each. While a slot is migrating, a
/// call is refused unless all of its counters are at one end. A group refused once gets a call of
/// its own from then on, so that no decision waits for another group's counters.
pub(crate) fn by_slot(mut waiting: Vec<Waiting>) -> Vec<Batch> {
    let was_refused = |it: &Waiting| it.members.attempts > 0;
    let place = |it: &Waiting| {
        (
            it.members.is_asking,
            was_refused(it),
            it.group.first_key().map(|key| slot(key.subject)),
        )
    };
    // Stable: the first to arrive is decided first.
    waiting.sort_by_cached_key(place);
    let mut batches: Vec<Vec<Waiting>> = Vec::new();
    for it in waiting {
        match batches.last_mut() {
            Some(batch) if !was_refused(&it) && batch.first().map(place) == Some(place(&it)) => {
                batch.push(it);
            }
            _ => batches.push(vec![it]),
        }
    }
    let batches = batches.into_iter().map(|batch| {
        let is_asking = batch.iter().any(|it| it.members.is_asking);
        Batch::of(batch, is_asking)
    });
    batches.collect()
}
