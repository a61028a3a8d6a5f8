//! Compiles texts into a [`RuleSet`].

mod adjust;
mod domain;
pub(crate) mod file;
mod levels;
mod shed;
mod slips;
mod tenants;

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use domain::{DomainBuilder, enter};
use hashbrown::HashMap;
use levels::TenantsOf;

use crate::id::{self, Draft};
use crate::mark::{At, Mark};
use crate::matching::fold_below;
use crate::nearest::nearest;
use crate::parse::descriptors::{Compiler, DomainContext, Level, Path};
use crate::parse::root::{Defaults, Root, Settings, parse_root};
use crate::report::Report;
use crate::slas::{SERVICE_LEVELS, ServiceLevels};
use crate::tenants::TenantTable;
use crate::yaml::Node as Tree;
use crate::{
    DEFAULT_STORE, Diagnostic, Diagnostics, Node, Options, PathFolding, Rule, RuleSet, Source,
    secret,
};

/// The result of [`load`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The rules.
    pub rules: RuleSet,
    /// Warnings about the rules, in the order of files and lines.
    pub warnings: Vec<Diagnostic>,
}

/// Compiles all rules of `sources`. With `merge_domains`, the order of the sources decides which of
/// two wildcard patterns is tried first.
///
/// # Errors
/// Every error in every file, at once.
pub fn load(sources: &[Source], options: &Options) -> Result<Loaded, Diagnostics> {
    let mut reports: Vec<_> = sources.iter().map(Report::new).collect();
    let trees: Vec<_> = sources
        .iter()
        .zip(&mut reports)
        .map(|(source, report)| file::open(source, report))
        .collect();
    let rules = compile(&trees, options, &mut reports);
    for report in &mut reports {
        check_stores(options.stores.as_deref(), report);
    }
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    for report in reports {
        let (file_errors, file_warnings) = report.finish();
        errors.extend(file_errors);
        warnings.extend(file_warnings);
    }
    if errors.is_empty() {
        Ok(Loaded { rules, warnings })
    } else {
        Err(Diagnostics { errors, warnings })
    }
}

/// Reports names of stores that do not exist.
fn check_stores(known: Option<&[Box<str>]>, report: &mut Report<'_>) {
    for At { value: name, mark } in std::mem::take(&mut report.stores) {
        if &*name == DEFAULT_STORE {
            continue;
        }
        let Some(known) = known else {
            report.warn(
                mark,
                format!("whether there is a store '{name}' is not known here"),
                "`rules check --config ratekeeper.yaml` looks into its `stores`",
            );
            continue;
        };
        if known.contains(&name) {
            continue;
        }
        let help = match nearest(&name, known.iter().map(|name| &**name)) {
            Some(name) => format!("did you mean `{name}`?"),
            None if known.is_empty() => {
                format!(
                    "name it in the settings, `stores: {{ {name}: {{ url: redis://… }} }}`, or leave the key out"
                )
            }
            None => format!("the stores are {DEFAULT_STORE}, {}", known.join(", ")),
        };
        report.error(mark, format!("there is no store '{name}'"), help);
    }
}

