//! Permits, reservations and refunds, for callers with the permission.

use ratekeeper_core::Micros;
use ratekeeper_limiter::{CallerHolds, HoldError, MAX_HITS, Reservation, Reserve, Settled};
use ratekeeper_stores::Stores;
use ratekeeper_trace::TracedMethod;
use serde::Serialize;
use utoipa::ToSchema;

use super::check::unread;
use super::{
    AcquireRequest, Api, CheckAnswer, HeldAnswer, RefundRequest, Refusal, ReserveRequest, Sender,
    Subject, require_rules,
};
use crate::access::callers::Power;
use crate::app::App;
use crate::logs::denials::CheckOrigin;

/// The most bytes of an idempotency key.
const KEY_BYTES_MAX: usize = 255;

/// The default time that a reservation may be open, in milliseconds.
const TTL_MS_DEFAULT: u64 = 60_000;

/// The longest time that a request may ask for.
const TTL_MS_MAX: u64 = 3_600_000;

/// The outcome of a release.
#[derive(Serialize, ToSchema, Debug)]
pub(crate) struct Released {
    pub(crate) was_held: bool,
}

/// A permit whose deadline was extended.
#[derive(Serialize, ToSchema, Debug)]
pub(crate) struct Renewed {
    pub(crate) expires_after_ms: u64,
}

/// The outcome of settling a reservation.
#[derive(Serialize, ToSchema, Debug)]
pub(crate) struct Settlement {
    pub(crate) given_back: u64,
    pub(crate) limits: usize,
    pub(crate) limits_gone: usize,
    pub(crate) repeated_before: bool,
}

/// The methods of a sender with the permission `hold`.
#[derive(Debug)]
pub(crate) struct Holder<'a> {
    app: &'a App,
    caller: CallerHolds<'a, Stores>,
    origin: CheckOrigin<'a>,
}

/// The method of a sender with the permission `refund`.
#[derive(Debug)]
pub(crate) struct Refunder<'a> {
    app: &'a App,
    caller: CallerHolds<'a, Stores>,
}

impl<'a, C: Sender> Api<'a, C> {
    /// Admits a sender to permits and reservations.
    pub(crate) fn holder(&self) -> Result<Holder<'a>, C::Error> {
        let name = self.sender.permit(Power::Hold)?;
        Ok(Holder {
            app: self.app,
            caller: self.app.limiter.caller(name),
            origin: self.sender.origin(),
        })
    }

    /// Admits a sender to refunds.
    pub(crate) fn refunder(&self) -> Result<Refunder<'a>, C::Error> {
        let name = self.sender.permit(Power::Refund)?;
        Ok(Refunder {
            app: self.app,
            caller: self.app.limiter.caller(name),
        })
    }
}

