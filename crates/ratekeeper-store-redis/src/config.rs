//! How Redis is asked.

use std::time::Duration;

/// How a [`RedisStore`](crate::RedisStore) asks its servers. The defaults are the product's.
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisConfig {
    /// How long a decision may take: waiting for its turn, the way there and back, and reloading
    /// a script. At least 1 ms.
    pub deadline: Duration,
    /// How long connecting and logging in may take.
    pub connect_timeout: Duration,
    /// For how long a denial is repeated from memory, if nothing of it would change meanwhile:
    /// a refund, reset or change made elsewhere is seen after that. Zero: not at all.
    pub deny_cache_max: Duration,
    /// How often a server is asked what it is and what it evicts.
    pub look_every: Duration,
    /// Whether waiting requests that ask for the same are decided together.
    pub merges: bool,
    /// Groups of requests in one pipeline, at least 1.
    pub groups_max: usize,
    /// Pipelines in flight from one runtime to one server, at least 1.
    pub pipelines_max: usize,
    /// Requests that wait in one runtime for one server; more are refused at once.
    pub waiting_max: usize,
    /// The secret that counters are named by, the same on all nodes; [`None`] shares one by way
    /// of the server.
    pub seed: Option<[u8; 16]>,
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
            seed: None,
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
