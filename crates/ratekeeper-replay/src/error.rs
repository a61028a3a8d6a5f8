//! Errors of a replay.

use std::io;

use ratekeeper_rules::{RuleSet, SERVICE_LEVELS};
use ratekeeper_store::memory::MemoryError;

use crate::input::Log;

/// The reason why a replay cannot run, or cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The log cannot be opened, read or decompressed.
    #[error("cannot read {log}")]
    Read {
        /// The log's name.
        log: String,
        /// The cause.
        source: io::Error,
    },
    /// The memory limit for counters is too low or too high.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The first line of a trace does not name the columns.
    #[error("{log}: {fault}")]
    Columns {
        /// The trace's name.
        log: String,
        /// The mistake.
        fault: ColumnFault,
    },
    /// No limit of the domain is a budget, so costs are charged to none.
    #[error("domain {domain:?} has no budget: give a limit `post_paid: true`")]
    NoBudget {
        /// The domain's name.
        domain: String,
    },
    /// The rules have neither a domain nor service levels.
    #[error("the rules have no domain")]
    NoDomain,
    /// The rules have several domains, and none was chosen.
    #[error("the rules have several domains; choose one with --domain: {known}")]
    SeveralDomains {
        /// Their names.
        known: String,
    },
    /// The chosen domain does not exist.
    #[error("the rules have no domain {name:?}; they have: {known}")]
    UnknownDomain {
        /// The chosen name.
        name: String,
        /// The names of the domains.
        known: String,
    },
}

/// The mistake in the first line of a trace.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("its first line names no column {missing}; it has: {known}")]
pub struct ColumnFault {
    pub(crate) missing: String,
    pub(crate) known: String,
}

impl ReplayError {
    pub(crate) fn read(log: &Log, source: io::Error) -> Self {
        Self::Read {
            log: log.name(),
            source,
        }
    }
}

/// The domain to check: the requested one, or the only one, or that of the service levels if there
/// is no other.
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
