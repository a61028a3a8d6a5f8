//! Settings of sending counts.

use std::time::Duration;

/// An agent to send counts to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatsdConfig {
    /// Its host and port; the name is looked up each time.
    pub address: Box<str>,
    /// The form of the names.
    pub format: StatsdFormat,
    /// The time between two sendings.
    pub interval: Duration,
}

/// The form of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StatsdFormat {
    /// Domain and rule are parts of the name: `ratelimit.service.rate_limit.d.customer.total_hits`.
    #[default]
    Statsd,
    /// They are tags: `ratelimit.service.rate_limit.total_hits` with `domain:d` and `rule:customer`.
    DogStatsd,
}
