//! The client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper_proto::ratekeeper::v1;
use tonic::{Code, Status};

use crate::authorization::Authorization;
use crate::budget::Budget;
use crate::calls::{Calls, Repeat, Stub};
use crate::channel::endpoints;
use crate::error::has_no_rules;
use crate::health::{ServiceHealth, Trouble};
use crate::pool::Pool;
use crate::question::limit_status;
use crate::unsettled::{self, ReleaseTasks, Unsettled};
use crate::{
    CheckAnswer, CheckRequest, ClientCounts, Config, ConfigError, Error, FallbackPolicy, Peek,
    Permit, Refund, Reservation, Reserved, Settled, ToReserve,
};

/// A client. Clones share its connections, budget and counts.
#[derive(Clone, Debug)]
pub struct Client(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) calls: Calls,
    /// Bounds the tasks that release permits whose answers were lost.
    pub(crate) release_tasks: ReleaseTasks,
    fallback: FallbackPolicy,
    degraded: AtomicU64,
    refused: AtomicU64,
    health: ServiceHealth,
}

/// The result of an acquire.
#[derive(Debug)]
pub struct Acquired {
    /// The decision.
    pub answer: CheckAnswer,
    /// The permit; none if the request was denied, no concurrency limit applies to it, or the
    /// service is away.
    pub permit: Option<Permit>,
}

