//! The remote service as an enforcer for the tower layer.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use ratekeeper::limiter::ServiceDecision;
use ratekeeper::rules::ShedRules;
use ratekeeper::tower::answer::{Denial, HeaderLines, RequestStatus};
use ratekeeper::tower::{Admission, AdmissionVerdict, AnswerOf, EnforceOptions, Enforcer, Turn};
use ratekeeper::{Check, Micros, RuleSet, Timestamp, tower};

use crate::{CheckAnswer, CheckRequest, Client, Error, LocalLimiter, Permit};

/// Decides the requests of a `RulesLayer` by asking a service.
///
/// A request costs a round trip to the service. While the service is away or refuses to answer, the
/// client's [`FallbackPolicy`](crate::FallbackPolicy) decides, counted in
/// [`ClientCounts::fallbacks`](crate::ClientCounts::fallbacks). If the fallback denies, the layer answers 503,
/// since no limit was exceeded. It also answers 503, with any fallback, to a request that the
/// service cannot decide because of its content, such as a question of more than 4 MiB;
/// [`ClientCounts::refused`](crate::ClientCounts::refused) counts those. Clones share the client.
///
/// ```no_run
/// use ratekeeper::tower::RulesLayer;
/// use ratekeeper_client::{Client, Config, FallbackPolicy, ServiceEnforcer};
///
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut config = Config::new("http://ratekeeper.internal:8081");
/// config.fallback = FallbackPolicy::Allow;
/// let layer = RulesLayer::new(ServiceEnforcer::new(Client::new(config)?), "api_platform");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ServiceEnforcer {
    client: Client,
    permits: bool,
    /// The rules with the service levels to match requests against.
    levels: Option<Arc<dyn LocalLimiter>>,
}

/// A request that the service has admitted, permits included, and that waits for its turn.
#[derive(Debug)]
pub struct QueuedAtService(Box<Admission<Permit, Self>>);

/// A call to the service in progress.
pub type ServiceAdmission =
    Pin<Box<dyn Future<Output = Admission<Permit, QueuedAtService>> + Send>>;

impl ServiceEnforcer {
    /// An enforcer that asks the service of `client`; concurrency limits are left out.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            permits: false,
            levels: None,
        }
    }

    /// Includes concurrency limits: each request becomes an `acquire`, which the service must
    /// permit this caller (`callers`), and a second call releases the permit.
    #[must_use]
    pub fn with_permits(self) -> Self {
        Self {
            permits: true,
            ..self
        }
    }

    /// Includes service levels: the rules of `limiter` determine the service level of a request,
    /// and the service, which needs the same rules, counts and decides. Without this, service
    /// levels are ignored. If the rules of `limiter` have a single domain, that is the default.
    #[must_use]
    pub fn with_levels_of(self, limiter: Arc<dyn LocalLimiter>) -> Self {
        Self {
            levels: Some(limiter),
            ..self
        }
    }

    /// The client, for example for its counters.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Asks the service. Returns none if the service cannot decide the request because of its
    /// content: callers influence that content, so the fallback must not apply, or it would be a
    /// way around the limits.
    async fn answer(&self, question: &CheckRequest) -> Option<(CheckAnswer, Option<Permit>)> {
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
        match answer {
            Ok(answer) => Some(answer),
            Err(Error::Invalid(_)) => None,
            // The service does not know this caller, or not this method. That is a fault of the
            // setup, for which the limited clients must not suffer.
            Err(_) => Some((self.client.0.fall_back(question), None)),
        }
    }
}

impl Enforcer for ServiceEnforcer {
    type Permit = Permit;
    type Queued = QueuedAtService;
    type Future = ServiceAdmission;

    /// The service has the rules; only its service levels are known here.
    fn with_rules<T>(&self, read: impl FnOnce(&RuleSet) -> T) -> T {
        static NONE: LazyLock<RuleSet> = LazyLock::new(RuleSet::default);
        match &self.levels {
            None => read(&NONE),
            Some(limiter) => read(limiter.snapshot().rules()),
        }
    }

    fn shed_rules(&self) -> Option<Arc<ShedRules>> {
        self.levels.as_ref()?.snapshot().shed().cloned()
    }

    fn tenant_hash(&self, key: &str, name: &str) -> Option<u64> {
        let levels = self.levels.as_ref()?;
        Some(levels.snapshot().tenant_hash(key, name))
    }

    fn ask(&self, check: &Check<'_>, terms: EnforceOptions) -> AnswerOf<Self> {
        let question = CheckRequest::of(check);
        let observer = check.observer.clone();
        let service = self.clone();
        tower::Answer::Pending(Box::pin(async move {
            match service.answer(&question).await {
                Some((answer, permit)) => {
                    if let Some(observer) = observer {
                        observer.decided_by_service(&observed(&answer));
                    }
                    admission(answer, permit, terms, &question.domain)
                }
                None => undecided(),
            }
        }))
    }

    fn at_turn(&self, queued: QueuedAtService) -> AnswerOf<Self> {
        tower::Answer::Decided(*queued.0)
    }
}

/// The answer as a trace has it.
fn observed(answer: &CheckAnswer) -> ServiceDecision<'_> {
    ServiceDecision {
        allowed: answer.allowed,
        degraded: answer.degraded,
        limit: answer.limit.as_ref(),
    }
}

fn admission(
    mut answer: CheckAnswer,
    permit: Option<Permit>,
    terms: EnforceOptions,
    domain: &str,
) -> Admission<Permit, QueuedAtService> {
    let told = answer.status.take();
    let is_told = told.is_some();
    let mut limits = told.map_or_else(|| uncounted(&answer), |told| *told);
    // A service of an older version does not know `wait_max`.
    if answer.allowed && answer.delay > terms.wait_max {
        limits.deny_for(answer.delay - terms.wait_max);
    }
    let headers = terms.headers.lines(&limits);
    let is_to_wait = limits.allowed && !answer.delay.is_zero();
    let degraded = limits.degraded;
    let verdict = match limits.allowed {
        true => AdmissionVerdict::Pass(permit),
        false if is_told => AdmissionVerdict::Deny(Box::new(Denial::new(limits, domain))),
        false => AdmissionVerdict::Unavailable,
    };
    let admission = Admission {
        headers,
        degraded,
        verdict,
        undo: None,
        payment: None,
    };
    if !is_to_wait {
        return admission;
    }
    let turn = Turn {
        after: answer.delay,
        ..Turn::default()
    };
    Admission::waiting(turn, QueuedAtService(Box::new(admission)))
}

/// The admission of a request that cannot be decided.
fn undecided() -> Admission<Permit, QueuedAtService> {
    Admission {
        headers: HeaderLines::new(),
        degraded: false,
        verdict: AdmissionVerdict::Unavailable,
        undo: None,
        payment: None,
    }
}

/// The limits' state where nothing was counted: the fallback decided, or nothing was, because the request cannot be read.
fn uncounted(answer: &CheckAnswer) -> RequestStatus<'static> {
    RequestStatus {
        allowed: answer.allowed,
        degraded: answer.degraded,
        at: now(),
        quotas: [].into_iter().collect(),
        binding: None,
        scope: None,
    }
}

/// The wall clock of this host, only to turn time spans into dates.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Timestamp::from_micros(Micros::from(since.unwrap_or_default()).get())
}
