//! The top of a file: its domain, and how the domain is evaluated.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::adjust::{ParsedAdjust, check_adjust};
use super::service_levels::{LevelContext, ParsedLevel, parse_service_levels};
use super::shed::{ParsedShed, check_shed};
use super::usage::check_usage;
use crate::draft::Field;
use crate::format::File;
use crate::format::fields::Fields;
use crate::format::mapping::{Keys as _, Mapping as _};
use crate::mark::{At, Mark};
use crate::policy::Policy;
use crate::report::Report;
use crate::slas::PathPattern;
use crate::tenants::CUSTOM;
use crate::yaml::Node;
use crate::{Evaluation, UsageRules};

/// The most plans of a domain.
const PLANS_MAX: usize = 1_000;

/// The settings of a domain that one file has, apart from the descriptors.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) evaluation: Option<At<Evaluation>>,
    pub(crate) tenant: Option<At<Box<str>>>,
    pub(crate) plans: Option<At<Vec<Box<str>>>>,
    pub(crate) secrets: BTreeSet<Box<str>>,
    pub(crate) policy: Policy,
    pub(crate) usage: Option<At<UsageRules>>,
}

/// The top of one file.
#[derive(Debug, Default)]
pub(crate) struct Root {
    /// [`None`] in a file of service levels only.
    pub(crate) domain: Option<At<Box<str>>>,
    pub(crate) settings: Settings,
    pub(crate) descriptors: Vec<Rc<Node>>,
    pub(crate) service_levels: Vec<ParsedLevel>,
    pub(crate) tenants: Option<Tenants>,
    pub(crate) shed: Option<At<ParsedShed>>,
    pub(crate) adjust: Option<At<ParsedAdjust>>,
}

/// The `tenants:` of one file, not read yet: that takes the rules of all files.
#[derive(Debug)]
pub(crate) struct Tenants {
    /// The domain that the file names.
    pub(crate) domain: Option<At<Box<str>>>,
    pub(crate) items: Vec<Rc<Node>>,
    pub(crate) mark: Mark,
}

/// Defaults that apply to all files.
pub(crate) struct Defaults {
    pub(crate) slas_base: Option<PathPattern>,
}

/// Reads the top of a file; [`None`] if it has none, which has been reported.
pub(crate) fn parse_root(
    tree: Option<&Node>,
    defaults: &Defaults,
    report: &mut Report<'_>,
) -> Option<Root> {
    let Some(tree) = tree.filter(|tree| !tree.is_null()) else {
        empty_domain(Mark::START, report);
        return None;
    };
    if let Some(levels) = tree.as_list().filter(|levels| !levels.is_empty()) {
        let around = LevelContext {
            base: defaults.slas_base.as_ref(),
            policy: &Policy::default(),
        };
        let service_levels = parse_service_levels(levels, around, report);
        return Some(Root {
            service_levels,
            ..Root::default()
        });
    }
    let fields = Fields::new(tree, &File::SHAPE, report)?;
    let mut file = Box::new(File::read(&fields, report));
    check_domain(&file, fields.mark, report);
    let settings = settings_of(&mut file, report);
    let service_levels = parse_slas(&file, defaults, &settings.policy, report);
    let domain = file.domain.text().map(|at| at.map(Into::into));
    let tenants = file.tenants.key().map(|mark| Tenants {
        domain: domain.clone(),
        items: file.tenants.take().unwrap_or_default(),
        mark,
    });
    // A file of tenants alone belongs to a domain, and is none of the files that make it.
    let is_apart = tenants.is_some() && fields.has_only(&["domain", "tenants"], &File::SHAPE);
    let shed = file.shed.key().zip(file.shed.take());
    let adjust = file.adjust.key().zip(file.adjust.take());
    Some(Root {
        domain: domain.filter(|_| !is_apart),
        settings,
        descriptors: file.descriptors.take().unwrap_or_default(),
        service_levels,
        tenants,
        shed: shed.map(|(key, shed)| check_shed(key, *shed, report)),
        adjust: adjust.map(|(key, adjust)| check_adjust(key, adjust.value, report)),
    })
}

/// Reports a file without a domain that needs one.
fn check_domain(file: &File, mark: Mark, report: &mut Report<'_>) {
    let only_levels = (file.slas.is_set() || file.tenants.key().is_some() || file.shed.is_set())
        && file.domain.key().is_none()
        && !file.descriptors.is_set()
        && !file.adjust.is_set()
        && !file.usage.is_set();
    // Any other fault of a domain has been reported.
    let is_empty = file.domain.get().is_some_and(|name| name.is_empty());
    if !only_levels && (!file.domain.is_set() || is_empty) {
        empty_domain(file.domain.mark().unwrap_or(mark), report);
    }
}

fn empty_domain(mark: Mark, report: &mut Report<'_>) {
    report.error(
        mark,
        "config file cannot have empty domain",
        "start it with `domain: some_name`",
    );
}

fn settings_of(file: &mut File, report: &mut Report<'_>) -> Settings {
    let secrets = file.secrets.take().unwrap_or_default();
    Settings {
        evaluation: file.evaluation.at().map(|at| at.map(|value| *value)),
        tenant: file.tenant.text().map(|at| at.map(Into::into)),
        plans: plan_names(&mut file.plans, report),
        secrets: secrets.into_iter().map(|at| at.value).collect(),
        policy: Policy {
            algorithm: file.algorithm.copied(),
            enabled: file.enabled.copied(),
            enforce: file.enforce.copied(),
            ..Policy::of_counting(&file.counting, report)
        },
        usage: check_usage(&mut file.usage, report),
    }
}

fn plan_names(
    plans: &mut Field<Vec<At<Box<str>>>>,
    report: &mut Report<'_>,
) -> Option<At<Vec<Box<str>>>> {
    let mark = plans.key()?;
    let mut names: Vec<Box<str>> = Vec::new();
    for name in plans.take().unwrap_or_default() {
        if names.contains(&name.value) {
            report.error(
                name.mark,
                format!("plan '{}' is there twice", name.value),
                "leave one of them out",
            );
        } else if *name.value == *CUSTOM {
            report.error(
                name.mark,
                format!("a plan cannot be called '{CUSTOM}': limits that one tenant has alone are"),
                "choose another name",
            );
        } else {
            names.push(name.value);
        }
    }
    if names.len() > PLANS_MAX {
        let message = format!("a domain has at most {PLANS_MAX} plans");
        report.error(mark, message, "give single tenants `overrides` instead");
    }
    Some(At { value: names, mark })
}

fn parse_slas(
    file: &File,
    defaults: &Defaults,
    policy: &Policy,
    report: &mut Report<'_>,
) -> Vec<ParsedLevel> {
    let own = file.slas_base.at();
    let base = match own.map(|at| (PathPattern::parse(at.value), at.mark)) {
        None => defaults.slas_base.clone(),
        Some((Ok(base), mark)) if base.has_rest() => {
            report.error(
                mark,
                "a base cannot end in `**`",
                "write the path up to where the patterns start",
            );
            None
        }
        Some((Ok(base), _)) => Some(base),
        Some((Err(error), mark)) => {
            report.error(
                mark,
                error.to_string(),
                "write `slas_base: /v1/organizations/{tenant}`",
            );
            None
        }
    };
    let levels = file.slas.get().map_or(&[][..], Vec::as_slice);
    let around = LevelContext {
        base: base.as_ref(),
        policy,
    };
    parse_service_levels(levels, around, report)
}
