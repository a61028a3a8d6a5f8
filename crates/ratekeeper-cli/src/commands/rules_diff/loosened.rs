//! The limits that a change lifts.

use super::free::{Descriptor, Descriptors};
use ratekeeper_core::Limit;
use ratekeeper_rules::{CUSTOM, Domain, Enforce, Evaluation, Rule, RuleIndex, RuleSet};
use std::collections::{HashMap, HashSet};

/// Says of each rule that denies under `old` and would not under `new` why, by id.
pub(super) fn all(old: &RuleSet, new: &RuleSet) -> Vec<String> {
    let (before, after) = (Rules::of(old), Rules::of(new));
    let mut warnings = Vec::new();
    for rule in before.by_id.values().filter(|rule| before.denies(rule)) {
        let id = &rule.id;
        match after.by_id.get(&**id) {
            None => {
                let place = before.descriptors.get(&rule.domain, &rule.path);
                let of_key = place.and_then(Descriptor::of_key);
                let why = after.lifted(rule, of_key);
                warnings.extend(why.map(|why| format!("{id}: removed{why}")));
            }
            Some(now) => {
                let why = match after.why_not(now) {
                    Some(why) => Some(format!("it {why} now")),
                    None => laxer(now, rule),
                };
                warnings.extend(why.map(|why| format!("{id}: {why}")));
            }
        }
    }
    let is_new = |rule: &&&Rule| !before.by_id.contains_key(&*rule.id);
    for rule in after.by_id.values().filter(is_new) {
        if rule.enabled && rule.limited().is_none() {
            warnings.push(format!("{}: new, and lets everything pass", rule.id));
        }
    }
    let is_held = |rule: &Rule| before.denies(rule);
    warnings.extend(after.descriptors.taken(&before.descriptors, old, is_held));
    warnings.extend(only_leaves(old, new, |rule| before.denies(rule)));
    warnings.sort();
    warnings
}

/// Says in which way `now` denies less often than `before`, whatever its limit is.
fn laxer(now: &Rule, before: &Rule) -> Option<String> {
    if now.enforce < before.enforce {
        let (from, to) = (before.enforce, now.enforce);
        return Some(format!("it is enforced for {to} now, no longer for {from}"));
    }
    let is_quota = now.quota_mode && !before.quota_mode;
    is_quota
        .then(|| "it is in quota mode now, and denies only what no other rule lets pass".to_owned())
}

/// Says of each domain whose limits hold no longer for requests with further entries.
fn only_leaves(old: &RuleSet, new: &RuleSet, denies: impl Fn(&Rule) -> bool) -> Vec<String> {
    let of_domain = |domain: &Domain| {
        let before = old.domain(domain.name())?;
        let evaluations = (before.evaluation(), domain.evaluation());
        let mut rules = old.rules().iter();
        let is_any = rules.any(|rule| *rule.domain == *domain.name() && denies(rule));
        let is_laxer = evaluations == (Evaluation::Path, Evaluation::Leaf) && is_any;
        is_laxer.then(|| {
            let name = domain.name();
            format!(
                "{name}: under evaluation leaf no limit holds for requests with further entries"
            )
        })
    };
    new.domains().filter_map(of_domain).collect()
}

struct Rules<'a> {
    by_id: HashMap<&'a str, &'a Rule>,
    /// The ids of the rules whose service level is disabled.
    off: HashSet<&'a str>,
    descriptors: Descriptors<'a>,
}

impl<'a> Rules<'a> {
    fn of(rules: &'a RuleSet) -> Self {
        let levels = rules.service_levels().iter().filter(|level| !level.enabled);
        let off = levels.flat_map(|level| {
            let of_plans = level.by_plan.iter().flat_map(|(_, rules)| rules);
            level.rules.iter().chain(of_plans)
        });
        // Limits that single tenants have share their ids, and are told by the tenants that change.
        let is_shared = |rule: &&Rule| rule.plan.as_deref() != Some(CUSTOM);
        let shared = rules.rules().iter().filter(is_shared);
        let id = |index: &RuleIndex| &*rules.rule(*index).id;
        Self {
            by_id: shared.map(|rule| (&*rule.id, rule)).collect(),
            off: off.map(id).collect(),
            descriptors: Descriptors::of(rules),
        }
    }

