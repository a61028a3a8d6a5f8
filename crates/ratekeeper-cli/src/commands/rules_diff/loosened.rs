//! The limits that a change lifts.

use super::requests::Request;
use super::taken;
use ratekeeper_core::Limit;
use ratekeeper_rules::{CUSTOM, Domain, Enforce, Evaluation, Node, Rule, RuleIndex, RuleSet, Walk};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Says of each rule that denies under `old` and would not under `new` why, by id.
pub(super) fn all(old: &RuleSet, new: &RuleSet) -> Vec<String> {
    let (before, after) = (Side::of(old), Side::of(new));
    let mut warnings = Vec::new();
    let mut told = BTreeSet::new();
    for rule in before.by_id.values().filter(|rule| before.denies(rule)) {
        let id = &rule.id;
        let earlier = before.of_rules.get(&**id);
        let now = after.by_id.get(&**id).copied();
        let now = now.or_else(|| after.renamed(rule, earlier?, &before));
        let why = match now {
            None => after
                .lifted(rule, earlier)
                .map(|why| format!("removed{why}")),
            Some(now) => match after.why_not(now) {
                Some(why) => Some(format!("it {why} now")),
                None => laxer(now, rule),
            },
        };
        if let Some(why) = why {
            warnings.push(format!("{id}: {why}"));
            told.insert(&**id);
        }
    }
    let is_new = |rule: &&&Rule| !before.by_id.contains_key(&*rule.id);
    for rule in after.by_id.values().filter(is_new) {
        if rule.enabled && rule.limited().is_none() {
            warnings.push(format!("{}: new, and lets everything pass", rule.id));
        }
    }
    warnings.extend(taken::all(&before, &after, &told));
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
    is_laxer(now, before)
        .then(|| "it is in quota mode now, and denies only what no other rule lets pass".to_owned())
}

/// Returns true if `now` denies less often than `before`, whatever its limit is.
pub(super) fn is_laxer(now: &Rule, before: &Rule) -> bool {
    now.enforce < before.enforce || now.quota_mode && !before.quota_mode
}

/// The way in which a rule denies less often than another could.
pub(super) fn how_often(rule: &Rule) -> Option<String> {
    let mut how = Vec::new();
    if rule.enforce < Enforce::ALL {
        how.push(format!("enforced for {}", rule.enforce));
    }
    if rule.quota_mode {
        how.push("in quota mode".to_owned());
    }
    (!how.is_empty()).then(|| how.join(" and "))
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

/// The old or the new rules.
pub(super) struct Side<'a> {
    pub(super) rules: &'a RuleSet,
    by_id: HashMap<&'a str, &'a Rule>,
    /// The ids of the rules whose service level is disabled.
    off: HashSet<&'a str>,
    /// A request for each descriptor, by domain.
    pub(super) requests: Vec<(&'a Domain, Vec<Request>)>,
    /// The one of each rule, by its id.
    of_rules: HashMap<&'a str, Request>,
}

impl<'a> Side<'a> {
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
        let (mut requests, mut of_rules) = (Vec::new(), HashMap::new());
        for domain in domains(rules) {
            let all = Request::all(rules, domain);
            for (request, node) in &all {
                let ids = rules_at(node).map(id);
                of_rules.extend(ids.map(|id| (id, request.clone())));
            }
            requests.push((
                domain,
                all.into_iter().map(|(request, _)| request).collect(),
            ));
        }
        Self {
            rules,
            by_id: shared.map(|rule| (&*rule.id, rule)).collect(),
            off: off.map(id).collect(),
            requests,
            of_rules,
        }
    }

    pub(super) fn denies(&self, rule: &Rule) -> bool {
        self.why_not(rule).is_none()
    }

    /// The reason why the rule denies nobody.
    pub(super) fn why_not(&self, rule: &Rule) -> Option<&'static str> {
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

    /// The rule that goes on in the place of `gone` under an id that `before` does not have: it limits the same time in the same
    /// way.
    fn renamed(&self, gone: &Rule, request: &Request, before: &Self) -> Option<&'a Rule> {
        let domain = self.rules.domain(&gone.domain)?;
        let mut here = request
            .rules((self.rules, domain), gone.plan.as_deref())
            .into_iter();
        let kind = |rule: &Rule| Some((rule.limited()?.algorithm(), rule.limited()?.window()));
        here.find(|rule| {
            let is_new = !before.by_id.contains_key(&*rule.id);
            let is_here = rule.plan == gone.plan && is_path(&rule.path, &gone.path);
            is_new && is_here && kind(rule) == kind(gone)
        })
    }

    /// Says what the requests of `gone`, a rule that is no more, meet in its place; [`None`] if they meet a limit as strict.
    fn lifted(&self, gone: &Rule, request: Option<&Request>) -> Option<String> {
        let found = self.rules.domain(&gone.domain).zip(request);
        let now = found
            .map(|(domain, request)| request.rules((self.rules, domain), gone.plan.as_deref()));
        let now: Vec<_> = now.unwrap_or_default();
        let now = || now.iter().filter(|rule| self.denies(rule));
        if now().any(|rule| is_as_strict(rule, gone)) {
            return None;
        }
        if let Some(now) = now().min_by_key(|rule| (is_laxer(rule, gone), hits_per_time(rule))) {
            let (other, limit) = (&now.id, now.quota_in_words());
            let how = how_often(now).map(|how| format!(", {how}"));
            let how = how.unwrap_or_default();
            return Some(format!("; {other} decides in its place: {limit}{how}"));
        }
        let walk = found.map(|(domain, request)| request.walk(domain));
        let is_there = walk.is_some_and(|walk| stays(&walk, gone));
        Some(match is_there {
            true => ", and its descriptor stays without a limit".to_owned(),
            false => ", and no limit is left in its place".to_owned(),
        })
    }
}

