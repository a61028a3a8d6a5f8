//! The leases that are open on a counter, beside its state.

use crate::fixed_window;
use crate::{Ask, Limit, Micros, Moment, Outcome, Spill, State, StateRef, Timestamp, Verdict};

/// The first byte of a value with open leases. No state of an algorithm that is leased begins with it.
pub const MARK: u8 = 0xFE;

/// The most leases that are open on a counter: further nodes count exactly.
pub const ENTRIES_MAX: usize = 64;

/// The longest that a lease lasts. An entry that ends later is of a clock that went back.
pub const LEASE_MAX: Micros = Micros::from_secs(10);

/// Bytes before the entries: the mark, their number, the earliest and the latest end, and the sum of their amounts.
pub const HEADER_BYTES: usize = 22;

/// Bytes of an entry: node, number, spent, amount and end.
const ENTRY_BYTES: usize = 31;

/// The shortest wait after a denial that is caused by hits that others hold.
const WAIT_MIN: Micros = Micros::from_millis(1);

/// A lease as the store knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseEntry {
    /// The random name of the process that has it.
    pub node: u64,
    /// The number of that node's last call. An older call changes nothing.
    pub number: u64,
    /// Hits that its session has reported spent.
    pub spent: u64,
    /// Hits that it may still spend, below 2^32.
    pub amount: u64,
    /// The time from which on it may not spend any.
    pub end: Timestamp,
}

/// The reason why the entries of a value cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CorruptEscrow {
    /// There are fewer bytes than entries.
    #[error("the leases of a counter are cut off")]
    Cut,
    /// The number of entries is none that is written: a later version, perhaps.
    #[error("a counter with {0} leases is of an unknown format")]
    Count(u8),
    /// A node has two entries.
    #[error("a node has two leases on one counter")]
    Repeated,
}

/// The leases that are open on a counter, at most [`ENTRIES_MAX`], each of another node.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Escrow {
    entries: Vec<LeaseEntry>,
}

impl Escrow {
    /// Reads a counter's value; its leases, and the rest, which is the algorithm's state.
    ///
    /// # Errors
    /// [`CorruptEscrow`]: the value is no counter. It must never be taken for an empty one.
    pub fn decode(value: &[u8]) -> Result<(Self, &[u8]), CorruptEscrow> {
        let Some((&MARK, _)) = value.split_first() else {
            return Ok((Self::default(), value));
        };
        let count = *value.get(1).ok_or(CorruptEscrow::Cut)?;
        if count == 0 || usize::from(count) > ENTRIES_MAX {
            return Err(CorruptEscrow::Count(count));
        }
        let end = HEADER_BYTES + ENTRY_BYTES * usize::from(count);
        let entries = value.get(HEADER_BYTES..end).ok_or(CorruptEscrow::Cut)?;
        let entries: Vec<LeaseEntry> = entries
            .chunks_exact(ENTRY_BYTES)
            .map(LeaseEntry::read)
            .collect();
        let is_repeated = |(at, entry): (usize, &LeaseEntry)| {
            let mut before = entries[..at].iter();
            before.any(|other| other.node == entry.node)
        };
        match entries.iter().enumerate().any(is_repeated) {
            true => Err(CorruptEscrow::Repeated),
            false => Ok((Self { entries }, &value[end..])),
        }
    }

    /// The counter's value, with the algorithm's `state`.
    #[must_use]
    pub fn encode(&self, state: &[u8]) -> Vec<u8> {
        let (Some(earliest), Some(latest)) = (self.earliest(), self.latest()) else {
            return state.to_vec();
        };
        let mut value =
            Vec::with_capacity(HEADER_BYTES + ENTRY_BYTES * self.entries.len() + state.len());
        let count = u8::try_from(self.entries.len()).unwrap_or(u8::MAX);
        value.extend_from_slice(&[MARK, count]);
        push(&mut value, earliest.as_micros(), 7);
        push(&mut value, latest.as_micros(), 7);
        push(&mut value, self.held(), 6);
        for entry in &self.entries {
            push(&mut value, entry.node, 8);
            push(&mut value, entry.number, 6);
            push(&mut value, entry.spent, 6);
            push(&mut value, entry.amount, 4);
            push(&mut value, entry.end.as_micros(), 7);
        }
        value.extend_from_slice(state);
        value
    }

