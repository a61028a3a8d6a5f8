//! What a node does: callers ask, and what they are answered is noted.

use std::io::BufRead;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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

/// A bit for each of them.
const EVERY_CALLER: u64 = (1 << CALLERS) - 1;

const PAUSE: Duration = Duration::from_millis(4);

/// How long a node may take to decide in Redis again.
const RECOVERY_MAX: Duration = Duration::from_secs(60);

/// What callers saw since it was last asked for.
#[derive(Debug, Default)]
struct Seen {
    latencies: Vec<Duration>,
    degraded: u64,
    errors: u64,
    /// For the key of each caller.
    own: [Answers; CALLERS],
    /// For the limited key.
    limited: Answers,
}

/// What was answered for a key.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    all: u64,
    degraded: u64,
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Seen>,
    admitted: AtomicU64,
    /// Answers of a failure mode, from the start.
    degraded: AtomicU64,
    is_over: AtomicBool,
    /// A bit for each caller that the store has answered since this was last set to 0.
    shared: AtomicU64,
}

impl Shared {
    /// Notes what caller `number` was answered; `None` if it was nothing.
    fn note(&self, number: usize, decision: Option<&Decision>, took: Duration, is_hot: bool) {
        let mut seen = self.lock();
        let Some(decision) = decision else {
            seen.errors += 1;
            return;
        };
        seen.latencies.push(took);
        let is_degraded = u64::from(decision.is_degraded());
        seen.degraded += is_degraded;
        let of_key = match is_hot {
            true => &mut seen.limited,
            false => &mut seen.own[number],
        };
        of_key.all += 1;
        of_key.degraded += is_degraded;
        self.degraded.fetch_add(is_degraded, Ordering::Relaxed);
        if !decision.is_degraded() && !is_hot {
            self.shared.fetch_or(1 << number, Ordering::Relaxed);
        }
        if is_hot && decision.allowed() {
            self.admitted.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What a node is told when it is started.
#[derive(Clone, Debug)]
struct Orders {
    url: String,
    limit: u64,
    deadline: Duration,
    patience: Duration,
}

/// Is a node, and answers a line of numbers to each line of the input, until that ends.
pub(super) fn run(orders: &[String]) {
    let [url, limit, deadline, patience] = orders else {
        panic!("{orders:?} are no orders");
    };
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let orders = Orders {
        url: url.clone(),
        limit: number(limit),
        deadline: Duration::from_millis(number(deadline)),
        patience: Duration::from_millis(number(patience)),
    };
    let shared = Arc::new(Shared::default());
    let kept = Arc::clone(&shared);
    let load = std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime can be made");
        runtime.block_on(load(orders, &kept));
    });
    for line in std::io::stdin().lock().lines() {
        match line.expect("a question is text").as_str() {
            "seen" => println!("{}", shared.seen()),
            "shared" => println!("{}", shared.until_shared().as_micros()),
            _ => break,
        }
    }
    shared.is_over.store(true, Ordering::Relaxed);
    load.join().expect("a node does not fail");
    let [admitted, degraded] =
        [&shared.admitted, &shared.degraded].map(|count| count.load(Ordering::Relaxed));
    println!("{admitted} {degraded}");
}

impl Shared {
    /// Errors, answers by failure mode, keys that it answered for most of the time, latencies in microseconds.
    fn seen(&self) -> String {
        let seen = std::mem::take(&mut *self.lock());
        let is_away = |key: &&Answers| key.degraded * 2 > key.all;
        let keys = seen.own.iter().chain([&seen.limited]);
        let away = keys.filter(is_away).count();
        let mut line = format!("{} {} {away}", seen.errors, seen.degraded);
        for latency in seen.latencies {
            line.push_str(&format!(" {}", latency.as_micros()));
        }
        line
    }

    /// How long it takes until the store answers every caller.
    fn until_shared(&self) -> Duration {
        self.shared.store(0, Ordering::Relaxed);
        let start = Instant::now();
        while self.shared.load(Ordering::Relaxed) != EVERY_CALLER {
            assert!(start.elapsed() < RECOVERY_MAX, "it never comes back");
            std::thread::sleep(Duration::from_millis(1));
        }
        start.elapsed()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn load(orders: Orders, shared: &Arc<Shared>) {
    let limiter = Arc::new(limiter(&orders).await);
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        let (limiter, shared) = (Arc::clone(&limiter), Arc::clone(shared));
        callers.spawn(call(number, limiter, shared, orders.patience));
    }
    callers.join_all().await;
}

async fn limiter(orders: &Orders) -> Limiter<RedisStore> {
    let limit = orders.limit;
    let text = format!(
        "domain: d\ndescriptors:\n- {{ key: hot, rate_limit: {{ window: 365d, limit: {limit}, algorithm: fixed_window }} }}\n\
         - {{ key: user, rate_limit: {{ window: 1h, limit: 100000000 }} }}\n"
    );
    let name = "chaos".to_owned();
    let loaded = ratekeeper_rules::load(&[Source { name, text }], &Options::default());
    let endpoint = Endpoint::parse(&orders.url).expect("a good URL");
    let mut config = RedisConfig::default();
    config.deadline = orders.deadline;
    let store = RedisStore::new(endpoint, config, Handle::current());
    store.prepare(&Handle::current());
    store.greeted().await;
    let mut options = LimiterOptions::default();
    options.seed = store.seed().map(Seed::from_bytes);
    let fallback = Fallback::new(FallbackConfig {
        memory: MemoryConfig::default(),
        local_factor: 1.0,
    });
    Limiter::new(loaded.expect("good rules").rules, store, options)
        .with_fallback(fallback.expect("there is memory"))
}

/// One caller. Every fourth check is for the limited key.
async fn call(
    number: usize,
    limiter: Arc<Limiter<RedisStore>>,
    shared: Arc<Shared>,
    patience: Duration,
) {
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
        let decision = timeout(patience, limiter.check(&check)).await;
        let took = start.elapsed();
        shared.note(number, decision.ok().as_ref(), took, is_hot);
        sleep(PAUSE).await;
    }
}
