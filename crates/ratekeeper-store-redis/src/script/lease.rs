//! Grants and returns of leases, encoded for the script, and its answers to them.

use ratekeeper_core::lease::{Grant, Place, Terms};
use ratekeeper_core::{Bounds, Micros, Moment, State, Timestamp};
use ratekeeper_store::{CounterKey, Step};

use super::call::Call;
use super::group::Part;
use super::item::{AnswerError, Item};
use super::key::KeyName;
use super::state::Kept;

/// The number of a grant in the script.
const GRANT: u8 = 3;

/// The number of a return in the script.
const RETURN: u8 = 4;

/// A grant or a return.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LeaseCall {
    /// The counter.
    pub key: CounterKey,
    /// The limit as it is leased.
    pub terms: Terms,
    /// The window's edges, if they follow a calendar.
    pub calendar: Option<Bounds>,
    /// The call's own id, by which a repeat is recognized.
    pub id: u128,
    /// Its purpose.
    pub action: LeaseAction,
}

/// The purpose of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseAction {
    /// Takes hits in advance.
    Grant {
        /// The most hits, at least 1.
        want: u64,
        /// The number of nodes that may ask for some.
        nodes: u64,
        /// The time for which a repeat is recognized.
        kept: Micros,
    },
    /// Gives back what was not spent.
    Return {
        /// The time of the grant, by the store's clock.
        granted_at: Timestamp,
        /// The place of the grant's hits.
        place: Place,
        /// Hits to give back.
        left: u64,
        /// The time, by the store's clock, from which on nothing is given back; a repeat is recognized until then.
        until: Timestamp,
    },
}

/// The outcome of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseOutcome {
    /// Hits were granted, or none: there is no room.
    Granted(Grant),
    /// So many hits were given back.
    Returned(u64),
    /// Nothing was done: a key holds something else.
    Corrupt,
}

impl Call {
    /// Adds a call, carried out after the groups already here. In a cluster all keys of a call must lie in one slot.
    pub fn push_lease_call(&mut self, lease_call: &LeaseCall, names: &KeyName) {
        self.key(|out| names.counter(lease_call.key, out));
        self.key(|out| names.once(lease_call.key.subject, lease_call.id, out));
        let params = lease_call.part().params;
        let kind = match lease_call.action {
            LeaseAction::Grant { .. } => GRANT,
            LeaseAction::Return { .. } => RETURN,
        };
        self.bytes(&[kind, params.algorithm.code()]);
        self.numbers(params.numbers);
        match lease_call.action {
            LeaseAction::Grant { want, nodes, kept } => {
                self.numbers([want, nodes, kept.get()]);
            }
            LeaseAction::Return {
                granted_at,
                place,
                left,
                until,
            } => {
                self.numbers([left, granted_at.as_micros(), until.as_micros()]);
                self.numbers(place.numbers());
            }
        }
    }
}

impl LeaseCall {
    fn part(&self) -> Part {
        let step = Step {
            calendar: self.calendar,
            ..Step::new(self.key, *self.terms.limit())
        };
        Part::new(&step, 0)
    }

    /// Core's answer to a grant of `want` hits, in a counter that was found in `state` at `now`.
    fn granted(&self, state: Kept, (want, nodes): (u64, u64), now: Timestamp) -> Option<Grant> {
        let mut state = match state {
            Kept::Words(words) => State::Words(words),
            Kept::Heap(heap) => State::Heap(heap),
            Kept::Held(_) => return None,
        };
        let at = Moment {
            now,
            calendar: self.calendar,
        };
        Some(self.terms.grant(&mut state, want, nodes, &at))
    }
}

/// Turns `reply` into the outcomes of `calls`, the only contents of their call.
///
/// # Errors
/// If `reply` is no answer to these calls.
pub fn decode_lease_calls<'r>(
    lease_calls: &[LeaseCall],
    reply: impl IntoIterator<Item = Item<'r>>,
) -> Result<Vec<LeaseOutcome>, AnswerError> {
    let mut items = reply.into_iter();
    // The time of the call.
    integer(items.next())?;
    let outcomes = lease_calls
        .iter()
        .map(|lease_call| outcome(lease_call, &mut items));
    let outcomes = outcomes.collect::<Result<_, _>>()?;
    match items.next() {
        None => Ok(outcomes),
        Some(_) => Err(AnswerError::Malformed),
    }
}

fn outcome<'r>(
    lease_call: &LeaseCall,
    items: &mut impl Iterator<Item = Item<'r>>,
) -> Result<LeaseOutcome, AnswerError> {
    let LeaseAction::Grant { want, nodes, .. } = lease_call.action else {
        return Ok(match items.next() {
            Some(Item::Int(-1)) => LeaseOutcome::Corrupt,
            given => LeaseOutcome::Returned(integer(given)?),
        });
    };
    let at = Timestamp::from_micros(integer(items.next())?);
    let state = items.next().ok_or(AnswerError::Malformed)?;
    let hits = integer(items.next())?;
    if state == Item::Int(-1) {
        return Ok(LeaseOutcome::Corrupt);
    }
    let state = Kept::read(&lease_call.part(), false, state).ok_or(AnswerError::Malformed)?;
    let grant = lease_call.granted(state, (want, nodes), at);
    match grant.ok_or(AnswerError::Malformed)? {
        grant if grant.hits == hits => Ok(LeaseOutcome::Granted(grant)),
        _ => Err(AnswerError::Disagrees),
    }
}

fn integer(item: Option<Item<'_>>) -> Result<u64, AnswerError> {
    match item {
        Some(Item::Int(number)) => u64::try_from(number).map_err(|_| AnswerError::Malformed),
        _ => Err(AnswerError::Malformed),
    }
}
