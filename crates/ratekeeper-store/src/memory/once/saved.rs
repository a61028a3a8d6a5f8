//! Records in the state file.
//!
//! ```text
//!  id (2 words) | end (us) | content | at (us) | outcomes << 1, 1 if it was allowed | outcome*
//!  outcome      kind | verdict << 8, and of a counter the remaining hits, those that were cut, and four times (us)
//! ```

use std::mem;
use std::ops::Bound;

use ratekeeper_core::{Micros, Outcome, Timestamp, Verdict};

use super::{Record, Records, bytes_of};
use crate::memory::state_file::{Restored, Words};
use crate::{FullMode, StepOutcome};

/// Records encoded under one lock, which takes some ten microseconds.
const RECORDS_PER_LOCK: usize = 128;

/// The kinds of outcomes: the counter was tested, or there was no room for it.
const COUNTED: u64 = 0;
const FULL_ALLOWED: u64 = 1;
const FULL_DENIED: u64 = 2;

/// The position of a record among those of a part: those that end first come first.
pub(in crate::memory) type Place = (Timestamp, u128);

impl Records {
    /// Appends the next records of a part to `out` that end later than `now`, from behind `last` on; returns their
    /// number, and the place of the last one that was looked at, if more may follow.
    pub(in crate::memory) fn encode_after(
        &self,
        part: usize,
        last: Option<Place>,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> (u32, Option<Place>) {
        let part = self.parts[part].lock();
        let from = last.unwrap_or((now, u128::MAX));
        let behind = (Bound::Excluded(from), Bound::Unbounded);
        let (mut added, mut next, mut seen) = (0, None, 0);
        for &(until, id) in part.ends.range(behind).take(RECORDS_PER_LOCK) {
            let record = part.records.get(&id);
            added += u32::from(record.is_some_and(|record| record.encode(id, out)));
            seen += 1;
            next = Some((until, id));
        }
        (added, next.filter(|_| seen == RECORDS_PER_LOCK))
    }

    /// Adds a record of a file, as of `now`.
    pub(in crate::memory) fn restore(&self, id: u128, record: Record, now: Timestamp) -> Restored {
        if record.until <= now {
            return Restored::Expired;
        }
        let mut part = self.part(id);
        if part.records.contains_key(&id) {
            return Restored::Alive;
        }
        if part.bytes + bytes_of(record.outcomes.len()) > self.part_bytes_max {
            return Restored::NoRoom;
        }
        part.insert(id, record);
        Restored::Alive
    }

    /// Removes all records.
    pub(in crate::memory) fn clear(&self) {
        for part in &self.parts {
            let mut part = part.lock();
            let removed = (mem::take(&mut part.records), mem::take(&mut part.ends));
            part.bytes = 0;
            drop(part);
            // It takes its time, for which nobody is to wait.
            drop(removed);
        }
    }
}

impl Record {
    /// Appends the record to `out`; returns false if it has an outcome that no store in memory gives.
    fn encode(&self, id: u128, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        let count = self.outcomes.len() as u64;
        let [low, high] = halves(id);
        let head = [
            low,
            high,
            self.until.as_micros(),
            self.content,
            self.at.as_micros(),
            count << 1 | u64::from(self.allowed),
        ];
        words(&head, out);
        let whole = self.outcomes.iter().all(|outcome| encode(outcome, out));
        if !whole {
            out.truncate(before);
        }
        whole
    }

    /// Reads a record and its id. None if it is damaged.
    pub(in crate::memory) fn decode(words: &mut Words<'_>) -> Option<(u128, Self)> {
        let id = u128::from(words.next()?) | u128::from(words.next()?) << 64;
        let until = Timestamp::from_micros(words.next()?);
        let content = words.next()?;
        let at = Timestamp::from_micros(words.next()?);
        let flags = words.next()?;
        let outcomes: Option<Vec<_>> = (0..flags >> 1).map(|_| decode(words)).collect();
        let record = Self {
            until,
            content,
            at,
            allowed: flags & 1 == 1,
            outcomes: outcomes?.into(),
        };
        Some((id, record))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves")]
const fn halves(id: u128) -> [u64; 2] {
    [id as u64, (id >> 64) as u64]
}

fn words(words: &[u64], out: &mut Vec<u8>) {
    for word in words {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

fn encode(outcome: &StepOutcome, out: &mut Vec<u8>) -> bool {
    let outcome = match outcome {
        StepOutcome::Counted(outcome) => outcome,
        StepOutcome::Full(FullMode::Allow) => {
            words(&[FULL_ALLOWED], out);
            return true;
        }
        StepOutcome::Full(FullMode::Deny) => {
            words(&[FULL_DENIED], out);
            return true;
        }
        StepOutcome::OnThisNode(_) | StepOutcome::Leased(_) | StepOutcome::Unanswered(_) => {
            return false;
        }
    };
    let verdict = match outcome.verdict {
        Verdict::Fits => 0,
        Verdict::Later => 1,
        Verdict::Never => 2,
    };
    let counted = [
        COUNTED | verdict << 8,
        outcome.remaining,
        outcome.cut,
        outcome.reset_after.get(),
        outcome.full_after.get(),
        outcome.retry_after.get(),
        outcome.delay.get(),
    ];
    words(&counted, out);
    true
}

fn decode(words: &mut Words<'_>) -> Option<StepOutcome> {
    let head = words.next()?;
    match head & 0xff {
        COUNTED => {}
        FULL_ALLOWED => return Some(StepOutcome::Full(FullMode::Allow)),
        FULL_DENIED => return Some(StepOutcome::Full(FullMode::Deny)),
        _ => return None,
    }
    let verdict = match head >> 8 {
        0 => Verdict::Fits,
        1 => Verdict::Later,
        2 => Verdict::Never,
        _ => return None,
    };
    let (remaining, cut) = (words.next()?, words.next()?);
    let mut time = || words.next().map(Micros::new);
    Some(StepOutcome::Counted(Outcome {
        verdict,
        remaining,
        reset_after: time()?,
        full_after: time()?,
        retry_after: time()?,
        delay: time()?,
        cut,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_read_as_it_was_written() {
        let outcome = |verdict| {
            StepOutcome::Counted(Outcome {
                verdict,
                remaining: 1,
                reset_after: Micros::new(2),
                full_after: Micros::new(3),
                retry_after: Micros::MAX,
                delay: Micros::new(5),
                cut: u64::MAX,
            })
        };
        let record = Record {
            until: Timestamp::from_secs(7),
            content: 8,
            at: Timestamp::from_secs(6),
            allowed: true,
            outcomes: Box::new([
                outcome(Verdict::Fits),
                StepOutcome::Full(FullMode::Allow),
                outcome(Verdict::Later),
                StepOutcome::Full(FullMode::Deny),
                outcome(Verdict::Never),
            ]),
        };
        let id = u128::MAX - 9;
        let mut bytes = Vec::new();
        assert!(record.encode(id, &mut bytes));
        let mut words = Words::of(&bytes).unwrap();
        assert_eq!(Record::decode(&mut words), Some((id, record)));
        assert!(words.is_empty());
        // Cut off anywhere, there is none.
        for len in (0..bytes.len()).step_by(8) {
            let mut words = Words::of(&bytes[..len]).unwrap();
            assert_eq!(Record::decode(&mut words), None);
        }
    }
}
