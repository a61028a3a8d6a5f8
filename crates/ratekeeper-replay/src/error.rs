//! Why a replay cannot be run.

use std::io;

use ratekeeper_rules::{RuleSet, SERVICE_LEVELS};
use ratekeeper_store::memory::MemoryError;

/// Why a replay cannot be run, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The log cannot be opened, read or decompressed.
    #[error("cannot read {log}")]
    Read {
        /// The log's name.
        log: String,
        /// Why.
        source: io::Error,
    },
    /// The counters cannot have that much memory, or that little.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// There are neither rules for descriptors nor service levels.
    #[error("the rules have no domain")]
    NoDomain,
    /// There is a choice to make.
    #[error("the rules have several domains; choose one with --domain: {known}")]
    SeveralDomains {
        /// Their names.
        known: String,
    },
    /// The domain that was chosen is not there.
    #[error("the rules have no domain {name:?}; they have: {known}")]
    UnknownDomain {
        /// The choice.
        name: String,
        /// The names there are.
        known: String,
    },
}

/// The domain that is meant: the one asked for, or the only one, or that of the service levels where there is no other.
pub(crate) fn choose_domain(rules: &RuleSet, wanted: Option<&str>) -> Result<String, ReplayError> {
    let mut names = rules.domains().map(|domain| domain.name());
    let known = || {
        rules
            .domains()
            .map(|domain| domain.name())
            .collect::<Vec<_>>()
            .join(", ")
    };
    match (wanted, names.next(), names.next()) {
        (None, None, _) if !rules.service_levels().is_empty() => Ok(SERVICE_LEVELS.to_owned()),
        (_, None, _) => Err(ReplayError::NoDomain),
        (Some(name), _, _) if rules.domain(name).is_some() => Ok(name.to_owned()),
        (Some(name), _, _) => Err(ReplayError::UnknownDomain {
            name: name.to_owned(),
            known: known(),
        }),
        (None, Some(only), None) => Ok(only.to_owned()),
        (None, Some(_), Some(_)) => Err(ReplayError::SeveralDomains { known: known() }),
    }
}
