//! The service behind the tower layer.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use ratekeeper::tower::answer::{Bound, Denial, Quota, Standing};
use ratekeeper::tower::{Admission, Asked, Enforcer, Terms, Turn, Verdict};
use ratekeeper::{Check, Micros, RuleSet, Timestamp};
use tracing::error;

use crate::{Answer, Client, Error, Limit, Permit, Question};

/// Lets a service decide the requests of a `RateLimitLayer`.
///
/// A request costs a round trip to the service. While that is away, or refuses to answer, the client's
/// [`Fallback`](crate::Fallback) decides, counted in [`Counts::fallbacks`](crate::Counts::fallbacks); where it denies, the
/// layer answers 503, since nobody is over a limit. Clones share the client.
///
/// ```no_run
/// use ratekeeper::tower::RateLimitLayer;
/// use ratekeeper_client::{Client, Config, Fallback, Service};
///
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut config = Config::new("http://ratekeeper.internal:8081");
/// config.fallback = Fallback::Allow;
/// let layer = RateLimitLayer::new(Service::new(Client::new(config)?), "api_platform");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Service {
    client: Client,
    permits: bool,
    /// Whether it was said that the service refuses to answer.
    is_said: Arc<AtomicBool>,
}

/// What a request holds at the service until it has ended.
pub type Held = Permit;

/// A request that waits for its turn, which the service has given it, and permits with it.
#[derive(Debug)]
pub struct Queued(Box<Admission<Held, Self>>);

/// A question on its way.
pub type Asking = Pin<Box<dyn Future<Output = Admission<Held, Queued>> + Send>>;

impl Service {
    /// The service of `client`; concurrency limits are left out.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            permits: false,
            is_said: Arc::default(),
        }
    }

    /// The same, concurrency limits included: each request is an `acquire`, which the service must let this caller do
    /// (`callers`), and another call gives back what it took.
    #[must_use]
    pub fn with_permits(self) -> Self {
        Self {
            permits: true,
            ..self
        }
    }

    /// The client, for its counts.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    async fn answer(&self, question: &Question) -> (Answer, Option<Permit>) {
        let answer = match self.permits {
            true => {
                let acquired = self.client.acquire(question).await;
                acquired.map(|acquired| (acquired.answer, acquired.permit))
            }
            false => {
                let checked = self.client.check(question).await;
                checked.map(|answer| (answer, None))
            }
        };
        answer.unwrap_or_else(|refusal| (self.refused(question, &refusal), None))
    }

    /// The service is there and refuses to answer. Its trouble must not become that of whoever is limited.
    fn refused(&self, question: &Question, refusal: &Error) -> Answer {
        // Relaxed: twice by two threads at once does no harm.
        if !self.is_said.swap(true, Ordering::Relaxed) {
            error!(
                "the rate limit service refuses to answer, and the fallback decides; said once: {refusal}"
            );
        }
        self.client.0.fall_back(question)
    }
}

impl Enforcer for Service {
    type Permit = Held;
    type Queued = Queued;
    type Asking = Asking;

    /// The rules are the service's, and not known here.
    fn with_rules<T>(&self, read: impl FnOnce(&RuleSet) -> T) -> T {
        static NONE: LazyLock<RuleSet> = LazyLock::new(RuleSet::default);
        read(&NONE)
    }

    fn ask(&self, check: &Check<'_>, terms: Terms) -> Asked<Held, Queued, Asking> {
        let question =
            check
                .descriptors
                .iter()
                .fold(Question::new(check.domain), |question, descriptor| {
                    let entries = descriptor.entries.iter();
                    question.descriptor(entries.map(|entry| (entry.key, entry.value)))
                });
        let service = self.clone();
        Asked::Pending(Box::pin(async move {
            let (answer, permit) = service.answer(&question).await;
            admission(&answer, permit, terms)
        }))
    }

    fn at_turn(&self, queued: Queued) -> Asked<Held, Queued, Asking> {
        Asked::Decided(*queued.0)
    }
}

fn admission(answer: &Answer, permit: Option<Permit>, terms: Terms) -> Admission<Held, Queued> {
    let mut standing = Standing {
        allowed: answer.allowed,
        degraded: answer.degraded,
        at: now(),
        quotas: answer.limit.iter().map(quota).collect(),
        binding: answer.limit.as_ref().map(|limit| Bound {
            quota: quota(limit),
            rule: limit.rule.as_str().into(),
            remaining: limit.remaining,
            reset_after: span(limit.reset_after),
            retry_after: answer.retry_after().map(span),
        }),
    };
    if answer.allowed && answer.delay > terms.wait_max {
        standing.deny_for(answer.delay - terms.wait_max);
    }
    let verdict = match (standing.allowed, &standing.binding) {
        (true, _) => Verdict::Pass(permit),
        (false, Some(_)) => Verdict::Deny(Box::new(Denial::of(&standing, None))),
        (false, None) => Verdict::Unavailable,
    };
    let is_to_wait = standing.allowed && !answer.delay.is_zero();
    let admission = Admission {
        headers: terms.headers.lines(&standing),
        degraded: standing.degraded,
        verdict,
    };
    if !is_to_wait {
        return admission;
    }
    let turn = Turn {
        after: answer.delay,
        ..Turn::default()
    };
    Admission::waiting(turn, Queued(Box::new(admission)))
}

fn quota(limit: &Limit) -> Quota<'_> {
    Quota::named(&limit.rule, limit.limit)
}

/// The service tells spans alone, so dates count from this host's time.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Timestamp::from_micros(span(since.unwrap_or_default()).get())
}

fn span(duration: Duration) -> Micros {
    Micros::new(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}