impl Holder<'_> {
    /// Decides, and takes a permit of each concurrency limit.
    pub(crate) async fn acquire<R>(
        &self,
        request: &AcquireRequest<'_>,
        read: impl FnOnce(&HeldAnswer<'_>) -> R,
    ) -> Result<R, Refusal> {
        let subject = Subject::new(&request.domain, &request.descriptors, request.wait_ms_max);
        if let Err(refusal) = subject.validate(format_args!("")) {
            return unread(self.app, refusal, |answer| {
                read(&HeldAnswer::nothing(answer))
            });
        }
        subject.refuse_overrides()?;
        let key = key(&request.idempotency_key)?;
        require_rules(self.app, subject.domains())?;
        let mut check = subject.check(1);
        check.observer = self.app.observer(TracedMethod::Acquire, self.origin);
        let now = self.app.limiter.clock().now();
        let acquired = self.caller.acquire(&check, key).await;
        let acquired = acquired.map_err(Refusal::of_hold("idempotency_key"))?;
        let descriptors = check.descriptors();
        self.app
            .record(&acquired.decision, descriptors, self.origin, now);
        let mut answer = CheckAnswer::charged(&acquired.decision);
        if request.standing {
            answer = answer.with_limits(&acquired.policies, descriptors, now);
        }
        let permit = acquired.permit.as_ref();
        Ok(read(&HeldAnswer {
            permit: permit.map(|permit| &*permit.token),
            expires_after_ms: permit.map(|permit| permit.expires_after.as_millis_ceil()),
            repeated_before: acquired.is_repeat,
            ..HeldAnswer::nothing(answer)
        }))
    }

    /// Gives a permit back.
    pub(crate) async fn release(&self, permit: &str) -> Result<Released, Refusal> {
        let released = self.caller.release(permit).await;
        let was_held = released.map_err(Refusal::of_hold("permit"))?.was_held;
        Ok(Released { was_held })
    }

    /// Extends a permit's deadline.
    pub(crate) async fn renew(&self, permit: &str) -> Result<Renewed, Refusal> {
        let held = self.caller.renew(permit).await;
        let expires_after = held.map_err(Refusal::of_hold("permit"))?.expires_after;
        Ok(Renewed {
            expires_after_ms: expires_after.as_millis_ceil(),
        })
    }

    /// Charges the most that a request may turn out to cost.
    pub(crate) async fn reserve<R>(
        &self,
        request: &ReserveRequest<'_>,
        read: impl FnOnce(&HeldAnswer<'_>) -> R,
    ) -> Result<R, Refusal> {
        let subject = Subject::new(&request.domain, &request.descriptors, request.wait_ms_max);
        if let Err(refusal) = subject.validate(format_args!("")) {
            return unread(self.app, refusal, |answer| {
                read(&HeldAnswer::nothing(answer))
            });
        }
        subject.refuse_overrides()?;
        let hits = reserved_hits(request.hits)?;
        let ttl = ttl(request.ttl_ms)?;
        let key = key(&request.idempotency_key)?;
        require_rules(self.app, subject.domains())?;
        let mut check = subject.check(hits);
        check.observer = self.app.observer(TracedMethod::Reserve, self.origin);
        let reserve = Reserve {
            hits: request.hits,
            fixed: &subject.own_hits(),
            ttl,
            key,
        };
        let now = self.app.limiter.clock().now();
        let reserved = self.caller.reserve(&check, &reserve).await;
        let reserved = reserved.map_err(Refusal::of_hold("idempotency_key"))?;
        self.app
            .record(&reserved.decision, check.descriptors(), self.origin, now);
        let reservation = reserved.reservation.as_ref();
        let left = |reservation: &Reservation| reservation.expires_after.as_millis_ceil();
        Ok(read(&HeldAnswer {
            reservation: reservation.map(|reservation| &*reservation.token),
            expires_after_ms: reservation.map(left),
            repeated_before: reserved.is_repeat,
            ..HeldAnswer::nothing(CheckAnswer::charged(&reserved.decision))
        }))
    }

    /// Charges the actual cost of a reservation, and gives the rest back.
    pub(crate) async fn commit(&self, reservation: &str, hits: u64) -> Result<Settlement, Refusal> {
        let settled = self.caller.commit(reservation, hits).await;
        settlement(settled)
    }

    /// Gives back everything that was reserved.
    pub(crate) async fn cancel(&self, reservation: &str) -> Result<Settlement, Refusal> {
        let settled = self.caller.cancel(reservation).await;
        settlement(settled)
    }
}

impl Refunder<'_> {
    /// Gives back hits that were not reserved.
    pub(crate) async fn refund<R>(
        &self,
        request: &RefundRequest<'_>,
        read: impl FnOnce(&CheckAnswer<'_>) -> R,
    ) -> Result<R, Refusal> {
        let subject = Subject::new(&request.domain, &request.descriptors, None);
        subject.validate(format_args!(""))?;
        subject.refuse_overrides()?;
        subject.refuse_zero_hits()?;
        let key = key(&request.idempotency_key)?;
        require_rules(self.app, subject.domains())?;
        let decision = self.caller.refund(&subject.check(1), key).await;
        let decision = decision.map_err(Refusal::of_hold("idempotency_key"))?;
        Ok(read(&CheckAnswer::peeked(&decision, decision.allowed())))
    }
}

/// Returns the idempotency key, if there is one.
fn key(key: &str) -> Result<Option<&str>, Refusal> {
    let key = bounded(key)?;
    Ok((!key.is_empty()).then_some(key))
}

/// Refuses an idempotency key that is too long.
pub(super) fn bounded(key: &str) -> Result<&str, Refusal> {
    if key.len() > KEY_BYTES_MAX {
        let message = format!("at most {KEY_BYTES_MAX} bytes");
        return Err(Refusal::invalid("idempotency_key", message));
    }
    Ok(key)
}

/// Converts the time that a reservation may be open; 0 is the default.
fn ttl(millis: u64) -> Result<Micros, Refusal> {
    let millis = match millis {
        0 => TTL_MS_DEFAULT,
        millis => millis,
    };
    if millis > TTL_MS_MAX {
        let message = format!("at most {TTL_MS_MAX}, which is an hour");
        return Err(Refusal::invalid("ttl_ms", message));
    }
    Ok(Micros::from_millis(millis))
}

/// Checks the number of hits to reserve.
fn reserved_hits(hits: u64) -> Result<i64, Refusal> {
    let valid = i64::try_from(hits)
        .ok()
        .filter(|hits| (1..=MAX_HITS).contains(hits));
    valid.ok_or_else(|| Refusal::invalid("hits", "expected 1 to 9007199254740991 (2^53 - 1)"))
}

fn settlement(settled: Result<Settled, HoldError>) -> Result<Settlement, Refusal> {
    let settled = settled.map_err(Refusal::of_hold("reservation"))?;
    Ok(Settlement {
        given_back: settled.given_back,
        limits: settled.limits,
        limits_gone: settled.limits_gone,
        repeated_before: settled.is_repeat,
    })
}
