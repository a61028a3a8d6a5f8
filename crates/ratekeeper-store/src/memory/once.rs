//! Records of idempotent requests, by which repeats are recognized.
//!
//! Ids are divided into eight parts with a lock each, which is held while the request is decided:
//! two concurrent copies count as one request. The records are saved with the counters, but what
//! came after the last save is lost. A request without a record that gives back hits taken before
//! the counters were loaded is therefore not executed ([`Execution::Unknown`]): giving back what was
//! never counted, or twice, would admit too much, and not giving back admits too little for at most
//! a window.

mod saved;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use ratekeeper_core::Timestamp;
use smallvec::SmallVec;

use crate::{Execution, FullMode, Once, Request, Step, StepOutcome, Verdicts};

/// The number of locks; the id selects one.
const PARTS: usize = 8;

/// Memory of a record besides its outcomes: id, times and a boxed slice, in a map and in a set that may be
/// half empty, and the allocator's bookkeeping.
const RECORD_BYTES: usize = 224;

/// The records.
#[derive(Debug)]
pub(super) struct Records {
    parts: [Mutex<Shard>; PARTS],
    /// The most bytes of a part.
    part_bytes_max: usize,
    /// Nothing is known about requests before this time, in microseconds.
    since: AtomicU64,
}

/// The records of a part of the ids.
#[derive(Debug, Default)]
pub(super) struct Shard {
    records: HashMap<u128, Record>,
    /// The end of each record and its id: those that end first are found without a look at the others.
    ends: BTreeSet<(Timestamp, u128)>,
    bytes: usize,
    /// The latest time seen.
    now: Timestamp,
}

/// The answer to a request, kept for its repeats.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Record {
    until: Timestamp,
    content: u64,
    at: Timestamp,
    allowed: bool,
    outcomes: Box<[StepOutcome]>,
}

impl Record {
    fn bytes(&self) -> usize {
        bytes_of(self.outcomes.len())
    }
}

const fn bytes_of(outcomes: usize) -> usize {
    RECORD_BYTES + outcomes * size_of::<StepOutcome>()
}

impl Records {
    /// The number of parts.
    pub(super) const PARTS: usize = PARTS;

    pub(super) fn new(bytes: usize) -> Self {
        Self {
            parts: Default::default(),
            part_bytes_max: bytes / PARTS,
            since: AtomicU64::new(0),
        }
    }

    /// The number of records and their bytes.
    pub(super) fn used(&self) -> (usize, usize) {
        let parts = self.parts.iter().map(|part| {
            let part = part.lock();
            (part.records.len(), part.bytes)
        });
        parts.fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
    }

    pub(super) const fn bytes_max(&self) -> usize {
        self.part_bytes_max * PARTS
    }

    /// Declares that there may have been requests before `now` that have no record.
    pub(super) fn begin(&self, now: Timestamp) {
        // Relaxed: set before the store serves its first request.
        self.since.fetch_max(now.as_micros(), Ordering::Relaxed);
    }

    /// Decides `request` unless it was executed before.
    pub(super) fn decide(
        &self,
        once: Once,
        request: &Request<'_>,
        decide: impl FnOnce() -> Verdicts,
    ) -> Verdicts {
        let mut part = self.part(once.id);
        let now = part.advance(request.now);
        if let Some(record) = part.records.get(&once.id) {
            // The rules may have changed since: the old answer says nothing about other steps.
            let is_same =
                record.content == once.content && record.outcomes.len() == request.steps.len();
            return match is_same {
                true => record.repeat(),
                false => unexecuted(request, now, Execution::Conflict),
            };
        }
        let taken_at = request.extra.and_then(|extra| extra.taken_at);
        let since = self.since.load(Ordering::Relaxed);
        let until = once.until.of(now);
        if until <= now || taken_at.is_some_and(|at| at.as_micros() < since) {
            return unexecuted(request, now, Execution::Unknown);
        }
        if part.bytes + bytes_of(request.steps.len()) > self.part_bytes_max {
            return unexecuted(request, now, Execution::NoRoom);
        }
        let verdicts = decide();
        let asked = request.steps.iter().any(|step| step.hits > 0);
        let is_paid = request.steps.iter().any(Step::is_paid);
        if verdicts.allowed || !asked || is_paid {
            part.keep(once, until, &verdicts);
        }
        verdicts
    }

    /// Decides the request that undoes the one with that id, whose record is deleted.
    pub(super) fn undo(&self, id: u128, decide: impl FnOnce() -> Verdicts) -> Verdicts {
        let mut part = self.part(id);
        part.forget(id);
        decide()
    }

    /// Removes the records that have ended by `now`.
    pub(super) fn sweep(&self, now: Timestamp) {
        for part in &self.parts {
            part.lock().advance(now);
        }
    }

