//! Options of a replay.

use ratekeeper_core::Micros;
use ratekeeper_http::{Describer, Forwarding};
use ratekeeper_store::memory::MemoryConfig;

use crate::descriptors::Descriptors;
use crate::fields::Fields;
use crate::parse::Format;

/// The settings of a replay, besides the rules.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReplayOptions {
    /// The domain to check; None means the describer's, else the rules' only one.
    pub domain: Option<String>,
    /// The format of the logs; None means to detect it.
    pub format: Option<Format>,
    /// The paths of fields in JSON lines.
    pub fields: Fields,
    /// The descriptors for each line; None means those that the describer makes.
    pub descriptors: Option<Descriptors>,
    /// The mapping from requests to descriptors, and the caller for service levels, as at a gateway.
    pub describer: Describer,
    /// The trusted proxies, for logs that record a forwarding header.
    pub forwarding: Forwarding,
    /// The longest time that a leaky bucket delays a request, as at a gateway; zero where none can wait.
    pub wait_max: Micros,
    /// The algorithm to compare the rules' decisions with.
    pub compare: Option<CompareWith>,
    /// The number of most denied keys to report for each rule, at most 1,024.
    pub top_denied: usize,
    /// The number of malformed lines to show.
    pub bad_lines: usize,
    /// The memory for the rules' counters.
    pub memory: MemoryConfig,
    /// The most by which lines may be out of order and still be sorted; zero disables sorting.
    pub sort_within: Micros,
}

/// The default of [`ReplayOptions::wait_max`].
const WAIT_MAX: Micros = Micros::from_secs(10);

/// The default of [`ReplayOptions::sort_within`].
const SORT_WITHIN: Micros = Micros::from_secs(60);

impl Default for ReplayOptions {
    fn default() -> Self {
        Self {
            domain: None,
            format: None,
            fields: Fields::default(),
            descriptors: None,
            describer: Describer::default(),
            forwarding: Forwarding::default(),
            wait_max: WAIT_MAX,
            compare: None,
            top_denied: 10,
            bad_lines: 5,
            memory: MemoryConfig::default(),
            sort_within: SORT_WITHIN,
        }
    }
}

/// An algorithm to compare decisions with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompareWith {
    /// The exact log of the same quota and window: `sliding_log`.
    SlidingLog,
}

impl CompareWith {
    /// The algorithm with that name on the command line.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        (name == "sliding_log").then_some(Self::SlidingLog)
    }
}
