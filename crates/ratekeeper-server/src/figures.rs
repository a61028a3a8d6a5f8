//! Figures of this node: the counts of rules, the time that checks take, the keys that are limited most; in memory, as
//! metrics, for those who watch, and for a statsd agent.

pub(crate) mod degraded;
pub(crate) mod durations;
pub(crate) mod envoy_stats;
pub(crate) mod families;
pub(crate) mod live;
pub(crate) mod monitored;
pub(crate) mod rule_counts;
pub(crate) mod statsd;
pub(crate) mod top_nodes;
pub(crate) mod unenforced;
