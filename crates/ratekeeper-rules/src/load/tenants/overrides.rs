//! `overrides:`, the limits that single tenants have.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{Around, terms};
use crate::draft::{BuiltLimit, Field, LimitDefaults};
use crate::format::mapping::read_item;
use crate::format::{Tenant, TenantOverride};
use crate::mark::{At, Mark};
use crate::parse::limits::Limited as _;
use crate::policy::Policy;
use crate::report::Report;
use crate::tenants::{
    ListedOverride, OVERRIDES_MAX, OverrideDescriptor, OwnRules, Site, Target, Term, entry_of,
};
use crate::{Node, PlanIndex, Rule, RuleIndex};

/// The overrides of one domain so far.
#[derive(Default)]
pub(super) struct Overrides {
    targets: HashMap<Box<str>, (Target, Arc<OverrideDescriptor>)>,
    /// The rules of overrides, by what they are made of and the plan: tenants with the same limit share one.
    shared: HashMap<(PlanIndex, String), RuleIndex>,
}

/// The times of a tenant.
#[derive(Clone, Copy)]
pub(super) struct Times<'a> {
    /// That of all that does not say another one.
    pub(super) whole: Term,
    /// Those of its plans.
    pub(super) plans: &'a [(Term, PlanIndex)],
}

impl Overrides {
    /// Reads the overrides of one tenant.
    pub(super) fn read(
        &mut self,
        tenant: &Tenant,
        times: Times<'_>,
        around: &Around<'_>,
        rules: &mut Vec<Rule>,
        report: &mut Report<'_>,
    ) -> Vec<ListedOverride> {
        let items = tenant.overrides.get().map_or(&[][..], Vec::as_slice);
        if let (Some(mark), true) = (tenant.overrides.key(), items.len() > OVERRIDES_MAX) {
            let message = format!("a tenant has at most {OVERRIDES_MAX} overrides");
            report.error(mark, message, "give it a plan of its own");
        }
        let mut limits: Vec<ListedOverride> = Vec::new();
        for item in items.iter().take(OVERRIDES_MAX) {
            let Some(at) = read_item::<TenantOverride>(item, report) else {
                continue;
            };
            let mark = at.mark;
            let Some(own) = self.own_limit(at, times, around, rules, report) else {
                continue;
            };
            let is_same = |other: &ListedOverride| {
                Arc::ptr_eq(&other.pattern, &own.pattern) && other.term.from == own.term.from
            };
            if limits.iter().any(is_same) {
                let message =
                    "this tenant has an override of the same descriptor from the same time on";
                report.error(mark, message, "leave one of them out");
            }
            limits.push(own);
        }
        limits
    }

    fn own_limit(
        &mut self,
        at: At<TenantOverride>,
        times: Times<'_>,
        around: &Around<'_>,
        rules: &mut Vec<Rule>,
        report: &mut Report<'_>,
    ) -> Option<ListedOverride> {
        let keys = &at.value;
        let term = terms::term(&keys.effective_at, &keys.expires_at, times.whole, report);
        let target = self.target(&keys.descriptor, at.mark, around, rules, report);
        let site = around.site();
        let algorithm = site.algorithm(target.as_ref().map(|(target, _)| target), rules);
        let defaults = LimitDefaults {
            policy: &Policy::default(),
            algorithm,
        };
        let mut draft = TenantOverride::draft(at, report);
        if let Some((target, _)) = &target {
            site.inherit(&mut draft, target, rules);
        }
        let limit = draft.build(defaults, report)?;
        let (target, descriptor) = target?;
        let mut of_plans = Vec::new();
        // It has to be possible on the plans that the tenant is on in its time.
        let needed = term.plans(times.plans).map(|plan| target.plan_for(plan));
        let needed: Vec<_> = needed.collect();
        for plan in target.plans() {
            let is_needed = needed.contains(&plan);
            let made = is_needed.then(|| self.rule(&limit, (&target, plan), &site, rules, report));
            let rule = match made.transpose() {
                Ok(rule) => rule,
                Err((message, help)) => {
                    report.error(limit.mark, message, help);
                    return None;
                }
            };
            of_plans.push((plan, rule));
        }
        Some(ListedOverride {
            term,
            descriptor,
            pattern: target.pattern,
            rules: OwnRules::new(of_plans.into_iter()),
        })
    }