    /// The open leases.
    #[must_use]
    pub fn entries(&self) -> &[LeaseEntry] {
        &self.entries
    }

    /// The same for changes that no store makes: tests leave protections out by it.
    #[doc(hidden)]
    pub fn entries_mut(&mut self) -> &mut Vec<LeaseEntry> {
        &mut self.entries
    }

    /// Returns true if no lease is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Hits that are held.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.entries.iter().map(|entry| entry.amount).sum()
    }

    /// The time at which the first lease ends.
    #[must_use]
    pub fn earliest(&self) -> Option<Timestamp> {
        self.entries.iter().map(|entry| entry.end).min()
    }

    /// The time at which the last lease ends. The counter is kept for as long as if all that is held were charged then.
    #[must_use]
    pub fn latest(&self) -> Option<Timestamp> {
        self.entries.iter().map(|entry| entry.end).max()
    }

    /// Charges the leases that are over to `state`, but for that of the node `but`: in full, since it is unknown what was
    /// spent of them, and dated at their end, since that is when the last of them can have been admitted. Leases that
    /// end later than any can are of a clock that went back, and are shortened. Returns true if anything has changed.
    pub fn expire(
        &mut self,
        limit: &Limit,
        state: &mut State,
        but: Option<u64>,
        at: &Moment,
    ) -> bool {
        let most = at.now.after(LEASE_MAX);
        let mut is_changed = false;
        for entry in self.entries.iter_mut().filter(|entry| entry.end > most) {
            entry.end = most;
            is_changed = true;
        }
        let is_over = |entry: &LeaseEntry| entry.end <= at.now && Some(entry.node) != but;
        if !self.entries.iter().any(is_over) {
            return is_changed;
        }
        let (mut over, open): (Vec<LeaseEntry>, Vec<LeaseEntry>) =
            self.entries.iter().partition(|entry| is_over(entry));
        self.entries = open;
        over.sort_by_key(|entry| entry.end);
        for entry in over {
            let date = match limit.has_fixed_windows() {
                // Within its window any time is the same, and a window that is over takes nothing.
                true => at.now,
                false => entry.end,
            };
            if !is_of_past_window(limit, state, entry.end, at) {
                charge(limit, state, entry.amount, &Moment { now: date, ..*at });
            }
        }
        true
    }

    /// The counter's answer to `ask` beside what is held; changes nothing. The leases that are over are charged.
    #[must_use]
    #[inline]
    pub fn test(&self, limit: &Limit, state: StateRef<'_>, ask: Ask, at: &Moment) -> Outcome {
        let alone = limit.test(state, ask, at);
        match self.entries.is_empty() {
            true => alone,
            false => self.beside(alone, ask, at),
        }
    }

    #[cold]
    fn beside(&self, alone: Outcome, ask: Ask, at: &Moment) -> Outcome {
        let held = self.held();
        let mut outcome = Outcome {
            remaining: alone.remaining.saturating_sub(held),
            ..alone
        };
        let wait = self
            .earliest()
            .map_or(Micros::ZERO, |end| end.since(at.now));
        if !alone.fits() || held == 0 {
            return outcome;
        }
        if ask.hits > 0 && alone.remaining < held {
            // What others hold denies it, until the first of them is heard of.
            outcome.remaining = alone
                .remaining
                .saturating_add_signed(ask.hits)
                .saturating_sub(held);
            outcome.verdict = Verdict::Later;
            outcome.retry_after = wait.max(WAIT_MIN);
            outcome.reset_after = outcome.retry_after;
        } else if ask.hits == 0 && outcome.remaining == 0 && alone.remaining > 0 {
            outcome.retry_after = wait.max(WAIT_MIN);
        }
        outcome
    }

    /// Takes the entry of `node` out.
    pub(super) fn take(&mut self, node: u64) -> Option<LeaseEntry> {
        let at = self.entries.iter().position(|entry| entry.node == node)?;
        Some(self.entries.remove(at))
    }

    pub(super) fn put(&mut self, entry: LeaseEntry) {
        self.entries.push(entry);
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= ENTRIES_MAX
    }
}

