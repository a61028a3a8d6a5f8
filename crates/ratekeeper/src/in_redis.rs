//! Counters in Redis.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ratekeeper_limiter::{
    BroughtLimit, Check, Decision, Fallback, FallbackConfig, Limiter, LimiterOptions, OwnLimit,
};
use ratekeeper_rules::{FailureMode, RuleSet};
use ratekeeper_store::MemoryConfig;
use ratekeeper_store_redis::{Endpoint, RedisConfig, RedisStore};
use tokio::runtime::Handle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::clock::Clock;
use crate::counters::{Counters, Question, sealed::Sealed};
use crate::memory::name;
use crate::{Checked, Error, Key, RateLimiter, RateLimiterBuilder, UnkeyedLimiter};

/// The time that a start waits for Redis. Later, failure modes answer until it comes.
const GREETING_MAX: Duration = Duration::from_secs(2);

/// The shortest time in which a decision can be expected.
const DEADLINE_MIN: Duration = Duration::from_millis(1);

/// The interval of maintenance.
const MAINTAIN_EVERY: Duration = Duration::from_secs(1);

/// The key of the entry that has the limiter's key as its value.
const ENTRY: &str = "key";

/// Counters in Redis or Valkey, which all nodes with the same name and limits share.
///
/// ```no_run
/// use ratekeeper::{Error, InRedis, Limit, RateLimiter};
///
/// async fn connect() -> Result<RateLimiter<InRedis>, Error> {
///     RateLimiter::builder(Limit::per_minute(5)).redis("redis://127.0.0.1:6379").await
/// }
/// ```
#[derive(Debug)]
pub struct InRedis {
    limiter: Arc<Limiter<RedisStore>>,
    limits: Arc<[OwnLimit]>,
    name: Arc<str>,
}

/// The settings of counters in Redis.
#[derive(Debug)]
pub(crate) struct SharedOptions {
    name: Box<str>,
    on_store_failure: FailureMode,
    config: RedisConfig,
}

impl Default for SharedOptions {
    fn default() -> Self {
        Self {
            name: "default".into(),
            on_store_failure: FailureMode::default(),
            config: RedisConfig::default(),
        }
    }
}

impl RateLimiterBuilder {
    /// Sets the name under which counters lie in Redis. Limiters with the same name share counters; the default is
    /// `default`.
    ///
    /// ```no_run
    /// # use ratekeeper::{Error, InRedis, Limit, RateLimiter};
    /// # async fn connect() -> Result<RateLimiter<InRedis>, Error> {
    /// let logins = RateLimiter::builder(Limit::per_minute(5)).name("logins");
    /// logins.redis("redis://127.0.0.1:6379").await
    /// # }
    /// ```
    pub fn name(mut self, name: &str) -> Self {
        self.shared.name = name.into();
        self
    }

    /// Sets the answer while Redis gives none: `Local`, the default, lets this node count by itself; `Allow` and `Deny`
    /// answer every request so.
    ///
    /// ```no_run
    /// # use ratekeeper::{Error, FailureMode, InRedis, Limit, RateLimiter};
    /// # async fn connect() -> Result<RateLimiter<InRedis>, Error> {
    /// let limits = RateLimiter::builder(Limit::per_minute(5)).on_store_failure(FailureMode::Deny);
    /// limits.redis("redis://127.0.0.1:6379").await
    /// # }
    /// ```
    pub const fn on_store_failure(mut self, mode: FailureMode) -> Self {
        self.shared.on_store_failure = mode;
        self
    }

    /// Sets the time after which Redis is taken not to answer: 10 ms by default, and at least 1 ms. Where it is far away,
    /// a longer one than its round trip is needed, or the [failure mode](Self::on_store_failure) answers all requests.
    /// Connecting takes some round trips, and may take eight times as long.
    ///
    /// ```no_run
    /// # use ratekeeper::{Error, InRedis, Limit, RateLimiter};
    /// # use std::time::Duration;
    /// # async fn connect() -> Result<RateLimiter<InRedis>, Error> {
    /// let limits = RateLimiter::builder(Limit::per_minute(5)).store_deadline(Duration::from_millis(100));
    /// limits.redis("redis://127.0.0.1:6379").await
    /// # }
    /// ```
    pub fn store_deadline(mut self, deadline: Duration) -> Self {
        let config = &mut self.shared.config;
        config.deadline = deadline.max(DEADLINE_MIN);
        config.connect_timeout = config.connect_timeout.max(deadline.saturating_mul(8));
        self
    }

