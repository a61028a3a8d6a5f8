//! One call to a service: its deadline and its retries.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prost::Message;
use ratekeeper_proto::MESSAGE_BYTES_MAX;
use ratekeeper_proto::ratekeeper::v1::rate_limiter_service_client::RateLimiterServiceClient;
use tokio::time::{Instant, timeout_at};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use crate::authorization::Authorization;
use crate::budget::Budget;
use crate::error::{may_pass_later, was_not_carried_out};
use crate::pool::Pool;
use crate::throttle::Throttle;

/// The generated gRPC client, cloned for each call.
pub(crate) type Stub = RateLimiterServiceClient<Channel>;

/// The pause before a retry; short, because deadlines are.
const PAUSE: Duration = Duration::from_millis(1);

/// The longest deadline: an instant far beyond it cannot be told, and neither can gRPC.
const DEADLINE_MAX: Duration = Duration::from_secs(365 * 24 * 3_600);

/// The effect of executing a call twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repeat {
    /// None: the call may be retried freely.
    Harmless,
    /// The hits would be charged twice.
    Charged,
}

/// The state that all calls share.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) pool: Pool,
    authorization: Authorization,
    deadline: Duration,
    budget: Budget,
    pub(crate) throttle: Throttle,
    pub(crate) made: AtomicU64,
    pub(crate) retried: AtomicU64,
}

impl Calls {
    pub(crate) fn new(
        pool: Pool,
        authorization: Authorization,
        deadline: Duration,
        budget: Budget,
    ) -> Self {
        Self {
            pool,
            authorization,
            deadline: deadline.min(DEADLINE_MAX),
            budget,
            throttle: Throttle::new(),
            made: AtomicU64::new(0),
            retried: AtomicU64::new(0),
        }
    }

    /// Sends `message` with `send`. Retries if that is certain to do no harm, the budget allows it,
    /// and the deadline leaves time.
    pub(crate) async fn call<M, A, F>(
        &self,
        message: &M,
        repeat: Repeat,
        send: impl Fn(Stub, Request<M>) -> F,
    ) -> Result<A, Status>
    where
        M: Message + Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        self.call_until(self.deadline(), message, repeat, send)
            .await
    }

    /// As [`Self::call`], for questions: one is not sent if the service refuses too many.
    pub(crate) async fn ask<M, A, F>(
        &self,
        message: &M,
        repeat: Repeat,
        send: impl Fn(Stub, Request<M>) -> F,
    ) -> Result<A, Status>
    where
        M: Message + Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        self.throttle.pass()?;
        self.call(message, repeat, send).await
    }

    /// The deadline of a call that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// As [`Self::call`], with `end` as the deadline.
    pub(crate) async fn call_until<M, A, F>(
        &self,
        end: Instant,
        message: &M,
        repeat: Repeat,
        send: impl Fn(Stub, Request<M>) -> F,
    ) -> Result<A, Status>
    where
        M: Message + Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        // The service refuses larger messages, possibly before it has read them all. The broken
        // connection would then look like an outage, so the size is checked here.
        let size = message.encoded_len();
        if size > MESSAGE_BYTES_MAX {
            let why =
                format!("the request has {size} bytes, and at most {MESSAGE_BYTES_MAX} are read");
            return Err(Status::out_of_range(why));
        }
        // Relaxed: independent counts, here and below.
        self.made.fetch_add(1, Ordering::Relaxed);
        self.budget.earn();
        let mut is_renewed = false;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut request = Request::new(message.clone());
            request.set_timeout(left);
            let header = self.authorization.header();
            if let Some(value) = header.clone() {
                request.metadata_mut().insert("authorization", value);
            }
            let in_flight = self.pool.begin();
            let answer = timeout_at(end, send(in_flight.stub(), request)).await;
            let late = |_| Err(Status::deadline_exceeded("no answer within the deadline"));
            let answer = answer.unwrap_or_else(late);
            in_flight.finish(&answer);
            self.throttle.observe(&answer);
            drop(in_flight);
            let status = match answer {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => status,
            };
            // Refused before anything was decided. Once is enough: a renewed token that is unknown, too, stays so.
            if status.code() == Code::Unauthenticated
                && !std::mem::replace(&mut is_renewed, true)
                && self.authorization.is_renewed(header.as_ref())
            {
                continue;
            }
            let again = match repeat {
                Repeat::Harmless => may_pass_later(&status),
                Repeat::Charged => was_not_carried_out(&status),
            };
            if !again || Instant::now() + PAUSE >= end || !self.budget.spend() {
                return Err(status);
            }
            self.retried.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(PAUSE).await;
        }
    }
}