/// Returns true if a lease that ends then was of a fixed window before the current one.
pub(super) fn is_of_past_window(limit: &Limit, state: &State, end: Timestamp, at: &Moment) -> bool {
    match state {
        State::Words(words) if limit.has_fixed_windows() => {
            end <= fixed_window::current_start(limit, words, at)
        }
        State::Words(_) | State::Heap(_) => false,
    }
}

/// Charges a state that may have to move to the heap.
pub(super) fn charge(limit: &Limit, state: &mut State, hits: u64, at: &Moment) {
    let hits = i64::try_from(hits).unwrap_or(i64::MAX);
    if limit.charge(state.as_mut(), hits, at) == Err(Spill) {
        if let State::Words(words) = state {
            *state = State::Heap(limit.spill(words));
        }
        // A heap never spills again.
        let _ = limit.charge(state.as_mut(), hits, at);
    }
}

impl LeaseEntry {
    fn read(bytes: &[u8]) -> Self {
        Self {
            node: number(&bytes[..8]),
            number: number(&bytes[8..14]),
            spent: number(&bytes[14..20]),
            amount: number(&bytes[20..24]),
            end: Timestamp::from_micros(number(&bytes[24..ENTRY_BYTES])),
        }
    }
}

/// An integer of up to 8 bytes, little-endian.
fn number(bytes: &[u8]) -> u64 {
    let with_byte = |number, byte: &u8| number << 8 | u64::from(*byte);
    bytes.iter().rev().fold(0, with_byte)
}

