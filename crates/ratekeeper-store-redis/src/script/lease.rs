//! A node's calls for leases, encoded for the script, and its answers to them.

use ratekeeper_core::lease::{CREDIT_MAX, Holding, LeaseReport, Settled, Terms};
use ratekeeper_core::region::counted::Counted;
use ratekeeper_core::{Ask, Bounds, Micros, Moment, Outcome, State, Timestamp, Whole};
use ratekeeper_store::{CounterKey, OtherLeases, Step};

use super::call::Call;
use super::group::GroupStep;
use super::item::{AnswerError, Item, integer};
use super::key::KeyName;
use super::state::{Counter, Kept};

/// The number of a call for a lease in the script.
const LEASE: u8 = 3;

/// A node's call: what it has spent of its lease on a counter, and what it wants to hold.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LeaseCall {
    /// The counter.
    pub key: CounterKey,
    /// The limit, and the time of its leases.
    pub terms: Terms,
    /// The window's edges, if they follow a calendar.
    pub calendar: Option<Bounds>,
    /// The whole limit, if regions lend each other parts of it, or count it together.
    pub lent: Option<Whole>,
    /// The way in which regions count it together, if they do.
    pub counted: Option<Counted>,
    /// The node's report.
    pub report: LeaseReport,
}

/// The outcome of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseOutcome {
    /// It was carried out.
    Settled {
        /// The lease that the node has now.
        holding: Holding,
        /// The counter afterwards.
        outcome: SettledCounter,
    },
    /// A later call was carried out before.
    Old,
    /// Nothing was done: the key holds something else.
    Corrupt,
}

/// A counter after a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SettledCounter {
    /// The answer to a look.
    pub look: Outcome,
    /// The leases of other nodes.
    pub others: OtherLeases,
}

/// A share of a limit of which regions lend each other parts.
#[derive(Clone, Copy, Debug)]
struct HeldShare {
    hits: u64,
    /// The time until a part of it ends; zero if none does before its window.
    left: Micros,
}

impl Call {
    /// Adds a call, carried out after the groups already here. In a cluster all keys of a call must lie in one slot.
    pub fn push_lease_call(&mut self, lease_call: &LeaseCall, names: &KeyName) {
        let LeaseCall {
            key, terms, report, ..
        } = lease_call;
        let part = lease_call.part();
        self.key(|out| names.counter(*key, out));
        if lease_call.lent.is_some() {
            self.key(|out| part.beside(names, out));
        }
        let params = part.params.in_generation(self.generation());
        self.bytes(&[LEASE, params.algorithm.code()]);
        self.numbers(params.numbers);
        self.bytes(&report.node.to_le_bytes());
        self.numbers([report.number, report.since, report.spent]);
        self.bytes(&[u8::from(report.is_final)]);
        let most = match lease_call.lent {
            // A part of the share, which the script knows.
            Some(_) => CREDIT_MAX,
            None => terms.amount_max(),
        };
        self.numbers([report.target, most, terms.ttl().get()]);
        self.silent(&part);
    }
}

impl LeaseCall {
    fn part(&self) -> GroupStep {
        let step = Step {
            calendar: self.calendar,
            terms: u64::from(self.lent.is_some()),
            whole: self.lent.unwrap_or_default(),
            counted: self.counted,
            ..Step::new(self.key, *self.terms.limit())
        };
        GroupStep::new(&step, 0)
    }

    /// Core's answer to it, on a counter that was found so at `now`.
    fn settle(
        &self,
        counter: Counter,
        share: Option<HeldShare>,
        now: Timestamp,
    ) -> Option<(Settled, SettledCounter)> {
        let mut report = self.report;
        let terms = match share {
            Some(share) => {
                let limit = self.part().under(Some(share.hits));
                let ttl = match share.left {
                    Micros::ZERO => self.terms.ttl(),
                    left => Micros::new(left.get() - 1).min(self.terms.ttl()),
                };
                if ttl.is_zero() {
                    report.target = 0;
                }
                Terms::from_parts(limit, ttl)
            }
            None => self.terms,
        };
        let Counter {
            kept, mut escrow, ..
        } = counter;
        let mut state = match kept {
            Kept::Words(words) => State::Words(words),
            Kept::Heap(heap) => State::Heap(heap),
            Kept::Held(_) => return None,
        };
        let at = Moment {
            now,
            calendar: self.calendar,
        };
        let settled = terms.settle(&mut state, &mut escrow, &report, &at);
        let look = escrow.test(terms.limit(), state.as_ref(), Ask::hits(0), &at);
        let others = escrow.entries().iter();
        let others = others.filter(|entry| entry.node != self.report.node);
        let others = others.fold(OtherLeases::default(), |sum, entry| OtherLeases {
            nodes: sum.nodes + 1,
            hits: sum.hits + entry.amount,
        });
        Some((settled, SettledCounter { look, others }))
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
    let now = Timestamp::from_micros(integer(items.next())?);
    let outcomes = lease_calls
        .iter()
        .map(|lease_call| outcome(lease_call, now, &mut items));
    let outcomes = outcomes.collect::<Result<_, _>>()?;
    match items.next() {
        None => Ok(outcomes),
        Some(_) => Err(AnswerError::Malformed),
    }
}

fn outcome<'r>(
    lease_call: &LeaseCall,
    now: Timestamp,
    items: &mut impl Iterator<Item = Item<'r>>,
) -> Result<LeaseOutcome, AnswerError> {
    let state = items.next().ok_or(AnswerError::Malformed)?;
    let status = items.next();
    let (amount, usable) = (integer(items.next())?, integer(items.next())?);
    let share = match lease_call.lent {
        Some(_) => Some(HeldShare {
            hits: integer(items.next())?,
            left: Micros::new(integer(items.next())?),
        }),
        None => None,
    };
    let told = match status {
        Some(Item::Int(-1)) => return Ok(LeaseOutcome::Corrupt),
        Some(Item::Int(0)) => Settled::Old,
        Some(Item::Int(status @ (1 | 2))) => Settled::Holds(Holding {
            is_fresh: status == 2,
            amount,
            usable: Micros::new(usable),
        }),
        _ => return Err(AnswerError::Malformed),
    };
    let counter = Counter::read(&lease_call.part(), false, state).ok_or(AnswerError::Malformed)?;
    let found = lease_call.settle(counter, share, now);
    let (settled, outcome) = found.ok_or(AnswerError::Malformed)?;
    match settled {
        found if found != told => Err(AnswerError::Disagrees),
        Settled::Old => Ok(LeaseOutcome::Old),
        Settled::Holds(holding) => Ok(LeaseOutcome::Settled { holding, outcome }),
    }
}
