//! The rules as a check sees them: one snapshot, complete and immutable.

mod held;
mod levels;

use std::collections::HashMap;
use std::sync::Arc;

use ratekeeper_core::region::counted::Counted;
use ratekeeper_core::{Limit, Whole};
use ratekeeper_rules::{
    CUSTOM, Domain, Rule, RuleIndex, RulePart, RuleSet, ShedMode, ShedRules, ShedderKind,
};
use ratekeeper_store::{HashKey, RuleSlot, Store, StoreSlot};

use crate::LimitSource;
use crate::compiled::{Compiled, StoreSlots};
use crate::identity::{Namer, fingerprint, tenant_hash};
use crate::slots::{OVERRIDES, RuleSlots};
use crate::stats::RuleStats;
use crate::switch::{RuleMode, RuleSwitch, Switches};
use crate::token::Sealer;
use held::HeldLimits;

/// Modes that apply to every rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Modes {
    /// Nothing is denied; what would have been is counted (envoyproxy/ratelimit's `SHADOW_MODE`).
    pub shadow: bool,
    /// Every descriptor is in quota mode (envoyproxy/ratelimit's `QUOTA_MODE`).
    pub quota: bool,
}

/// The rules and their compiled form. A reload makes another snapshot.
#[derive(Debug)]
pub struct Snapshot {
    rules: Arc<RuleSet>,
    compiled: Vec<Compiled>,
    pub(crate) namer: Namer,
    /// Writes permits and reservations, by the same hash key.
    pub(crate) sealer: Sealer,
    pub(crate) modes: Modes,
    pub(crate) has_replaces: bool,
    /// The limits by which permits, reservations and bills are settled.
    held: HeldLimits,
    switches: Switches,
    slots: RuleSlots,
    /// The load shedders of the rules, in the modes that their switches put them.
    shed: Option<Arc<ShedRules>>,
}

/// The origin of a snapshot, which the rules that are there again have their slots from.
pub(crate) enum Before<'a> {
    /// A snapshot that was in force. Rules keep their statistics as well.
    Snapshot(&'a Snapshot),
    /// An earlier process, or none.
    Saved(RuleSlots),
}

/// A limit of which regions lend each other parts, or which they count together.
#[derive(Clone, Copy, Debug)]
pub struct LentLimit<'a> {
    /// The number by which regions tell that they mean the same limit.
    pub terms: u64,
    /// The rule of the file.
    pub rule: &'a Rule,
    /// The part that this region owns; all of it where regions count it together.
    pub owns: Limit,
    /// The whole limit.
    pub whole: Whole,
    /// The way in which regions count it together; [`None`] if they lend each other parts.
    pub counted: Option<Counted>,
    /// The store that keeps its counters.
    pub store: StoreSlot,
}

/// A rule in force, as operators see it.
#[derive(Clone, Copy, Debug)]
pub struct ListedRule<'a> {
    /// The rule of the file.
    pub rule: &'a Rule,
    /// The part that it has in decisions.
    pub mode: RuleMode,
    /// Its switch, if it has one.
    pub switch: Option<RuleSwitch>,
    /// The plan whose limit it is: the domain's default plan for a rule that names none; empty without plans.
    pub plan: &'a str,
    /// Its counts.
    pub stats: &'a RuleStats,
}

