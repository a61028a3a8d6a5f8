//! Rules in YAML: parsed with positions, checked all at once, compiled into an immutable
//! [`RuleSet`] that requests are matched against.
//!
//! A file for envoyproxy/ratelimit loads unchanged and matches the same; a file which that service
//! refuses is refused. `docs/rules.md` is the manual of the format.
//!
//! The crate knows limits, and no store, protocol or clock; only `read` touches files. Without the feature `yaml` there
//! are no files, schema, calendars and serde: a [`RuleSet`] is empty then, and limits come with requests.
//!
#![cfg_attr(feature = "yaml", doc = "```")]
#![cfg_attr(not(feature = "yaml"), doc = "```ignore")]
//! use ratekeeper_rules::{Entry, Options, Source, load};
//!
//! let text = "domain: shop
//! descriptors:
//!   - key: user
//!     rate_limit: { unit: minute, requests_per_unit: 100 }
//! ";
//! let source = Source { name: "shop.yaml".to_owned(), text: text.to_owned() };
//! let rules = load(&[source], &Options::default())?.rules;
//!
//! let shop = rules.domain("shop").expect("the file is about it");
//! let walk = shop.walk(&[Entry { key: "user", value: "alice" }]);
//! let leaf = walk.leaf().expect("the last entry matched");
//! assert_eq!(&*rules.rule(leaf.node.rules()[0]).id, "shop.user");
//! # Ok::<(), ratekeeper_rules::Diagnostics>(())
//! ```

#![cfg_attr(
    not(feature = "yaml"),
    expect(
        dead_code,
        reason = "files alone have service levels, tenants and excerpts"
    )
)]

mod adjust;
mod calendar;
mod changes;
mod choice;
mod cost;
mod diagnostic;
#[cfg(feature = "yaml")]
mod document;
mod domain;
mod draft;
pub mod entries;
mod folding;
#[cfg(feature = "yaml")]
mod format;
mod http_token;
#[cfg(feature = "yaml")]
mod id;
mod index;
#[cfg(feature = "yaml")]
mod load;
mod mark;
mod matching;
mod named;
mod nearest;
mod nearest_name;
mod options;
#[cfg(feature = "yaml")]
mod parse;
mod policy;
#[cfg(feature = "yaml")]
mod read;
mod region;
#[cfg(feature = "yaml")]
mod report;
mod rlconfig;
mod rule;
mod ruleset;
#[cfg(feature = "yaml")]
mod schema;
pub mod secret;
mod shed;
mod slas;
#[cfg(feature = "yaml")]
mod source;
mod table;
mod tenant_key;
mod tenants;
#[cfg(feature = "yaml")]
mod test_file;
#[cfg(feature = "yaml")]
mod test_values;
pub mod time;
mod usage;
mod words;
#[cfg(feature = "yaml")]
mod yaml;

pub use adjust::{AdjustMode, AdjustPolicy, ObservedCalls, RaisedSteps};
pub use calendar::{Calendar, CalendarUnit};
pub use changes::{Change, ChangeKind, OwnCounters};
pub use cost::Cost;
pub use diagnostic::{Diagnostic, Diagnostics, Excerpt, Position, Severity};
#[cfg(feature = "yaml")]
pub use document::{YamlDocument, YamlError, YamlFault, YamlValue, path_at};
pub use domain::{Domain, InForce, Subscription};
pub use folding::{PathFolding, PathForm, PathKeys};
pub use http_token::{is_token, is_token_byte};
pub use index::{PlanIndex, RuleIndex};
#[cfg(feature = "yaml")]
pub use load::{Loaded, load};
pub use matching::{Entry, Evaluation, Matched, Node, Visit, Walk};
pub use nearest::nearest;
pub use nearest_name::Nearest;
pub use options::{DEFAULT_STORE, Options, Profile};
#[cfg(feature = "yaml")]
pub use read::{ReadError, ReadOptions, Unreadable, read, read_tests};
pub use region::{NodeRegion, OnSilence, RegionMode, RegionShare};
pub use rlconfig::RulePart;
pub use rule::{Consistency, Enforce, FailureMode, LeakyOverRls, Rule, RuleLimit, Unit};
pub use ruleset::{ListedTenant, RuleSet, WithTenants};
#[cfg(feature = "yaml")]
pub use schema::{json_schema, tests_json_schema};
pub use shed::{
    AdaptiveShed, Classifier, DEFAULT_PRIORITIES, FleetShed, PRIORITIES_MAX, ShedClass, ShedMode,
    ShedRequest, ShedRules, ShedderKind, WorkerShed,
};
pub use slas::{
    LEVEL_KEYS, LevelMatch, LevelStatus, PathPattern, PathPatternError, SERVICE_LEVELS, Segment,
    ServiceLevel, TENANT,
};
#[cfg(feature = "yaml")]
pub use source::Source;
pub use tenant_key::{NotATenantHash, TenantHash, TenantKey};
pub use tenants::{
    BadQuotas, CUSTOM, Dated, Dates, OverrideDescriptor, QuotaList, TenantIndex, TenantOverride,
    TenantPlan, TenantQuotas, Term, WHOLE_TENANT,
};
#[cfg(feature = "yaml")]
pub use test_file::{
    ExpectedAnswers, HttpRequest, RulesTest, TestDescriptor, TestFile, TestRequest, TestStep,
};
#[cfg(feature = "yaml")]
pub use test_values::{TestAnswer, WaitTime};
pub use usage::{
    BadPointer, JsonPointer, POINTER_DEPTH_MAX, POINTER_TOKEN_MAX, PointerToken, TokenWeights,
    USAGE_SUMS_MAX, UsageBody, UsageEstimate, UsageField, UsageKind, UsageRules, UsageSum,
};
pub use words::Accuracy;
