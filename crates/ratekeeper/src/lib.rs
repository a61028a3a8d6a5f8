//! A rate limiter to embed.
//!
//! ```
//! use ratekeeper::{Limit, RateLimiter};
//!
//! // Five a minute for each user, ten at once after idle time.
//! let limiter = RateLimiter::keyed(Limit::per_minute(5).burst(10))?;
//! let answer = limiter.check("ada");
//! if !answer.allowed {
//!     println!("retry after {:?}", answer.retry_after);
//! }
//! assert_eq!(answer.remaining, 9);
//! # Ok::<(), ratekeeper::Error>(())
//! ```
//!
//! # Limits as values
//!
//! A [`RateLimiter`] gives every [`Key`] (a text, a number, an address, or several) the same limit, or several.
//! `Limit::per_second(5)` means five in a second.
//!
//! | to | call |
//! |---|---|
//! | take one hit | [`check`](RateLimiter::check) |
//! | take the cost of a request | [`check_n`](RateLimiter::check_n) |
//! | wait for a turn | [`until_allowed`](RateLimiter::until_allowed) |
//! | look, and take nothing | [`peek`](RateLimiter::peek) |
//! | give back | [`refund`](RateLimiter::refund) |
//! | limit without keys | [`RateLimiter::unkeyed`] |
//! | test without sleeping | [`ManualClock`] |
//! | share limits between nodes | `RateLimiterBuilder::redis` |
//! | limit an HTTP or gRPC service | `RateLimitLayer` |
//!
//! A denial is a value, never an error, and takes nothing. Each [`Checked`] answer has the remaining hits, the reset and
//! the time to wait. The rest of a limiter is bounded: its memory, its keys, and those who wait.
//!
//! # Rules
//!
//! With the feature `yaml`, a `Limiter` matches each `Check` against rules like those of the service: who is limited and
//! how is then configuration, can be reloaded, and has plans and overrides for tenants.
//!
#![cfg_attr(feature = "yaml", doc = "```")]
#![cfg_attr(not(feature = "yaml"), doc = "```ignore")]
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
//! `from_yaml` and `from_path` create a `MemoryLimiter` with the defaults. For anything else, combine the parts:
//! `rules::load` compiles rules, `MemoryStore::new` allocates counters, and `Limiter::new` joins them.
//! `Limiter::replace_rules` swaps all rules at once; counters keep their usage unless the algorithm or the window of
//! their limit changes. `check_now` decides at once, `check_at` at a given time, `check` for stores that answer later,
//! and `explain` reports how a request would be decided.
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | adds |
//! |---|---|
//! | `layer` | `RateLimitLayer` for axum, tonic and hyper |
//! | `redis` | `RateLimiterBuilder::redis`, and `ratekeeper::redis::RedisStore` for rules; includes `rules` |
//! | `serde` | limits in configuration files |
//! | `rules` | `Limiter`: rules, without a notation |
//! | `yaml` | rules in YAML; includes `rules` |
//! | `http` | `ratekeeper::http`: descriptors of HTTP requests, headers and bodies of answers; includes `yaml` |
//! | `tower` | `ratekeeper::tower::RulesLayer`, the layer of rules; starts a thread for timers; includes `http`, `layer` |
//! | `jwt` | verified claims of bearer tokens as descriptor values |
//! | `geoip` | the country of an address, from a MaxMind DB, as a descriptor value |
//!
//! A setting that needs a missing feature is an error that names the feature.

mod builder;
mod checked;
mod clock;
mod counters;
mod error;
#[cfg(feature = "redis")]
mod in_redis;
mod key;
#[cfg(feature = "layer")]
mod layer;
mod limit;
mod lines;
mod memory;
mod rate_limiter;
mod timer;
#[cfg(feature = "yaml")]
mod yaml;

pub use builder::RateLimiterBuilder;
pub use checked::{Checked, Denied, WaitError};
pub use clock::ManualClock;
pub use counters::{Counters, Question};
pub use error::Error;
#[cfg(feature = "redis")]
pub use in_redis::InRedis;
pub use key::Key;
#[cfg(feature = "layer")]
pub use layer::{RateLimitBody, RateLimitFuture, RateLimitLayer, RateLimitService, forwarded_for};
pub use limit::{InvalidLimit, Limit, WINDOW_MAX};
pub use memory::InMemory;
pub use rate_limiter::{RateLimiter, UnkeyedLimiter};
pub use ratekeeper_core as core;
pub use ratekeeper_core::{Algorithm, Micros, Timestamp};
#[cfg(feature = "http")]
pub use ratekeeper_http as http;
#[cfg(feature = "rules")]
pub use ratekeeper_limiter as limiter;
#[cfg(feature = "rules")]
pub use ratekeeper_limiter::{
    Answered, Binding, Check, Code, Decision, Descriptor, DescriptorAnswer, Explanation, Fallback,
    FallbackConfig, HashKey, LimitStatus, Limiter, LimiterOptions, Modes, Override, RuleCounts,
    RuleStats, Snapshot, Waiting,
};
#[cfg(feature = "rules")]
pub use ratekeeper_rules as rules;
#[cfg(feature = "rules")]
pub use ratekeeper_rules::{Entry, FailureMode, RuleSet};
pub use ratekeeper_store as store;
pub use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
#[cfg(feature = "redis")]
pub use ratekeeper_store_redis as redis;
#[cfg(feature = "tower")]
pub use ratekeeper_tower as tower;
#[cfg(feature = "yaml")]
pub use yaml::{from_path, from_yaml};

/// A limiter of rules that keeps its counters in this process.
///
/// ```
/// use ratekeeper::{Check, MemoryLimiter};
///
/// fn passes(limiter: &MemoryLimiter, user: &str) -> bool {
///     limiter.check_now(&Check::new("api").descriptor([("user", user)])).allowed()
/// }
/// ```
#[cfg(feature = "rules")]
pub type MemoryLimiter = Limiter<MemoryStore>;

/// The examples of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