    /// Makes the limiter, with counters in Redis: `redis://`, `rediss://`, `redis+cluster://` or `redis+sentinel://`.
    /// Maintenance runs in a task of the runtime that this is called in, until the limiter is dropped.
    ///
    /// It waits up to two seconds for the server. If that is away, it is no error: the
    /// [failure mode](Self::on_store_failure) answers until it comes, and what `Local` and `Allow` let pass is
    /// charged then.
    ///
    /// ```no_run
    /// # use ratekeeper::{Limit, RateLimiter};
    /// # async fn connect() -> Result<(), ratekeeper::Error> {
    /// let limiter = RateLimiter::builder(Limit::per_minute(5)).redis("redis://127.0.0.1:6379").await?;
    /// let answer = limiter.check("ada").await;
    /// println!("{} left", answer.remaining);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`RateLimiter::keyed`]; [`Error::RedisUrl`] for a URL that names no Redis, [`Error::NotRedis`] if something
    /// else answers or the login is refused, [`Error::NoRuntime`] outside of tokio, [`Error::ClockWithRedis`].
    pub async fn redis(self, url: &str) -> Result<RateLimiter<InRedis>, Error> {
        if self.has_clock() {
            return Err(Error::ClockWithRedis);
        }
        let limits = self.compiled()?;
        let endpoint = Endpoint::parse(url)?;
        let home = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let store = RedisStore::new(endpoint, self.shared.config.clone(), home);
        let _ = timeout(GREETING_MAX, store.greeted()).await;
        let status = store.server_status();
        if let Some(error) = status.error.filter(|_| status.is_refused) {
            return Err(Error::NotRedis(error.into()));
        }
        let on_store_failure = self.shared.on_store_failure;
        let own = limits.into_iter().map(|limit| OwnLimit {
            limit,
            on_store_failure,
        });
        let counters = InRedis {
            limiter: start(store, self.memory())?,
            limits: own.collect(),
            name: self.shared.name.clone().into(),
        };
        Ok(self.with(counters, Clock::system()))
    }
}

/// A limiter without rules whose maintenance runs by itself.
fn start(store: RedisStore, memory_limit: usize) -> Result<Arc<Limiter<RedisStore>>, Error> {
    let memory = MemoryConfig {
        memory_limit,
        max_share_percent: 100,
    };
    let config = FallbackConfig {
        memory,
        local_factor: 1.0,
    };
    let fallback = Fallback::new(config)?;
    let mut options = LimiterOptions::default();
    options.hash_key = store.hash_key();
    let limiter = Limiter::new(RuleSet::default(), store, options).with_fallback(fallback);
    let limiter = Arc::new(limiter);
    tokio::spawn(maintain(Arc::downgrade(&limiter)));
    Ok(limiter)
}

/// Ends when the last clone of the limiter is gone.
async fn maintain(limiter: Weak<Limiter<RedisStore>>) {
    let mut ticks = interval(MAINTAIN_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(limiter) = limiter.upgrade() else {
            return;
        };
        limiter.clock().reanchor();
        limiter.maintain();
        if let Some(key) = limiter.store().hash_key() {
            limiter.adopt_hash_key(key);
        }
    }
}

impl InRedis {
    /// The check of `key`: a descriptor for each limit.
    fn check<'a>(&'a self, key: &'a str, hits: i64) -> Check<'a> {
        let mut check = Check::new(&self.name);
        for limit in &*self.limits {
            let terms = check.push([(ENTRY, key)]);
            terms.hits = hits;
            terms.limit = Some(BroughtLimit::Own(limit));
        }
        check
    }

    async fn decide(self, key: Box<str>, question: Question) -> Checked {
        let check = self.check(&key, question.hits());
        match question {
            Question::Take(_) | Question::GiveBack(_) => {
                let decision = self.limiter.check(&check).await;
                told(&decision, decision.allowed())
            }
            Question::Look => {
                let (decision, would_pass) = self.limiter.peek(&check).await;
                told(&decision, would_pass)
            }
        }
    }

    fn share(&self) -> Self {
        Self {
            limiter: Arc::clone(&self.limiter),
            limits: Arc::clone(&self.limits),
            name: Arc::clone(&self.name),
        }
    }
}

impl Sealed for InRedis {}

impl Counters for InRedis {
    const IS_SHARED: bool = true;

    type Answer = Pin<Box<dyn Future<Output = Checked> + Send>>;

    fn ask(&self, key: &str, question: Question) -> Self::Answer {
        Box::pin(self.share().decide(key.into(), question))
    }
}

