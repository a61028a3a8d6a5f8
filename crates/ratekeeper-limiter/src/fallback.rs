//! Decisions without a store while it cannot answer: the failure modes of the rules.
//!
//! `local` enforces each limit with counters of this node, at the limit times a factor. Such a
//! counter starts from what the store last reported as remaining, lives to the end of its window however
//! often the store comes and goes. `allow` and `deny` count nothing, and neither does `local` for
//! permits: one that is taken here could not be released, so it would be missing until its timeout.
//!
//! Hits that `local` and `allow` let pass are owed to the store ([`owed`]), which counts them once
//! it answers again.

mod last_reports;
mod owed;

use ratekeeper_core::{Algorithm, Limit, LimitSpec, MAX_COUNT, Micros, Mode, Timestamp};
use ratekeeper_rules::FailureMode;
use ratekeeper_store::memory::{MemoryConfig, MemoryError};
use ratekeeper_store::{
    Charge, CounterKey, Execution, Extra, FullMode, MemoryStore, Request, Step, StepOutcome,
    StoreError, Verdicts,
};
use smallvec::SmallVec;

use crate::decision::Answered;
use crate::identity::UnhashedName;
use crate::purpose::is_reserve;
use last_reports::{LastReports, Report};
pub use owed::OwedCounts;
pub(crate) use owed::{Debt, Fate, Owed, Passed};

/// The settings by which a node enforces limits on its own.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FallbackConfig {
    /// The memory that the counters of this node may take.
    pub memory: MemoryConfig,
    /// The factor that each limit is multiplied by, above 0 and at most 1: with n nodes, 1 denies no caller
    /// who is within their limit, and 1/n lets no more than the limit pass.
    pub local_factor: f64,
}

/// The reason why a [`Fallback`] could not be made.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FallbackError {
    /// The counters have no room.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The factor is not above 0 and at most 1.
    #[error("`local_factor` must be above 0, at most 1")]
    Factor,
}

/// The counters that this node uses while the store cannot answer.
#[derive(Debug)]
pub struct Fallback {
    store: MemoryStore,
    known: LastReports,
    owed: Owed,
    factor: f64,
}

/// A step that is answered without the store.
struct UncountedStep<'a> {
    step: &'a Step,
    /// The store's outcome, if it did answer this step.
    answered: Option<StepOutcome>,
    /// The failure mode; a step that the store answered is treated as plain `allow` or `deny`.
    mode: FailureMode,
    /// The limit that this node enforces.
    limit: Limit,
}

impl UncountedStep<'_> {
    /// Returns true if it has a say in what the counters of this node decide. A step allowed in quota
    /// mode has: the others in quota mode deny only together with it.
    const fn is_asked(&self) -> bool {
        !matches!(self.mode, FailureMode::Allow) || self.step.quota_mode
    }

    /// Its outcome, given what the counters of this node `found`.
    fn outcome(&self, found: Option<StepOutcome>) -> StepOutcome {
        if let Some(answered) = self.answered {
            return answered;
        }
        match (self.mode, found) {
            (FailureMode::Allow, _) => StepOutcome::Full(FullMode::Allow),
            (FailureMode::Deny, _) => StepOutcome::Full(FullMode::Deny),
            (FailureMode::Local, Some(StepOutcome::Counted(outcome))) => {
                StepOutcome::OnThisNode(outcome)
            }
            (FailureMode::Local, Some(full)) => full,
            (FailureMode::Local, None) => StepOutcome::Full(self.step.full_mode),
        }
    }
}

impl Fallback {
    /// Makes empty counters of the configured size.
    ///
    /// # Errors
    /// [`FallbackError`] if there is no room, or the factor is out of range.
    pub fn new(config: FallbackConfig) -> Result<Self, FallbackError> {
        if !(config.local_factor > 0.0 && config.local_factor <= 1.0) {
            return Err(FallbackError::Factor);
        }
        Ok(Self {
            store: MemoryStore::new(config.memory)?,
            known: LastReports::new(),
            owed: Owed::default(),
            factor: config.local_factor,
        })
    }

    /// Drops a share of the expired counters; to be called about once a second.
    pub(crate) fn maintain(&self, now: Timestamp) {
        self.store.sweep(now, SWEPT);
    }

    /// Hits that the store is to count.
    pub(crate) const fn owed(&self) -> &Owed {
        &self.owed
    }

