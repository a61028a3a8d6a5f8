//! HTTP requests as rules see them, and answers in the form that HTTP clients read.
//!
//! - [`Forwarding`] finds the client's address behind trusted proxies.
//! - [`Original`] is the request to decide: received, described by a forward-auth proxy, or
//!   [`Logged`].
//! - [`Identity`] identifies the caller, [`Mapping`] makes descriptors, and [`Describer`] combines
//!   both with the service levels into a check for a limiter.
//! - [`answer`] has the headers that report limits to a client.
//! - [`UsageScanner`] reads out of a response what its request used.
//!
//! The crate listens nowhere, keeps no bodies and decides nothing.
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
//! // The client may have added the left address itself; the right one comes from the proxy.
//! let original = Original::forwarded(proxy, &headers, &Forwarding::default())?;
//! let (describer, rules) = (Describer::default(), RuleSet::default());
//! let question = describer.question(&original, Some("shop"), &rules)?;
//! let check = question.check();
//! let entries = check.descriptors().flat_map(|descriptor| descriptor.entries);
//! let pairs: Vec<_> = entries.map(|entry| (entry.key, entry.value)).collect();
//! assert_eq!(pairs, [("remote_address", "203.0.113.7"), ("path", "/orders")]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
pub mod answer;
mod credentials;
mod described;
mod describer;
mod forwarded;
mod forwarding;
mod identity;
mod logged;
mod malformed;
mod mapping;
mod original;
mod refused;
mod request_body;
mod slashes;
mod source;
pub mod spelling;
mod target;
mod usage;
mod view;
mod words;

pub use address::{client_network, push_address};
pub use described::Described;
pub use describer::{Describer, RequestCheck, UnclearDomain};
pub use forwarding::{
    ClientHeader, ClientHeaderError, Forwarding, HOPS_MAX, Hop, TrustedProxies, TrustedProxiesError,
};
pub use identity::{
    ApiKeyError, ApiKeyFault, CallerName, Identity, IdentityConfig, IdentityError, IdentityFault,
    KeyFeed, KeysFault, KeysPlace, TokenError,
};
pub use logged::Logged;
pub use malformed::Malformed;
pub use mapping::{MappedEntry, Mapping, MappingError};
pub use original::{Original, method};
pub use ratekeeper_rules::JsonPointer;
pub use refused::{Refused, Unauthenticated};
pub use request_body::{BODY_PLACES_MAX, BodyScanner, BodyValues, RpcId, rpc_id};
pub use slashes::{AmbiguousPaths, EncodedSlashes};
pub use source::{ValueSource, ValueSourceError};
pub use target::Target;
pub use usage::{Spent, SpentFrom, UsageScanner};
pub use words::NeitherWord;

/// The prefix of an IPv6 address that one customer has in most networks.
pub(crate) const IPV6_PREFIX: u8 = 64;
