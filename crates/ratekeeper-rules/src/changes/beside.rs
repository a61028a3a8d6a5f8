//! The changes of a reload that are of no rule: what stands beside the limits, and decides who meets them.

use std::collections::BTreeMap;

use crate::tenants::Tenant;
use crate::{Domain, Node, Rule, RuleSet, Term};

impl RuleSet {
    /// Returns the changes since `old` that [`Self::changes_since`] does not tell, each in a line of words, sorted: plans,
    /// tenants of files, descriptors without a limit, `shed`, `adjust` and `usage`.
    #[must_use]
    pub fn other_changes_since(&self, old: &Self) -> Vec<String> {
        let mut changes = Changes {
            old,
            new: self,
            lines: Vec::new(),
        };
        for domain in self.domains() {
            match old.domain(domain.name()) {
                Some(before) => changes.domain(before, domain),
                None => changes.tell(domain.name(), "the domain is new"),
            }
        }
        for domain in old.domains().filter(|it| self.domain(it.name()).is_none()) {
            changes.tell(domain.name(), "the domain is removed");
        }
        let shed = [old, self].map(|rules| rules.shed().map(|shed| &**shed));
        changes.any("shed", shed);
        changes.lines.sort();
        changes.lines
    }
}

struct Changes<'a> {
    old: &'a RuleSet,
    new: &'a RuleSet,
    lines: Vec<String>,
}

impl Changes<'_> {
    fn tell(&mut self, subject: &str, change: &str) {
        self.lines.push(format!("{subject}: {change}"));
    }

    /// Tells that a part is new, gone or other, which is too long to be shown.
    fn any<T: PartialEq>(&mut self, subject: &str, [before, after]: [Option<T>; 2]) {
        match (before, after) {
            (None, Some(_)) => self.tell(subject, "new"),
            (Some(_), None) => self.tell(subject, "removed"),
            (before, after) if before != after => self.tell(subject, "changed"),
            _ => {}
        }
    }

    fn domain(&mut self, before: &Domain, after: &Domain) {
        let name = after.name();
        let plans = |domain: &Domain| match domain.plans() {
            [] => "none".to_owned(),
            plans => plans.join(", "),
        };
        let tenant = |domain: &Domain| domain.tenant().unwrap_or("none").to_owned();
        let spelt = [
            ("tenant", [tenant(before), tenant(after)]),
            ("plans", [plans(before), plans(after)]),
        ];
        for (key, [from, to]) in spelt.into_iter().filter(|(_, [from, to])| from != to) {
            self.tell(name, &format!("{key} {from} -> {to}"));
        }
        if before.secrets != after.secrets {
            self.tell(name, "secrets changed");
        }
        let usage = [before, after].map(|domain| domain.usage().map(|usage| &**usage));
        self.any(&format!("{name}: usage"), usage);
        let adjust = [
            adjusted(before, self.old.rules()),
            adjusted(after, self.new.rules()),
        ];
        self.any(&format!("{name}: adjust"), adjust);
        self.tenants(before, after);
        self.nodes(before, after);
    }

    /// Tells how many tenants of files are new, gone or have another plan or other limits.
    fn tenants(&mut self, before: &Domain, after: &Domain) {
        let (listed, listed_before) = (&after.tenants, &before.tenants);
        if listed.key() != listed_before.key() && listed.len() + listed_before.len() > 0 {
            return self.tell(after.name(), "tenants are hashed under another key");
        }
        let (mut new, mut changed) = (0, 0);
        for (hash, tenant) in listed.iter() {
            match listed_before.get(hash) {
                None => new += 1,
                Some(earlier) => {
                    let from = quotas(earlier, before, self.old.rules());
                    changed += usize::from(from != quotas(tenant, after, self.new.rules()));
                }
            }
        }
        let gone = listed_before.len() + new - listed.len();
        if (new, gone, changed) != (0, 0, 0) {
            let counts = format!("tenants: {new} new, {gone} removed, {changed} changed");
            self.tell(after.name(), &counts);
        }
    }

    /// Tells of descriptors without a limit, which take requests from others, and of the order of patterns.
    fn nodes(&mut self, before: &Domain, after: &Domain) {
        let [(kinds_before, order_before), (kinds, order)] = [before, after].map(nodes_of);
        let name = after.name();
        for (path, kind) in &kinds {
            let change = match (kinds_before.get(path), kind) {
                (None, Kind::Free) => "new, a descriptor without a limit",
                (Some(Kind::Limited), Kind::Free | Kind::Above) => {
                    "a descriptor without a limit now"
                }
                // What lies below it, or its own limit, is told by itself.
                _ => continue,
            };
            self.tell(&format!("{name}.{path}"), change);
        }
        for (path, kind) in &kinds_before {
            if *kind == Kind::Free && !kinds.contains_key(path) {
                let change = "removed, was a descriptor without a limit";
                self.tell(&format!("{name}.{path}"), change);
            }
        }
        for (path, patterns) in &order {
            let earlier = order_before
                .get(path)
                .map(Vec::as_slice)
                .unwrap_or_default();
            let kept = |all: &[String], others: &[String]| -> Vec<String> {
                let kept = all.iter().filter(|one| others.contains(one));
                kept.cloned().collect()
            };
            if kept(patterns, earlier) != kept(earlier, patterns) {
                let subject = format!("{name}.{path}");
                self.tell(
                    subject.trim_end_matches('.'),
                    "patterns are tried in another order",
                );
            }
        }
    }
}

