//! A rule, checked.

use std::fmt;
use std::sync::Arc;

use ratekeeper_core::synced::{SyncTerms, Unsyncable};
use ratekeeper_core::{Limit, Micros};

use crate::named::named;
use crate::{Calendar, OnSilence, Position, RegionMode, RegionShare};

/// A limit at a node of a domain. A list of limits makes one rule of each.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Rule {
    /// Unique in its [`RuleSet`](crate::RuleSet), whatever the order of the files: the `id:` of the
    /// file, else domain and path joined by dots, with `@plan` for the limits of a plan other than the
    /// default, and `#window` for each limit of a list. Only the limits that single tenants have at one
    /// path share theirs, `path@custom`. Secret values are replaced by fingerprints, so the id may be
    /// shown and logged.
    pub id: Arc<str>,
    /// The domain it belongs to.
    pub domain: Arc<str>,
    /// The composite keys (`key` or `key_value`) from the domain to the node, as written. Values of
    /// secret entries stand here in the clear: show [`Self::id`] instead.
    pub path: Arc<[Box<str>]>,
    /// The position of the rule in its file.
    pub place: Position,
    /// The amount that may pass.
    pub limit: RuleLimit,
    /// The calendar that the window follows, if any.
    pub calendar: Option<Calendar>,
    /// The unit of envoyproxy/ratelimit, if the window is written as one or is as long as one.
    /// [`None`] for every other window and for calendars, which no unit describes.
    pub unit: Option<Unit>,
    /// The window in its shortest spelling: `10s`, `1m`, `month@Europe/Vienna`; empty if unlimited.
    pub window_text: Box<str>,
    /// The name that clients see, and that `replaces` of other rules can refer to.
    pub name: Option<Box<str>>,
    /// Names of the rules that do not count when this one matches in the same request.
    pub replaces: Vec<Box<str>>,
    /// Decides and counts, but never denies.
    pub shadow: bool,
    /// A denial counts only if no other kind of rule allows the request, as in
    /// envoyproxy/ratelimit's quota mode.
    pub quota_mode: bool,
    /// A rule that is not enabled exists but takes no part in decisions.
    pub enabled: bool,
    /// The share of subjects for which a denial is enforced; for the others the rule is in shadow.
    pub enforce: Enforce,
    /// Charges denied requests too.
    pub count_denied: bool,
    /// Counts decisions by all of the request's values, in metrics of their own.
    pub detailed_metric: bool,
    /// Counts decisions by this entry's value, in metrics of their own.
    pub value_to_metric: bool,
    /// Dynamic metadata for the answer to a descriptor that passes.
    #[cfg(feature = "yaml")]
    pub metadata: Option<Arc<serde_json::Map<String, serde_json::Value>>>,
    /// The plan whose limit it is; [`None`] for the limits of the domain's default plan, and where
    /// there are no plans. [`CUSTOM`](crate::CUSTOM) for a limit that one tenant has alone.
    pub plan: Option<Arc<str>>,
    /// The consistency of the counter between nodes; [`None`] leaves it to the store.
    pub consistency: Option<Consistency>,
    /// The time of the counter's leases, if it is leased; shorter where the limit bears no more.
    pub lease: Micros,
    /// True if all requests share one counter: every entry up to the rule has a value, or a pattern whose values are
    /// counted together.
    pub is_global: bool,
    /// The way in which regions share the limit; [`None`] if each node enforces it whole.
    pub regions: Option<RegionMode>,
    /// The time between two posts of a counter that regions count together, where the file names one.
    pub post_interval: Option<Micros>,
    /// The assumption about regions that are silent, where the file names one.
    pub on_silence: Option<OnSilence>,
    /// The part of the limit that this node's region enforces, if regions share it.
    pub share: Option<RegionShare>,
    /// The interval at which nodes add their counts to the store, where the file names one.
    pub sync_interval: Option<Micros>,
    /// The store that keeps the counter; [`None`] means the default store.
    pub store: Option<Box<str>>,
    /// The answer while the store is unavailable.
    pub on_store_failure: FailureMode,
    /// The answer of an edge that cannot delay a request, where a leaky bucket would.
    pub leaky_over_rls: LeakyOverRls,
    /// For concurrency limits: the retry time given to callers that get no permit.
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

    /// The terms of its counters, if they are synced. A tenant's own limit that cannot be synced is counted exactly.
    #[must_use]
    pub fn sync_terms(&self) -> Option<SyncTerms> {
        let limit = self.limited()?;
        let counts_denied = self.count_denied && !limit.is_post_paid();
        if self.consistency != Some(Consistency::Synced) || counts_denied {
            return None;
        }
        sync_terms(limit, self.sync_interval).ok()
    }
}

