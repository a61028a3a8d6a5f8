//! Explanations of decisions in words: for `rules explain`, and for whoever is on call at 3 a.m.

mod words;

use ratekeeper_core::{Micros, Timestamp, Verdict};
use ratekeeper_rules::{Domain, Entry, Evaluation, Rule, RuleIndex, Subscription, Visit, secret};
use ratekeeper_store::{LeasedHits, LoanCounter, Step, Store, SyncedHits, Verdicts};
use serde::{Deserialize, Serialize};
use words::{RESERVED, how, leased, shown, synced, why_not};

use crate::decision::Answered;
use crate::plan::Plan;
use crate::switch::{RuleMode, RuleSwitch};
use crate::{Check, Descriptor, LimitSource, LimitStatus, Snapshot};

/// The most domains that an [`Explanation`] names.
pub const DOMAINS_SHOWN: usize = 20;

/// An explanation of how a request would be decided.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// The domain that was asked for.
    pub domain: String,
    /// True if the domain has rules; if not, everything is allowed.
    pub known: bool,
    /// The domains that have rules, if it is none of them: the first [`DOMAINS_SHOWN`] by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<String>,
    /// `leaf` or `path`; empty if the domain is not known.
    pub evaluation: String,
    /// True if one hit on each descriptor would pass.
    pub allowed: bool,
    /// The explanations, one for each descriptor.
    pub descriptors: Vec<ExplainedDescriptor>,
}

/// An explanation of how one descriptor is matched.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExplainedDescriptor {
    /// The domain of its rules, if it differs from the check's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// `key=value` of every entry; secrets are fingerprinted.
    pub entries: Vec<String>,
    /// The plan of the tenant that the entries name, and its term: `pro until
    /// 2027-01-01T00:00:00Z`. None if the domain has no plans, or no entry names a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The nodes that matched, one for each entry up to the first that matched none; and after them
    /// the entries that only an override of the tenant is for.
    pub nodes: Vec<ExplainedNode>,
    /// The reason why no limit applies, if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A node that matched an entry.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExplainedNode {
    /// The composite key as the file has it; a secret in it is fingerprinted.
    pub pattern: String,
    /// `exact`, `wildcard` or `key only`; `no rule` where only an override of the tenant is.
    pub how: String,
    /// The number of entries down to it, from 1; 0 once serialized.
    #[serde(skip)]
    pub depth: usize,
    /// The limits at this node.
    pub limits: Vec<ExplainedLimit>,
}

/// A limit and the answer it would give to one hit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExplainedLimit {
    /// The rule in the set that it was explained by; None once serialized.
    #[serde(skip)]
    pub index: Option<RuleIndex>,
    /// The rule's id.
    pub rule: String,
    /// The position of the rule: `file:line:column`.
    pub place: String,
    /// The limit in words: `100 per 1m, sliding_window, at most 6 more in any window`.
    pub limit: String,
    /// The plan whose limit it is, if not the default one: `custom` for an override of the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The switch of the rule, if an operator has switched it while the service ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<RuleSwitch>,
    /// The store that keeps the counter, where it is not the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// True if it has a say in the answer.
    pub counts: bool,
    /// `allow`, `deny` or `never`; empty if it does not count.
    pub answer: String,
    /// The most hits that the limit holds, if it has a counter; None once serialized.
    #[serde(skip)]
    pub capacity: Option<u64>,
    /// The hits that this node holds of it in leases; None once serialized, and for a limit that is not
    /// leased.
    #[serde(skip)]
    pub held: Option<LeasedHits>,
    /// Its counter, if regions lend each other parts of it; None once serialized.
    #[serde(skip)]
    pub lent: Option<LoanCounter>,
    /// Hits left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u64>,
    /// Hits by which a post-paid bucket is below zero; None if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debt: Option<u64>,
    /// Milliseconds until there is more than `remaining`; 0 if nothing is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_after_ms: Option<u64>,
    /// Milliseconds until one hit would pass, on a denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// A note on anything special about it: why it does not count, or is not enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Explanation {
    /// Explains `check` from `plan`, which consists of peeks, and its `verdicts`, against all rules on its path. `shared`
    /// says how this node shares a step's counter with others.
    pub(crate) fn new<'a>(
        snapshot: &'a Snapshot,
        check: &Check<'_>,
        plan: &'a Plan,
        (verdicts, now): (&'a Verdicts, Timestamp),
        shared: &'a dyn Fn(&Step) -> Option<SharedCounter>,
    ) -> Self {
        let domain = snapshot.domain(check.domain);
        let descriptors = (0_u16..)
            .zip(check.descriptors())
            .map(|(number, descriptor)| {
                let Some(domain) = snapshot.domain(descriptor.domain) else {
                    return ExplainedDescriptor::unknown(snapshot, &descriptor);
                };
                Explainer {
                    snapshot,
                    domain,
                    plan,
                    verdicts,
                    now,
                    shared,
                    number,
                }
                .descriptor(&descriptor)
            });
        let descriptors: Vec<_> = descriptors.collect();
        Self {
            domain: check.domain.to_owned(),
            known: domain.is_some(),
            domains: if domain.is_some() {
                Vec::new()
            } else {
                known_domains(snapshot)
            },
            evaluation: domain.map_or_else(String::new, |d| d.evaluation().name().to_owned()),
            allowed: plan.would_allow(snapshot, verdicts),
            descriptors,
        }
    }
}

