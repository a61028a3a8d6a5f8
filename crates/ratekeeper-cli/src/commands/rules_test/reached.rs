//! The rules that answered a test.

use ratekeeper_limiter::Snapshot;
use ratekeeper_rules::{CUSTOM, Rule, RuleSet};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The rules of one set, and those that have answered a request.
#[derive(Default)]
pub(super) struct Reached {
    all: BTreeSet<Arc<str>>,
    reached: BTreeSet<Arc<str>>,
}

impl Reached {
    /// None of `rules` yet. Rules that are off or unlimited, whose answers are not counted, and the limits of single tenants are left out.
    pub(super) fn of(rules: &RuleSet) -> Self {
        let is_asked = |rule: &&Rule| {
            let is_shared = rule.plan.as_deref() != Some(CUSTOM);
            is_shared && rule.enabled && rule.limited().is_some()
        };
        let rules = rules.rules().iter().filter(is_asked);
        Self {
            all: rules.map(|rule| Arc::clone(&rule.id)).collect(),
            reached: BTreeSet::new(),
        }
    }

    /// Adds the rules that have answered until now.
    pub(super) fn add(&mut self, snapshot: &Snapshot) {
        let answered = snapshot
            .listed()
            .filter(|it| it.stats.counts().answers() > 0);
        let ids = answered.map(|it| Arc::clone(&it.rule.id));
        self.reached.extend(ids);
    }

    /// The number of rules.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The ids of the rules that have not answered, sorted.
    pub(super) fn missing(&self) -> impl Iterator<Item = &Arc<str>> {
        self.all.difference(&self.reached)
    }
}