/// All domains, also that of the service levels.
fn domains(rules: &RuleSet) -> impl Iterator<Item = &Domain> {
    rules.domains().chain(rules.service_level_domain())
}

/// The rules of a node on all plans.
pub(super) fn rules_at(node: &Node) -> impl Iterator<Item = &RuleIndex> {
    let of_plans = node.by_plan().flat_map(|(_, rules)| rules);
    node.rules().iter().chain(of_plans)
}

/// Returns true if a request of `gone` ends at its descriptor still, and that has no limit on any plan.
fn stays(walk: &Walk<'_>, gone: &Rule) -> bool {
    let path: Vec<Box<str>> = walk
        .iter()
        .map(|visit| visit.node.pattern().into())
        .collect();
    let leaf = walk.leaf();
    is_path(&path, &gone.path) && leaf.is_some_and(|leaf| rules_at(leaf.node).next().is_none())
}

/// Orders limits by what they let pass over time.
fn hits_per_time(rule: &Rule) -> u128 {
    const DAY: u128 = 86_400_000_000;
    let limit = rule.limited();
    limit.map_or(u128::MAX, |limit| {
        u128::from(limit.quota()) * DAY / u128::from(limit.window().get().max(1))
    })
}

/// Returns true if the rule denies as often as `before`, and its limit lets no more pass, neither at once nor over time.
fn is_as_strict(now: &Rule, before: &Rule) -> bool {
    if is_laxer(now, before) {
        return false;
    }
    let (Some(now), Some(before)) = (now.limited(), before.limited()) else {
        return false;
    };
    let in_time =
        |quota: u64, window: &Limit| u128::from(quota) * u128::from(window.window().get());
    let over_time = in_time(now.quota(), before) <= in_time(before.quota(), now);
    let is_alike = now.algorithm().holds_permits() == before.algorithm().holds_permits();
    is_alike && over_time && now.capacity() <= before.capacity()
}

/// Returns true for the same place among the rules, where one request finds both: in paths, case makes no difference.
fn is_path(one: &[Box<str>], other: &[Box<str>]) -> bool {
    let mut parts = one.iter().zip(other);
    one.len() == other.len() && parts.all(|(one, other)| one.eq_ignore_ascii_case(other))
}
