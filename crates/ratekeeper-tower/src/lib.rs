//! Rate limiting for tower HTTP services: axum, tonic, hyper.
//!
//! A [`RulesLayer`] asks an [`Enforcer`] about each request, then calls the inner service, delays
//! the request until its turn, or refuses it. The enforcer is a limiter in this process or a remote
//! service. A limiter with counters in memory decides without allocating or awaiting.
//!
//! ```
//! use std::convert::Infallible;
//! use std::sync::Arc;
//!
//! use http::{Request, Response, StatusCode};
//! use http_body_util::Empty;
//! use ratekeeper_limiter::{Limiter, LimiterOptions};
//! use ratekeeper_rules::{Options, Source, load};
//! use ratekeeper_store::{MemoryConfig, MemoryStore};
//! use ratekeeper_tower::RulesLayer;
//! use tower::{Layer, Service, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = "
//! domain: shop
//! descriptors:
//!   - key: api_key
//!     rate_limit: { window: 1m, limit: 1 }
//! ";
//! let source = Source { name: "rules.yaml".into(), text: text.into() };
//! let rules = load(&[source], &Options::default())?.rules;
//! let store = MemoryStore::new(MemoryConfig::default())?;
//! let limiter = Arc::new(Limiter::new(rules, store, LimiterOptions::default()));
//!
//! let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(Empty::new())));
//! let mut shop = RulesLayer::new(limiter, "shop").layer(inner);
//!
//! let request = || Request::get("/orders").header("x-api-key", "ada").body(());
//! let first = shop.ready().await?.call(request()?).await?;
//! assert_eq!(first.headers()["x-ratelimit-remaining"], "0");
//! let second = shop.ready().await?.call(request()?).await?;
//! assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
//! # Ok(())
//! # }
//! ```
//!
//! # Behaviour
//!
//! - *Refusals* are responses, not errors: 429 over a limit, 503 when too many requests wait, 400 for
//!   an ambiguous request. Errors are those of the inner service. Refusals carry an
//!   `Arc<Refusal>` in their extensions.
//! - *Readiness* is that of the inner service. A request that has to wait takes the service that
//!   reported ready along, and leaves a clone in its place.
//! - *Leaky buckets* delay requests, at most [`waiting_max`](RulesLayer::waiting_max) at a time
//!   and each for at most [`wait_max`](RulesLayer::wait_max).
//! - *Concurrency limits* hold their permit until the response's body has ended, or the request ends
//!   in any other way: the client disconnects, the inner service fails or panics, or the future is
//!   dropped. A handler whose work goes on then keeps the [`Hold`] that it finds among the request's
//!   extensions.
//! - A [`Switch`] turns the layer off, on or to shadow mode while it runs.
//!
//! - *Budgets* (`post_paid` limits) are looked at, and charged once the response has told what the
//!   request used, if the rules of the domain say where ([`UsageRules`](ratekeeper_rules::UsageRules)).
//!   The response passes by as it is; the inner service is asked not to compress it.
//!
//! The layer never reads a request's body.
//!
//! # Load shedding
//!
//! A [`ShedLayer`] refuses the least important requests while the service is overloaded. It works
//! alone, or inside a [`RulesLayer`], whose rules it then follows.

mod alarm;
mod asked;
mod body;
mod embedded;
mod enforcer;
mod future;
mod hold;
mod layer;
mod observer;
mod pacer;
mod peer;
mod permit;
mod queued;
mod renewal;
mod service;
mod shared;
mod shed;
mod switch;
mod turn;
mod usage;
mod waiting_slots;
mod watch;

pub use body::ResponseBody;
pub use embedded::AdmissionFuture;
pub use enforcer::{
    Admission, AdmissionOf, AdmissionVerdict, AnswerOf, EnforceOptions, Enforcer, Turn, Undo,
};
pub use future::ResponseFuture;
pub use hold::Hold;
pub use layer::RulesLayer;
pub use observer::CallerSlot;
pub use permit::Permit;
pub use queued::QueuedRequest;
pub use ratekeeper_core::{Micros, Timestamp};
pub use ratekeeper_http::answer;
pub use ratekeeper_http::answer::{BodyForm, Headers, LimitHeaders, RetryAfter};
pub use ratekeeper_http::{
    Describer, Forwarding, Hop, Identity, Mapping, Spent, SpentFrom, TrustedProxies,
};
pub use ratekeeper_shed as controllers;
pub use ratekeeper_shed::{CLASSES_MAX, ClassCount, Ending};
pub use ratekeeper_store::Answer;
pub use renewal::{Renew, Renewal};
pub use service::RateLimit;
pub use shed::{
    Arrival, ClassState, FleetState, InFlight, LoadSign, Passage, Shed, ShedContext, ShedCounts,
    ShedFuture, ShedLayer, ShedService, Shedder, Site, SiteState, UploadBody,
};
pub use switch::{LayerMode, Switch};
pub use usage::{Payment, RequestBytes, RequestUsage, SpentSlot, UsageReading, UsageTotals};
pub use watch::LayerCounts;
