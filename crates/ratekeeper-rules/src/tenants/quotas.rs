//! The quotas of a tenant as a quota store has them, and the mistakes that they can have.

use std::cmp::Reverse;

use super::level::whole_level;
use super::site::entry_of;
use super::{Pattern, Term};

/// Plans and limits of one tenant.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "yaml", derive(serde::Serialize, serde::Deserialize))]
pub struct TenantQuotas {
    /// The plans by name, each with the time in which the tenant is on it. Of several in force, the one
    /// that began last counts.
    pub plans: Vec<(Term, Box<str>)>,
    /// The limits that it has alone, each with the time in which it is in force.
    pub overrides: Vec<(Term, TenantOverride)>,
    /// The number of times that its usage was reset.
    pub epoch: u32,
}

/// A limit that one tenant has alone.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(
    feature = "yaml",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub struct TenantOverride {
    /// The entries after the tenant's, each as `key:value`; none for the tenant as a whole.
    #[cfg_attr(
        feature = "yaml",
        serde(default, skip_serializing_if = "Vec::is_empty")
    )]
    pub descriptor: Vec<Box<str>>,
    /// The hits that a window holds.
    pub requests_per_unit: u64,
    /// The window as a unit: `minute`. Either this or `window` is there.
    #[cfg_attr(
        feature = "yaml",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub unit: Option<Box<str>>,
    /// The window as a duration: `10s`.
    #[cfg_attr(
        feature = "yaml",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub window: Option<Box<str>>,
    /// The hits that may come at once, for algorithms with bursts.
    #[cfg_attr(
        feature = "yaml",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub burst: Option<u64>,
    /// The algorithm; that of the limit whose place it takes if there is none.
    #[cfg_attr(
        feature = "yaml",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub algorithm: Option<Box<str>>,
    /// True if hits are charged in full whatever is left; as the limit whose place it takes if it does not say.
    #[cfg_attr(
        feature = "yaml",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub post_paid: Option<bool>,
    /// The most hits that a post-paid bucket goes below zero: ten bursts by default.
    #[cfg_attr(
        feature = "yaml",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub max_debt: Option<u64>,
    /// The steps by which the policy of the domain has raised the limit of the plan; [`None`] for a limit that
    /// somebody has set.
    #[cfg_attr(
        feature = "yaml",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub steps: Option<u16>,
}

/// The reason why a tenant cannot have certain quotas.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadQuotas {
    /// No domain of that name says which entry names the tenant.
    #[error("there is no domain '{domain}' with tenants")]
    NoDomain {
        /// The name.
        domain: Box<str>,
    },
    /// The domain has no such plan.
    #[error("the domain has no plan '{plan}'; its plans are {known}")]
    NoPlan {
        /// Its place in the list.
        at: usize,
        /// The name.
        plan: Box<str>,
        /// The names of the plans that there are.
        known: Box<str>,
    },
    /// There are too many plans or overrides.
    #[error("there are more than {most}")]
    TooMany {
        /// `plans` or `overrides`.
        list: QuotaList,
        /// The most that one tenant may have.
        most: usize,
    },
    /// It ends before it begins.
    #[error("it ends before it begins")]
    EndsBeforeItBegins {
        /// The list.
        list: QuotaList,
        /// Its place in the list.
        at: usize,
    },
    /// Another one of the same list begins at the same time, for the same descriptor.
    #[error("another one begins at the same time")]
    BeginsTwice {
        /// The list.
        list: QuotaList,
        /// The place of the second one.
        at: usize,
    },
    /// The limit is impossible.
    #[error("{message}{}", .help.as_ref().map(|help| format!("; {help}")).unwrap_or_default())]
    NoLimit {
        /// Its place among the overrides.
        at: usize,
        /// The part that is wrong.
        key: &'static str,
        /// The mistake.
        message: Box<str>,
        /// A fix, if one is known.
        help: Option<Box<str>>,
    },
}

/// One of the two lists in [`TenantQuotas`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuotaList {
    /// The plans.
    Plans,
    /// The overrides.
    Overrides,
}

impl BadQuotas {
    /// The field that is wrong: `overrides[2].unit`.
    #[must_use]
    pub fn field(&self) -> String {
        match self {
            Self::NoDomain { .. } => "domain".to_owned(),
            Self::NoPlan { at, .. } => format!("plans[{at}].plan"),
            Self::TooMany { list, .. } => list.name().to_owned(),
            Self::EndsBeforeItBegins { list, at } => format!("{}[{at}].expires_at", list.name()),
            Self::BeginsTwice { list, at } => format!("{}[{at}].effective_at", list.name()),
            Self::NoLimit { at, key, .. } => format!("overrides[{at}].{key}"),
        }
    }
}

impl QuotaList {
    /// The name of the list in records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plans => "plans",
            Self::Overrides => "overrides",
        }
    }
}

impl TenantQuotas {
    /// The overrides in the order in which they are tried: the most specific first, and of one descriptor
    /// the one that begins last.
    pub(super) fn in_order(&self) -> impl Iterator<Item = &(Term, TenantOverride)> {
        let mut all: Vec<_> = self.overrides.iter().collect();
        if all.len() > 1 {
            let first_of = |quota: &TenantOverride| {
                let same = |other: &&(Term, TenantOverride)| other.1.descriptor == quota.descriptor;
                self.overrides.iter().position(|other| same(&other))
            };
            all.sort_by_cached_key(|(term, quota)| {
                (quota.ranks(), first_of(quota), Reverse(term.from))
            });
        }
        all.into_iter()
    }
}

impl TenantOverride {
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.descriptor.iter().filter_map(|text| entry_of(text))
    }

    /// Orders limits whose descriptors match one request: the more specific comes first.
    fn ranks(&self) -> Vec<u8> {
        let parts: Vec<_> = self.parts().collect();
        match whole_level(&parts) {
            Some(pattern) => pattern.ranks(),
            None => Pattern::new(parts.into_iter()).ranks(),
        }
    }
}