/// The nearest name in the rules, as the end of a sentence; empty if nothing is near.
fn did_you_mean(snapshot: &Snapshot, domain: &str, entries: &[Entry<'_>]) -> String {
    let nearest = snapshot.rules().nearest(domain, entries);
    nearest.map_or_else(String::new, |nearest| format!("; did you mean {nearest}?"))
}

fn known_domains(snapshot: &Snapshot) -> Vec<String> {
    let domains = snapshot.rules().domains();
    let mut names: Vec<_> = domains.map(|domain| domain.name().to_owned()).collect();
    names.sort();
    names.truncate(DOMAINS_SHOWN);
    names
}

impl ExplainedDescriptor {
    fn unknown(snapshot: &Snapshot, descriptor: &Descriptor<'_>) -> Self {
        let meant = did_you_mean(snapshot, descriptor.domain, descriptor.entries);
        let shown =
            |entry: &Entry<'_>| shown(snapshot, entry, secret::is_secret_by_default(entry.key));
        Self {
            domain: descriptor.terms.domain.map(str::to_owned),
            entries: descriptor.entries.iter().map(shown).collect(),
            plan: None,
            nodes: Vec::new(),
            note: Some(format!(
                "the domain has no rules: everything is allowed{meant}"
            )),
        }
    }
}

/// Explains one descriptor.
struct Explainer<'a> {
    snapshot: &'a Snapshot,
    domain: &'a Domain,
    plan: &'a Plan,
    verdicts: &'a Verdicts,
    now: Timestamp,
    shared: &'a dyn Fn(&Step) -> Option<SharedCounter>,
    number: u16,
}

impl Explainer<'_> {
    fn descriptor(&self, descriptor: &Descriptor<'_>) -> ExplainedDescriptor {
        let walk = self.domain.walk(descriptor.entries);
        let entries = descriptor.entries;
        let subscription = self.domain.subscription(entries, self.now);
        let depths = 1..=entries.len();
        let nodes = depths.filter_map(|depth| {
            let visit = walk.get(depth - 1);
            let visits = &walk[..depth.min(walk.len())];
            let limits = self.limits(&subscription, (&entries[..depth], visits), entries.len());
            let (pattern, how) = match visit {
                Some(visit) => ((visit.node.key(), visit.node.value()), how(visit.how)),
                None if limits.is_empty() => return None,
                None => {
                    let entry = &entries[depth - 1];
                    ((entry.key, Some(entry.value)), "no rule")
                }
            };
            Some(ExplainedNode {
                pattern: self.domain.composite(pattern.0, pattern.1),
                how: how.to_owned(),
                depth,
                limits,
            })
        });
        let nodes: Vec<_> = nodes.collect();
        let counted = nodes
            .iter()
            .flat_map(|node| &node.limits)
            .any(|limit| limit.counts);
        let note = match descriptor.entries.get(walk.len()) {
            _ if descriptor.terms.limit.is_some() => {
                Some("the request brings its own limit".to_owned())
            }
            _ if counted => None,
            Some(entry) => {
                let entry = shown(self.snapshot, entry, self.domain.is_secret(entry.key));
                let meant = did_you_mean(self.snapshot, self.domain.name(), descriptor.entries);
                Some(format!("nothing matches {entry}: allowed{meant}"))
            }
            None => Some("no limit applies: allowed".to_owned()),
        };
        let shown =
            |entry: &Entry<'_>| shown(self.snapshot, entry, self.domain.is_secret(entry.key));
        ExplainedDescriptor {
            domain: descriptor.terms.domain.map(str::to_owned),
            entries: descriptor.entries.iter().map(shown).collect(),
            plan: self.plan(&subscription, entries),
            nodes,
            note,
        }
    }

    /// The plan of the tenant, where an entry names one.
    fn plan(&self, subscription: &Subscription<'_>, entries: &[Entry<'_>]) -> Option<String> {
        self.domain.tenant_at(entries)?;
        subscription.plan_in_words()
    }

    /// The limits that are in force for the first entries of a descriptor that has `all`.
    fn limits<'s>(
        &self,
        subscription: &Subscription<'s>,
        (entries, visits): (&[Entry<'_>], &[Visit<'s>]),
        all: usize,
    ) -> Vec<ExplainedLimit> {
        let reached = entries.len() == all || self.domain.evaluation() == Evaluation::Path;
        let in_force = subscription.rules(entries, visits);
        let limits = in_force.iter().map(|index| self.limit(index, reached));
        let mut limits: Vec<_> = limits.collect();
        let term = subscription.override_in_words(entries, visits);
        if let (Some(own), Some(term)) = (limits.first_mut(), term) {
            let alone = format!("an override of this tenant{term}");
            own.note = Some(match own.note.take() {
                Some(note) => format!("{alone}; {note}"),
                None => alone,
            });
        }
        limits
    }

    fn limit(&self, index: RuleIndex, reached: bool) -> ExplainedLimit {
        let rule = self.snapshot.rules().rule(index);
        let mode = self.snapshot.compiled(index).mode;
        let mut explained = ExplainedLimit {
            index: Some(index),
            rule: rule.id.to_string(),
            place: rule.place.to_string(),
            limit: rule.in_words(),
            plan: rule.plan.as_deref().map(str::to_owned),
            switch: self.snapshot.switches().get(&rule.id),
            store: rule.store.as_deref().map(str::to_owned),
            counts: false,
            answer: String::new(),
            capacity: None,
            held: None,
            lent: None,
            remaining: None,
            debt: None,
            reset_after_ms: None,
            retry_after_ms: None,
            note: None,
        };
        match self.plan.answered(
            self.snapshot,
            self.number,
            LimitSource::Rule(index),
            self.verdicts,
        ) {
            Some((step, answered)) => {
                explained.fill(rule, mode, step, &answered);
                if let Some(share) = &rule.share {
                    explained.add_note(&share.to_string());
                }
                explained.lent = (step.terms > 0).then(|| LoanCounter::of(step));
                match (self.shared)(step) {
                    Some(SharedCounter::Leased(held)) => {
                        explained.add_note(&leased(&held, rule.consistency.is_none()));
                        explained.held = Some(held);
                    }
                    Some(SharedCounter::Synced(known)) => explained.add_note(&synced(&known)),
                    None if self.is_synced(index) => explained.add_note(RESERVED),
                    None => {}
                }
            }
            None if self.plan.is_unlimited(self.number, index) => {
                explained.counts = true;
                explained.answer = "allow".to_owned();
            }
            None => explained.note = Some(why_not(rule, mode, reached).to_owned()),
        }
        explained
    }

    fn is_synced(&self, index: RuleIndex) -> bool {
        let made = self.snapshot.compiled(index).limit.as_ref();
        made.is_some_and(|made| !made.sync.is_zero())
    }
}