    /// Records that the hits of `request` which the failure modes let pass are owed: not those of requests
    /// that are carried out once, of permits and of refunds, and not those that the store has charged. While the hash key is
    /// not known, each step has its `unhashed` name.
    pub(crate) fn owe(
        &self,
        request: &Request<'_>,
        modes: impl Iterator<Item = FailureMode>,
        verdicts: &Verdicts,
        fault: impl Fn(usize) -> Option<StoreError>,
        (passed, unhashed): (&Passed, &[UnhashedName]),
    ) {
        if request.extra.is_some() {
            return;
        }
        let steps = request.steps.iter().zip(modes).zip(&verdicts.outcomes);
        for (number, ((step, mode), outcome)) in steps.enumerate() {
            let Some(fault) = fault(number).filter(|_| step.sync.is_zero()) else {
                continue;
            };
            let step = Step {
                hits: owed_hits(step, mode, outcome, verdicts.allowed),
                ..*step
            };
            self.owed.add(&step, unhashed.get(number), fault, passed);
        }
    }

    /// Gives the hits of `steps`, which are negative, back to the counters of this node that took them at `taken_at`.
    pub(crate) fn give_back(&self, steps: &[Step], taken_at: Timestamp, now: Timestamp) {
        let scaled = steps.iter().map(|step| Step {
            limit: scaled(&step.limit, self.factor),
            ..*step
        });
        let scaled: SmallVec<[Step; 4]> = scaled.collect();
        let extra = Extra {
            taken_at: Some(taken_at),
            ..Extra::default()
        };
        self.store.decide_now(&Request {
            extra: Some(&extra),
            ..Request::new(&scaled, Mode::default(), now)
        });
    }

    /// Remembers what the store reported as remaining of the counter of `step`.
    pub(crate) fn observe(&self, step: &Step, answered: &Answered, now: Timestamp) {
        // What comes from a lease waits for no other step, and tells no more than the grant did. Synced counters are this
        // node's own, and go on without the store.
        if answered.counted && !answered.leased && step.sync.is_zero() {
            let until = now.after(answered.full_after);
            let said = Report {
                remaining: answered.remaining,
                debt: step.limit.debt(answered.remaining, answered.full_after),
                at: now,
            };
            self.known.put(step.key, said, until);
        }
    }