    fn denies(&self, rule: &Rule) -> bool {
        self.why_not(rule).is_none()
    }

    /// The reason why the rule denies nobody.
    fn why_not(&self, rule: &Rule) -> Option<&'static str> {
        if rule.limited().is_none() {
            Some("is unlimited")
        } else if !rule.enabled || self.off.contains(&*rule.id) {
            Some("is disabled")
        } else if rule.shadow {
            Some("is in shadow, and denies nobody")
        } else if rule.enforce == Enforce::NONE {
            Some("is enforced for 0%, and denies nobody")
        } else {
            None
        }
    }

    /// Returns true if another rule in the place of `gone` denies.
    fn has_other(&self, gone: &Rule) -> bool {
        let is_there = |rule: &Rule| rule.plan == gone.plan && is_path(&rule.path, &gone.path);
        self.denying(gone).any(is_there)
    }

    /// Says what the requests of `gone`, a rule that is no more, meet in its place; [`None`] if they meet a limit as strict.
    /// The key whose value it names is at `of_key`.
    fn lifted(&self, gone: &Rule, of_key: Option<&[Box<str>]>) -> Option<String> {
        if self.has_other(gone) {
            return None;
        }
        let descriptor = self.descriptors.get(&gone.domain, &gone.path);
        if descriptor.is_some_and(Descriptor::is_free) {
            return Some(", and its descriptor stays without a limit".to_owned());
        }
        // A descriptor that is there keeps its requests from the limit of the key.
        let of_key = of_key.filter(|_| descriptor.is_none());
        match self.in_place_of(gone, of_key) {
            None => Some(", and no limit is left in its place".to_owned()),
            Some(now) if is_as_strict(now, gone) => None,
            Some(now) => {
                let (other, limit) = (&now.id, now.quota_in_words());
                Some(format!("; {other} decides in its place: {limit}"))
            }
        }
    }

    /// The rule that denies what `gone` did: that of the default plan, or that of the key.
    fn in_place_of(&self, gone: &Rule, of_key: Option<&[Box<str>]>) -> Option<&'a Rule> {
        let takes_over = |rule: &&Rule| {
            let is_of_plan = rule.plan.is_none() || rule.plan == gone.plan;
            let is_of_key = of_key.is_some_and(|key| is_path(&rule.path, key));
            is_of_plan && (is_path(&rule.path, &gone.path) || is_of_key)
        };
        // The nearest in the tree, then that of its own plan.
        let all = self.denying(gone).filter(takes_over);
        let near = |rule: &&Rule| (text_len(&rule.path), rule.plan.is_some(), rule.id.clone());
        all.max_by_key(near)
    }

    /// The rules of a domain that deny.
    fn denying(&self, of: &Rule) -> impl Iterator<Item = &'a Rule> {
        let rules = self.by_id.values().copied();
        rules.filter(|rule| rule.domain == of.domain && self.denies(rule))
    }
}

/// Returns true if the limit lets no more pass than `before`, neither at once nor over time.
fn is_as_strict(now: &Rule, before: &Rule) -> bool {
    let (Some(now), Some(before)) = (now.limited(), before.limited()) else {
        return false;
    };
    let in_time =
        |quota: u64, window: &Limit| u128::from(quota) * u128::from(window.window().get());
    let over_time = in_time(now.quota(), before) <= in_time(before.quota(), now);
    let is_alike = now.algorithm().holds_permits() == before.algorithm().holds_permits();
    is_alike && over_time && now.capacity() <= before.capacity()
}

/// Returns true for the same place among the rules: the case of URL paths is ignored there.
pub(super) fn is_path(one: &[Box<str>], other: &[Box<str>]) -> bool {
    let is_same = |one: &str, other: &str| {
        one == other || (one.starts_with("path_/") && one.eq_ignore_ascii_case(other))
    };
    let mut parts = one.iter().zip(other);
    one.len() == other.len() && parts.all(|(one, other)| is_same(one, other))
}

fn text_len(path: &[Box<str>]) -> usize {
    path.iter().map(|part| part.len()).sum()
}