    fn part(&self, id: u128) -> MutexGuard<'_, Shard> {
        self.parts[(id % PARTS as u128) as usize].lock()
    }
}

impl Shard {
    /// Advances the time, and removes the records that have ended.
    fn advance(&mut self, now: Timestamp) -> Timestamp {
        self.now = self.now.max(now);
        while let Some(&(until, id)) = self.ends.first()
            && until <= self.now
        {
            self.ends.pop_first();
            self.forget(id);
        }
        self.now
    }

    fn forget(&mut self, id: u128) {
        if let Some(record) = self.records.remove(&id) {
            self.ends.remove(&(record.until, id));
            self.bytes -= record.bytes();
        }
    }

    fn keep(&mut self, once: Once, until: Timestamp, verdicts: &Verdicts) {
        let record = Record {
            until,
            content: once.content,
            at: verdicts.at,
            allowed: verdicts.allowed,
            outcomes: verdicts.outcomes.as_slice().into(),
        };
        self.insert(once.id, record);
    }

    fn insert(&mut self, id: u128, record: Record) {
        self.bytes += record.bytes();
        self.ends.insert((record.until, id));
        self.records.insert(id, record);
    }
}

impl Record {
    fn repeat(&self) -> Verdicts {
        Verdicts {
            allowed: self.allowed,
            outcomes: self.outcomes.iter().copied().collect(),
            at: self.at,
            execution: Execution::Before,
        }
    }
}

/// The answer to a request that was not executed.
fn unexecuted(request: &Request<'_>, at: Timestamp, execution: Execution) -> Verdicts {
    Verdicts {
        allowed: false,
        outcomes: SmallVec::from_elem(StepOutcome::Full(FullMode::Deny), request.steps.len()),
        at,
        execution,
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode};

    use super::*;
    use crate::memory::state_file::Restored;
    use crate::{CounterKey, Until};

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
    const MINUTE: Micros = Micros::from_secs(60);

    fn steps(count: usize) -> Vec<Step> {
        let spec = LimitSpec::new(Algorithm::FixedWindow, 5, MINUTE);
        let limit = Limit::try_new(spec).expect("the limit is valid");
        let key = CounterKey {
            subject: 1,
            identity: 2,
        };
        vec![Step::new(key, limit); count]
    }

    /// Executes a request of so many steps under that id.
    fn execute(records: &Records, id: u128, count: usize) -> Execution {
        let once = Once {
            id,
            until: Until::After(MINUTE),
            content: 0,
        };
        let steps = steps(count);
        let request = Request::new(&steps, Mode::default(), NOW);
        let decide = || Verdicts {
            allowed: true,
            ..unexecuted(&request, NOW, Execution::Now)
        };
        records.decide(once, &request, decide).execution
    }

    #[test]
    fn records_count_with_their_outcomes_until_they_end() {
        let records = Records::new(PARTS * 1_000);
        // In two parts, and two in one.
        for (id, steps) in [(0, 1), (1, 3), (8, 2)] {
            assert_eq!(execute(&records, id, steps), Execution::Now);
        }
        let outcomes = 6 * size_of::<StepOutcome>();
        assert_eq!(records.used(), (3, 3 * RECORD_BYTES + outcomes));
        records.sweep(NOW.after(MINUTE));
        assert_eq!(records.used(), (0, 0));
    }

    #[test]
    fn a_part_takes_records_until_it_is_full() {
        let bytes = RECORD_BYTES + 2 * size_of::<StepOutcome>();
        let records = Records::new(PARTS * 2 * bytes);
        let executed = [0, 8, 16].map(|id| execute(&records, id, 2));
        let expected = [Execution::Now, Execution::Now, Execution::NoRoom];
        assert_eq!(executed, expected);
    }

    #[test]
    fn records_of_a_file_are_taken_until_a_part_is_full() {
        let bytes = RECORD_BYTES + 2 * size_of::<StepOutcome>();
        let records = Records::new(PARTS * 2 * bytes);
        let record = |until| Record {
            until,
            content: 0,
            at: NOW,
            allowed: true,
            outcomes: Box::new([StepOutcome::Full(FullMode::Allow); 2]),
        };
        let later = NOW.after(MINUTE);
        assert!(matches!(
            records.restore(24, record(NOW), NOW),
            Restored::Expired
        ));
        for id in [0, 8, 8] {
            assert!(matches!(
                records.restore(id, record(later), NOW),
                Restored::Alive
            ));
        }
        assert_eq!(records.used(), (2, 2 * bytes));
        assert!(matches!(
            records.restore(16, record(later), NOW),
            Restored::NoRoom
        ));
    }
}
