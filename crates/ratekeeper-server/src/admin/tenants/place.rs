//! The domain whose tenants are meant, and the entry that names them.

use ratekeeper_quota::{UnclearTenants, tenants_domain};
use ratekeeper_rules::{Domain, RuleSet, SERVICE_LEVELS, TENANT};

/// The domain whose tenants are meant.
#[derive(Clone, Copy)]
pub(super) struct Place<'r> {
    pub(super) domain: &'r Domain,
    /// The key of the entry that names a tenant there.
    pub(super) key: &'r str,
    /// True if the service levels are for its tenants.
    has_levels: bool,
    /// True if somebody named it: then nothing of other domains is wanted.
    pub(super) is_named: bool,
}

impl<'r> Place<'r> {
    /// The domain `named`, or the only one that has tenants.
    pub(super) fn of(rules: &'r RuleSet, named: Option<&str>) -> Result<Self, UnclearTenants> {
        let (domain, key) = tenants_domain(rules, named)?;
        let of_levels = rules.tenants_of_levels();
        Ok(Self {
            domain,
            key,
            has_levels: of_levels.is_some_and(|found| found.name() == domain.name()),
            is_named: named.is_some(),
        })
    }

    /// Returns true if rules of `domain` are for its tenants.
    pub(super) fn has(&self, domain: &str) -> bool {
        domain == self.domain.name() || self.is_level(domain)
    }

    fn is_level(&self, domain: &str) -> bool {
        self.has_levels && domain == SERVICE_LEVELS
    }

    /// The value of the tenant that an entry names which rules of `domain` have counted; None if it names none.
    pub(super) fn value<'e>(&self, domain: &str, entry: &'e str) -> Option<&'e str> {
        let (key, value) = entry.split_once(':')?;
        let is_key = key == self.key || (key == TENANT && self.is_level(domain));
        (is_key && self.has(domain)).then_some(value)
    }

    /// Returns true if the values of its tenants are secrets.
    pub(super) fn is_secret(&self) -> bool {
        self.domain.is_secret(self.key)
    }
}

/// The names of the domains that have tenants, in alphabetical order, if there are several.
pub(super) fn several(rules: &RuleSet) -> Vec<String> {
    let with_tenants = rules.domains().filter(|domain| domain.tenant().is_some());
    let mut names: Vec<_> = with_tenants
        .map(|domain| domain.name().to_owned())
        .collect();
    names.sort_unstable();
    match names.len() {
        0 | 1 => Vec::new(),
        _ => names,
    }
}
