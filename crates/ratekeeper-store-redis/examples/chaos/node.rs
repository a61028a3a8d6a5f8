//! A node under load, and what its callers see.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ratekeeper_limiter::{
    Check, Decision, Descriptor, Fallback, FallbackConfig, Limiter, LimiterOptions, Seed,
};
use ratekeeper_rules::{Entry, Options, Source};
use ratekeeper_store::MemoryConfig;
use ratekeeper_store_redis::{Endpoint, RedisConfig, RedisStore};
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Callers that a node has at once; each asks, waits a little, and asks again.
const CALLERS: usize = 32;

const PAUSE: Duration = Duration::from_millis(4);

/// What no caller would wait for.
const PATIENCE: Duration = Duration::from_secs(1);

/// What callers saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    latencies: Vec<Duration>,
    pub(crate) degraded: u64,
    /// Checks that nobody answered in a second.
    pub(crate) errors: u64,
}

impl Seen {
    pub(crate) fn all(parts: Vec<Self>) -> Self {
        let mut all = Self::default();
        for part in parts {
            all.latencies.extend(part.latencies);
            all.degraded += part.degraded;
            all.errors += part.errors;
        }
        all.latencies.sort_unstable();
        all
    }

    pub(crate) fn answers(&self) -> usize {
        self.latencies.len()
    }

    /// The latency that such a share of the answers did not exceed.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a place in a list"
    )]
    pub(crate) fn percentile(&self, share: f64) -> Duration {
        let place = (self.latencies.len() as f64 * share).ceil() as usize;
        let place = place.saturating_sub(1);
        self.latencies.get(place).copied().unwrap_or_default()
    }
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Seen>,
    admitted: AtomicU64,
    is_over: AtomicBool,
    /// Answers given by the store since this was last set to 0.
    shared: AtomicU64,
}

impl Shared {
    /// Notes what a caller was answered; `None` if it was nothing.
    fn note(&self, decision: Option<&Decision>, took: Duration, is_hot: bool) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(decision) = decision else {
            seen.errors += 1;
            return;
        };
        seen.latencies.push(took);
        seen.degraded += u64::from(decision.is_degraded());
        if !decision.is_degraded() && !is_hot {
            self.shared.fetch_add(1, Ordering::Relaxed);
        }
        if is_hot && decision.allowed() {
            self.admitted.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A node: a limiter on a thread with a runtime of its own.
pub(crate) struct Node {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Node {
    /// A node that asks the Redis at `url`; its limited key may have `limit` in the hour.
    pub(crate) fn start(url: String, limit: u64) -> Self {
        let shared = Arc::new(Shared::default());
        let kept = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime can be made");
            runtime.block_on(load(&url, limit, &kept));
        });
        Self { shared, thread }
    }

    /// Forgets what was seen so far.
    pub(crate) fn forget(&self) {
        self.seen();
    }

    /// What was seen since it was last asked for.
    pub(crate) fn seen(&self) -> Seen {
        let mut seen = self
            .shared
            .seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *seen)
    }

    /// How long it takes until the store answers.
    pub(crate) fn until_shared(&self) -> Duration {
        self.shared.shared.store(0, Ordering::Relaxed);
        let start = Instant::now();
        while self.shared.shared.load(Ordering::Relaxed) == 0 {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "it never comes back"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        start.elapsed()
    }

    /// Ends the load; how often the limited key passed.
    pub(crate) fn stop(self) -> u64 {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("a node does not fail");
        self.shared.admitted.load(Ordering::Relaxed)
    }
}

async fn load(url: &str, limit: u64, shared: &Arc<Shared>) {
    let limiter = Arc::new(limiter(url, limit).await);
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        callers.spawn(call(number, Arc::clone(&limiter), Arc::clone(shared)));
    }
    callers.join_all().await;
}

async fn limiter(url: &str, limit: u64) -> Limiter<RedisStore> {
    let text = format!(
        "domain: d\ndescriptors:\n- {{ key: hot, rate_limit: {{ window: 365d, limit: {limit}, algorithm: fixed_window }} }}\n\
         - {{ key: user, rate_limit: {{ window: 1h, limit: 100000000 }} }}\n"
    );
    let name = "chaos".to_owned();
    let loaded = ratekeeper_rules::load(&[Source { name, text }], &Options::default());
    let endpoint = Endpoint::parse(url).expect("a good URL");
    let store = RedisStore::new(endpoint, RedisConfig::default(), Handle::current());
    store.prepare(&Handle::current());
    store.greeted().await;
    let mut options = LimiterOptions::default();
    options.seed = Some(Seed::from_bytes(store.seed()));
    let fallback = Fallback::new(FallbackConfig {
        memory: MemoryConfig::default(),
        local_factor: 1.0,
    });
    Limiter::new(loaded.expect("good rules").rules, store, options)
        .with_fallback(fallback.expect("there is memory"))
}

/// One caller. Every fourth check is for the limited key.
async fn call(number: usize, limiter: Arc<Limiter<RedisStore>>, shared: Arc<Shared>) {
    let user = number.to_string();
    for turn in number.. {
        if shared.is_over.load(Ordering::Relaxed) {
            return;
        }
        let is_hot = turn % 4 == 0;
        let (key, value) = if is_hot {
            ("hot", "one")
        } else {
            ("user", &*user)
        };
        let entries = [Entry { key, value }];
        let descriptors = [Descriptor::new(&entries)];
        let check = Check::new("d", &descriptors);
        let start = Instant::now();
        let decision = timeout(PATIENCE, limiter.check(&check)).await;
        let took = start.elapsed();
        shared.note(decision.ok().as_ref(), took, is_hot);
        sleep(PAUSE).await;
    }
}
