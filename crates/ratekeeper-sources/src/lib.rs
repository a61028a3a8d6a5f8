//! Rules from elsewhere than files.
//!
//! A source fetches texts, delivers them to the server's [feed](ratekeeper_server::RulesFeed), and fetches again when they
//! change, for ever. [`SourceStatus`] says how that goes. [`XdsSource`] is a client of a control plane, such as Envoy
//! Gateway; [`UrlSource`] fetches one text.
//!
//! The crate decides nothing about rules: the server compiles what is delivered, and says what it refuses. While a source
//! is away, the rules in force stay.

mod backoff;
mod status;
mod url;
pub mod xds;

pub use status::SourceStatus;
pub use url::{BadRulesUrl, UrlConfig, UrlSource, UrlToken};
pub use xds::{XdsConfig, XdsDefaults, XdsSource};