impl Client {
    /// Creates a client. It connects on first use, and again after a connection is lost. Reads the files that `config`
    /// names, and blocks for that time.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        if config.deadline.is_zero() {
            return Err(ConfigError::Deadline);
        }
        let pool = Pool::new(endpoints(&config)?, config.connections);
        let calls = Calls::new(
            pool.ok_or(ConfigError::NoEndpoint)?,
            Authorization::new(&config)?,
            config.deadline,
            Budget::new(config.retries),
        );
        Ok(Self(Arc::new(Inner {
            calls,
            release_tasks: ReleaseTasks::default(),
            fallback: config.fallback,
            degraded: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            health: ServiceHealth::new(),
        })))
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn counts(&self) -> ClientCounts {
        let calls = &self.0.calls;
        // Relaxed: the counts are independent.
        ClientCounts {
            calls: calls.made.load(Ordering::Relaxed),
            retries: calls.retried.load(Ordering::Relaxed),
            held_back: calls.throttle.held_back.load(Ordering::Relaxed),
            fallbacks: self.0.degraded.load(Ordering::Relaxed),
            refused: self.0.refused.load(Ordering::Relaxed),
        }
    }

    /// Returns true if the service did not answer the last check, acquire or reserve.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.trouble() == Some(Trouble::Away)
    }

    /// The reason why the [`FallbackPolicy`] decides; none if the service answered the last check,
    /// acquire or reserve.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble> {
        self.0.health.trouble()
    }

    /// Each service by its endpoint; true if it answers, as far as is known.
    #[must_use]
    pub fn services(&self) -> Vec<(String, bool)> {
        self.0.calls.pool.up()
    }

    /// Decides a request. While the service is away, the [`FallbackPolicy`] answers, and the answer is
    /// marked as degraded.
    ///
    /// # Errors
    /// The service refuses the request or the caller; retrying does not help.
    pub async fn check(&self, question: &CheckRequest) -> Result<CheckAnswer, Error> {
        let call = |mut stub: Stub, request| {
            let request = question.traced(request);
            async move { stub.check(request).await }
        };
        let answer = self
            .0
            .calls
            .ask(&question.check(), Repeat::Charged, call)
            .await;
        self.0.or_fallback(answer.map(CheckAnswer::from), || {
            self.0.fallback.answer(question)
        })
    }

    /// Decides up to 1,000 independent requests, in order, in one message of at most 4 MiB.
    ///
    /// # Errors
    /// As for [`Self::check`]; no request was decided then.
    pub async fn check_batch(&self, questions: &[CheckRequest]) -> Result<Vec<CheckAnswer>, Error> {
        if questions.is_empty() {
            return Ok(Vec::new());
        }
        let checks = questions.iter().map(CheckRequest::check).collect();
        let call = async |mut stub: Stub, request| stub.check_batch(request).await;
        let message = v1::CheckBatchRequest { checks };
        let answer = self.0.calls.ask(&message, Repeat::Charged, call).await;
        let read = |(answer, question)| self.0.read(answer, question);
        let answers = answer.map(|answer| answer.results.into_iter().zip(questions).map(read));
        let answers = answers.map(Iterator::collect);
        let fallback = |question| self.0.fallback.answer(question);
        self.0
            .or_fallback(answers, || questions.iter().map(fallback).collect())
    }

    /// Returns the state of a request's limits. Takes nothing.
    ///
    /// # Errors
    /// Any; the fallback does not apply, since nothing is decided.
    pub async fn peek(&self, question: &CheckRequest) -> Result<Peek, Error> {
        let message = v1::PeekRequest {
            domain: question.domain.clone(),
            descriptors: question.descriptors.clone(),
            wait_ms_max: question.wait_ms_max,
        };
        let call = async |mut stub: Stub, request| stub.peek(request).await;
        let answer = self.0.calls.call(&message, Repeat::Harmless, call).await?;
        Ok(Peek {
            would_allow: answer.decision() == v1::Decision::Allow,
            degraded: answer.degraded,
            limit: answer.limit.map(limit_status),
        })
    }

    /// Decides a request, concurrency limits included, and holds permits of those until dropped.
    /// While the service is away, the [`FallbackPolicy`] answers and nothing is held. Permits that the
    /// service granted in an answer that came late, or that the caller no longer waits for, are
    /// released in the background. Rate limits stay charged.
    ///
    /// # Errors
    /// As for [`Self::check`].
    pub async fn acquire(&self, question: &CheckRequest) -> Result<Acquired, Error> {
        let message = v1::AcquireRequest {
            domain: question.domain.clone(),
            descriptors: question.descriptors.clone(),
            idempotency_key: unsettled::new_key(),
            wait_ms_max: question.wait_ms_max,
            standing: question.with_status,
        };
        let answer = self.0.take_permit(question, message).await;
        let held = |answer: v1::AcquireResponse| {
            let left = Duration::from_millis(answer.expires_after_ms);
            let decision = answer.decision();
            let permit = Some(answer.permit).filter(|token| !token.is_empty());
            Acquired {
                answer: CheckAnswer::new(decision, answer.limit, answer.delay_ms, answer.degraded)
                    .told(answer.standing),
                permit: permit.map(|token| Permit::new(self, token, left)),
            }
        };
        self.0.or_fallback(answer.map(held), || Acquired {
            answer: self.0.fallback.answer(question),
            permit: None,
        })
    }

    /// Takes the most that a request may cost. While the service is away, the [`FallbackPolicy`] answers
    /// (a local one takes the hits), and there is nothing to settle.
    ///
    /// # Errors
    /// As for [`Self::check`].
    pub async fn reserve(&self, reserve: &ToReserve) -> Result<Reserved, Error> {
        let question = &reserve.question;
        let ttl_ms = reserve.ttl.map_or(0, |ttl| {
            u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1)
        });
        let message = v1::ReserveRequest {
            domain: question.domain.clone(),
            descriptors: question.descriptors.clone(),
            hits: reserve.hits,
            ttl_ms,
            idempotency_key: reserve.idempotency_key.clone().unwrap_or_default(),
            wait_ms_max: question.wait_ms_max,
        };
        let repeat = match message.idempotency_key.is_empty() {
            true => Repeat::Charged,
            false => Repeat::Harmless,
        };
        let call = async |mut stub: Stub, request| stub.reserve(request).await;
        let answer = self.0.calls.ask(&message, repeat, call).await;
        let reserved = |answer: v1::ReserveResponse| {
            let expires_after = Duration::from_millis(answer.expires_after_ms);
            let decision = answer.decision();
            let token = Some(answer.reservation).filter(|token| !token.is_empty());
            Reserved {
                answer: CheckAnswer::new(decision, answer.limit, answer.delay_ms, answer.degraded),
                reservation: token.map(|token| Reservation {
                    token,
                    expires_after,
                }),
            }
        };
        self.0.or_fallback(answer.map(reserved), || {
            let mut costly = question.clone();
            for descriptor in &mut costly.descriptors {
                descriptor.hits.get_or_insert(reserve.hits);
            }
            Reserved {
                answer: self.0.fallback.answer(&costly),
                reservation: None,
            }
        })
    }

    /// Settles a reservation: charges `hits` and gives back the rest. Repeating it has no effect.
    ///
    /// # Errors
    /// Any; a reservation that is not settled in time stays charged in full.
    pub async fn commit(&self, reservation: &Reservation, hits: u64) -> Result<Settled, Error> {
        let message = v1::CommitRequest {
            reservation: reservation.token.clone(),
            hits,
        };
        let call = async |mut stub: Stub, request| stub.commit(request).await;
        let answer = self.0.calls.call(&message, Repeat::Harmless, call).await?;
        Ok(Settled {
            given_back: answer.given_back,
            limits: answer.limits,
            is_repeat: answer.repeated_before,
        })
    }

    /// Gives back all reserved hits. Repeating it has no effect.
    ///
    /// # Errors
    /// As for [`Self::commit`].
    pub async fn cancel(&self, reservation: &Reservation) -> Result<Settled, Error> {
        let message = v1::CancelRequest {
            reservation: reservation.token.clone(),
        };
        let call = async |mut stub: Stub, request| stub.cancel(request).await;
        let answer = self.0.calls.call(&message, Repeat::Harmless, call).await?;
        Ok(Settled {
            given_back: answer.given_back,
            limits: answer.limits,
            is_repeat: answer.repeated_before,
        })
    }

    /// Gives back the hits of the question's descriptors, as far as they still count. With a key
    /// this happens once in five minutes, and the call may be retried.
    ///
    /// # Errors
    /// Any.
    pub async fn refund(
        &self,
        question: &CheckRequest,
        key: Option<&str>,
    ) -> Result<Refund, Error> {
        let message = v1::RefundRequest {
            domain: question.domain.clone(),
            descriptors: question.descriptors.clone(),
            idempotency_key: key.unwrap_or_default().to_owned(),
        };
        let repeat = match message.idempotency_key.is_empty() {
            true => Repeat::Charged,
            false => Repeat::Harmless,
        };
        let call = async |mut stub: Stub, request| stub.refund(request).await;
        let answer = self.0.calls.call(&message, repeat, call).await?;
        Ok(Refund {
            limit: answer.limit.map(limit_status),
        })
    }
}

