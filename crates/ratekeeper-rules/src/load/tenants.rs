//! Compiles the tenants of all files, once the rules of all files are known.

mod overrides;
mod terms;

use hashbrown::HashMap;

use super::domain::DomainBuilder;
use crate::folding::FoldedKeys;
use crate::format::Tenant as Keys;
use crate::format::mapping::read_item;
use crate::mark::{At, Mark};
use crate::nearest::nearest;
use crate::parse::root::Tenants;
use crate::report::Report;
use crate::tenants::{OverrideDefaults, Site, Tenant, TenantTable, Term, is_in_no_path};
use crate::yaml::Node as Tree;
use crate::{Options, Rule, ServiceLevel, TenantHash, TenantKey, secret};
use overrides::{Overrides, Times};

/// Puts the tenants of all files into their domains, and their own limits among the rules.
pub(super) fn compile(
    files: Vec<Option<Tenants>>,
    domains: &mut [DomainBuilder],
    (options, tenants_of, levels): (&Options, Option<usize>, &[ServiceLevel]),
    reports: &mut [Report<'_>],
    (rules, suffixes): (&mut Vec<Rule>, &[Option<Box<str>>]),
) {
    let mut compilers: HashMap<usize, Compiler> = HashMap::new();
    for (tenants, report) in files.into_iter().zip(reports) {
        let Some(tenants) = tenants else {
            continue;
        };
        let Some(index) = domain_of(&tenants, domains, report) else {
            continue;
        };
        let compiler = compilers.entry(index).or_default();
        let domain = &domains[index];
        let defaults = domain.override_defaults(options);
        let around = Around {
            domain,
            options,
            suffixes,
            defaults: &defaults,
            levels: match tenants_of == Some(index) {
                true => levels,
                false => &[],
            },
        };
        for item in &tenants.items {
            compiler.tenant(item, &around, rules, report);
        }
    }
    for (index, compiler) in compilers {
        let key = options.tenant_key.clone().unwrap_or_default();
        let mut table = TenantTable::new(key);
        for (name, tenant) in compiler.tenants {
            let hash = name.hash(table.key());
            table.insert(hash, tenant);
        }
        domains[index].tenants = table;
    }
}

/// The domain whose tenants these are: the one that the file names, else the only one that has any.
fn domain_of(
    tenants: &Tenants,
    domains: &[DomainBuilder],
    report: &mut Report<'_>,
) -> Option<usize> {
    let has_tenants = |domain: &DomainBuilder| domain.settings.tenant.is_some();
    if let Some(At { value: name, mark }) = &tenants.domain {
        let (name, mark) = (&**name, *mark);
        let index = domains.iter().position(|domain| *domain.name == *name);
        let Some(index) = index else {
            let names = domains.iter().map(|domain| &*domain.name);
            let help = nearest(name, names).map(|name| format!("did you mean `{name}`?"));
            report.error(mark, format!("there is no domain '{name}'"), help);
            return None;
        };
        if !domains.get(index).is_some_and(has_tenants) {
            let message = format!("the domain '{name}' does not say which entry names the tenant");
            let help = "write `tenant: api_key`, the key of that entry, at the top of its rules";
            report.error(mark, message, help);
            return None;
        }
        return Some(index);
    }
    let mut with_tenants = (0..).zip(domains).filter(|(_, domain)| has_tenants(domain));
    match (with_tenants.next(), with_tenants.next()) {
        (Some((index, _)), None) => Some(index),
        (None, _) => {
            let message = "no domain says which entry names the tenant";
            let help = "write `tenant: api_key`, the key of that entry, at the top of the rules";
            report.error(tenants.mark, message, help);
            None
        }
        (Some((_, one)), Some((_, other))) => {
            let message = "several domains have tenants";
            let help = format!("write `domain: {}`, or {}, …", one.name, other.name);
            report.error(tenants.mark, message, help);
            None
        }
    }
}

/// The surroundings that a tenant is compiled against.
struct Around<'a> {
    domain: &'a DomainBuilder,
    options: &'a Options,
    suffixes: &'a [Option<Box<str>>],
    defaults: &'a OverrideDefaults,
    /// The service levels that overrides may be for.
    levels: &'a [ServiceLevel],
}

impl Around<'_> {
    fn tenant_key(&self) -> &str {
        let tenant = self.domain.settings.tenant.as_ref();
        tenant.map_or("", |at| &at.value)
    }

    fn plans(&self) -> &[Box<str>] {
        let plans = self.domain.settings.plans.as_ref();
        plans.map(|at| at.value.as_slice()).unwrap_or_default()
    }

    fn is_secret(&self, key: &str) -> bool {
        secret::is_secret_by_default(key)
            || self.domain.settings.secrets.contains(key)
            || self.options.secrets.contains(key)
    }

    fn site(&self) -> Site<'_> {
        Site {
            domain: &self.domain.name,
            tenant_key: self.tenant_key(),
            nodes: &self.domain.nodes,
            secrets: [&self.domain.settings.secrets, &self.options.secrets],
            suffixes: self.suffixes,
            defaults: self.defaults,
            levels: self.levels,
            paths: FoldedKeys {
                folding: self.options.path_folding,
                keys: &self.options.path_keys,
            },
        }
    }
}

