//! What one rule says, checked.

use std::fmt;
use std::sync::Arc;

use ratekeeper_core::{Limit, Micros};
use serde::{Deserialize, Serialize};

use crate::{Calendar, Place};

/// One limit at one node of a domain. A list of limits makes one rule of each.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Rule {
    /// Unique in its [`RuleSet`](crate::RuleSet), and the same whatever the order of the file:
    /// the `id:` of the file, else domain and path joined by dots, with `#window` for each limit
    /// of a list. Secret values in it are fingerprinted, so it may be shown and logged.
    pub id: Arc<str>,
    /// The domain it belongs to.
    pub domain: Arc<str>,
    /// The composite keys (`key` or `key_value`) from the domain to the node, as written.
    /// Values of secret entries are in here in clear: show [`Self::id`] instead.
    pub path: Arc<[Box<str>]>,
    /// Where the rule stands.
    pub place: Place,
    /// How much may pass.
    pub limit: RuleLimit,
    /// The calendar that the window follows, if it follows one.
    pub calendar: Option<Calendar>,
    /// The incumbent's unit, if the window was written as one or lasts as long as one.
    /// [`None`] for every other window and for calendars, which no unit describes.
    pub unit: Option<Unit>,
    /// The window in its shortest spelling: `10s`, `1m`, `month@Europe/Vienna`; empty if unlimited.
    pub window_text: Box<str>,
    /// What `replaces` of other rules may name, and what clients see.
    pub name: Option<Box<str>>,
    /// Names of the rules that do not count when this one matched in the same request.
    pub replaces: Vec<Box<str>>,
    /// Decided and counted, not enforced.
    pub shadow: bool,
    /// A denial counts only if no other kind of rule allowed, as the incumbent's quota mode.
    pub quota_mode: bool,
    /// Off: the rule is there and answers nothing.
    pub enabled: bool,
    /// For which share of subjects a denial is enforced; the others are shadowed.
    pub enforce: Enforce,
    /// Whether a denied request is charged as well.
    pub count_denied: bool,
    /// The incumbent's flag: its metrics have all the request's values in their names.
    pub detailed_metric: bool,
    /// The incumbent's flag of this rule's own node: its metrics have this entry's value in their names.
    pub value_to_metric: bool,
    /// What is answered as dynamic metadata of a descriptor that passed.
    pub metadata: Option<Arc<serde_json::Map<String, serde_json::Value>>>,
    /// The limits of the plans that differ from the default one, in the order of the domain's `plans:`;
    /// several of one plan if it has a list. The same for every rule of the node.
    pub plans: Arc<[PlanLimit]>,
    /// How the nodes share the counter; [`None`] leaves it to the store.
    pub consistency: Option<Consistency>,
    /// The store that keeps the counter; [`None`] is the default one.
    pub store: Option<Box<str>>,
    /// What is answered while the store cannot answer.
    pub on_store_failure: FailureMode,
    /// What an edge that cannot wait does with a leaky bucket's delay.
    pub leaky_over_rls: LeakyOverRls,
    /// Concurrency only: when to come back, told to those who got no permit.
    pub retry_after: Option<Micros>,
}

impl Rule {
    /// The limit, unless it is [`RuleLimit::Unlimited`].
    #[must_use]
    pub const fn limited(&self) -> Option<&Limit> {
        match &self.limit {
            RuleLimit::Limited(limit) => Some(limit),
            RuleLimit::Unlimited => None,
        }
    }
}

/// How much may pass.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RuleLimit {
    /// As much as this.
    Limited(Limit),
    /// Everything.
    Unlimited,
}

/// A limit of another plan than the default one.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct PlanLimit {
    /// The plan's name, one of the domain's `plans:`.
    pub plan: Box<str>,
    /// How much may pass.
    pub limit: RuleLimit,
    /// The calendar that the window follows, if it follows one.
    pub calendar: Option<Calendar>,
    /// As [`Rule::unit`].
    pub unit: Option<Unit>,
    /// As [`Rule::window_text`].
    pub window_text: Box<str>,
    /// As [`Rule::name`].
    pub name: Option<Box<str>>,
    /// The store that keeps this plan's counters; [`None`] is the rule's.
    pub store: Option<Box<str>>,
    /// As [`Rule::consistency`]; [`None`] is the rule's.
    pub consistency: Option<Consistency>,
    /// Where it stands.
    pub place: Place,
}