/// The answer of the most restrictive limit.
fn told(decision: &Decision, allowed: bool) -> Checked {
    let Some(binding) = decision.binding() else {
        return Checked::unlimited();
    };
    let status = decision.limit_status_of(binding);
    Checked {
        allowed,
        limit: status.limit,
        remaining: status.remaining,
        reset_after: status.reset_after.into(),
        full_after: status.full_after.into(),
        retry_after: status.retry_after.filter(|_| !allowed).map(Into::into),
        index: decision.binding_descriptor().unwrap_or_default(),
        degraded: decision.is_degraded(),
    }
}

/// With counters in Redis every question takes a round trip, and its answer is awaited. While Redis gives none, it is that
/// of the [failure mode](RateLimiterBuilder::on_store_failure), and [`degraded`](Checked::degraded).
impl RateLimiter<InRedis> {
    /// Takes one hit of `key`, if it fits.
    ///
    /// ```no_run
    /// # async fn ask(limiter: ratekeeper::RateLimiter<ratekeeper::InRedis>) {
    /// if !limiter.check("ada").await.allowed {
    ///     println!("not so fast, ada");
    /// }
    /// # }
    /// ```
    pub async fn check(&self, key: impl Key) -> Checked {
        self.check_n(key, 1).await
    }

    /// Takes `hits` of `key`, if all of them fit.
    ///
    /// ```no_run
    /// # async fn ask(limiter: ratekeeper::RateLimiter<ratekeeper::InRedis>) -> bool {
    /// limiter.check_n("ada", 4).await.allowed
    /// # }
    /// ```
    pub async fn check_n(&self, key: impl Key, hits: u64) -> Checked {
        self.ask(&key, Question::Take(hits)).await
    }

    /// Tells if one hit of `key` would pass, and what is left. Takes nothing.
    ///
    /// ```no_run
    /// # async fn ask(limiter: ratekeeper::RateLimiter<ratekeeper::InRedis>) -> u64 {
    /// limiter.peek("ada").await.remaining
    /// # }
    /// ```
    pub async fn peek(&self, key: impl Key) -> Checked {
        self.ask(&key, Question::Look).await
    }

    /// Gives `hits` of `key` back.
    ///
    /// ```no_run
    /// # async fn ask(limiter: ratekeeper::RateLimiter<ratekeeper::InRedis>) {
    /// limiter.refund("ada", 2).await;
    /// # }
    /// ```
    pub async fn refund(&self, key: impl Key, hits: u64) -> Checked {
        let line = key.with_text(|key| name(self.shared.hash_key, key));
        let answer = self.ask(&key, Question::GiveBack(hits)).await;
        self.shared.lines.nudge(line);
        answer
    }

    fn ask(&self, key: &impl Key, question: Question) -> <InRedis as Counters>::Answer {
        key.with_text(|key| self.shared.counters.ask(key, question))
    }
}

/// As [`RateLimiter<InRedis>`], with one counter for each limit.
impl UnkeyedLimiter<InRedis> {
    /// Takes one hit, if it fits.
    ///
    /// ```no_run
    /// # async fn ask() -> Result<(), ratekeeper::Error> {
    /// use ratekeeper::{Limit, RateLimiter};
    ///
    /// let limiter = RateLimiter::builder(Limit::per_second(100)).name("vendor");
    /// let limiter = limiter.redis("redis://127.0.0.1:6379").await?.without_keys();
    /// if !limiter.check().await.allowed {
    ///     println!("all nodes together ask too often");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check(&self) -> Checked {
        self.0.check("").await
    }

    /// Takes `hits`, if all of them fit.
    ///
    /// ```no_run
    /// # async fn ask(limiter: ratekeeper::UnkeyedLimiter<ratekeeper::InRedis>) -> bool {
    /// limiter.check_n(4).await.allowed
    /// # }
    /// ```
    pub async fn check_n(&self, hits: u64) -> Checked {
        self.0.check_n("", hits).await
    }

    /// Tells if one hit would pass, and what is left. Takes nothing.
    ///
    /// ```no_run
    /// # async fn ask(limiter: ratekeeper::UnkeyedLimiter<ratekeeper::InRedis>) -> u64 {
    /// limiter.peek().await.remaining
    /// # }
    /// ```
    pub async fn peek(&self) -> Checked {
        self.0.peek("").await
    }

    /// Gives `hits` back.
    ///
    /// ```no_run
    /// # async fn ask(limiter: ratekeeper::UnkeyedLimiter<ratekeeper::InRedis>) {
    /// limiter.refund(2).await;
    /// # }
    /// ```
    pub async fn refund(&self, hits: u64) -> Checked {
        self.0.refund("", hits).await
    }
}
