//! The settings of the Redis store.

use std::time::Duration;

use ratekeeper_store::HashKey;

/// The settings by which a [`RedisStore`](crate::RedisStore) asks its servers. The defaults are the product's.
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisConfig {
    /// The time limit of a decision: waiting for its turn, the round trip, and reloading a script. At least 1 ms.
    pub deadline: Duration,
    /// The time limit for connecting and logging in.
    pub connect_timeout: Duration,
    /// The longest time for which a denial is repeated from memory while nothing would change it: a
    /// refund, reset or change made elsewhere is seen after that. Zero turns this off.
    pub deny_cache_max: Duration,
    /// The interval at which a server is asked for its version and eviction policy.
    pub look_every: Duration,
    /// Decides waiting requests for the same counters together.
    pub merges: bool,
    /// Groups of requests in one pipeline, at least 1.
    pub groups_max: usize,
    /// Pipelines in flight from one runtime to one server, at least 1.
    pub pipelines_max: usize,
    /// Requests that wait in one runtime for one server; more are refused at once.
    pub waiting_max: usize,
    /// The key of the hash that names counters, the same on all nodes; [`None`] shares one by way
    /// of the server.
    pub hash_key: Option<HashKey>,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(10),
            connect_timeout: Duration::from_millis(400),
            deny_cache_max: Duration::from_secs(1),
            look_every: Duration::from_secs(60),
            merges: true,
            groups_max: 64,
            pipelines_max: 2,
            waiting_max: 16_384,
            hash_key: None,
        }
    }
}

/// Without the secret.
impl std::fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisConfig")
            .field("deadline", &self.deadline)
            .field("connect_timeout", &self.connect_timeout)
            .field("deny_cache_max", &self.deny_cache_max)
            .field("look_every", &self.look_every)
            .field("merges", &self.merges)
            .field("groups_max", &self.groups_max)
            .field("pipelines_max", &self.pipelines_max)
            .field("waiting_max", &self.waiting_max)
            .finish_non_exhaustive()
    }
}
