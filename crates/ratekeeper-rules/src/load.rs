//! Compiles texts into a [`RuleSet`].

mod adjust;
mod levels;
mod tenants;

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;
use levels::TenantsOf;

use crate::id::{self, Draft};
use crate::matching::Children;
use crate::parse::descriptors::{Compiler, DomainContext, Level, Path};
use crate::parse::fields::At;
use crate::parse::nearest::nearest;
use crate::parse::root::{Defaults, Root, Settings, parse_root};
use crate::report::Report;
use crate::slas::{PathPattern, SERVICE_LEVELS, ServiceLevels};
use crate::tenants::{OverrideDefaults, TenantTable};
use crate::yaml::{self, Mark, Node as Tree};
use crate::{
    AdjustPolicy, Diagnostic, Diagnostics, Domain, Evaluation, FailureMode, Node, PathFolding,
    PathForm, PathKeys, Position, Rule, RuleSet, ShedRules, Source, TenantKey, secret,
};

/// The defaults for keys that a file leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Profile {
    /// Ratekeeper's own: `sliding_window`, and a denied request consumes nothing.
    #[default]
    Ratekeeper,
    /// Those of envoyproxy/ratelimit: `fixed_window`, and a denied request is counted.
    Envoy,
}

/// Options for loading rules.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Lets several files add to one domain; otherwise that is an error.
    pub merge_domains: bool,
    /// The defaults to apply.
    pub profile: Profile,
    /// The failure mode of rules without `on_store_failure`.
    pub on_store_failure: FailureMode,
    /// The names of the stores that exist; [`None`] if the caller does not know them.
    pub stores: Option<Vec<Box<str>>>,
    /// The base path of `slas:` patterns in files without `slas_base`.
    pub slas_base: Option<PathPattern>,
    /// Keys whose values are secrets in every domain, besides those that files list: the entries
    /// that settings make from credentials.
    pub secrets: BTreeSet<Box<str>>,
    /// The secret under which tenants in files are hashed; without it, files can name tenants by
    /// their values only.
    pub tenant_key: Option<TenantKey>,
    /// The differences between paths that do not count.
    pub path_folding: PathFolding,
    /// The keys of entries that are made from paths: their values are folded. `path` and
    /// `endpoint` unless set.
    pub path_keys: PathKeys,
}

impl Default for Options {
    fn default() -> Self {
        let key = |key: &str, form| (key.into(), BTreeSet::from([form]));
        Self {
            merge_domains: false,
            profile: Profile::default(),
            on_store_failure: FailureMode::default(),
            stores: None,
            slas_base: None,
            secrets: BTreeSet::new(),
            tenant_key: None,
            path_folding: PathFolding::default(),
            path_keys: PathKeys::from([
                key("path", PathForm::Path),
                key("endpoint", PathForm::Endpoint),
            ]),
        }
    }
}

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
        .map(|(source, report)| open(source, report))
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

/// The name of the store that keeps the counters of rules without `store`.
pub const DEFAULT_STORE: &str = "default";

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

/// Parses a file into a tree; [`None`] if its YAML is broken, which has been reported.
fn open(source: &Source, report: &mut Report<'_>) -> Option<Option<Rc<Tree>>> {
    let text = source.text.strip_prefix('\u{feff}').unwrap_or(&source.text);
    if let Some((mark, message)) = yaml::forbidden(text) {
        report.error(
            mark,
            format!("error loading config file: {message}"),
            "remove it, or write it escaped in double quotes",
        );
        return None;
    }
    if let Some((mark, message)) = yaml::wrong_directive(text) {
        report.error(
            mark,
            format!("error loading config file: {message}"),
            "remove the line, or write `%YAML 1.1`",
        );
        return None;
    }
    let built = yaml::build(text);
    for (mark, key) in built.repeated {
        report.warn(
            mark,
            format!("`{key}` is written again below: the last one counts"),
            "leave one of them out",
        );
    }
    if let Some(mark) = built.more {
        report.warn(
            mark,
            "a second document begins here, and nothing in it is in force: only the first one of a file is read",
            "put it into a file of its own",
        );
    }
    if let Some((mark, message)) = built.error {
        let help = layout_help(&message);
        report.error(mark, format!("error loading config file: {message}"), help);
        return None;
    }
    Some(built.root)
}

/// Suggests a fix for text whose layout is wrong, from the parser's message.
fn layout_help(message: &str) -> Option<String> {
    let indentation = [
        "expected '-' indicator",
        "did not find expected key",
        "mapping values are not allowed",
        "simple key expected",
    ];
    let help = if message.contains("tab") {
        "use spaces in place of tabs: YAML does not take tabs for indentation"
    } else if indentation.iter().any(|part| message.contains(part)) {
        "check the indentation: the keys of one item begin in the same column, two right of its `-`"
    } else {
        return None;
    };
    Some(help.to_owned())
}

/// A domain whose files are still being read.
struct DomainBuilder {
    name: Arc<str>,
    settings: Settings,
    nodes: Vec<Node>,
    level: Level,
    tenants: TenantTable,
    adjust: Option<Arc<AdjustPolicy>>,
    /// The file that named the domain first.
    place: String,
}

