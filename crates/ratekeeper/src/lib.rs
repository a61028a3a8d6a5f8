//! An embeddable rate limiter: rules in YAML, counters in memory, decisions as values.
//!
//! ```
//! use ratekeeper::{Check, Descriptor, Entry};
//!
//! let limiter = ratekeeper::from_yaml(
//!     "
//! domain: api
//! descriptors:
//!   - key: user
//!     rate_limit: { window: 1m, limit: 2 }
//! ",
//! )?;
//! let ada = [Entry { key: "user", value: "ada" }];
//! let descriptors = [Descriptor::new(&ada)];
//! let decision = limiter.check_now(&Check::new("api", &descriptors));
//! assert!(decision.allowed());
//! assert_eq!(decision.binding().map(|limit| limit.answered.remaining), Some(1));
//! # Ok::<(), ratekeeper::Error>(())
//! ```
//!
//! # Contents
//!
//! - [`from_yaml`] and [`from_path`] create a [`MemoryLimiter`] with the defaults. For anything
//!   else combine the parts: [`rules::load`] compiles rules, [`MemoryStore::new`] allocates counters,
//!   and [`Limiter::new`] joins them.
//! - [`Limiter::check_now`] decides at the current time, without a runtime and without waiting;
//!   [`Limiter::check_at`] decides at a given time, for tests and replays; [`Limiter::check`] works
//!   with stores that answer asynchronously.
//! - A [`Decision`] allows or denies the request. Its [`binding`](Decision::binding) limit has the
//!   remaining hits, the reset and the retry time. A denial is a value, never an error.
//! - [`Limiter::replace_rules`] replaces all rules at once; counters whose identity did not change
//!   keep their usage.
//! - [`Limiter::explain`] reports how a request would be decided, and takes nothing.
//! - [`Snapshot::stats`] counts the decisions of each rule.
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | brings |
//! |---|---|
//! | `tower` | `ratekeeper::tower::RateLimitLayer`, which limits the requests to any tower HTTP service: axum, tonic, hyper |
//! | `http` | `ratekeeper::http`: an HTTP request as rules see it, and the headers and bodies of answers; part of `tower` |
//! | `jwt` | the claims of bearer tokens whose signatures are checked, as parts of a request |
//! | `geoip` | the country of an address, from a MaxMind DB, as a part of a request |
//! | `redis` | `ratekeeper::redis::RedisStore`: counters in Redis or Valkey, which several nodes share |
//!
//! Settings that need a feature which was not built in are refused, and the error names the
//! feature.
//!
//! # Out of scope
//!
//! There is no server, no protocol and no runtime: those are in the program `ratekeeper`. The
//! feature `tower` starts a thread for timers. A limiter is [`Sync`]; share it with an
//! [`Arc`](std::sync::Arc).

mod error;

pub use error::Error;
pub use ratekeeper_core as core;
pub use ratekeeper_core::{Micros, Timestamp};
#[cfg(feature = "http")]
pub use ratekeeper_http as http;
pub use ratekeeper_limiter as limiter;
pub use ratekeeper_limiter::{
    Answered, Binding, Check, Code, Decision, Descriptor, Explanation, Fallback, FallbackConfig,
    HashKey, Limiter, LimiterOptions, Modes, Override, RuleCounts, RuleStats, Snapshot, Status,
    Waiting,
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

/// A limiter with its counters in the memory of this process.
pub type MemoryLimiter = Limiter<MemoryStore>;

/// Creates a limiter of the rules in `text`, with every default.
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

/// Creates a limiter of the rules in a file, or in the `*.yaml` and `*.yml` files of a folder, with
/// every default. The rules are read once: to follow changes, load them again and call
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
