//! Rules from elsewhere than files.
//!
//! A source fetches texts, delivers them to the server's [feed](ratekeeper_server::RulesFeed), and fetches again when they
//! change, for ever. [`SourceStatus`] says how that goes. [`XdsSource`] is a client of a control plane, such as Envoy
//! Gateway; [`TextsSource`] fetches what people wrote, from a URL, Redis or etcd.
//!
//! [`KeysSource`] fetches the keys of tokens in the same way.
//!
//! [`RegionLink`] carries what regions lend each other, over the same kind of connection.
//!
//! The crate decides nothing about rules: the server compiles what is delivered, and says what it refuses. While a source
//! is away, the rules in force stay.

mod backoff;
mod etcd;
mod fetch_error;
mod grpc_connection;
mod keys;
mod redis;
mod region_link;
mod status;
mod texts;
mod url;
pub mod xds;

pub use etcd::{BadEtcdUrl, EtcdConfig};
pub use fetch_error::FetchError;
pub use keys::KeysSource;
pub use redis::{BadRedisKey, RedisKeyConfig};
pub use region_link::{RegionAddressError, RegionLink};
pub use status::SourceStatus;
pub use texts::{NewTexts, TextsPlace, TextsSource};
pub use url::{BadUrl, UrlConfig, UrlFetcher, UrlToken};
pub use xds::{XdsConfig, XdsDefaults, XdsSource};
