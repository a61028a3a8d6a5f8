//! An HTTP request as rules see it, and an answer as HTTP clients read it.
//!
//! - [`Forwarding`] finds the client's address behind proxies, of which only trusted ones are believed.
//! - [`Original`] is the request that somebody wants to know about, as forward-auth proxies tell it.
//! - [`Mapping`] makes descriptors of it.
//! - [`answer`] has the headers that tell a client of its limits.
//!
//! It listens nowhere, reads no body and decides nothing.
//!
//! ```
//! use http::{HeaderMap, HeaderValue};
//! use ratekeeper_http::{Forwarding, Hop, Mapping, Original};
//!
//! let mut headers = HeaderMap::new();
//! headers.insert("x-forwarded-for", HeaderValue::from_static("198.51.100.9, 203.0.113.7"));
//! headers.insert("x-forwarded-uri", HeaderValue::from_static("/orders?page=2"));
//! let proxy = Hop::Address("127.0.0.1".parse()?);
//! // The client may have written the left address itself; the right one is the proxy's word.
//! let original = Original::forwarded(proxy, &headers, &Forwarding::default())?;
//! let mapping = Mapping::default();
//! let described = mapping.describe(&original)?;
//! let pairs: Vec<_> = described.pairs().collect();
//! assert_eq!(pairs, [("remote_address", "203.0.113.7"), ("path", "/orders")]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod answer;
mod forwarded;
mod forwarding;
mod malformed;
mod mapping;
mod original;
mod source;
mod target;

pub use forwarding::{ClientHeader, Forwarding, HOPS_MAX, Hop, TrustedProxies};
pub use malformed::Malformed;
pub use mapping::{Described, Field, Mapping};
pub use original::Original;
pub use source::Source;
pub use target::Target;
