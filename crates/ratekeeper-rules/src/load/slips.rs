//! Warnings about whole domains: rules that load, and do something else than their author meant.

use std::collections::BTreeSet;

use super::domain::DomainBuilder;
use crate::mark::Mark;
use crate::nearest::nearest;
use crate::report::Report;
use crate::{Node, Rule, RuleLimit};

/// The parts of the files that limit beside descriptors.
#[derive(Clone, Copy)]
pub(super) struct Beside {
    pub(super) has_levels: bool,
    /// The domain whose tenants the service levels are for.
    pub(super) tenants_of: Option<usize>,
    pub(super) sheds: bool,
}

/// Warns of what only all files of a domain show together.
pub(super) fn check(
    domains: &[DomainBuilder],
    beside: Beside,
    rules: &[Rule],
    reports: &mut [Report<'_>],
) {
    let limited: BTreeSet<&str> = rules.iter().map(|rule| &*rule.domain).collect();
    for (index, domain) in domains.iter().enumerate() {
        let has_tenants = domain.settings.tenant.is_some();
        let warn = |file: usize, mark, message, help| {
            if let Some(report) = reports.get_mut(file) {
                report.warn(mark, message, Some(help));
            }
        };
        domain.level.check(domain.evaluation(), has_tenants, warn);
        if let Some(usage) = &domain.settings.usage {
            check_usage(domain, usage.mark, rules, reports);
        }
        // Callers of service levels are named by the identity of the request, which no descriptor has to have.
        if !beside.has_levels || beside.tenants_of != Some(index) {
            check_tenant(domain, reports);
        }
        let is_bare = !beside.has_levels && !beside.sheds;
        if is_bare && !limited.contains(&*domain.name) {
            check_empty(domain, reports);
        }
    }
}

/// Warns of `usage:` in a domain that has nothing to charge it to.
fn check_usage(domain: &DomainBuilder, mark: Mark, rules: &[Rule], reports: &mut [Report<'_>]) {
    let is_budget = |rule: &Rule| {
        *rule.domain == *domain.name
            && matches!(rule.limit, RuleLimit::Limited(limit) if limit.is_post_paid())
    };
    if rules.iter().any(is_budget) {
        return;
    }
    let (file, _) = domain.named;
    let message = "no limit of this domain is paid afterwards, so `usage` charges nothing";
    if let Some(report) = reports.get_mut(file) {
        report.warn(
            mark,
            message,
            "add `post_paid: true` to the limits of tokens",
        );
    }
}

/// Warns of a tenant's entry that no descriptor has: a slip there takes plans and overrides away from everybody.
fn check_tenant(domain: &DomainBuilder, reports: &mut [Report<'_>]) {
    let (Some(tenant), Some((file, mark))) = (&domain.settings.tenant, domain.tenant_named) else {
        return;
    };
    let mut keys = BTreeSet::new();
    collect_keys(&domain.nodes, &mut keys);
    let has_star = |key: &&str| key.contains('*');
    if keys.is_empty() || keys.contains(&*tenant.value) || keys.iter().any(has_star) {
        return;
    }
    let help = match nearest(&tenant.value, keys.iter().copied()) {
        Some(key) => format!("did you mean `tenant: {key}`?"),
        None => {
            let first: Vec<_> = keys.iter().take(5).copied().collect();
            format!(
                "write the key of the entry that names the tenant; descriptors here have {}",
                first.join(", ")
            )
        }
    };
    if let Some(report) = reports.get_mut(file) {
        let message = format!(
            "no descriptor has the entry '{}', which is to name the tenant: no limit here is a tenant's",
            tenant.value
        );
        report.warn(mark, message, help);
    }
}

fn collect_keys<'n>(nodes: &'n [Node], keys: &mut BTreeSet<&'n str>) {
    for node in nodes {
        keys.insert(node.key());
        collect_keys(node.nodes(), keys);
    }
}

/// Warns of a domain without a limit.
fn check_empty(domain: &DomainBuilder, reports: &mut [Report<'_>]) {
    // What each descriptor lacks has been told at its place.
    let has_tenants = domain.settings.tenant.is_some();
    if !domain.nodes.is_empty() && !has_tenants {
        return;
    }
    let (file, mark) = domain.named;
    let message = match has_tenants {
        false => "this domain has no limit: every request for it passes",
        true => {
            "this domain has no limit: requests for it pass, but for limits that tenants have of their own"
        }
    };
    let help = "write `descriptors:` with a `key:` and a `rate_limit: { window: 1m, limit: 100 }`";
    if let Some(report) = reports.get_mut(file) {
        report.warn(mark, message, help);
    }
}
