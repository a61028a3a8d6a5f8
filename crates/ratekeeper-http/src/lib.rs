//! An HTTP request as rules see it, and an answer as HTTP clients read it.
//!
//! - [`Forwarding`] finds the client's address behind proxies, of which only trusted ones are believed.
//! - [`Original`] is the request that somebody wants to know about: received, as forward-auth proxies tell it, or
//!   [`Logged`].
//! - [`Identity`] tells who calls, [`Mapping`] makes descriptors of it, and [`Describer`] makes of both, and of the service
//!   levels that there are, what a limiter is asked.
//! - [`answer`] has the headers that tell a client of its limits.
//!
//! It listens nowhere, reads no body and decides nothing.
//!
//! ```
//! use http::{HeaderMap, HeaderValue};
//! use ratekeeper_http::{Describer, Forwarding, Hop, Original};
//! use ratekeeper_rules::RuleSet;
//!
//! let mut headers = HeaderMap::new();
//! headers.insert("x-forwarded-for", HeaderValue::from_static("198.51.100.9, 203.0.113.7"));
//! headers.insert("x-forwarded-uri", HeaderValue::from_static("/orders?page=2"));
//! let proxy = Hop::Address("127.0.0.1".parse()?);
//! // The client may have written the left address itself; the right one is the proxy's word.
//! let original = Original::forwarded(proxy, &headers, &Forwarding::default())?;
//! let (describer, rules) = (Describer::default(), RuleSet::default());
//! let question = describer.question(&original, Some("shop"), &rules)?;
//! let entries = question.entries();
//! let pairs: Vec<_> = entries.iter().map(|entry| (entry.key, entry.value)).collect();
//! assert_eq!(pairs, [("remote_address", "203.0.113.7"), ("path", "/orders")]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
pub mod answer;
mod credentials;
mod describer;
mod forwarded;
mod forwarding;
mod identity;
mod logged;
mod malformed;
mod mapping;
mod original;
mod slashes;
mod source;
pub mod spelling;
mod target;
mod view;

pub use address::push_address;
pub use describer::{Describer, Question, Refused, Unauthenticated, UnclearDomain};
pub use forwarding::{ClientHeader, Forwarding, HOPS_MAX, Hop, TrustedProxies};
pub use identity::{Caller, Identity, IdentityConfig, IdentityError};
pub use logged::Logged;
pub use malformed::Malformed;
pub use mapping::{Described, Field, Mapping};
pub use original::Original;
pub use slashes::{AmbiguousPaths, EncodedSlashes};
pub use source::Source;
pub use target::Target;