/// A tenant's plans, and its limits by descriptor.
type Quotas<'a> = (Vec<(Term, &'a str)>, Vec<(Term, String, String)>);

/// Those of `tenant`, in a form that does not depend on the numbers of rules and plans.
fn quotas<'a>(tenant: &'a Tenant, domain: &'a Domain, rules: &'a [Rule]) -> Quotas<'a> {
    let plans = tenant.plans().iter();
    let plans = plans.map(|(term, plan)| (*term, domain.plan_name(*plan)));
    let limits = tenant.limits.iter().map(|own| {
        let made = own.rules.iter();
        let words = made.filter_map(|(_, rule)| Some(rules.get(rule.get())?.in_words()));
        let words: Vec<String> = words.collect();
        (own.term, format!("{:?}", own.descriptor), words.join("; "))
    });
    (plans.collect(), limits.collect())
}

/// The policy of a domain, likewise.
fn adjusted(domain: &Domain, rules: &[Rule]) -> Option<String> {
    let policy = domain.adjust()?;
    let plans = policy.plans.iter().map(|(plan, rule)| {
        let rule = rules.get(rule.get()).map(|rule| &rule.id);
        (domain.plan_name(*plan), rule)
    });
    let plans: Vec<_> = plans.collect();
    let numbers = (
        policy.mode,
        policy.raise_at_percent,
        policy.step_percent,
        policy.steps_max,
        policy.lower_after,
    );
    Some(format!("{plans:?} {numbers:?}"))
}

/// The contents of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Limited,
    /// No limit, and others below it.
    Above,
    /// Neither.
    Free,
}

/// The nodes by their paths, and the patterns below each path in their order.
type NodesOf = (BTreeMap<String, Kind>, BTreeMap<String, Vec<String>>);

fn nodes_of(domain: &Domain) -> NodesOf {
    let mut found = NodesOf::default();
    add(domain, "", domain.nodes(), &mut found);
    found
}

fn add(domain: &Domain, above: &str, nodes: &[Node], found: &mut NodesOf) {
    for node in nodes {
        let name = domain.composite(node.key(), node.value());
        if node.pattern().contains('*') {
            let patterns = found.1.entry(above.to_owned()).or_default();
            patterns.push(name.clone());
        }
        let path = format!("{above}{name}");
        let is_free = node.rules().is_empty() && node.by_plan().next().is_none();
        let kind = match is_free {
            false => Kind::Limited,
            true if node.nodes().is_empty() => Kind::Free,
            true => Kind::Above,
        };
        found.0.insert(path.clone(), kind);
        add(domain, &format!("{path}."), node.nodes(), found);
    }
}
