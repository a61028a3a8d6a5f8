//! Rate limiting for Rust programs: rules in YAML, counters in memory or in Redis.
//!
//! A [`Limiter`] matches each [`Check`] against its rules and returns a [`Decision`]: allow or deny,
//! the remaining hits, and the time to wait. It needs no server and no async runtime. With the
//! feature `tower` it limits axum, tonic and hyper services.
//!
//! ```
//! use ratekeeper::Check;
//!
//! let limiter = ratekeeper::from_yaml(
//!     "
//! domain: api
//! descriptors:
//!   - key: user
//!     rate_limit: { window: 1m, limit: 2 }
//! ",
//! )?;
//! let check = Check::new("api").descriptor([("user", "ada")]);
//! let decision = limiter.check_now(&check);
//! assert!(decision.allowed());
//! assert_eq!(decision.binding().map(|limit| limit.answered.remaining), Some(1));
//! # Ok::<(), ratekeeper::Error>(())
//! ```
//!
//! # Creating a limiter
//!
//! [`from_yaml`] and [`from_path`] create a [`MemoryLimiter`] with the defaults. For anything else,
//! combine the parts: [`rules::load`] compiles rules, [`MemoryStore::new`] allocates counters, and
//! [`Limiter::new`] joins them. A limiter is [`Sync`]; share it in an [`Arc`](std::sync::Arc).
//!
//! [`Limiter::replace_rules`] swaps all rules at once. Counters keep their usage unless the
//! algorithm or the window of their limit changes.
//!
//! # Deciding
//!
//! - [`Limiter::check_now`] decides at the current time, without waiting.
//! - [`Limiter::check_at`] decides at a given time, so tests and replays need not sleep.
//! - [`Limiter::check`] returns a future, for stores that answer later, such as Redis.
//! - [`Limiter::explain`] reports how a request would be decided, and charges nothing.
//!
//! A request is charged to all its limits, or to none if one of them denies. A denial is a value,
//! never an error: its [`binding`](Decision::binding) limit has the remaining hits, the reset and the
//! retry time. If the store does not answer, the failure mode of each rule does, and the decision
//! [is degraded](Decision::is_degraded).
//!
//! [`Snapshot::stats`] counts the decisions of each rule. The crate exports no metrics by itself.
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | adds |
//! |---|---|
//! | `tower` | `ratekeeper::tower::RateLimitLayer` for axum, tonic and hyper; starts a thread for timers; includes `http` |
//! | `http` | `ratekeeper::http`: descriptors of HTTP requests, headers and bodies of answers |
//! | `jwt` | verified claims of bearer tokens as descriptor values |
//! | `geoip` | the country of an address, from a MaxMind DB, as a descriptor value |
//! | `redis` | `ratekeeper::redis::RedisStore`: counters in Redis or Valkey, shared by nodes |
//!
//! A setting that needs a missing feature is an error that names the feature.

mod error;

pub use error::Error;
pub use ratekeeper_core as core;
pub use ratekeeper_core::{Micros, Timestamp};
#[cfg(feature = "http")]
pub use ratekeeper_http as http;
pub use ratekeeper_limiter as limiter;
pub use ratekeeper_limiter::{
    Answered, Binding, Check, Code, Decision, Descriptor, Explanation, Fallback, FallbackConfig,
    HashKey, LimitStatus, Limiter, LimiterOptions, Modes, Override, RuleCounts, RuleStats,
    Snapshot, Status, Waiting,
};
pub use ratekeeper_rules as rules;
pub use ratekeeper_rules::{Entry, RuleSet};
pub use ratekeeper_store as store;
pub use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
#[cfg(feature = "redis")]
pub use ratekeeper_store_redis as redis;
#[cfg(feature = "tower")]
pub use ratekeeper_tower as tower;

use ratekeeper_rules::{Options, ReadError, ReadOptions, Source};
use std::path::Path;

/// A limiter that keeps its counters in this process.
pub type MemoryLimiter = Limiter<MemoryStore>;

/// Creates a limiter with the rules in `text` and the default options.
///
/// # Errors
/// [`Error::Rules`] has all errors in the rules, with line and column.
pub fn from_yaml(text: &str) -> Result<MemoryLimiter, Error> {
    let source = Source {
        name: "rules".to_owned(),
        text: text.to_owned(),
    };
    limiter(&[source])
}

/// Creates a limiter with the rules in a file, or in the `*.yaml` and `*.yml` files of a folder, and
/// the default options. The rules are read once: to follow changes, load them again and call
/// [`Limiter::replace_rules`].
///
/// # Errors
/// [`Error::Read`] if they cannot be read, [`Error::Rules`] if they are refused.
pub fn from_path(path: impl AsRef<Path>) -> Result<MemoryLimiter, Error> {
    match rules::read(path.as_ref(), &ReadOptions::default()) {
        Ok(sources) => limiter(&sources),
        Err(ReadError::Unreadable(unreadable)) => Err(unreadable.all(&Options::default()).into()),
        Err(error) => Err(error.into()),
    }
}

fn limiter(sources: &[Source]) -> Result<MemoryLimiter, Error> {
    let rules = rules::load(sources, &Options::default())?.rules;
    let store = MemoryStore::new(MemoryConfig::default())?;
    Ok(Limiter::new(rules, store, LimiterOptions::default()))
}

/// The examples of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