/// The terms of `limit`. An interval that is too long for its window gives way to the default, which suits every window.
pub(crate) fn sync_terms(limit: &Limit, interval: Option<Micros>) -> Result<SyncTerms, Unsyncable> {
    match SyncTerms::try_new(limit, interval) {
        Err(Unsyncable::IntervalTooLong(_)) => SyncTerms::try_new(limit, None),
        made => made,
    }
}

/// The amount that a rule lets pass.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RuleLimit {
    /// At most this.
    Limited(Limit),
    /// Everything.
    Unlimited,
}

/// A window unit of envoyproxy/ratelimit. All have fixed lengths; none follows a calendar.
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
    /// All units, shortest first.
    pub const ALL: [Self; 7] = [
        Self::Second,
        Self::Minute,
        Self::Hour,
        Self::Day,
        Self::Week,
        Self::Month,
        Self::Year,
    ];

    /// The name in envoyproxy/ratelimit, in capitals: `MINUTE`.
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

    /// The unit's length.
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

    /// The unit with that name, in any case. envoyproxy/ratelimit upper-cases by Unicode, so that
    /// `ſ` (long s) is an `S`; so does this.
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
    /// All subjects.
    pub const ALL: Self = Self(10_000);
    /// No subjects: the same as a shadow rule.
    pub const NONE: Self = Self(0);

    /// A share in hundredths of a percent, 0 to 10,000; [`None`] above that.
    #[must_use]
    pub(crate) const fn from_hundredths(hundredths: u16) -> Option<Self> {
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

    /// Returns true if the share is 100 %.
    #[must_use]
    pub const fn is_all(self) -> bool {
        self.0 == 10_000
    }

    /// Returns true if the share includes the subject with this hash. A uniform hash makes the
    /// share exact to 2^-64; raising the share never excludes a subject that was included.
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

/// The answer when the store cannot answer in time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(
    feature = "yaml",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "snake_case")
)]
pub enum FailureMode {
    /// This node enforces the limit by itself.
    #[default]
    Local,
    /// All requests pass.
    Allow,
    /// All requests are denied.
    Deny,
}

named!(FailureMode: Local "local", Allow "allow", Deny "deny");

/// The time of a lease, where the limit bears it.
pub(crate) const LEASE: Micros = Micros::from_millis(100);

/// The way in which the nodes of a cluster share a counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(
    feature = "yaml",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "snake_case")
)]
pub enum Consistency {
    /// The shared store takes every decision.
    Exact,
    /// Nodes admit hits that were charged in the shared store in advance; never over the limit.
    Leased,
    /// Each node counts by itself, and adds its count to the shared store at an interval.
    Synced,
    /// Each node counts for itself.
    Local,
}

named!(Consistency: Exact "exact", Leased "leased", Synced "synced", Local "local");

/// The answer of an edge that cannot delay a request, where a leaky bucket would.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(
    feature = "yaml",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "snake_case")
)]
pub enum LeakyOverRls {
    /// The request is denied; the caller may come back after the delay.
    #[default]
    Deny,
    /// The request passes at once; the bucket only bounds the queue.
    Allow,
}

named!(LeakyOverRls: Deny "deny", Allow "allow");
