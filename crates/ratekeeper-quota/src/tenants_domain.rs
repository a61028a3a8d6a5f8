//! The domain that somebody means who names a tenant.

use ratekeeper_rules::{Domain, RuleSet};

/// The reason why a tenant's domain is not known.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnclearTenants {
    /// No domain has tenants.
    #[error("no domain has `tenant:`, the key of the entry that names a tenant")]
    Nowhere,
    /// The domain that was named is not there, or has no tenants.
    #[error("there is no domain {0:?} with `tenant:`")]
    NoSuchDomain(String),
    /// No domain was named, and several have tenants.
    #[error("several domains have tenants; name one of them")]
    Several,
}

/// The domain `named`, or the only one that has tenants, and the key of the entry that names them.
///
/// # Errors
/// There is none, or more than one.
pub fn tenants_domain<'a>(
    rules: &'a RuleSet,
    named: Option<&str>,
) -> Result<(&'a Domain, &'a str), UnclearTenants> {
    if let Some(name) = named {
        let domain = rules.domain(name);
        let found = domain.and_then(|domain| Some((domain, domain.tenant()?)));
        return found.ok_or_else(|| UnclearTenants::NoSuchDomain(name.to_owned()));
    }
    let mut all = rules
        .domains()
        .filter_map(|domain| Some((domain, domain.tenant()?)));
    match (all.next(), all.next()) {
        (None, _) => Err(UnclearTenants::Nowhere),
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => Err(UnclearTenants::Several),
    }
}