/// A tenant as a file names it.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Name {
    Value(Box<str>),
    Hash(TenantHash),
}

impl Name {
    fn hash(&self, key: &TenantKey) -> TenantHash {
        match self {
            Self::Value(value) => key.hash(value),
            Self::Hash(hash) => *hash,
        }
    }
}

/// The tenants of one domain so far.
#[derive(Default)]
struct Compiler {
    tenants: Vec<(Name, Tenant)>,
    /// The position of each tenant, by its hash where there is a key.
    places: HashMap<Name, String>,
    overrides: Overrides,
}

impl Compiler {
    fn tenant(
        &mut self,
        item: &Tree,
        around: &Around<'_>,
        rules: &mut Vec<Rule>,
        report: &mut Report<'_>,
    ) {
        let Some(At { value: keys, mark }) = read_item::<Keys>(item, report) else {
            return;
        };
        let name = self.name(&keys, mark, around, report);
        let term = terms::term(&keys.effective_at, &keys.expires_at, Term::ALWAYS, report);
        let plans = match keys.plan.get() {
            Some(node) => terms::plans(node, term, around, report),
            None => Vec::new(),
        };
        let times = Times {
            whole: term,
            plans: &plans,
        };
        let limits = self.overrides.read(&keys, times, around, rules, report);
        if keys.plan.key().is_none() && keys.overrides.key().is_none() {
            let message = "this tenant has neither a plan nor overrides";
            report.error(mark, message, "write `plan: pro`, or leave it out");
        }
        if let Some(name) = name {
            self.tenants.push((name, Tenant::new(plans, limits)));
        }
    }

    /// Reads the value or the hash of a tenant.
    fn name(
        &mut self,
        keys: &Keys,
        start: Mark,
        around: &Around<'_>,
        report: &mut Report<'_>,
    ) -> Option<Name> {
        let value = keys.tenant.at().map(|at| at.map(|text| &**text));
        let hash = keys.hash.at().map(|at| at.map(|text| &**text));
        let (name, mark) = match (value, hash) {
            (Some(_), Some(At { mark, .. })) => {
                let message = "`tenant` and `hash` name the same thing";
                report.error(mark, message, "leave one of them out");
                return None;
            }
            (Some(value), None) => (self.value(value, around, report)?, value.mark),
            (None, Some(hash)) => (hashed(hash, around, report)?, hash.mark),
            (None, None) => {
                if !keys.tenant.is_set() && !keys.hash.is_set() {
                    let help = "write `tenant:` and its value, or `hash:` and what `ratekeeper key hash` prints";
                    report.error(start, "there is no tenant", help);
                }
                return None;
            }
        };
        // The same tenant may be there once by its value and once by its hash.
        let unique = match &around.options.tenant_key {
            Some(key) => Name::Hash(name.hash(key)),
            None => name.clone(),
        };
        let place = report.place(mark).to_string();
        if let Some(earlier) = self.places.insert(unique, place) {
            let help = format!("it is at {earlier} already: put both into one");
            report.error(mark, "this tenant is there twice", help);
            return None;
        }
        Some(name)
    }

    fn value(&self, value: At<&str>, around: &Around<'_>, report: &mut Report<'_>) -> Option<Name> {
        let key = around.tenant_key();
        if value.value.is_empty() {
            let help = format!("write the value of its `{key}`");
            report.error(value.mark, "a tenant cannot be empty", help);
            return None;
        }
        if around.is_secret(key) {
            let message = format!("the value of `{key}` is a secret, and stands here in the clear");
            let help = "write `hash:` and what `ratekeeper key hash` prints for it";
            report.warn(value.mark, message, help);
        }
        if is_in_no_path(value.value, around.levels, around.options.path_folding) {
            let message = "names of tenants from paths are compared in lower case: no service level finds this one by \
                           its path";
            let help = "write it in lower case, or set `ignore_path_case: false` if your service tells the two apart";
            report.warn(value.mark, message, help);
        }
        Some(Name::Value(value.value.into()))
    }
}

fn hashed(hash: At<&str>, around: &Around<'_>, report: &mut Report<'_>) -> Option<Name> {
    if around.options.tenant_key.is_none() {
        let message = "a hash means nothing without the `tenant_key` that it was made with";
        let help =
            "set `tenant_key` in the settings; `rules check --config ratekeeper.yaml` reads them";
        // Who knows the settings knows the stores.
        if around.options.stores.is_some() {
            report.error(hash.mark, message, help);
            return None;
        }
        report.warn(hash.mark, message, help);
    }
    match hash.value.parse() {
        Ok(hash) => Some(Name::Hash(hash)),
        Err(_) => {
            let message = "this is no hash of a tenant: it has 32 hexadecimal digits";
            let help = "write what `ratekeeper key hash` prints, in quotes";
            report.error(hash.mark, message, help);
            None
        }
    }
}
