//! The answer to checks while the service is away.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper::limiter::{LimitStatus, Ruling, Snapshot};
use ratekeeper::store::{Answer, Store};
use ratekeeper::tower::answer::RequestStatus;
use ratekeeper::{Check, Limiter, Timestamp};

use crate::{CheckAnswer, CheckRequest};

/// The answer to checks while the service is away.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum FallbackPolicy {
    /// Checks pass.
    #[default]
    Allow,
    /// Checks are denied.
    Deny,
    /// This process decides with its own rules and counters, as if each process had the limits for
    /// itself.
    Local(Arc<dyn LocalLimiter>),
}

impl fmt::Debug for FallbackPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "Allow",
            Self::Deny => "Deny",
            Self::Local(_) => "Local(..)",
        })
    }
}

impl FallbackPolicy {
    /// The answer to `question`, marked as degraded.
    pub(crate) fn answer(&self, question: &CheckRequest) -> CheckAnswer {
        match self {
            Self::Allow => plain(true),
            Self::Deny => plain(false),
            Self::Local(limiter) => limiter.answer(question),
        }
    }
}

/// A limiter of this process, whatever keeps its counters.
pub trait LocalLimiter: fmt::Debug + Send + Sync {
    /// The rules in force.
    fn snapshot(&self) -> Arc<Snapshot>;

    /// The answer to `question` by its own rules and counters, marked as degraded. A store that does not answer at
    /// once is not waited for: the check passes.
    fn answer(&self, question: &CheckRequest) -> CheckAnswer;
}

impl<S: Store + fmt::Debug> LocalLimiter for Limiter<S> {
    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot())
    }

    fn answer(&self, question: &CheckRequest) -> CheckAnswer {
        local(self, question)
    }
}

fn plain(allowed: bool) -> CheckAnswer {
    CheckAnswer {
        allowed,
        limit: None,
        delay: Duration::ZERO,
        degraded: true,
        status: None,
    }
}

fn local<S: Store>(limiter: &Limiter<S>, question: &CheckRequest) -> CheckAnswer {
    let mut check = Check::new(&question.domain);
    check.waiting = question.waiting();
    for descriptor in &question.descriptors {
        let entries = descriptor.entries.iter();
        let terms = check.push(entries.map(|entry| (&*entry.key, &*entry.value)));
        terms.domain = Some(&*descriptor.domain).filter(|domain| !domain.is_empty());
        terms.hits = i64::try_from(descriptor.hits.unwrap_or(1)).unwrap_or(i64::MAX);
    }
    let now = limiter.clock().now();
    match limiter.ask(&check, now, |ruling| told(ruling, question, now)) {
        Answer::Decided(answer) => answer,
        Answer::Pending(_) => plain(true),
    }
}

fn told(ruling: &Ruling<'_>, question: &CheckRequest, now: Timestamp) -> CheckAnswer {
    let decision = ruling.decision;
    let status = question.with_status.then(|| {
        let status = RequestStatus::of(&ruling.policies(), decision, ruling.descriptors, now);
        Box::new(RequestStatus {
            degraded: true,
            ..status.into_owned()
        })
    });
    CheckAnswer {
        allowed: decision.allowed(),
        limit: decision.limit_status().map(LimitStatus::into_owned),
        delay: decision.delay().into(),
        degraded: true,
        status,
    }
}
