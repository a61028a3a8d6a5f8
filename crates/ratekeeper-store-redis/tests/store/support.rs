//! Stores of their own for tests, and helpers to ask them.

use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
use ratekeeper_store::{Answer, CounterKey, Request, Step, Store, StoreError, Verdicts};
use ratekeeper_store_redis::{Endpoint, RedisConfig, RedisStore};
use ratekeeper_testkit::process::{DEADLINE, output_of};
use ratekeeper_testkit::redis::Server;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{Instant, sleep};

/// The interval between checks of a condition.
const LOOK_EVERY: Duration = Duration::from_millis(10);

static HOME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime can be made")
});

/// A window whose next edge is decades away: no test sees it end.
pub(crate) const LASTING: Micros = Micros::from_secs(10_000 * 86_400);

/// The runtime for the background tasks of all stores.
pub(crate) fn home() -> Handle {
    HOME.handle().clone()
}

/// A prefix for keys that no other test has.
pub(crate) fn prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("s{}:", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Counters of the server that no other test has.
pub(crate) fn endpoint(server: &Server) -> Endpoint {
    let url = format!("redis://127.0.0.1:{}/?prefix={}", server.port(), prefix());
    Endpoint::parse(&url).expect("a good URL")
}

/// Deadlines that slow machines keep, for tests that are not about them.
pub(crate) fn patient() -> RedisConfig {
    let mut config = RedisConfig::default();
    config.deadline = Duration::from_secs(60);
    config.connect_timeout = Duration::from_secs(30);
    config
}

pub(crate) fn store(server: &Server, config: RedisConfig) -> RedisStore {
    RedisStore::new(endpoint(server), config, home())
}

pub(crate) fn limit(algorithm: Algorithm, quota: u64, window: Micros) -> Limit {
    Limit::try_new(LimitSpec::new(algorithm, quota, window)).expect("a valid limit")
}

pub(crate) fn step(limit: &Limit, number: u64) -> Step {
    Step::new(
        CounterKey {
            subject: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            identity: number.wrapping_mul(0xd1b5_4a32_d192_ed03),
        },
        *limit,
    )
}

/// Waits until `holds`. Meanwhile other tasks of this runtime have their turns.
///
/// # Panics
/// If it does not within [`DEADLINE`].
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !holds().await {
        assert!(Instant::now() < end, "waited in vain until {what}");
        sleep(LOOK_EVERY).await;
    }
}

/// Decides `steps` by the server's time.
pub(crate) async fn decide<S: Store>(store: &S, steps: &[Step]) -> Result<Verdicts, StoreError> {
    let answer = store.decide(&Request::new(steps, Mode::default(), Timestamp::EPOCH));
    match answer {
        Answer::Decided(verdicts) => Ok(verdicts),
        Answer::Pending(ticket) => ticket.await,
    }
}

/// Starts this program so many times for the test of that name, and returns what each prints.
pub(crate) fn processes(count: usize, test: &str, order: impl Fn(&mut Command)) -> Vec<String> {
    let nodes = (0..count).map(|_| {
        let mut command = Command::new(std::env::current_exe().expect("a test has a program"));
        // One thread, as on a machine with one core: the test's name stands before its first line then.
        command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
        order(&mut command);
        thread::spawn(move || output_of(&mut command))
    });
    let nodes: Vec<_> = nodes.collect();
    let outputs = nodes.into_iter().map(|node| node.join());
    outputs.map(|it| it.expect("a node ends well")).collect()
}