/// A window of the incumbent: fixed lengths, none follows a calendar.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unit {
    /// 1 s.
    Second,
    /// 60 s.
    Minute,
    /// 3,600 s.
    Hour,
    /// 86,400 s.
    Day,
    /// 604,800 s.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    /// All of them, the shortest first.
    pub const ALL: [Self; 7] = [
        Self::Second,
        Self::Minute,
        Self::Hour,
        Self::Day,
        Self::Week,
        Self::Month,
        Self::Year,
    ];

    /// The incumbent's name, in capitals: `MINUTE`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "SECOND",
            Self::Minute => "MINUTE",
            Self::Hour => "HOUR",
            Self::Day => "DAY",
            Self::Week => "WEEK",
            Self::Month => "MONTH",
            Self::Year => "YEAR",
        }
    }

    /// How long it is.
    #[must_use]
    pub const fn window(self) -> Micros {
        Micros::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Week => 7 * 86_400,
            Self::Month => 30 * 86_400,
            Self::Year => 365 * 86_400,
        })
    }

    /// The unit of that name, in whatever case. The incumbent upper-cases by Unicode, so `ſ`
    /// (long s) is an `S` to it, and to us.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.to_uppercase();
        Self::ALL.into_iter().find(|unit| unit.name() == name)
    }

    /// The unit that lasts exactly as long as `window`.
    #[must_use]
    pub fn from_window(window: Micros) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.window() == window)
    }
}

/// A share of subjects, 0 to 100 % in steps of 0.01 %.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Enforce(u16);

impl Enforce {
    /// Everybody.
    pub const ALL: Self = Self(10_000);
    /// Nobody: the same as a shadow rule.
    pub const NONE: Self = Self(0);

    /// A share in hundredths of a percent, 0 to 10,000; [`None`] above that.
    #[must_use]
    pub const fn from_hundredths(hundredths: u16) -> Option<Self> {
        if hundredths > 10_000 {
            None
        } else {
            Some(Self(hundredths))
        }
    }

    /// The share in hundredths of a percent, 0 to 10,000.
    #[must_use]
    pub const fn hundredths(self) -> u16 {
        self.0
    }

    /// Whether everybody is in it.
    #[must_use]
    pub const fn is_all(self) -> bool {
        self.0 == 10_000
    }

    /// Whether the subject with this hash is in it. A uniform hash makes the share exact to
    /// 2^-64, and raising the share never leaves out a subject that was in it.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "x * n >> 64 is below n, here 10,000"
    )]
    pub const fn covers(self, subject_hash: u64) -> bool {
        (((subject_hash as u128 * 10_000) >> 64) as u16) < self.0
    }
}

impl fmt::Display for Enforce {
    /// As in a file: `10%`, `12.5%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 100, self.0 % 100);
        match (rest, rest % 10) {
            (0, _) => write!(f, "{whole}%"),
            (_, 0) => write!(f, "{whole}.{}%", rest / 10),
            _ => write!(f, "{whole}.{rest:02}%"),
        }
    }
}

impl fmt::Debug for Enforce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is answered when the store cannot answer in time.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FailureMode {
    /// This node goes on enforcing the limit by itself.
    #[default]
    Local,
    /// Everything passes.
    Allow,
    /// Nothing passes.
    Deny,
}

impl FailureMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Local, Self::Allow, Self::Deny];

    /// The name in rules files, settings and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }

    /// The mode of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// How the nodes of a cluster share a counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// Every decision is taken in the shared store.
    Exact,
    /// From hits leased in advance; never over the limit.
    Leased,
    /// Counted here, added up from time to time.
    Synced,
    /// Every node for itself.
    Local,
}

impl Consistency {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Exact, Self::Leased, Self::Synced, Self::Local];

    /// The name in rules files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Leased => "leased",
            Self::Synced => "synced",
            Self::Local => "local",
        }
    }

    /// The mode of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// What an edge that cannot wait does with a request that a leaky bucket would delay.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LeakyOverRls {
    /// It is denied: the caller comes back after the delay.
    #[default]
    Deny,
    /// It passes at once; the bucket only bounds the queue.
    Allow,
}

impl LeakyOverRls {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Deny, Self::Allow];

    /// The name in rules files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Allow => "allow",
        }
    }

    /// The value of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|value| value.name() == name)
    }
}
