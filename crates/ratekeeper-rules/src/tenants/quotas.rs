//! The quotas of a tenant as a quota store has them, and the mistakes that they can have.

use std::cmp::Reverse;

use super::level::whole_level;
use super::site::entry_of;
use super::{OverrideDescriptor, Pattern, Term};
use crate::time::Rfc3339;

/// Plans and limits of one tenant.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TenantQuotas {
    /// The plans. Of several in force, the one that began last counts.
    pub plans: Vec<TenantPlan>,
    /// The limits that it has alone.
    pub overrides: Vec<TenantOverride>,
    /// The number of times that its usage was reset.
    pub epoch: u32,
}

/// A plan and the time in which a tenant is on it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "yaml",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub struct TenantPlan {
    /// The plan.
    #[cfg_attr(feature = "yaml", serde(alias = "tier"))]
    pub plan: Box<str>,
    /// The time at which it begins.
    #[cfg_attr(feature = "yaml", serde(skip_serializing_if = "Option::is_none"))]
    pub effective_at: Option<Rfc3339>,
    /// The time at which it ends.
    #[cfg_attr(feature = "yaml", serde(skip_serializing_if = "Option::is_none"))]
    pub expires_at: Option<Rfc3339>,
}

/// A limit that one tenant has alone.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "yaml",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields)
)]
pub struct TenantOverride {
    /// The entries after the tenant's, each as `key:value`; `default`, or nothing, for the tenant as a whole.
    #[cfg_attr(feature = "yaml", serde(default))]
    pub descriptor: OverrideDescriptor,
    /// The hits that a window holds; also read as `limit`, as rules have it.
    #[cfg_attr(feature = "yaml", serde(alias = "limit"))]
    pub requests_per_unit: u64,
    /// The window as a unit: `second`, `minute`, `hour`, `day`, `week`, `month` or `year`.
    #[cfg_attr(feature = "yaml", serde(skip_serializing_if = "Option::is_none"))]
    pub unit: Option<Box<str>>,
    /// The window as a duration, in place of `unit`: `10s`.
    #[cfg_attr(feature = "yaml", serde(skip_serializing_if = "Option::is_none"))]
    pub window: Option<Box<str>>,
    /// The hits that may come at once, for algorithms with bursts.
    #[cfg_attr(feature = "yaml", serde(skip_serializing_if = "Option::is_none"))]
    pub burst: Option<u64>,
    /// The algorithm; by default that of the limit whose place it takes.
    #[cfg_attr(feature = "yaml", serde(skip_serializing_if = "Option::is_none"))]
    pub algorithm: Option<Box<str>>,
    /// True for a budget: hits are charged in full whatever is left. By default as the limit whose place it takes.
    #[cfg_attr(feature = "yaml", serde(skip_serializing_if = "Option::is_none"))]
    pub post_paid: Option<bool>,
    /// The most hits that a post-paid bucket goes below zero; by default ten bursts.
    #[cfg_attr(feature = "yaml", serde(skip_serializing_if = "Option::is_none"))]
    pub max_debt: Option<u64>,
    /// The steps by which the domain's policy (`adjust`) has raised the plan's limit; absent in an override that
    /// somebody has set.
    #[cfg_attr(feature = "yaml", serde(skip_serializing_if = "Option::is_none"))]
    pub steps: Option<u16>,
    /// The time at which it begins; by default that of the whole document.
    #[cfg_attr(feature = "yaml", serde(skip_serializing_if = "Option::is_none"))]
    pub effective_at: Option<Rfc3339>,
    /// The time at which it ends; by default that of the whole document.
    #[cfg_attr(feature = "yaml", serde(skip_serializing_if = "Option::is_none"))]
    pub expires_at: Option<Rfc3339>,
}

/// A start and an end, as they are written: either may be missing.
pub type Dates = (Option<Rfc3339>, Option<Rfc3339>);

/// A plan or an override of a tenant: it has a start and an end.
///
/// ```
/// use ratekeeper_core::Timestamp;
/// use ratekeeper_rules::{Dated, TenantPlan, Term};
///
/// let pro = TenantPlan::new("pro");
/// assert_eq!(pro.term(), Term::ALWAYS);
/// let until = Timestamp::from_secs(1_800_000_000);
/// let ending = pro.during(Term { until, ..Term::ALWAYS });
/// assert!(ending.effective_at.is_none());
/// assert_eq!(ending.term().until, until);
/// ```
pub trait Dated {
    /// The dates as they are written.
    fn dates(&self) -> Dates;

    /// Writes other dates.
    fn set_dates(&mut self, dates: Dates);

    /// The time in which it is in force.
    fn term(&self) -> Term {
        Term::of(self.dates())
    }

    /// The same, in force for another time.
    #[must_use]
    fn during(mut self, term: Term) -> Self
    where
        Self: Sized,
    {
        self.set_dates(term.dates());
        self
    }
}

impl Dated for TenantPlan {
    fn dates(&self) -> Dates {
        (self.effective_at, self.expires_at)
    }

    fn set_dates(&mut self, dates: Dates) {
        (self.effective_at, self.expires_at) = dates;
    }
}

impl Dated for TenantOverride {
    fn dates(&self) -> Dates {
        (self.effective_at, self.expires_at)
    }

    fn set_dates(&mut self, dates: Dates) {
        (self.effective_at, self.expires_at) = dates;
    }
}

impl TenantPlan {
    /// A plan for all of time.
    #[must_use]
    pub fn new(plan: impl Into<Box<str>>) -> Self {
        Self {
            plan: plan.into(),
            effective_at: None,
            expires_at: None,
        }
    }
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
    pub(super) fn in_order(&self) -> impl Iterator<Item = &TenantOverride> {
        let first_of = |own: &TenantOverride| {
            let mut others = self.overrides.iter();
            others.position(|other| other.descriptor == own.descriptor)
        };
        let mut all: Vec<_> = self.overrides.iter().collect();
        all.sort_by_cached_key(|own| (own.ranks(), first_of(own), Reverse(own.term().from)));
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
            None => Pattern::new(parts.into_iter(), None).ranks(),
        }
    }
}