impl DomainBuilder {
    /// A domain without descriptors so far.
    fn new(name: &str, settings: Settings, place: Position) -> Self {
        Self {
            name: name.into(),
            settings,
            nodes: Vec::new(),
            level: Level::default(),
            tenants: TenantTable::default(),
            adjust: None,
            place: place.to_string(),
        }
    }

    /// The defaults of overrides that take no rule's place.
    fn override_defaults(&self, options: &Options) -> OverrideDefaults {
        OverrideDefaults::new(&self.name, &self.settings.policy, options)
    }

    /// The domain, once all files are read.
    fn finish(self, options: &Options, folding: PathFolding) -> Domain {
        let override_defaults = self.override_defaults(options);
        let settings = self.settings;
        let mut root = Children::new(self.nodes);
        root.fold(folding, &options.path_keys);
        Domain {
            name: self.name,
            evaluation: settings.evaluation.map_or(Evaluation::Leaf, |at| at.value),
            tenant: settings.tenant.map(|at| at.value),
            tenant_of_levels: None,
            plans: settings.plans.map(|at| at.value).unwrap_or_default(),
            secrets: &settings.secrets | &options.secrets,
            tenants: Arc::new(self.tenants),
            adjust: self.adjust,
            stored: None,
            override_defaults,
            root: Arc::new(root),
        }
    }
}

fn compile(
    trees: &[Option<Option<Rc<Tree>>>],
    options: &Options,
    reports: &mut [Report<'_>],
) -> RuleSet {
    let defaults = Defaults {
        slas_base: options.slas_base.clone(),
    };
    let mut roots: Vec<Root<'_>> = trees
        .iter()
        .zip(reports.iter_mut())
        .map(|(tree, report)| {
            let tree = tree.as_ref()?;
            parse_root(tree.as_deref(), &defaults, report)
        })
        .map(Option::unwrap_or_default)
        .collect();
    let mut domains: Vec<DomainBuilder> = Vec::new();
    let mut by_name: HashMap<Box<str>, usize> = HashMap::new();
    let mut of_file = Vec::with_capacity(roots.len());
    for (root, report) in roots.iter_mut().zip(reports.iter_mut()) {
        of_file.push(enter(root, options, report, &mut domains, &mut by_name));
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
    let shed = shed(&mut roots, reports);
    let adjusts = roots.iter_mut().map(|root| root.adjust.take()).collect();
    adjust::compile(adjusts, &of_file, &mut domains, reports, &rules);
    let listed = roots.iter_mut().map(|root| root.tenants.take()).collect();
    let tenants_of = TenantsOf::find(&roots, &of_file, &domains);
    let levels = levels::compile(
        roots,
        options,
        reports,
        (&mut rules, &mut drafts),
        (tenants_of, &domains),
    );
    id::assign(&mut rules, &drafts, reports);
    check_replaces(&rules, &drafts, reports);
    let suffixes: Arc<[_]> = drafts.into_iter().map(|draft| draft.suffix).collect();
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
    rules.shed = shed;
    rules
}

/// The `shed:` of all files: at most one may have it.
fn shed(roots: &mut [Root<'_>], reports: &mut [Report<'_>]) -> Option<Arc<ShedRules>> {
    let mut found: Option<(Arc<ShedRules>, String)> = None;
    for (root, report) in roots.iter_mut().zip(reports) {
        let Some(At { value, mark }) = root.shed.take() else {
            continue;
        };
        match &found {
            Some((_, place)) => report.error(
                mark,
                "`shed` is in two files",
                format!("it is at {place} already: keep one of them"),
            ),
            None => found = Some((Arc::new(value), report.place(mark).to_string())),
        }
    }
    found.map(|(shed, _)| shed)
}

/// Finds or creates the domain of a file; reports a domain that may not be in two files.
fn enter(
    root: &mut Root<'_>,
    options: &Options,
    report: &mut Report<'_>,
    domains: &mut Vec<DomainBuilder>,
    by_name: &mut HashMap<Box<str>, usize>,
) -> Option<usize> {
    let At { value: name, mark } = root.domain?;
    let settings = std::mem::take(&mut root.settings);
    let Some(&index) = by_name.get(name) else {
        by_name.insert(name.into(), domains.len());
        domains.push(DomainBuilder::new(name, settings, report.place(mark)));
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
        domains.push(DomainBuilder::new(name, settings, report.place(mark)));
        return Some(domains.len() - 1);
    }
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

fn descriptors(
    root: &Root<'_>,
    domain: &mut DomainBuilder,
    (file, options): (usize, &Options),
    report: &mut Report<'_>,
    (rules, drafts): (&mut Vec<Rule>, &mut Vec<Draft>),
) {
    let secrets = &domain.settings.secrets;
    let around = DomainContext {
        domain: &domain.name,
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
    let nodes = compiler.nodes(
        root.descriptors.unwrap_or_default(),
        &Path::default(),
        &mut domain.level,
    );
    domain.nodes.extend(nodes);
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
    }
}