    /// Answers `request` by the failure mode of each of its steps, except those that the store has
    /// `answered`.
    pub(crate) fn decide(
        &self,
        request: &Request<'_>,
        modes: impl Iterator<Item = FailureMode>,
        answered: Option<&Verdicts>,
    ) -> Verdicts {
        let blocked = blocked();
        let steps = request.steps.iter().zip(modes).enumerate();
        let asides = steps.map(|(number, (step, mode))| {
            let answered = answered.map(|verdicts| verdicts.outcomes[number]);
            let answered = answered.filter(StepOutcome::is_answered);
            let holds_permits = step.limit.algorithm().holds_permits();
            let mode = match (answered, mode) {
                (Some(outcome), _) if outcome.fits() => FailureMode::Allow,
                (Some(_), _) => FailureMode::Deny,
                (None, FailureMode::Local) if holds_permits => FailureMode::Allow,
                (None, mode) => mode,
            };
            let limit = match mode {
                FailureMode::Local => scaled(&step.limit, self.factor),
                FailureMode::Allow | FailureMode::Deny => blocked.unwrap_or(step.limit),
            };
            UncountedStep {
                step,
                answered,
                mode,
                limit,
            }
        });
        let asides: SmallVec<[UncountedStep<'_>; 4]> = asides.collect();
        let steps: SmallVec<[Step; 4]> = asides
            .iter()
            .filter(|aside| aside.is_asked())
            .map(|aside| self.prepared(aside, request.now))
            .collect();
        let is_denied = answered.is_some_and(|verdicts| !verdicts.allowed);
        let verdicts = self.store.decide_now(&Request {
            steps: &steps,
            mode: Mode {
                denied: request.mode.denied || is_denied,
                ..request.mode
            },
            ..*request
        });
        let mut found = verdicts.outcomes.iter().copied();
        let outcomes = asides.iter().map(|aside| {
            let found = aside.is_asked().then(|| found.next()).flatten();
            aside.outcome(found)
        });
        let was_carried_out = matches!(verdicts.execution, Execution::Now | Execution::Before);
        let answered = answered.filter(|_| was_carried_out);
        Verdicts {
            allowed: verdicts.allowed,
            outcomes: outcomes.collect(),
            // What was taken of the store is given back by its time.
            at: answered.map_or(verdicts.at, |answered| answered.at),
            execution: answered.map_or(verdicts.execution, |answered| answered.execution),
        }
    }

    /// The step as put to the counters of this node. One that is to be denied asks a limit of nothing,
    /// so that the others are charged nothing either; one that is allowed only peeks, and fits.
    fn prepared(&self, aside: &UncountedStep<'_>, now: Timestamp) -> Step {
        let step = Step {
            limit: aside.limit,
            ..*aside.step
        };
        if aside.mode == FailureMode::Local {
            self.start_from_known(&step, &aside.step.limit, now);
            return step;
        }
        Step {
            // Where nothing else is counted.
            key: CounterKey {
                identity: !step.key.identity,
                ..step.key
            },
            hits: i64::from(aside.mode == FailureMode::Deny),
            charge: Charge::IfAllowed,
            full_mode: FullMode::Deny,
            ..step
        }
    }

    /// Charges the counter of `step` with the share of the limit that the store last reported as spent,
    /// once per report and as of its time: hits that have come back since then are not charged.
    fn start_from_known(&self, step: &Step, full: &Limit, now: Timestamp) {
        let Some(said) = self.known.take(step.key, now) else {
            return;
        };
        let Report {
            remaining,
            debt,
            at,
        } = said;
        let capacity = step.limit.capacity();
        let spent = full.capacity().saturating_sub(remaining) + debt;
        let most = match step.limit.is_post_paid() {
            true => MAX_COUNT,
            false => capacity,
        };
        let spent = times(spent, self.factor).min(most);
        let look = Step {
            hits: 0,
            shadow: true,
            charge: match step.limit.is_post_paid() {
                true => Charge::Always,
                false => Charge::IfAllowed,
            },
            ..*step
        };
        let StepOutcome::Counted(outcome) = self.store.decide_as_of(&look, at) else {
            return;
        };
        let debt = step.limit.debt(outcome.remaining, outcome.full_after);
        let here = capacity.saturating_sub(outcome.remaining) + debt;
        let missing = spent.saturating_sub(here);
        if let Ok(hits @ 1..) = i64::try_from(missing) {
            self.store.decide_as_of(&Step { hits, ..look }, at);
        }
    }
}

/// The hits of `step` that passed by its failure mode with that outcome, so that the store is to count them: of a reservation,
/// what this node did not cut.
pub(crate) fn owed_hits(
    step: &Step,
    mode: FailureMode,
    outcome: &StepOutcome,
    allowed: bool,
) -> i64 {
    if !owes(step, mode, outcome.fits() && allowed) {
        return 0;
    }
    match is_reserve(step) {
        true => step.hits.saturating_sub_unsigned(outcome.cut()),
        false => step.hits,
    }
}

/// Returns true if the hits of `step` pass by its failure mode.
/// `passes` is true if the step fits and the request is allowed.
fn owes(step: &Step, mode: FailureMode, passes: bool) -> bool {
    let is_charged = passes || step.charge == Charge::Always;
    let is_counted = !step.limit.algorithm().holds_permits() && step.hits > 0;
    // What is paid afterwards was used before anybody asked.
    let is_passed = mode != FailureMode::Deny || step.limit.is_post_paid();
    is_charged && is_counted && is_passed
}

/// Counters looked at in one call of [`Fallback::maintain`].
const SWEPT: usize = 50_000;

/// A limit that nothing fits.
fn blocked() -> Option<Limit> {
    // Cannot fail: a window of a second holds any quota.
    Limit::try_new(LimitSpec::new(
        Algorithm::FixedWindow,
        0,
        Micros::from_secs(1),
    ))
    .ok()
}

/// `limit` times `factor`, at least 1 unless it is 0; the limit itself where its algorithm cannot
/// count the result.
fn scaled(limit: &Limit, factor: f64) -> Limit {
    let algorithm = limit.algorithm();
    if factor >= 1.0 {
        return *limit;
    }
    let spec = LimitSpec {
        algorithm,
        quota: times(limit.quota(), factor),
        window: limit.window(),
        calendar: limit.is_calendar(),
        burst: algorithm
            .has_burst()
            .then(|| times(limit.capacity(), factor).max(1)),
        sub_windows: Some(limit.sub_windows()).filter(|count| *count > 0),
        strict: limit.is_strict(),
        // Rules have no budgets with sub-windows, but synced ones get some.
        post_paid: limit.is_post_paid() && limit.sub_windows() == 0,
        max_debt: limit.max_debt().map(|debt| times(debt, factor)),
    };
    let Ok(made) = Limit::try_new(spec) else {
        return *limit;
    };
    let made = match limit.is_post_paid() {
        true => made.paid_afterwards(),
        false => made.with_delay_max(limit.delay_max()),
    };
    match limit.is_reserving() {
        true => made.reserving(),
        false => made,
    }
}

/// `count` times `factor`, rounded up so that no limit becomes 0.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "counts are below 2^53, the factor is 0 to 1"
)]
fn times(count: u64, factor: f64) -> u64 {
    (count as f64 * factor).ceil() as u64
}

#[cfg(test)]
mod tests;
