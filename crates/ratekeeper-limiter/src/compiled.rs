//! Rules compiled into what a check needs of them.

use std::sync::Arc;

use ratekeeper_core::lease::Terms;
use ratekeeper_core::region::counted::Counted;
use ratekeeper_core::{Limit, Micros, Whole};
use ratekeeper_rules::{Consistency, FailureMode, LeakyOverRls, RegionMode, Rule};
use ratekeeper_store::{Charge, FullMode, RuleSlot, Store, StoreSlot};

use crate::Waiting;
use crate::identity::{DomainIdentity, LimitIdentity, Namer};
use crate::stats::RuleStats;
use crate::switch::RuleMode;

/// A rule compiled into what a check needs of it.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) domain: DomainIdentity,
    /// The name that permits and reservations have for it and its limit.
    pub(crate) token: u64,
    /// None if the rule is unlimited.
    pub(crate) limit: Option<CompiledLimit>,
    pub(crate) slot: RuleSlot,
    /// The store that keeps its counters.
    pub(crate) store: StoreSlot,
    pub(crate) charge: Charge,
    pub(crate) full_mode: FullMode,
    /// By the rule's file and its switch.
    pub(crate) mode: RuleMode,
    pub(crate) stats: Arc<RuleStats>,
    /// True if lists leave it out: a rule of the same id has these statistics and is listed, or no tenant has it any more.
    pub(crate) is_left_out: bool,
}

#[derive(Debug)]
pub(crate) struct CompiledLimit {
    pub(crate) identity: LimitIdentity,
    delayed: Limit,
    undelayed: Limit,
    /// The time of its leases; zero if there are none.
    pub(crate) lease: Micros,
    /// The time between two syncs of its counters; zero if they are not synced.
    pub(crate) sync: Micros,
    /// The terms on which regions lend each other parts of it, or count it together; 0 if they do neither.
    pub(crate) terms: u64,
    /// The whole limit of which they do.
    pub(crate) whole: Whole,
    /// The way in which regions count it together.
    pub(crate) counted: Option<Counted>,
}

/// The parts of the time of a loan of which a lease lasts one at most: a quarter of the margin that its lender waits.
const LEASES_OF_LOAN: u64 = 40;

/// The places of a store's counters, as rules are compiled for them.
pub(crate) struct StoreSlots<'a, S>(pub(crate) &'a S);

impl<S: Store> StoreSlots<'_, S> {
    fn of(&self, rule: &Rule) -> StoreSlot {
        if rule.consistency == Some(Consistency::Local)
            && let Some(own) = self.0.own_slot()
        {
            return own;
        }
        let named = rule.store.as_deref().map(|name| self.0.slot(name));
        named.unwrap_or_default()
    }

    /// The terms of the rule's leases, if its store leases counters. Rules that cannot be leased are refused when they
    /// are read.
    fn terms(&self, rule: &Rule, limit: &Limit) -> Option<Terms> {
        let slot = self.of(rule);
        let is_leased =
            rule.consistency == Some(Consistency::Leased) || self.leases_unasked(rule, slot);
        if !is_leased || rule.count_denied || !self.0.leases(slot) {
            return None;
        }
        // Of a share that is held for a time, a node's part must not outlast it by more than its lender waits.
        let share = rule.share.as_ref().filter(|share| share.is_lent);
        let most = share.map_or(Micros::MAX, |share| share.regions.loan_time());
        let lease = rule.lease.min(Micros::new(most.get() / LEASES_OF_LOAN));
        Terms::try_new(limit, lease).ok()
    }

    /// Returns true if the rule's counter is leased although the rule does not say so: all requests share it, and one
    /// server of a cluster would have to decide each of them.
    fn leases_unasked(&self, rule: &Rule, slot: StoreSlot) -> bool {
        // Hits in quota mode are never taken from leases.
        let moves = matches!(
            rule.regions,
            Some(RegionMode::Bounded | RegionMode::Counted)
        );
        let is_free = rule.consistency.is_none() && !moves;
        is_free && rule.is_global && !rule.quota_mode && self.0.is_cluster(slot)
    }

    /// The limit that this node enforces of the rule. Where nothing keeps what other regions say, that of one that they count
    /// together is this region's share.
    fn enforced(&self, rule: &Rule) -> Option<Limit> {
        let limit = rule.enforced()?;
        let share = rule.share.as_ref().filter(|share| share.counted.is_some());
        Some(match share {
            Some(share) if !self.0.lends(self.of(rule)) => {
                let owns = share.regions.share(limit.quota());
                limit.holding(owns, Whole::of(limit))
            }
            _ => *limit,
        })
    }

    /// The terms on which regions lend each other parts of the rule's limit, or count it together; 0 if they do neither. In a
    /// store that keeps nothing of that each region keeps its share.
    fn loan_terms(&self, rule: &Rule, namer: &Namer) -> u64 {
        let share = rule.share.as_ref();
        let share = share.filter(|share| share.is_lent || share.counted.is_some());
        match (share, rule.limited()) {
            (Some(share), Some(limit)) if self.0.lends(self.of(rule)) => {
                namer.terms(rule, limit, &share.regions)
            }
            _ => 0,
        }
    }

    /// The time between two syncs of the rule's counters; zero if they are not synced.
    fn sync(&self, rule: &Rule) -> Micros {
        let terms = rule.sync_terms();
        let terms = terms.filter(|_| self.0.leases(self.of(rule)));
        terms.map_or(Micros::ZERO, |terms| terms.interval())
    }
}