/// Parses the top of each file; of a file that is broken, or empty, nothing is there.
fn parse_roots(
    trees: &[Option<Option<Rc<Tree>>>],
    options: &Options,
    reports: &mut [Report<'_>],
) -> Vec<Root> {
    let defaults = Defaults {
        slas_base: options.slas_base.clone(),
    };
    trees
        .iter()
        .zip(reports.iter_mut())
        .map(|(tree, report)| {
            let tree = tree.as_ref()?;
            parse_root(tree.as_deref(), &defaults, report)
        })
        .map(Option::unwrap_or_default)
        .collect()
}

fn compile(
    trees: &[Option<Option<Rc<Tree>>>],
    options: &Options,
    reports: &mut [Report<'_>],
) -> RuleSet {
    let mut roots = parse_roots(trees, options, reports);
    let mut domains: Vec<DomainBuilder> = Vec::new();
    let mut by_name: HashMap<Box<str>, usize> = HashMap::new();
    let mut of_file = Vec::with_capacity(roots.len());
    for (file, (root, report)) in roots.iter_mut().zip(reports.iter_mut()).enumerate() {
        let around = (file, options);
        of_file.push(enter(root, around, report, &mut domains, &mut by_name));
    }
    let mut rules = Vec::new();
    let mut drafts: Vec<Draft> = Vec::new();
    for (file, (root, domain)) in roots.iter().zip(&of_file).enumerate() {
        let (Some(domain), Some(report)) = (
            domain.and_then(|at| domains.get_mut(at)),
            reports.get_mut(file),
        ) else {
            continue;
        };
        descriptors(
            root,
            domain,
            (file, options),
            report,
            (&mut rules, &mut drafts),
        );
    }
    let shed = shed::compile(&mut roots, &domains, options.path_folding, reports);
    let adjusts = roots.iter_mut().map(|root| root.adjust.take()).collect();
    adjust::compile(adjusts, &of_file, &mut domains, reports, &rules);
    let listed = roots.iter_mut().map(|root| root.tenants.take()).collect();
    let tenants_of = TenantsOf::find(&roots, &of_file, &domains);
    let beside = slips::Beside {
        has_levels: roots.iter().any(|root| !root.service_levels.is_empty()),
        tenants_of: tenants_of.place(),
        sheds: shed.is_some(),
    };
    slips::check(&domains, beside, &rules, reports);
    let levels = levels::compile(
        roots,
        options,
        reports,
        (&mut rules, &mut drafts),
        (tenants_of, &domains),
    );
    assign_ids(&mut rules, &drafts, reports);
    check_replaces(&rules, &drafts, reports);
    let suffixes: Arc<[_]> = drafts.into_iter().map(|draft| draft.name.suffix).collect();
    let (_, service_levels) = &levels;
    tenants::compile(
        listed,
        &mut domains,
        (options, tenants_of.place(), service_levels.as_slice()),
        reports,
        (&mut rules, &suffixes),
    );
    let mut rules = assemble(
        domains,
        (rules, suffixes),
        (levels, tenants_of.place()),
        options,
    );
    rules.shed = shed.map(Arc::new);
    rules
}

fn descriptors(
    root: &Root,
    domain: &mut DomainBuilder,
    (file, options): (usize, &Options),
    report: &mut Report<'_>,
    (rules, drafts): (&mut Vec<Rule>, &mut Vec<Draft>),
) {
    let secrets = &domain.settings.secrets;
    let around = DomainContext {
        domain: &domain.name,
        evaluation: domain.evaluation(),
        has_tenants: domain.settings.tenant.is_some(),
        policy: &domain.settings.policy,
        plans: domain
            .settings
            .plans
            .as_ref()
            .map(|at| at.value.as_slice())
            .unwrap_or_default(),
        is_secret: &|key| {
            secret::is_secret_by_default(key)
                || secrets.contains(key)
                || options.secrets.contains(key)
        },
        profile: options.profile,
        on_store_failure: options.on_store_failure,
        region: &options.region,
        path_folding: options.path_folding,
        path_keys: &options.path_keys,
        file,
    };
    let mut compiler = Compiler {
        around: &around,
        report,
        rules,
        drafts,
    };
    let mut nodes = compiler.nodes(&root.descriptors, &Path::default(), &mut domain.level);
    // Before tenants are read: their overrides are looked up here.
    fold_below(&mut nodes, options.path_folding, &options.path_keys);
    domain.nodes.extend(nodes);
}

/// Gives every rule its id; reports explicit ids that are there twice.
fn assign_ids(rules: &mut [Rule], drafts: &[Draft], reports: &mut [Report<'_>]) {
    let names: Vec<_> = drafts.iter().map(|draft| &draft.name).collect();
    for (at, earlier) in id::assign(rules, &names) {
        let [draft, earlier] = [&drafts[at], &drafts[earlier]];
        let place = reports
            .get(earlier.file)
            .map(|report| report.place(earlier.mark).to_string());
        let (Some(report), Some(place)) = (reports.get_mut(draft.file), place) else {
            continue;
        };
        let message = format!("duplicate id '{}'", rules[at].id);
        let help = format!("it is the id of the limit at {place} already");
        report.error(draft.mark, message, help);
    }
}

/// Warns of a name that no limit of the domain has. envoyproxy/ratelimit accepts it.
fn check_replaces(rules: &[Rule], drafts: &[Draft], reports: &mut [Report<'_>]) {
    let names: BTreeSet<_> = rules
        .iter()
        .filter_map(|rule| Some((&rule.domain, rule.name.as_deref()?)))
        .collect();
    for (rule, draft) in rules.iter().zip(drafts) {
        for (replaced, &mark) in rule.replaces.iter().zip(&draft.replaces) {
            let Some(report) = reports.get_mut(draft.file) else {
                continue;
            };
            if !names.contains(&(&rule.domain, &**replaced)) {
                let message = format!("no limit of this domain has the name '{replaced}'");
                report.warn(mark, message, None);
            }
        }
    }
}

/// The suffix of each limit's id, for the limits that stand in a list.
type IdSuffixes = Arc<[Option<Box<str>>]>;

fn assemble(
    builders: Vec<DomainBuilder>,
    (rules, suffixes): (Vec<Rule>, IdSuffixes),
    ((nodes, service_levels), tenants_of): ((Vec<Node>, ServiceLevels), Option<usize>),
    options: &Options,
) -> RuleSet {
    let named_by_files = builders.len();
    let folding = options.path_folding;
    let mut domains: Vec<_> = builders
        .into_iter()
        .map(|builder| builder.finish(options, folding))
        .collect();
    if !nodes.is_empty() {
        let builder = DomainBuilder {
            name: SERVICE_LEVELS.into(),
            settings: Settings::default(),
            nodes,
            level: Level::default(),
            tenants: TenantTable::default(),
            adjust: None,
            place: String::new(),
            named: (0, Mark::START),
            tenant_named: None,
        };
        let mut levels = builder.finish(options, PathFolding::NONE);
        if let Some(of_tenants) = tenants_of.and_then(|at| domains.get(at)) {
            levels.share_tenants(of_tenants);
        }
        domains.push(levels);
    }
    let by_name = (0_u32..)
        .zip(&domains)
        .map(|(index, domain)| (domain.name().into(), index))
        .collect();
    let by_id = (0_u32..)
        .zip(&rules)
        .map(|(index, rule)| (Arc::clone(&rule.id), index))
        .collect();
    RuleSet {
        domains,
        named_by_files,
        by_name,
        of_files: rules.len(),
        rules,
        suffixes,
        service_levels: Arc::new(service_levels),
        tenants_of_levels: tenants_of,
        shed: None,
        path_folding: options.path_folding,
        path_keys: options.path_keys.clone(),
        refused: Arc::default(),
        by_id: Arc::new(by_id),
    }
}
