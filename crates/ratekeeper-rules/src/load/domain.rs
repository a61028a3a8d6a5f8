//! Domains whose files are still being read.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::mark::{At, Mark};
use crate::matching::Children;
use crate::parse::descriptors::Level;
use crate::parse::root::{Root, Settings};
use crate::report::Report;
use crate::tenants::{OverrideDefaults, TenantTable};
use crate::{AdjustPolicy, Domain, Evaluation, Node, Options, PathFolding, Position};

/// A domain whose files are still being read.
pub(super) struct DomainBuilder {
    pub(super) name: Arc<str>,
    pub(super) settings: Settings,
    pub(super) nodes: Vec<Node>,
    pub(super) level: Level,
    pub(super) tenants: TenantTable,
    pub(super) adjust: Option<Arc<AdjustPolicy>>,
    /// The file that named the domain first.
    pub(super) place: String,
    /// The index of that file, and the position of the name in it.
    pub(super) named: (usize, Mark),
    /// The same of the file that says which entry names the tenant.
    pub(super) tenant_named: Option<(usize, Mark)>,
}

impl DomainBuilder {
    /// A domain without descriptors so far.
    pub(super) fn new(
        name: &str,
        settings: Settings,
        place: Position,
        named: (usize, Mark),
    ) -> Self {
        let tenant = settings.tenant.as_ref();
        Self {
            name: name.into(),
            named,
            tenant_named: tenant.map(|tenant| (named.0, tenant.mark)),
            settings,
            nodes: Vec::new(),
            level: Level::default(),
            tenants: TenantTable::default(),
            adjust: None,
            place: place.to_string(),
        }
    }

    /// The defaults of overrides that take no rule's place.
    pub(super) fn override_defaults(&self, options: &Options) -> OverrideDefaults {
        OverrideDefaults::new(&self.name, &self.settings.policy, options)
    }

    /// The choice of matched nodes whose limits apply.
    pub(super) fn evaluation(&self) -> Evaluation {
        let evaluation = self.settings.evaluation.as_ref();
        evaluation.map_or(Evaluation::Leaf, |at| at.value)
    }

    /// The domain, once all files are read.
    pub(super) fn finish(self, options: &Options, folding: PathFolding) -> Domain {
        let override_defaults = self.override_defaults(options);
        let evaluation = self.evaluation();
        let settings = self.settings;
        let mut root = Children::new(self.nodes, evaluation);
        root.fold(folding, &options.path_keys);
        Domain {
            name: self.name,
            evaluation,
            tenant: settings.tenant.map(|at| at.value),
            tenant_of_levels: None,
            plans: settings.plans.map(|at| at.value).unwrap_or_default(),
            secrets: &settings.secrets | &options.secrets,
            tenants: Arc::new(self.tenants),
            adjust: self.adjust,
            usage: settings.usage.map(|at| Arc::new(at.value)),
            stored: None,
            override_defaults,
            root: Arc::new(root),
        }
    }
}

/// Finds or creates the domain of a file; reports a domain that may not be in two files.
pub(super) fn enter(
    root: &mut Root,
    (file, options): (usize, &Options),
    report: &mut Report<'_>,
    domains: &mut Vec<DomainBuilder>,
    by_name: &mut HashMap<Box<str>, usize>,
) -> Option<usize> {
    let At { value: name, mark } = root.domain.as_ref()?;
    let (name, mark) = (&**name, *mark);
    let settings = std::mem::take(&mut root.settings);
    let Some(&index) = by_name.get(name) else {
        by_name.insert(name.into(), domains.len());
        domains.push(DomainBuilder::new(
            name,
            settings,
            report.place(mark),
            (file, mark),
        ));
        return Some(domains.len() - 1);
    };
    let domain = domains.get_mut(index)?;
    if !options.merge_domains {
        let help = format!(
            "it is at {} already; to merge files of one domain, use --merge-domains",
            domain.place
        );
        report.error(
            mark,
            format!("duplicate domain '{name}' in config file"),
            help,
        );
        // Its descriptors are checked all the same, as if the domain were its own.
        domains.push(DomainBuilder::new(
            name,
            settings,
            report.place(mark),
            (file, mark),
        ));
        return Some(domains.len() - 1);
    }
    let tenant = settings.tenant.as_ref().map(|tenant| (file, tenant.mark));
    domain.tenant_named = domain.tenant_named.or(tenant);
    merge(&mut domain.settings, settings, &domain.place, mark, report);
    Some(index)
}

/// Merges the settings of two files of one domain. The same key with different values is an error.
fn merge(into: &mut Settings, from: Settings, place: &str, domain: Mark, report: &mut Report<'_>) {
    let mut conflict = |key: &str, mark: Mark| {
        let message = format!("`{key}` differs from that of another file of this domain");
        report.error(
            mark,
            message,
            format!("the domain starts at {place}: say it in one file only"),
        );
    };
    keep(&mut into.evaluation, from.evaluation, |mark| {
        conflict("evaluation", mark)
    });
    keep(&mut into.tenant, from.tenant, |mark| {
        conflict("tenant", mark)
    });
    keep(&mut into.plans, from.plans, |mark| conflict("plans", mark));
    keep(&mut into.usage, from.usage, |mark| conflict("usage", mark));
    into.secrets.extend(from.secrets);
    if let Some(key) = into.policy.merge(from.policy) {
        conflict(key, domain);
    }
}

fn keep<T: PartialEq>(into: &mut Option<At<T>>, from: Option<At<T>>, conflict: impl FnOnce(Mark)) {
    match (&*into, from) {
        (Some(one), Some(other)) if one.value != other.value => conflict(other.mark),
        (None, from) => *into = from,
        _ => {}
    }
}