impl Inner {
    /// Returns the service's answer, or the fallback's if the service is away.
    fn or_fallback<T>(
        &self,
        answer: Result<T, Status>,
        fallback: impl FnOnce() -> T,
    ) -> Result<T, Error> {
        if let Err(status) = &answer
            && has_no_rules(status)
        {
            self.health.refused(status.message());
            self.degraded.fetch_add(1, Ordering::Relaxed);
            return Ok(fallback());
        }
        match answer.map_err(Error::from) {
            Err(Error::Away(why)) => {
                self.health.failed(Trouble::Away, &why);
                self.degraded.fetch_add(1, Ordering::Relaxed);
                Ok(fallback())
            }
            Ok(answer) => {
                self.health.answered();
                Ok(answer)
            }
            // The service is up; only this request is at fault.
            Err(Error::Invalid(why)) => {
                self.health.refused(&why);
                self.refused.fetch_add(1, Ordering::Relaxed);
                Err(Error::Invalid(why))
            }
            Err(refusal) => {
                self.health.failed(Trouble::Refuses, &refusal.to_string());
                Err(refusal)
            }
        }
    }

    /// The service's answer to a question of a batch, or the fallback's if there are no rules for it.
    fn read(&self, answer: v1::CheckResponse, question: &CheckRequest) -> CheckAnswer {
        if answer.degraded && !answer.unreadable.is_empty() {
            self.health.refused(&answer.unreadable);
            return self.fall_back(question);
        }
        CheckAnswer::from(answer)
    }

    /// The fallback's answer to a question that the service did not answer.
    pub(crate) fn fall_back(&self, question: &CheckRequest) -> CheckAnswer {
        self.degraded.fetch_add(1, Ordering::Relaxed);
        self.fallback.answer(question)
    }

    /// Acquires permits, and makes sure that none stays held without an owner.
    async fn take_permit(
        self: &Arc<Self>,
        question: &CheckRequest,
        message: v1::AcquireRequest,
    ) -> Result<v1::AcquireResponse, Status> {
        let call = |mut stub: Stub, request| {
            let request = question.traced(request);
            async move { stub.acquire(request).await }
        };
        self.calls.throttle.pass()?;
        let end = self.calls.deadline();
        let unsettled = Unsettled::new(self, message);
        // Retried only if it was certainly not executed, so the last status speaks for all attempts.
        let message = unsettled.message();
        let answer = self
            .calls
            .call_until(end, message, Repeat::Charged, call)
            .await;
        match answer {
            Err(status) if status.code() == Code::ResourceExhausted => {
                // The service has no room for the key: a permit matters more than a key.
                let mut message = unsettled.settle();
                message.idempotency_key.clear();
                self.calls
                    .call_until(end, &message, Repeat::Charged, call)
                    .await
            }
            Err(status) if unsettled::is_ambiguous(&status) => Err(status),
            answer => {
                unsettled.settle();
                answer
            }
        }
    }

    pub(crate) async fn release(&self, token: &str) -> Result<bool, Error> {
        let message = v1::ReleaseRequest {
            permit: token.to_owned(),
        };
        let call = async |mut stub: Stub, request| stub.release(request).await;
        let answer = self.calls.call(&message, Repeat::Harmless, call).await?;
        Ok(answer.was_held)
    }

    pub(crate) async fn renew(&self, token: &str) -> Result<Duration, Error> {
        let message = v1::RenewRequest {
            permit: token.to_owned(),
        };
        let call = async |mut stub: Stub, request| stub.renew(request).await;
        let answer = self.calls.call(&message, Repeat::Harmless, call).await?;
        Ok(Duration::from_millis(answer.expires_after_ms))
    }
}
