//! The interface to the limiter: in this process, or a remote service.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ratekeeper_core::Timestamp;
use ratekeeper_http::answer::{Denial, HeaderLines, Headers};
use ratekeeper_limiter::Check;
use ratekeeper_rules::{RuleSet, ShedRules, secret};
use ratekeeper_store::{Answer, CounterKey, RuleSlot};

use crate::Payment;

/// Decides requests, and holds their permits until they have ended.
///
/// A [`Limiter`](ratekeeper_limiter::Limiter) in an [`Arc`](std::sync::Arc) is an enforcer;
/// `ratekeeper-client` has one that asks a service.
pub trait Enforcer: Clone + Send + Sync + 'static {
    /// The permit that a request holds until it has ended. Dropping it releases the permit.
    type Permit: Send + Sync + 'static;
    /// The state of a request that waits for its turn. Dropping it gives back the turn and its
    /// hits, unless other requests already depend on them.
    type Queued: Send + 'static;
    /// A pending decision. Dropping it releases permits that may have been granted. A limiter in
    /// this process also gives back what was reserved of budgets, and a turn that no request waits
    /// for; other hits counted by windows stay counted.
    type Future: Future<Output = Admission<Self::Permit, Self::Queued>> + Send + 'static;

    /// Calls `read` with the rules known here, in which service levels and domains are looked up.
    fn with_rules<T>(&self, read: impl FnOnce(&RuleSet) -> T) -> T;

    /// The load shedders in force; None if there are none.
    fn shed_rules(&self) -> Option<Arc<ShedRules>> {
        self.with_rules(|rules| rules.shed().cloned())
    }

    /// Returns `secret` as logs show it.
    fn fingerprint(&self, secret: &str) -> String {
        secret::fingerprint(secret)
    }

    /// A hash of the tenant with this key and name, if all nodes that share its limits have the same; else None. By it shedders
    /// choose whom they refuse first, so no one outside should be able to guess it.
    fn tenant_hash(&self, key: &str, name: &str) -> Option<u64> {
        let _ = (key, name);
        None
    }

    /// The time by which plans begin and end.
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let micros = since.unwrap_or_default().as_micros();
        Timestamp::from_micros(u64::try_from(micros).unwrap_or(0))
    }

    /// Decides `check` on `terms`.
    fn ask(&self, check: &Check<'_>, terms: EnforceOptions) -> AnswerOf<Self>;

    /// Decides the part that was deferred until the request's turn: the concurrency limits, if any.
    /// The request does not wait again.
    fn at_turn(&self, queued: Self::Queued) -> AnswerOf<Self>;
}

/// The answer of an enforcer, ready or pending.
pub type AnswerOf<E> = Answer<<E as Enforcer>::Future, AdmissionOf<E>>;

/// The admission type of an enforcer.
pub type AdmissionOf<E> = Admission<<E as Enforcer>::Permit, <E as Enforcer>::Queued>;

/// The terms on which a request is decided, besides its limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EnforceOptions {
    /// The headers that report limits to its client.
    pub headers: Headers,
    /// The longest delay: a request that would have to wait longer is denied.
    pub wait_max: Duration,
    /// True if the request may still be refused for overload, and should be able to [give back](Undo) what it took.
    pub may_be_shed: bool,
}

/// The decision on a request.
#[derive(Debug)]
pub struct Admission<P, Q> {
    /// The headers that report the limits to the client, for any response. Empty for a request that
    /// waits: its headers are determined at its turn.
    pub headers: HeaderLines,
    /// The verdict.
    pub verdict: AdmissionVerdict<P, Q>,
    /// True if a limit was answered without being counted in its store.
    pub degraded: bool,
    /// Gives back what the request took from its rate limits, if it [may be shed](EnforceOptions::may_be_shed) and the
    /// enforcer can.
    pub undo: Option<Undo>,
    /// Pays the budgets of the request once its cost is known, if the check was to [wait for
    /// that](ratekeeper_limiter::BudgetUse) and the enforcer can.
    pub payment: Option<Payment>,
}

/// Gives back what a request took from its rate limits. Dropped unused, the hits stay taken.
pub struct Undo(Box<dyn FnOnce() + Send + Sync>);

impl Undo {
    /// An undo that calls `give_back`.
    pub fn new(give_back: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Box::new(give_back))
    }

    /// Gives back.
    pub fn run(self) {
        (self.0)();
    }
}

impl std::fmt::Debug for Undo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Undo(..)")
    }
}

impl<P, Q> Admission<P, Q> {
    /// The admission of a request that waits for `turn`.
    #[must_use]
    pub const fn waiting(turn: Turn, queued: Q) -> Self {
        Self {
            headers: HeaderLines::new(),
            verdict: AdmissionVerdict::Wait(turn, queued),
            degraded: false,
            undo: None,
            payment: None,
        }
    }
}

/// The verdict on a request.
#[derive(Debug)]
pub enum AdmissionVerdict<P, Q> {
    /// It passes, and holds this permit until it has ended.
    Pass(Option<P>),
    /// It waits for its turn, and is then [decided](Enforcer::at_turn) again.
    Wait(Turn, Q),
    /// It is over a limit.
    Deny(Box<Denial>),
    /// It could not be decided, and must not pass undecided.
    Unavailable,
}

/// The turn of a request that a leaky bucket delays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Turn {
    /// Time until the turn; zero for at once.
    pub after: Duration,
    /// The bucket's counter, if known: requests that wait here for the same one leave one by one.
    pub bucket: Option<CounterKey>,
    /// The rule that made the bucket, if known: one rule gets only a share of the waiting places.
    pub rule: Option<RuleSlot>,
    /// The interval until the next request of the same bucket may go.
    pub span: Duration,
}