impl Snapshot {
    /// Compiles `rules`, whose counters lie at `places`. Rules that `before` had
    /// as well, by id, keep their statistics and slots.
    pub(crate) fn new(
        rules: Arc<RuleSet>,
        switches: Switches,
        modes: Modes,
        namer: Namer,
        places: &StoreSlots<'_, impl Store>,
        before: Before<'_>,
    ) -> Self {
        let rules = levels::switched(&rules, &switches);
        let modes_of_rules = levels::Modes::new(&rules, &switches);
        let (mut kept, slots) = match &before {
            Before::Snapshot(before) => (before.by_id(), RuleSlots::of(&rules, &before.slots)),
            Before::Saved(saved) => (HashMap::new(), RuleSlots::of(&rules, saved)),
        };
        // Limits that single tenants have in one place have one id, and are counted together.
        let mut customs: HashMap<Arc<str>, Custom> = HashMap::new();
        let unused = rules.unused_overrides();
        let compiled = (0..)
            .map(RuleIndex)
            .zip(rules.rules())
            .map(|(index, rule)| {
                let mode = modes_of_rules.of(rule);
                let is_unused = unused.binary_search(&index).is_ok();
                if let Some(custom) = customs.get_mut(&*rule.id) {
                    let is_left_out = is_unused || custom.is_listed;
                    custom.is_listed |= !is_unused;
                    let stats = Arc::clone(&custom.stats);
                    return Compiled {
                        is_left_out,
                        ..Compiled::new(rule, mode, custom.slot, places, stats, &namer)
                    };
                }
                let kept = kept.remove(&*rule.id);
                let stats = kept.unwrap_or_else(|| Arc::new(RuleStats::new(rule)));
                let slot = slots.get(&rule.id).unwrap_or(OVERRIDES);
                if rules.plan_of(rule) == CUSTOM {
                    let custom = Custom {
                        stats: Arc::clone(&stats),
                        slot,
                        is_listed: !is_unused,
                    };
                    customs.insert(rule.id.clone(), custom);
                }
                Compiled {
                    is_left_out: is_unused,
                    ..Compiled::new(rule, mode, slot, places, stats, &namer)
                }
            });
        let compiled: Vec<Compiled> = compiled.collect();
        let held = HeldLimits::of(rules.rules(), &compiled, &namer);
        let has_replaces = rules.rules().iter().any(|rule| !rule.replaces.is_empty());
        Self {
            compiled,
            namer,
            sealer: Sealer::new(namer.hash_key()),
            modes,
            has_replaces,
            held,
            shed: rules_of_shedders(rules.shed(), &switches),
            rules,
            switches,
            slots,
        }
    }

    /// The slots of the rules, to be saved with their counters.
    #[must_use]
    pub const fn slots(&self) -> &RuleSlots {
        &self.slots
    }

    /// The key of the hash that names counters.
    #[must_use]
    pub const fn hash_key(&self) -> HashKey {
        self.namer.hash_key()
    }

    /// Returns true if limits that come with requests have this slot.
    #[must_use]
    pub fn is_of_requests(slot: RuleSlot) -> bool {
        slot == OVERRIDES
    }

    fn by_id(&self) -> HashMap<Arc<str>, Arc<RuleStats>> {
        let rules = self.rules.rules().iter().zip(&self.compiled);
        let kept = rules.map(|(rule, made)| (rule.id.clone(), made.stats.clone()));
        kept.collect()
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// Returns `secret` as answers and logs show it: a keyed hash, and its last 4 characters where at
    /// least 8 others stay hidden. It is the same on all nodes that share the key of fingerprints.
    #[must_use]
    pub fn fingerprint(&self, secret: &str) -> String {
        fingerprint(self.namer.fingerprint_key(), secret)
    }

    /// A hash of the tenant with this key and name, the same on all nodes that share the key of fingerprints.
    #[must_use]
    pub fn tenant_hash(&self, key: &str, name: &str) -> u64 {
        tenant_hash(self.namer.fingerprint_key(), key, name)
    }

    /// The rule whose counters the store knows by `slot`; the first, where several share it.
    #[must_use]
    pub fn rule_of(&self, slot: RuleSlot) -> Option<&Rule> {
        let at = self.compiled.iter().position(|made| made.slot == slot)?;
        self.rules.rules().get(at)
    }

    /// The rules, to be put into another snapshot.
    pub(crate) fn shared_rules(&self) -> Arc<RuleSet> {
        Arc::clone(&self.rules)
    }

    /// The rules whose counters are leased although they do not say so: `consistency: leased` is the default for a
    /// counter that all requests share in a cluster.
    pub fn leased_by_default(&self) -> impl Iterator<Item = &Rule> {
        let rules = self.rules.rules().iter().zip(&self.compiled);
        let is_leased = |made: &Compiled| {
            let limit = made.limit.as_ref();
            limit.is_some_and(|limit| !limit.lease.is_zero())
        };
        let leased =
            rules.filter(move |(rule, made)| rule.consistency.is_none() && is_leased(made));
        leased.map(|(rule, _)| rule)
    }

    /// The limits of which regions lend each other parts, or which they count together.
    pub fn lent(&self) -> impl Iterator<Item = LentLimit<'_>> {
        let rules = self.rules.rules().iter().zip(&self.compiled);
        rules.filter_map(|(rule, made)| {
            let limit = made.limit.as_ref().filter(|limit| limit.terms > 0)?;
            Some(LentLimit {
                terms: limit.terms,
                rule,
                owns: *limit.delayed(),
                whole: limit.whole,
                counted: limit.counted,
                store: made.store,
            })
        })
    }