fn push(value: &mut Vec<u8>, number: u64, bytes: usize) {
    value.extend_from_slice(&number.to_le_bytes()[..bytes]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, LimitSpec};

    const START: u64 = 1_700_000_000_000_000;

    fn at(micros: u64) -> Moment {
        Moment::at(Timestamp::from_micros(START + micros))
    }

    fn entry(node: u64, amount: u64, end: u64) -> LeaseEntry {
        LeaseEntry {
            node,
            number: 3,
            spent: 5,
            amount,
            end: Timestamp::from_micros(START + end),
        }
    }

    fn escrow(entries: &[LeaseEntry]) -> Escrow {
        Escrow {
            entries: entries.to_vec(),
        }
    }

    fn limit(algorithm: Algorithm) -> Limit {
        let spec = LimitSpec::new(algorithm, 100, Micros::from_secs(100));
        Limit::try_new(spec).expect("a valid limit")
    }

    #[test]
    fn a_value_is_read_as_it_was_written() {
        let most: Vec<LeaseEntry> = (0..64).map(|node| entry(node, 7 + node, node)).collect();
        for entries in [&most[..0], &most[..1], &most[..]] {
            for state in [&b""[..], b"1700000000000000042", &[0, 1, 2]] {
                let value = escrow(entries).encode(state);
                assert_eq!(Escrow::decode(&value), Ok((escrow(entries), state)));
            }
        }
        let one = escrow(&most[..1]).encode(b"7");
        assert_eq!((one.len(), one[0], one[1]), (54, MARK, 1));
    }

    #[test]
    fn what_is_cut_unknown_or_repeated_is_no_empty_counter() {
        let value = escrow(&[entry(1, 4, 9), entry(2, 4, 9)]).encode(b"");
        for length in 1..value.len() {
            assert_eq!(Escrow::decode(&value[..length]), Err(CorruptEscrow::Cut));
        }
        for count in [0, 65, 255] {
            let mut other = value.clone();
            other[1] = count;
            assert_eq!(Escrow::decode(&other), Err(CorruptEscrow::Count(count)));
        }
        let twice = escrow(&[entry(1, 4, 9), entry(2, 4, 9), entry(1, 5, 9)]).encode(b"");
        assert_eq!(Escrow::decode(&twice), Err(CorruptEscrow::Repeated));
    }

    #[test]
    fn what_is_over_is_charged_in_full_at_its_end() {
        for algorithm in [
            Algorithm::TokenBucket,
            Algorithm::Gcra,
            Algorithm::SlidingWindow,
        ] {
            let limit = limit(algorithm);
            let mut state = State::new(limit.shape());
            let mut escrow = escrow(&[entry(1, 10, 5_000_000), entry(2, 20, 9_000_000)]);
            assert!(!escrow.expire(&limit, &mut state, None, &at(4_999_999)));
            assert!(escrow.expire(&limit, &mut state, None, &at(7_000_000)));
            assert_eq!(escrow.entries(), [entry(2, 20, 9_000_000)]);
            // A hit a second refills: two since its end.
            let look = limit.test(state.as_ref(), Ask::hits(0), &at(7_000_000));
            let refilled = if algorithm.has_burst() { 2 } else { 0 };
            assert_eq!(look.remaining, 90 + refilled, "{algorithm:?}");
            let look = escrow.test(&limit, state.as_ref(), Ask::hits(0), &at(7_000_000));
            assert_eq!(look.remaining, 70 + refilled, "{algorithm:?}");
        }
    }

    #[test]
    fn a_window_that_is_over_is_charged_nothing() {
        let limit = limit(Algorithm::FixedWindow);
        let left = |end, now| {
            let mut state = State::new(limit.shape());
            let mut escrow = escrow(&[entry(1, 10, end)]);
            assert!(escrow.expire(&limit, &mut state, None, &at(now)));
            limit.test(state.as_ref(), Ask::hits(0), &at(now)).remaining
        };
        // The start is the beginning of a window of 100 s.
        assert_eq!(left(99_000_000, 99_500_000), 90);
        assert_eq!(left(100_000_000, 100_000_000), 100);
    }

    #[test]
    fn a_lease_that_lasts_too_long_is_of_a_clock_that_went_back() {
        let limit = limit(Algorithm::Gcra);
        let mut state = State::new(limit.shape());
        let mut escrow = escrow(&[entry(1, 10, 60_000_000)]);
        assert!(escrow.expire(&limit, &mut state, None, &at(0)));
        assert_eq!(escrow.entries(), [entry(1, 10, 10_000_000)]);
    }

    #[test]
    fn what_is_held_denies_until_the_first_lease_ends() {
        let limit = limit(Algorithm::FixedWindow);
        let state = State::new(limit.shape());
        let escrow = escrow(&[entry(1, 30, 80_000), entry(2, 30, 50_000)]);
        let ask = |hits, now| escrow.test(&limit, state.as_ref(), Ask::hits(hits), &at(now));
        assert_eq!(
            (ask(40, 0).verdict, ask(40, 0).remaining),
            (Verdict::Fits, 0)
        );
        let denied = ask(41, 0);
        assert_eq!((denied.verdict, denied.remaining), (Verdict::Later, 40));
        assert_eq!(denied.retry_after, Micros::from_millis(50));
        assert_eq!(ask(41, 49_900).retry_after, WAIT_MIN);
        assert_eq!(ask(101, 0).verdict, Verdict::Never);
        assert!(ask(0, 0).fits());
    }

    #[test]
    fn a_look_passes_where_more_is_held_than_left() {
        let limit = limit(Algorithm::FixedWindow);
        let mut state = State::new(limit.shape());
        assert!(limit.step(&mut state, 50, &at(0)).fits());
        let escrow = escrow(&[entry(1, 60, 50_000)]);
        let look = escrow.test(&limit, state.as_ref(), Ask::hits(0), &at(0));
        assert_eq!((look.verdict, look.remaining), (Verdict::Fits, 0));
        assert_eq!(look.retry_after, Micros::from_millis(50));
    }
}
