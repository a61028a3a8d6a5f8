//! The effect of a reload on counters.

#[cfg(feature = "yaml")]
mod beside;
mod counters;
mod surroundings;

use std::fmt;
use std::sync::Arc;

use hashbrown::HashMap;
use ratekeeper_core::Limit;
use ratekeeper_core::duration::format_duration;

use crate::{CUSTOM, Enforce, Rule, RuleIndex, RuleLimit, RuleSet};
use counters::counted;
use surroundings::Surroundings;

/// The change to one rule.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Change {
    /// The rule's id.
    pub rule: Arc<str>,
    /// The kind of change, with the limit before and after.
    pub kind: ChangeKind,
}

/// The way in which a rule differs from its previous version.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ChangeKind {
    /// The rule is new.
    Added {
        /// The rule's limit and algorithm, in words.
        limit: String,
    },
    /// The rule is gone.
    Removed {
        /// The limit and the algorithm that the rule had, in words.
        limit: String,
    },
    /// The limit, the burst or the enforcement changed: usage is kept and judged by the new limit
    /// at once.
    Adjusted {
        /// The limit before the change, in words.
        from: String,
        /// The limit after the change; the same text if only others changed.
        to: String,
        /// The other properties that changed, in words: `on_store_failure local -> deny`.
        others: Vec<String>,
    },
    /// The counter's identity changed: its counters start from zero.
    StartsAfresh {
        /// The algorithm and window before the change.
        from: String,
        /// The algorithm and window after the change.
        to: String,
    },
}

/// The place of the counters that each node keeps for itself (`consistency: local`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnCounters {
    /// Apart from all others, which are in a store that nodes share.
    Apart,
    /// Among those of rules that name no store, which are all on this node.
    AmongOthers,
}

impl Change {
    /// A new rule, with its limit in words.
    #[must_use]
    pub const fn added(rule: Arc<str>, limit: String) -> Self {
        Self {
            rule,
            kind: ChangeKind::Added { limit },
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = &self.rule;
        match &self.kind {
            ChangeKind::Added { limit } => write!(f, "{rule}: new, {limit}"),
            ChangeKind::Removed { limit } => write!(f, "{rule}: removed, was {limit}"),
            ChangeKind::Adjusted { from, to, others } => {
                match from == to {
                    true => write!(f, "{rule}: {to} as before")?,
                    false => write!(f, "{rule}: {from} -> {to}")?,
                }
                for other in others {
                    write!(f, ", {other}")?;
                }
                f.write_str(", keeps its usage")
            }
            ChangeKind::StartsAfresh { from, to } => {
                write!(f, "{rule} starts afresh: it was {from}, and is {to}")
            }
        }
    }
}

impl RuleSet {
    /// Returns the rules that were added, removed or changed since `old`, sorted by id. Unchanged
    /// rules are left out, and so are the limits that single tenants have. A rule with another id whose usage goes on has changed.
    #[must_use]
    pub fn changes_since(&self, old: &Self) -> Vec<Change> {
        self.changes_with(old, OwnCounters::Apart)
    }

    /// As [`Self::changes_since`], where counters that each node keeps for itself are in that place.
    #[must_use]
    pub fn changes_with(&self, old: &Self, own: OwnCounters) -> Vec<Change> {
        let by_id = |rules| -> HashMap<_, _> {
            shared(rules)
                .map(|(index, rule)| (&rule.id, (index, rule)))
                .collect()
        };
        let (before, after) = (by_id(old), by_id(self));
        let (around_before, around) = (surroundings::all(old), surroundings::all(self));
        let nothing = Surroundings::default();
        let of_old = |(index, rule)| (rule, around_before.get(&index).unwrap_or(&nothing));
        let gone = shared(old).filter(|(_, rule)| !after.contains_key(&rule.id));
        let mut gone = Gone::of(gone.map(of_old), own);
        let mut changes = Vec::new();
        for (index, rule) in shared(self) {
            let now = (rule, around.get(&index).unwrap_or(&nothing));
            let earlier = before.get(&rule.id).copied().map(of_old);
            let kind = match earlier.or_else(|| gone.take(now)) {
                None => Some(ChangeKind::Added {
                    limit: described_with_algorithm(rule),
                }),
                Some(earlier) => difference(earlier, now, own),
            };
            changes.extend(kind.map(|kind| change(rule, kind)));
        }
        changes.extend(gone.rules().map(|rule| {
            let limit = described_with_algorithm(rule);
            change(rule, ChangeKind::Removed { limit })
        }));
        changes.sort_by(|one, other| one.rule.cmp(&other.rule));
        changes
    }
}

/// A rule, and what is around it.
type Placed<'a> = (&'a Rule, &'a Surroundings<'a>);

