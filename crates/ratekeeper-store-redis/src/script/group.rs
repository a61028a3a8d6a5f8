//! Requests that are decided together.

use ratekeeper_core::region::counted::Counted;
use ratekeeper_core::{Bounds, Limit, Micros, Mode, Whole};
use ratekeeper_store::{Charge, CounterKey, Extra, Request, Step};
use smallvec::SmallVec;

use super::algorithm::ScriptAlgorithm;
use super::key::KeyName;
use super::params::Params;

/// The most requests that are merged if each must be stepped by itself: more would hold up everybody else.
const STEPPED_MAX: u32 = 64;

/// The most runs of a group.
const RUNS_MAX: usize = 1_024;

/// The parts of a post that no other group has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Posted {
    pub(super) id: u128,
    pub(super) age: Micros,
}

/// Requests for the same ordered list of counters, limits and flags, which differ in their hits
/// at most, in the order in which they came. Each is decided as if it came alone.
#[derive(Clone, Debug)]
pub struct Group {
    pub(super) parts: SmallVec<[GroupStep; 2]>,
    pub(super) mode: Mode,
    pub(super) extra: Option<Box<Extra>>,
    /// Set if this is a post, which is no request.
    pub(super) posted: Option<Box<Posted>>,
    pub(super) runs: SmallVec<[Run; 1]>,
    requests: u32,
    /// True if the script may take a run at once, rather than request by request.
    pub(super) is_plain: bool,
}

/// A step without its hits.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupStep {
    pub(super) key: CounterKey,
    pub(super) limit: Limit,
    pub(super) calendar: Option<Bounds>,
    pub(super) charge: Charge,
    pub(super) descriptor: u16,
    pub(super) shadow: bool,
    pub(super) quota_mode: bool,
    pub(super) params: Params,
    /// The terms on which regions lend each other parts of the limit, or count it together; 0 if they do neither.
    pub(super) terms: u64,
    /// The whole limit, if they do.
    pub(super) whole: Whole,
    /// The way in which regions count it together, if they do.
    pub(super) counted: Option<Counted>,
    /// The first part of the group that asks for the same counter, perhaps itself.
    pub(super) counter: u16,
}

/// A number of requests with the same hits, one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) requests: u32,
    pub(super) hits: SmallVec<[i64; 2]>,
}

impl Group {
    /// Makes a group of one request.
    #[must_use]
    pub fn new(request: &Request<'_>) -> Self {
        let mut parts: SmallVec<[GroupStep; 2]> = SmallVec::with_capacity(request.steps.len());
        for (index, step) in request.steps.iter().enumerate() {
            let before = parts.iter().position(|part| part.key == step.key);
            // More steps than a u16 counts are not sent; see `is_sendable`.
            let counter = u16::try_from(before.unwrap_or(index)).unwrap_or(u16::MAX);
            parts.push(GroupStep::new(step, counter));
        }
        let mut group = Self {
            parts,
            mode: request.mode,
            extra: request.extra.copied().map(Box::new),
            posted: None,
            runs: SmallVec::new(),
            requests: 0,
            is_plain: true,
        };
        group.is_plain = group.mode == Mode::default() && group.parts_are_plain();
        group.add(request.steps);
        group
    }

    /// Returns true if the script accepts the number of steps: at most 65,535. Others must not be sent.
    #[must_use]
    pub(crate) fn is_sendable(request: &Request<'_>) -> bool {
        request.steps.len() <= usize::from(u16::MAX)
    }

    /// Adds a request for the same counters under the same limits, to be decided after those
    /// already here. Returns false, without any change, if it asks for anything else, or if the
    /// group is full.
    pub fn merge(&mut self, request: &Request<'_>) -> bool {
        let fits = self.runs.len() < RUNS_MAX && self.requests < u32::MAX;
        if !fits || !self.asks(request) {
            return false;
        }
        let is_plain = self.is_plain && request.steps.iter().all(|step| step.hits > 0);
        if !is_plain && self.requests >= STEPPED_MAX {
            return false;
        }
        self.add(request.steps);
        true
    }

    /// Returns true if `request` asks for the same counters under the same limits, and for nothing else.
    pub(crate) fn asks(&self, request: &Request<'_>) -> bool {
        self.extra.is_none()
            && self.posted.is_none()
            && request.extra.is_none()
            && self.mode == request.mode
            && self.parts.len() == request.steps.len()
            && self.parts.iter().zip(request.steps).all(|(p, s)| p.asks(s))
    }

    /// The number of requests in it, at least 1.
    #[must_use]
    pub const fn requests(&self) -> u32 {
        self.requests
    }

