//! `ratekeeper.v1`, our own protocol over gRPC; and what it refuses, which JSON refuses as well.

mod answer;
mod batch;
mod question;
mod room;
mod service;
mod stream;

use ratekeeper_core::Micros;
use ratekeeper_limiter::{HoldError, MAX_HITS, Waiting};
use tonic::Status;

use crate::callers::Denied;
use crate::http::NoRoom;

pub(crate) use room::hold_room;
pub(crate) use service::Service;

/// The most checks in one message or body.
const CHECKS_MAX: usize = 1_000;

/// The most bytes of an idempotency key.
pub(crate) const KEY_BYTES_MAX: usize = 255;

/// The default time that a reservation may be open, in milliseconds.
const TTL_MS_DEFAULT: u64 = 60_000;

/// The longest that anybody may say.
const TTL_MS_MAX: u64 = 3_600_000;

/// The reason a request was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    /// The path of what is wrong; empty if it is nothing in the request.
    pub(crate) field: String,
    pub(crate) message: String,
}

/// The kind of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// The request makes no sense.
    Invalid,
    /// The sender is not known.
    Unauthenticated,
    /// The sender lacks the permission.
    Forbidden,
    /// The permit, reservation or key is in another state.
    State(&'static str),
    /// There is no room to remember what is to be done once.
    NoRoom,
    /// Not now.
    Unavailable,
}

impl Refusal {
    pub(crate) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            reason: Reason::Invalid,
            field: field.into(),
            message: message.into(),
        }
    }

    pub(crate) fn no_rules() -> Self {
        Self {
            reason: Reason::Unavailable,
            field: String::new(),
            message: "no rules are loaded; see /readyz".to_owned(),
        }
    }

    /// Turns the error of a permit, a reservation or a key, given in `field`, into a refusal.
    pub(crate) fn of_hold(field: &'static str) -> impl Fn(HoldError) -> Self {
        move |error| {
            let (reason, field) = match error {
                HoldError::Malformed | HoldError::WrongKind(_) => (Reason::Invalid, field),
                HoldError::TooMuch(_) => (Reason::Invalid, "hits"),
                HoldError::TooManyLimits => (Reason::Invalid, "descriptors"),
                HoldError::Foreign => (Reason::Forbidden, field),
                HoldError::NotHeld | HoldError::KeySpent => (Reason::State("NOT_HELD"), field),
                HoldError::Expired => (Reason::State("EXPIRED"), field),
                HoldError::Conflict(_) => (Reason::State("CONFLICT"), field),
                HoldError::Forgotten => (Reason::State("FORGOTTEN"), field),
                HoldError::NoRoom => (Reason::NoRoom, ""),
                _ => (Reason::Unavailable, ""),
            };
            Self {
                reason,
                field: field.to_owned(),
                message: error.to_string(),
            }
        }
    }
}

impl From<NoRoom> for Refusal {
    fn from(_: NoRoom) -> Self {
        Self {
            reason: Reason::Unavailable,
            field: String::new(),
            message: NoRoom::MESSAGE.to_owned(),
        }
    }
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        let (reason, message) = match denied {
            Denied::Unknown(message) => (Reason::Unauthenticated, message.to_owned()),
            Denied::Forbidden(message) => (Reason::Forbidden, message),
        };
        Self {
            reason,
            field: String::new(),
            message,
        }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let Refusal {
            reason,
            field,
            message,
        } = refusal;
        let message = match field.is_empty() {
            true => message,
            false => format!("{field}: {message}"),
        };
        match reason {
            Reason::Invalid => Self::invalid_argument(message),
            Reason::Unauthenticated => Self::unauthenticated(message),
            Reason::Forbidden => Self::permission_denied(message),
            Reason::State(_) => Self::failed_precondition(message),
            Reason::NoRoom => Self::resource_exhausted(message),
            Reason::Unavailable => Self::unavailable(message),
        }
    }
}

/// Refuses a batch of none, which is a mistake, and one of too many.
pub(crate) fn check_count(count: usize) -> Result<(), Refusal> {
    if count == 0 || count > CHECKS_MAX {
        let message = format!("expected 1 to {CHECKS_MAX} checks");
        return Err(Refusal::invalid("checks", message));
    }
    Ok(())
}

/// The key, if there is one.
pub(crate) fn key(key: &str) -> Result<Option<&str>, Refusal> {
    if key.len() > KEY_BYTES_MAX {
        let message = format!("at most {KEY_BYTES_MAX} bytes");
        return Err(Refusal::invalid("idempotency_key", message));
    }
    Ok((!key.is_empty()).then_some(key))
}

/// The time that a reservation may be open; 0 is the default.
pub(crate) fn ttl(millis: u64) -> Result<Micros, Refusal> {
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

/// Converts the longest wait of a caller, in milliseconds; without one, it waits for any turn.
pub(crate) fn waiting(ms_max: Option<u64>) -> Waiting {
    ms_max.map_or(Waiting::Can, |ms| Waiting::Within(Micros::from_millis(ms)))
}

/// Checks the number of hits to reserve.
pub(crate) fn reserved_hits(hits: u64) -> Result<i64, Refusal> {
    let valid = i64::try_from(hits)
        .ok()
        .filter(|hits| (1..=MAX_HITS).contains(hits));
    valid.ok_or_else(|| Refusal::invalid("hits", "expected 1 to 9007199254740991 (2^53 - 1)"))
}

pub(crate) fn no_refund(number: usize) -> Refusal {
    let field = format!("descriptors[{number}].hits");
    Refusal::invalid(field, "expected what is to be given back, at least 1")
}