/// The rules whose ids are gone, by what names their counters: the ids do not.
struct Gone<'a> {
    rules: HashMap<Counters<'a>, Vec<Placed<'a>>>,
    own: OwnCounters,
}

/// The place of a rule, and what it counts.
type Counters<'a> = (&'a str, &'a [Box<str>], Option<&'a str>, String);

impl<'a> Gone<'a> {
    fn of(all: impl Iterator<Item = Placed<'a>>, own: OwnCounters) -> Self {
        let mut rules = HashMap::<_, Vec<_>>::new();
        for rule in all {
            rules.entry(counters(rule, own)).or_default().push(rule);
        }
        Self { rules, own }
    }

    /// Takes the rule whose usage goes on under another id.
    fn take(&mut self, now: Placed<'a>) -> Option<Placed<'a>> {
        // What regions tell each other goes by the id.
        if now.0.regions.is_some() {
            return None;
        }
        self.rules.get_mut(&counters(now, self.own))?.pop()
    }

    fn rules(&self) -> impl Iterator<Item = &'a Rule> {
        self.rules.values().flatten().map(|(rule, _)| *rule)
    }
}

fn counters<'a>((rule, around): Placed<'a>, own: OwnCounters) -> Counters<'a> {
    let counted = counted(rule, around, own);
    (&rule.domain, &rule.path, rule.plan.as_deref(), counted)
}

/// The rules that are not a single tenant's.
fn shared(rules: &RuleSet) -> impl Iterator<Item = (RuleIndex, &Rule)> {
    let rules = (0..).map(RuleIndex).zip(rules.rules());
    rules.filter(|(_, rule)| rule.plan.as_deref() != Some(CUSTOM))
}

fn change(rule: &Rule, kind: ChangeKind) -> Change {
    Change {
        rule: Arc::clone(&rule.id),
        kind,
    }
}

/// The difference between two rules, each with what is around it.
fn difference(
    (before, around_before): Placed<'_>,
    (after, around): Placed<'_>,
    own: OwnCounters,
) -> Option<ChangeKind> {
    let counted = |rule, around| counted(rule, around, own);
    let (from, to) = (counted(before, around_before), counted(after, around));
    if from != to || before.path != after.path || before.domain != after.domain {
        let with_limit = |rule, counted| format!("{} ({counted})", described(rule));
        return Some(ChangeKind::StartsAfresh {
            from: with_limit(before, from),
            to: with_limit(after, to),
        });
    }
    // A rule that only moved within its file has not changed.
    let moved = Rule {
        place: after.place.clone(),
        ..before.clone()
    };
    let mut others = others(before, after);
    others.extend(around.changes_since(around_before));
    (moved != *after || !others.is_empty()).then(|| ChangeKind::Adjusted {
        from: described(before),
        to: described(after),
        others,
    })
}

