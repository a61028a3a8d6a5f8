//! The limits by which permits, reservations and bills are settled, by the tokens that these have for them.
//!
//! A rule keeps its token whatever its quota. The limits that single tenants have in one place share an id, and are told apart
//! by what they let pass; so a change of one makes another token, though its counters stay. What was taken by one that is gone
//! is settled by a limit of the same place: it has the same counters, whosever limit it is.

use std::collections::HashMap;

use ratekeeper_core::{Limit, Micros, Whole};
use ratekeeper_rules::{CUSTOM, Rule, RuleIndex};
use ratekeeper_store::Step;

use super::Snapshot;
use crate::compiled::{Compiled, CompiledLimit};
use crate::identity::{LimitPlace, Namer};

/// The rules with a limit.
#[derive(Debug)]
pub(super) struct HeldLimits {
    by_token: HashMap<u64, RuleIndex>,
    /// The rule of each place that stands in for tenants' limits that are gone.
    by_place: HashMap<LimitPlace, RuleIndex>,
}

/// The limit to settle something by.
pub(crate) struct HeldLimit<'a> {
    pub(crate) rule: &'a Rule,
    pub(crate) compiled: &'a Compiled,
    made: &'a CompiledLimit,
    /// True if it stands in for a tenant's limit that is gone.
    stands_in: bool,
}

impl HeldLimits {
    pub(super) fn of(rules: &[Rule], compiled: &[Compiled], namer: &Namer) -> Self {
        let mut by_token = HashMap::new();
        let mut best: HashMap<LimitPlace, (Fitness, RuleIndex)> = HashMap::new();
        for ((index, made), rule) in (0..).map(RuleIndex).zip(compiled).zip(rules) {
            let Some(limit) = &made.limit else {
                continue;
            };
            by_token.insert(made.token, index);
            let place = namer.place(rule, limit.identity);
            let found = (fitness(rule, limit.delayed()), index);
            let known = best.entry(place).or_insert(found);
            if known.0 < found.0 {
                *known = found;
            }
        }
        let by_place = best.into_iter().map(|(place, (_, index))| (place, index));
        Self {
            by_token,
            by_place: by_place.collect(),
        }
    }
}

type Fitness = (bool, bool, u64);

/// The fitness of a limit to stand in for others of its place: one that can charge more than was reserved, of a tenant rather
/// than of all, and as large as can be. A smaller one than a counter has known might forget hits that it counts.
fn fitness(rule: &Rule, limit: &Limit) -> Fitness {
    let is_custom = rule.plan.as_deref() == Some(CUSTOM);
    (limit.is_post_paid(), is_custom, limit.quota())
}

impl Snapshot {
    /// The limit that a permit, a reservation or a bill names; None if its rule is gone, or its limit has other counters now.
    pub(crate) fn limit_of_token(&self, token: u64) -> Option<HeldLimit<'_>> {
        let same = self.held.by_token.get(&token);
        let place = || self.held.by_place.get(&LimitPlace::of_token(token));
        let index = *same.or_else(place)?;
        let compiled = self.compiled(index);
        Some(HeldLimit {
            rule: self.rules.rule(index),
            compiled,
            made: compiled.limit.as_ref()?,
            stands_in: same.is_none(),
        })
    }
}

impl HeldLimit<'_> {
    pub(crate) const fn limit(&self) -> &Limit {
        self.made.delayed()
    }

    /// The time of the leases of its counters; zero if there are none.
    pub(crate) const fn lease(&self) -> Micros {
        match self.stands_in {
            // They are of just one limit.
            true => Micros::ZERO,
            false => self.made.lease,
        }
    }

    /// Puts the limit into `step`, with the place of its counters, how they are synced, and how regions share it. One that
    /// stands in gives way to the `former` limit, if that is known.
    pub(crate) fn put_into(&self, step: &mut Step, former: Option<&Limit>) {
        let limit = former.filter(|_| self.stands_in).unwrap_or(self.limit());
        let made = self.made;
        // Regions have terms for just one limit.
        let (terms, whole, counted) = match self.stands_in {
            true => (0, Whole::of(limit), None),
            false => (made.terms, made.whole, made.counted),
        };
        *step = Step {
            limit: *limit,
            rule: self.compiled.slot,
            store: self.compiled.store,
            sync: made.sync,
            terms,
            whole,
            counted,
            ..*step
        };
    }
}