impl ExplainedLimit {
    /// Adds to the note.
    pub fn add_note(&mut self, more: &str) {
        self.note = Some(match self.note.take() {
            Some(note) => format!("{note}; {more}"),
            None => more.to_owned(),
        });
    }

    fn fill(&mut self, rule: &Rule, mode: RuleMode, step: &Step, answered: &Answered) {
        // The step was a peek: its wait is that of one hit.
        let wait = answered.retry_after;
        self.counts = !step.shadow;
        self.answer = match (answered.verdict, wait) {
            (Verdict::Fits, Micros::ZERO) => "allow",
            (Verdict::Never, _) | (_, Micros::MAX) => "never",
            _ => "deny",
        }
        .to_owned();
        self.capacity = Some(step.limit.capacity());
        let debt = (step.limit).debt(answered.remaining, answered.full_after);
        let status = LimitStatus::new(None, step.limit.ceiling(), answered, debt);
        self.remaining = Some(status.remaining);
        self.debt = Some(debt).filter(|debt| *debt > 0);
        self.reset_after_ms = Some(status.reset_after.as_millis_ceil());
        self.retry_after_ms = status.retry_after.map(Micros::as_millis_ceil);
        self.note = if mode == RuleMode::Shadow {
            let by = match self.switch {
                Some(RuleSwitch::Shadow) => "shadow by its switch",
                _ => "shadow",
            };
            Some(format!("{by}: counted, not enforced"))
        } else if step.shadow {
            Some(format!(
                "enforced for {} of subjects, this one is not among them",
                rule.enforce
            ))
        } else if step.quota_mode {
            Some("quota mode: denies only if every quota-mode limit does".to_owned())
        } else if self.switch == Some(RuleSwitch::Enabled) {
            Some("enabled by its switch".to_owned())
        } else {
            None
        };
    }
}

/// A counter that a node answers for without asking the store each time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SharedCounter {
    Leased(LeasedHits),
    Synced(SyncedHits),
}

impl SharedCounter {
    /// The counter of `step` as this node holds it; [`None`] if each hit is counted in the store.
    pub(crate) fn of(store: &impl Store, step: &Step) -> Option<Self> {
        let leased = store.held(step).map(Self::Leased);
        leased.or_else(|| store.synced(step).map(Self::Synced))
    }
}
