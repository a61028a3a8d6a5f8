//! Compiles the service levels of all files into a domain of their own.

use std::sync::Arc;

use hashbrown::HashMap;

use super::domain::DomainBuilder;
use crate::id::Draft;
use crate::mark::Mark;
use crate::parse::descriptors::{Compiler, DomainContext};
use crate::parse::levels::anybody;
use crate::parse::root::Root;
use crate::parse::service_levels::ParsedLevel;
use crate::policy::Policy;
use crate::report::Report;
use crate::slas::conflicts::Taken;
use crate::slas::{SERVICE_LEVELS, ServiceLevels};
use crate::{Evaluation, Node, Options, Rule, secret};

/// The domain whose tenants the service levels are for, among those of the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TenantsOf {
    /// No domain has tenants.
    NoDomain,
    /// This one, by its place.
    Domain(usize),
    /// Several domains have tenants, and nothing tells which one is meant.
    Unclear,
}

impl TenantsOf {
    /// The domain of the files with service levels, if it has tenants; else the only one that has any.
    pub(super) fn find(
        roots: &[Root],
        of_file: &[Option<usize>],
        domains: &[DomainBuilder],
    ) -> Self {
        let has_tenants = |at: &usize| {
            let domain = domains.get(*at);
            domain.is_some_and(|domain| domain.settings.tenant.is_some())
        };
        let with_levels = roots.iter().zip(of_file);
        let with_levels = with_levels.filter(|(root, _)| !root.service_levels.is_empty());
        let mut here: Vec<usize> = with_levels
            .filter_map(|(_, domain)| *domain)
            .filter(has_tenants)
            .collect();
        here.sort_unstable();
        here.dedup();
        if here.is_empty() {
            here = (0..domains.len()).filter(has_tenants).collect();
        }
        match here.as_slice() {
            [] => Self::NoDomain,
            [one] => Self::Domain(*one),
            _ => Self::Unclear,
        }
    }

    /// The place of the domain.
    pub(super) const fn place(self) -> Option<usize> {
        match self {
            Self::Domain(at) => Some(at),
            Self::NoDomain | Self::Unclear => None,
        }
    }

    /// Reports plans of a service level that no domain defines.
    fn check(self, level: &mut ParsedLevel, report: &mut Report<'_>) {
        let (Some(first), false) = (level.plans.first(), self.place().is_some()) else {
            return;
        };
        let (message, help) = match self {
            Self::Unclear => (
                "several domains have tenants: it is not clear whose plans these are",
                "put `slas:` into the file of the domain whose tenants are meant",
            ),
            _ => (
                "plans need a domain that says which entry names the tenant",
                "write `domain: api`, `tenant: api_key` and `plans: [free, pro]` at the top of a file",
            ),
        };
        report.error(first.plan.mark, message, help);
        level.plans.clear();
    }
}

/// Returns the domain's nodes, none if no file has service levels, and the service levels.
pub(super) fn compile(
    roots: Vec<Root>,
    options: &Options,
    reports: &mut [Report<'_>],
    (rules, drafts): (&mut Vec<Rule>, &mut Vec<Draft>),
    (tenants, domains): (TenantsOf, &[DomainBuilder]),
) -> (Vec<Node>, ServiceLevels) {
    let of_tenants = tenants.place().and_then(|at| domains.get(at));
    let plans = of_tenants.and_then(|domain| domain.settings.plans.as_ref());
    let plans = plans.map(|at| at.value.as_slice()).unwrap_or_default();
    if roots.iter().any(|root| !root.service_levels.is_empty()) {
        refuse_namesake(&roots, reports);
    }
    let domain: Arc<str> = SERVICE_LEVELS.into();
    let mut ids: HashMap<Box<str>, String> = HashMap::new();
    let mut taken = Taken::new(options.path_folding);
    let (mut levels, mut nodes) = (Vec::new(), Vec::new());
    for (file, (root, report)) in roots.into_iter().zip(reports).enumerate() {
        // Each service level's policy already includes the file's.
        let around = DomainContext {
            domain: &domain,
            evaluation: Evaluation::Leaf,
            has_tenants: false,
            policy: &Policy::default(),
            plans,
            is_secret: &|key| secret::is_secret_by_default(key) || options.secrets.contains(key),
            profile: options.profile,
            on_store_failure: options.on_store_failure,
            region: &options.region,
            path_folding: options.path_folding,
            path_keys: &options.path_keys,
            file,
        };
        for mut parsed in root.service_levels {
            tenants.check(&mut parsed, report);
            let place = report.place(parsed.mark).to_string();
            if let Some(earlier) = ids.insert(parsed.id.value.clone(), place) {
                let message = format!("duplicate id '{}' of a service level", parsed.id.value);
                report.error(parsed.mark, message, format!("it is at {earlier} already"));
                continue;
            }
            let mark = parsed.mark;
            let mut compiler = Compiler {
                around: &around,
                report: &mut *report,
                rules: &mut *rules,
                drafts: &mut *drafts,
            };
            let (level, node) = compiler.service_level(parsed);
            if let Some((about, by)) = taken.take(&level) {
                let message = format!("{about} has a service level already: {by}");
                let help = "keep one of the two, or give one `enabled: false`";
                report.error(mark, message, help);
            }
            levels.push(level);
            nodes.push(node);
        }
    }
    let nodes = match nodes.is_empty() {
        true => Vec::new(),
        false => vec![anybody(nodes)],
    };
    (nodes, ServiceLevels::new(levels, options.path_folding))
}

fn refuse_namesake(roots: &[Root], reports: &mut [Report<'_>]) {
    for (root, report) in roots.iter().zip(reports) {
        let namesake: Option<Mark> = root
            .domain
            .as_ref()
            .filter(|domain| *domain.value == *SERVICE_LEVELS)
            .map(|domain| domain.mark);
        if let Some(mark) = namesake {
            let message = format!("the domain `{SERVICE_LEVELS}` is reserved for service levels");
            report.error(mark, message, "give the domain another name");
        }
    }
}