    /// The modes that apply to every rule.
    #[must_use]
    pub const fn modes(&self) -> Modes {
        self.modes
    }

    /// The rule that answered, if it was one of the file's.
    #[must_use]
    pub fn rule(&self, source: LimitSource) -> Option<&Rule> {
        match source {
            LimitSource::Rule(index) => Some(self.rules.rule(index)),
            LimitSource::Override | LimitSource::Own(_) => None,
        }
    }

    /// The statistics of every rule, in the order of the files. The limits that single tenants have in
    /// one place have the first one's; those that none has any more are left out.
    pub fn stats(&self) -> impl Iterator<Item = &RuleStats> {
        self.counted().map(|(_, stats)| stats)
    }

    /// As [`Self::stats`], each with its rule.
    pub fn counted(&self) -> impl Iterator<Item = (&Rule, &RuleStats)> {
        let rules = self.rules.rules().iter().zip(&self.compiled);
        let own = rules.filter(|(_, made)| !made.is_left_out);
        own.map(|(rule, made)| (rule, &*made.stats))
    }

    /// The rules in the order of the files, with the modes that they are in. As in [`Self::counted`], the
    /// limits that single tenants have in one place are one, and those that none has any more are left out.
    pub fn listed(&self) -> impl Iterator<Item = ListedRule<'_>> {
        let rules = self.rules.rules().iter().zip(&self.compiled);
        let own = rules.filter(|(_, made)| !made.is_left_out);
        own.map(|(rule, made)| ListedRule {
            rule,
            mode: made.mode,
            switch: self.switches.get(&rule.id),
            plan: self.rules.plan_of(rule),
            stats: &made.stats,
        })
    }

    /// The rules as [`RuleSet::rlconfig_of`] writes them, in the modes that they are in.
    #[must_use]
    pub fn rlconfig(&self) -> String {
        self.rules.rlconfig_of(|index| {
            let mode = self.compiled(index).mode;
            RulePart {
                enabled: mode != RuleMode::Disabled,
                shadow: match mode {
                    RuleMode::Enforced => false,
                    RuleMode::Shadow => true,
                    RuleMode::Disabled => self.rules.rule(index).shadow,
                },
            }
        })
    }

    /// The switches, also of rules that the files no longer have.
    #[must_use]
    pub const fn switches(&self) -> &Switches {
        &self.switches
    }

    /// The load shedders in force, each in the mode that its switch or its file says; None if the files have none.
    #[must_use]
    pub const fn shed(&self) -> Option<&Arc<ShedRules>> {
        self.shed.as_ref()
    }

    pub(crate) fn domain(&self, name: &str) -> Option<&Domain> {
        self.rules.domain(name)
    }

    pub(crate) fn compiled(&self, index: RuleIndex) -> &Compiled {
        &self.compiled[index.get()]
    }
}

/// The parts that the limits of single tenants in one place share.
struct Custom {
    stats: Arc<RuleStats>,
    slot: RuleSlot,
    /// True if one of them is listed for all.
    is_listed: bool,
}

/// The load shedders of the files, in the modes that operators have switched them to.
fn rules_of_shedders(
    written: Option<&Arc<ShedRules>>,
    switches: &Switches,
) -> Option<Arc<ShedRules>> {
    let written = written?;
    let switched = ShedderKind::ALL.map(|kind| (kind, switches.get(kind.id())));
    if switched.iter().all(|(_, switch)| switch.is_none()) {
        return Some(Arc::clone(written));
    }
    let mut rules = (**written).clone();
    for (kind, switch) in switched {
        match switch {
            Some(RuleSwitch::Enabled) => rules.set_mode(kind, ShedMode::On),
            Some(RuleSwitch::Disabled) => rules.set_mode(kind, ShedMode::Off),
            Some(RuleSwitch::Shadow) => rules.set_mode(kind, ShedMode::Shadow),
            None => {}
        }
    }
    Some(Arc::new(rules))
}