    /// The rule of an override on a plan, which may be that of another tenant's.
    fn rule(
        &mut self,
        limit: &BuiltLimit,
        (target, plan): (&Target, PlanIndex),
        site: &Site<'_>,
        rules: &mut Vec<Rule>,
        report: &Report<'_>,
    ) -> Result<RuleIndex, (String, String)> {
        // Two limits that print alike are alike.
        let made_of = format!(
            "{}\0{:?}\0{:?}\0{}\0{:?}",
            target.id, limit.limit, limit.calendar, limit.window_text, limit.name
        );
        let made_of = (plan, made_of);
        if let Some(rule) = self.shared.get(&made_of) {
            return Ok(*rule);
        }
        let Ok(index) = u32::try_from(rules.len()) else {
            let message = "there are too many rules";
            return Err((message.to_owned(), "give tenants plans instead".to_owned()));
        };
        let place = report.place(limit.mark);
        rules.push(site.rule(limit.clone(), (target, plan), place, rules)?);
        self.shared.insert(made_of, RuleIndex(index));
        Ok(RuleIndex(index))
    }

    /// Reads `descriptor:` and finds its place among the rules.
    fn target(
        &mut self,
        descriptor: &Field<Vec<At<Box<str>>>>,
        start: Mark,
        around: &Around<'_>,
        rules: &[Rule],
        report: &mut Report<'_>,
    ) -> Option<(Target, Arc<OverrideDescriptor>)> {
        let texts = descriptor.get().map_or(&[][..], Vec::as_slice);
        if descriptor.is_set() && texts.is_empty() {
            return None;
        }
        let mut parts = Vec::new();
        for At { value, mark } in texts.iter().filter(|at| !at.value.is_empty()) {
            let Some(part) = entry_of(value) else {
                let help =
                    "write `descriptor: \"endpoint:POST /orders\"`, the key, a colon and the value";
                report.error(*mark, "the entry of a descriptor has no key", help);
                return None;
            };
            parts.push(part);
        }
        let text: Vec<_> = texts.iter().map(|at| &*at.value).collect();
        let text: Box<str> = text.join("\0").into();
        if let Some(known) = self.targets.get(&text) {
            return Some(known.clone());
        }
        let key = around.tenant_key();
        let own = texts
            .iter()
            .find(|at| entry_of(&at.value).is_some_and(|it| it.0 == key));
        if let Some(At { mark, .. }) = own
            && !has_twice(&around.domain.nodes, key)
        {
            let message = format!(
                "`{key}` is the tenant's own entry, and an override names the entries behind it: this one never holds"
            );
            report.warn(*mark, message, "leave it out");
        }
        match around.site().target(&parts, rules) {
            Ok(target) => {
                let entries = texts.iter().filter(|at| !at.value.is_empty());
                let descriptor = entries.map(|at| at.value.clone()).collect();
                let found = (target, Arc::new(descriptor));
                self.targets.insert(text, found.clone());
                Some(found)
            }
            Err(wrong) => {
                let mark = texts.get(wrong.part()).map_or(start, |at| at.mark);
                report.error(mark, wrong.to_string(), wrong.help());
                None
            }
        }
    }
}

/// Returns true if a descriptor with a limit has entries of the key behind one another.
fn has_twice(nodes: &[Node], key: &str) -> bool {
    fn has(nodes: &[Node], key: &str) -> bool {
        let is_it = |node: &Node| node.key() == key || node.key().contains('*');
        nodes
            .iter()
            .any(|node| is_it(node) || has(node.nodes(), key))
    }
    let mut nodes = nodes.iter();
    nodes.any(|node| match node.key() == key {
        true => has(node.nodes(), key),
        false => has_twice(node.nodes(), key),
    })
}
