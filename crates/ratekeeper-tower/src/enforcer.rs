//! Who decides: a limiter in this process, or a service elsewhere.

use std::future::Future;
use std::time::Duration;

use ratekeeper_http::answer::{Denial, HeaderLines, Headers};
use ratekeeper_limiter::Check;
use ratekeeper_rules::RuleSet;
use ratekeeper_store::{Answer, CounterKey};

/// Decides requests, and holds what they take until they have ended.
///
/// A [`Limiter`](ratekeeper_limiter::Limiter) in an [`Arc`](std::sync::Arc) is one; `ratekeeper-client` has one that asks
/// a service.
pub trait Enforcer: Clone + Send + Sync + 'static {
    /// What a request holds until it has ended. Dropping it gives that back.
    type Permit: Send + Sync + 'static;
    /// What a request has while it waits for its turn. Dropping it gives that back, as far as others need not have
    /// gone by it.
    type Queued: Send + 'static;
    /// What is awaited where it cannot be decided at once. Dropping it gives back permits that may have been taken. A
    /// turn that nobody waits for is given back by a limiter in this process; what only windows count stays counted.
    type Asking: Future<Output = Admission<Self::Permit, Self::Queued>> + Send + 'static;

    /// Shows `read` the rules that are known here: service levels are found among them, and domains.
    fn with_rules<T>(&self, read: impl FnOnce(&RuleSet) -> T) -> T;

    /// Decides `check`, on `terms`.
    fn ask(&self, check: &Check<'_>, terms: Terms) -> AnswerOf<Self>;

    /// Decides what was put off until the turn of a request has come: whether there is room among the requests in
    /// flight, where those are limited. It is to wait no more.
    fn at_turn(&self, queued: Self::Queued) -> AnswerOf<Self>;
}

/// What an enforcer says of a request, at once or later.
pub type AnswerOf<E> = Answer<<E as Enforcer>::Asking, AdmissionOf<E>>;

/// What becomes of a request that an enforcer has decided.
pub type AdmissionOf<E> = Admission<<E as Enforcer>::Permit, <E as Enforcer>::Queued>;

/// What a request is decided on besides its limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// In which headers its client is told of them.
    pub headers: Headers,
    /// The longest that it can be held back: what would have to wait longer is denied.
    pub wait_max: Duration,
}

/// What is to become of a request.
#[derive(Debug)]
pub struct Admission<P, Q> {
    /// The headers that tell its client of its limits, on whatever answer it gets. None of one that waits: what is told
    /// then is settled when its turn comes.
    pub headers: HeaderLines,
    /// Whether it may pass.
    pub verdict: Verdict<P, Q>,
    /// Whether some limit was answered without being counted where it belongs.
    pub degraded: bool,
}

impl<P, Q> Admission<P, Q> {
    /// Of a request that is to wait for `turn`.
    #[must_use]
    pub const fn waiting(turn: Turn, queued: Q) -> Self {
        Self {
            headers: HeaderLines::new(),
            verdict: Verdict::Wait(turn, queued),
            degraded: false,
        }
    }
}

/// Whether a request may pass.
#[derive(Debug)]
pub enum Verdict<P, Q> {
    /// It may, and holds this until it has ended.
    Pass(Option<P>),
    /// It is to wait for its turn, and then to be [asked about](Enforcer::at_turn) again.
    Wait(Turn, Q),
    /// It is over a limit.
    Deny(Box<Denial>),
    /// Nobody could decide, and it is not let pass for that.
    Unavailable,
}

/// When a request may go that a leaky bucket holds back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Turn {
    /// In how long; zero if at once.
    pub after: Duration,
    /// The counter of the bucket, where it is known: requests that wait here for the same one leave one by one.
    pub bucket: Option<CounterKey>,
    /// How long after it the next one of the same bucket may go.
    pub span: Duration,
}
