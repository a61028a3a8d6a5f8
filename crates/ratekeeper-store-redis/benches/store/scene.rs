//! A server on a processor of its own, and stores that ask it.

use std::sync::Arc;

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
use ratekeeper_store::{CounterKey, Request, Step};
use ratekeeper_store_redis::{Endpoint, RedisConfig, RedisStore};
use ratekeeper_testkit::process::pin;
use ratekeeper_testkit::redis::{Client, Server};
use tokio::runtime::{Builder, Handle, Runtime};

/// The core that Redis runs on; everything else has the other one.
const REDIS_CORE: &str = "0";
const OUR_CORE: &str = "1";

/// A server, a client that asks it what it did, and a runtime that stores are asked from.
pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) client: Client,
    pub(crate) runtime: Runtime,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let mut server = Server::start();
        pin_redis(server.process().id());
        let runtime = Builder::new_current_thread().enable_all().build();
        Self {
            client: server.client(),
            server,
            runtime: runtime.expect("a runtime can be made"),
        }
    }

    /// A connected store.
    pub(crate) fn store(&self, config: RedisConfig) -> Arc<RedisStore> {
        let url = format!("redis://127.0.0.1:{}/", self.server.port());
        let endpoint = Endpoint::parse(&url).expect("a good URL");
        connected(&self.runtime, endpoint, config)
    }

    /// Reads the server's counts so far.
    pub(crate) fn seen(&mut self) -> Seen {
        Seen::by(&mut self.client)
    }
}

/// A store that knows its servers, asked from `runtime`.
pub(crate) fn connected(
    runtime: &Runtime,
    endpoint: Endpoint,
    config: RedisConfig,
) -> Arc<RedisStore> {
    runtime.block_on(async {
        let store = RedisStore::new(endpoint, config, Handle::current());
        ratekeeper_stores::SharedStore::prepare(&*store);
        store.greeted().await;
        Arc::new(store)
    })
}

/// A server's counts.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) cpu_us: f64,
    pub(crate) calls: f64,
}

impl Seen {
    /// Reads the counts so far of the server that `client` is connected to.
    pub(crate) fn by(client: &mut Client) -> Self {
        let seconds = client.number("cpu", "used_cpu_user") + client.number("cpu", "used_cpu_sys");
        Self {
            cpu_us: seconds * 1e6,
            calls: client.calls("evalsha") as f64,
        }
    }
}

/// Keeps this process, and what it starts, off the server's processor.
pub(crate) fn pin_this_process() {
    pin(std::process::id(), OUR_CORE);
}

pub(crate) fn pin_redis(process: u32) {
    pin(process, REDIS_CORE);
}

/// The product's, but for a deadline that a busy machine does not miss.
pub(crate) fn config() -> RedisConfig {
    let mut config = RedisConfig::default();
    config.deadline = std::time::Duration::from_secs(5);
    config
}

/// So many in ten days: so long that nothing comes back meanwhile.
pub(crate) fn limit(algorithm: Algorithm, quota: u64) -> Limit {
    let spec = LimitSpec::new(algorithm, quota, Micros::from_secs(864_000));
    Limit::try_new(spec).expect("a valid limit")
}

/// One hit of the counter of that number, spread as hashes are.
pub(crate) fn step(limit: &Limit, number: u64) -> Step {
    let spread = |n: u64| (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    Step::new(
        CounterKey {
            subject: spread(number),
            identity: spread(spread(number)),
        },
        *limit,
    )
}

pub(crate) fn request<'a>(steps: &'a [Step]) -> Request<'a> {
    Request::new(steps, Mode::default(), Timestamp::from_secs(1_800_000_000))
}