/// The properties that changed besides the limit and its enforcement. Those whose values are long or structured are
/// only named.
fn others(before: &Rule, after: &Rule) -> Vec<String> {
    const NONE: &str = "none";
    let both = [before, after];
    let text = |of: fn(&Rule) -> Option<&str>| both.map(|rule| of(rule).unwrap_or(NONE).to_owned());
    let switch = |of: fn(&Rule) -> bool| both.map(|rule| of(rule).to_string());
    let limit = |of: fn(&Limit) -> Option<String>| {
        both.map(|rule| rule.limited().and_then(of).unwrap_or(NONE.to_owned()))
    };
    let spelt = [
        ("id", text(|rule| Some(&rule.id))),
        ("name", text(|rule| rule.name.as_deref())),
        ("plan", text(|rule| rule.plan.as_deref())),
        ("store", text(|rule| rule.store.as_deref())),
        (
            "consistency",
            text(|rule| rule.consistency.map(crate::Consistency::name)),
        ),
        (
            "regions",
            text(|rule| rule.regions.map(crate::RegionMode::name)),
        ),
        (
            "on_store_failure",
            text(|rule| Some(rule.on_store_failure.name())),
        ),
        ("quota_mode", switch(|rule| rule.quota_mode)),
        ("count_denied", switch(|rule| rule.count_denied)),
        ("detailed_metric", switch(|rule| rule.detailed_metric)),
        ("value_to_metric", switch(|rule| rule.value_to_metric)),
        ("strict", limit(|limit| Some(limit.is_strict().to_string()))),
        (
            "post_paid",
            limit(|limit| Some(limit.is_post_paid().to_string())),
        ),
        (
            "max_debt",
            limit(|limit| Some(limit.max_debt()?.to_string())),
        ),
        ("timeout", limit(timeout)),
    ];
    let spelt = spelt.into_iter().filter(|(_, [from, to])| from != to);
    let spelt = spelt.map(|(name, [from, to])| format!("{name} {from} -> {to}"));
    let named = [
        ("replaces", before.replaces != after.replaces),
        #[cfg(feature = "yaml")]
        ("metadata", before.metadata != after.metadata),
        ("lease_time", before.lease != after.lease),
        ("post_interval", before.post_interval != after.post_interval),
        ("on_silence", before.on_silence != after.on_silence),
        ("share of this region", before.share != after.share),
        ("sync_interval", before.sync_interval != after.sync_interval),
        (
            "leaky_over_rls",
            before.leaky_over_rls != after.leaky_over_rls,
        ),
        ("retry_after", before.retry_after != after.retry_after),
    ];
    let named = named.into_iter().filter(|(_, has_changed)| *has_changed);
    spelt
        .chain(named.map(|(name, _)| format!("{name} changed")))
        .collect()
}

/// The lifetime of a permit.
fn timeout(limit: &Limit) -> Option<String> {
    let holds = limit.algorithm().holds_permits();
    holds.then(|| format_duration(limit.window()))
}

/// The limit of a rule with its enforcement: `100 per 1m, shadow`.
fn described(rule: &Rule) -> String {
    in_words(rule, None)
}

/// The same with the algorithm: `100 per 1m, gcra, shadow`.
fn described_with_algorithm(rule: &Rule) -> String {
    in_words(rule, rule.limited().map(|limit| limit.algorithm().name()))
}

fn in_words(rule: &Rule, algorithm: Option<&str>) -> String {
    let mut parts = vec![amount(&rule.limit, &rule.window_text)];
    parts.extend(algorithm.map(str::to_owned));
    if !rule.enabled {
        parts.push("off".to_owned());
    }
    if rule.shadow {
        parts.push("shadow".to_owned());
    } else if rule.enforce != Enforce::ALL {
        parts.push(format!("enforced for {}", rule.enforce));
    }
    parts.join(", ")
}

fn amount(limit: &RuleLimit, window: &str) -> String {
    match limit {
        RuleLimit::Unlimited => "unlimited".to_owned(),
        RuleLimit::Limited(limit) if limit.algorithm().holds_permits() => {
            format!("{} at a time", limit.quota())
        }
        RuleLimit::Limited(limit) => {
            let burst = match limit.capacity() {
                burst if limit.algorithm().has_burst() && burst != limit.quota() => {
                    format!(" with bursts of {burst}")
                }
                _ => String::new(),
            };
            format!("{} per {window}{burst}", limit.quota())
        }
    }
}