impl CompiledLimit {
    /// The limit, for callers that can or cannot wait; one that is made for them is put in `own`.
    #[inline]
    pub(crate) fn get<'a>(&'a self, waiting: Waiting, own: &'a mut Option<Limit>) -> &'a Limit {
        match waiting {
            Waiting::Can => &self.delayed,
            Waiting::Cannot => &self.undelayed,
            Waiting::Within(most) => own.insert(self.delayed.with_delay_max(most)),
        }
    }

    /// The limit, for callers that wait for any turn.
    pub(crate) const fn delayed(&self) -> &Limit {
        &self.delayed
    }
}

impl Compiled {
    pub(crate) fn new(
        rule: &Rule,
        mode: RuleMode,
        slot: RuleSlot,
        places: &StoreSlots<'_, impl Store>,
        stats: Arc<RuleStats>,
        namer: &Namer,
    ) -> Self {
        let limit = places.enforced(rule).map(|limit| {
            let identity = namer.limit(&rule.domain, &limit, rule.calendar.as_ref());
            let terms = places.terms(rule, &limit);
            CompiledLimit {
                identity,
                delayed: limit,
                undelayed: match rule.leaky_over_rls {
                    LeakyOverRls::Deny => limit.without_delay(),
                    LeakyOverRls::Allow => limit,
                },
                lease: terms.map_or(Micros::ZERO, |terms| terms.ttl()),
                sync: places.sync(rule),
                terms: places.loan_terms(rule, namer),
                whole: Whole::of(rule.limited().unwrap_or(&limit)),
                counted: rule.share.as_ref().and_then(|share| share.counted),
            }
        });
        let is_post_paid = rule.limited().is_some_and(Limit::is_post_paid);
        let charge = if rule.count_denied || is_post_paid {
            Charge::Always
        } else {
            Charge::IfAllowed
        };
        let full_mode = match rule.on_store_failure {
            FailureMode::Deny => FullMode::Deny,
            // Without room there is nothing to count with on this node either.
            FailureMode::Allow | FailureMode::Local => FullMode::Allow,
        };
        Self {
            domain: namer.domain(&rule.domain),
            token: namer.token(rule, limit.as_ref().map(|it| (it.identity, it.delayed))),
            limit,
            slot,
            store: places.of(rule),
            charge,
            full_mode,
            mode,
            stats,
            is_left_out: false,
        }
    }
}

#[cfg(test)]
mod tests;