    /// The first counter it asks for; [`None`] without steps, for which Redis is never asked.
    #[must_use]
    pub(crate) fn first_key(&self) -> Option<CounterKey> {
        self.parts.first().map(|part| part.key)
    }

    /// The subjects of its counters: each lies in one slot of a cluster.
    pub fn subjects(&self) -> impl Iterator<Item = u64> + '_ {
        self.parts.iter().map(|part| part.key.subject)
    }

    /// The counters that some request refunds.
    pub(crate) fn refunded(&self) -> impl Iterator<Item = CounterKey> + '_ {
        let gives_back = |index: usize| self.runs.iter().any(move |run| run.hits[index] < 0);
        let parts = self.parts.iter().enumerate();
        parts
            .filter(move |(index, _)| !self.is_plain && gives_back(*index))
            .map(|(_, part)| part.key)
    }

    /// Removes the first `requests`, fewer than there are.
    pub(crate) fn forget_first(&mut self, requests: usize) {
        let mut left = u32::try_from(requests).unwrap_or(u32::MAX);
        self.requests = self.requests.saturating_sub(left);
        self.runs.retain(|run| {
            let gone = left.min(run.requests);
            left -= gone;
            run.requests -= gone;
            run.requests > 0
        });
    }

    fn add(&mut self, steps: &[Step]) {
        self.is_plain &= steps.iter().all(|step| step.hits > 0);
        self.requests += 1;
        let hits: SmallVec<[i64; 2]> = steps.iter().map(|step| step.hits).collect();
        match self.runs.last_mut() {
            Some(run) if run.hits == hits => run.requests += 1,
            _ => self.runs.push(Run { requests: 1, hits }),
        }
    }

    fn parts_are_plain(&self) -> bool {
        let is_plain = |(index, part): (usize, &GroupStep)| {
            usize::from(part.counter) == index
                && part.charge == Charge::IfAllowed
                && !part.limit.is_post_paid()
                && !part.quota_mode
                && part.params.algorithm != ScriptAlgorithm::LeakyWithin
        };
        self.extra.is_none() && self.parts.iter().enumerate().all(is_plain)
    }
}

impl GroupStep {
    pub(super) fn new(step: &Step, counter: u16) -> Self {
        Self {
            key: step.key,
            limit: step.limit,
            calendar: step.calendar,
            charge: step.charge,
            descriptor: step.descriptor,
            shadow: step.shadow,
            quota_mode: step.quota_mode,
            params: match (step.terms, step.counted) {
                (0, _) => Params::new(&step.limit, step.calendar),
                (_, None) => Params::new(&step.limit, step.calendar).lent(&step.limit, step.whole),
                (_, Some(_)) => Params::new(&step.limit, step.calendar).counted(),
            },
            terms: step.terms,
            whole: step.whole,
            counted: step.counted.filter(|_| step.terms > 0),
            counter,
        }
    }

    fn asks(&self, step: &Step) -> bool {
        self.key == step.key
            && self.charge == step.charge
            && self.descriptor == step.descriptor
            && self.shadow == step.shadow
            && self.quota_mode == step.quota_mode
            && self.calendar == step.calendar
            && self.limit == step.limit
            && self.terms == step.terms
            && self.whole == step.whole
            && self.counted == step.counted.filter(|_| step.terms > 0)
    }

    /// Returns true if what this region may use of the limit is kept beside the counter.
    pub(super) fn is_lent(&self) -> bool {
        let algorithm = self.params.algorithm;
        let is_lent_window =
            algorithm == ScriptAlgorithm::FixedWindow && self.params.numbers[4] > 0;
        is_lent_window || algorithm.is_timed()
    }

    /// The limit while its counter has `share`: what this region holds of it, or what other regions leave of it in this
    /// window if they count it together.
    pub(super) fn under(&self, share: Option<u64>) -> Limit {
        match (share, self.counted) {
            (None, _) => self.limit,
            (Some(share), None) => self.limit.holding(share, self.whole),
            (Some(share), Some(_)) => {
                let elsewhere = self.limit.quota().saturating_sub(share);
                self.limit.beside(elsewhere)
            }
        }
    }

    /// Appends the key of what regions have said of its counter.
    pub(super) fn beside(&self, names: &KeyName, out: &mut Vec<u8>) {
        match self.counted {
            Some(_) => names.totals(self.key, out),
            None => names.loans(self.key, out),
        }
    }

    /// Redis has room for every counter, so the answer for a full store is never asked for.
    pub(super) fn step(&self, hits: i64) -> Step {
        Step {
            calendar: self.calendar,
            hits,
            charge: self.charge,
            descriptor: self.descriptor,
            shadow: self.shadow,
            quota_mode: self.quota_mode,
            ..Step::new(self.key, self.limit)
        }
    }
}
