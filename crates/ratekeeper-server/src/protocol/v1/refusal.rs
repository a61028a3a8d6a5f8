//! Refusals: the reason, and the field that is wrong.

use std::borrow::Cow;

use ratekeeper_limiter::HoldError;

use crate::access::callers::NotPermitted;
use crate::app::NoRules;
use crate::app::long_answers::NoAnswerRoom;

/// The reason a request was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    /// The path of the wrong field; empty if nothing in the request is wrong.
    pub(crate) field: String,
    pub(crate) message: String,
}

/// The kind of a refusal, which each codec maps to a status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// The request makes no sense.
    Invalid,
    /// The request has more than is read, which its own sender may have caused.
    OutOfBounds,
    /// No rule matches, and the request asked for this to be an error.
    Unmatched,
    /// The sender is not known.
    Unauthenticated,
    /// The sender lacks the permission.
    Forbidden,
    /// The sender's address has presented too many wrong tokens.
    Guessing,
    /// The permit, reservation or key is in another state.
    State(&'static str),
    /// There is no room to remember what is to be done once.
    NoRoom,
    /// The rules of its domain were refused; other domains are decided.
    NoRules,
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

    pub(super) fn out_of_bounds(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            reason: Reason::OutOfBounds,
            ..Self::invalid(field, message)
        }
    }

    /// The refusal in one sentence.
    pub(crate) fn sentence(&self) -> Cow<'_, str> {
        match self.field.is_empty() {
            true => Cow::Borrowed(&self.message),
            false => Cow::Owned(format!("{}: {}", self.field, self.message)),
        }
    }

    pub(crate) fn unavailable(message: &str) -> Self {
        Self {
            reason: Reason::Unavailable,
            field: String::new(),
            message: message.to_owned(),
        }
    }

    /// Turns the error of a permit, a reservation or a key, given in `field`, into a refusal.
    pub(super) fn of_hold(field: &'static str) -> impl Fn(HoldError) -> Self {
        move |error| {
            let (reason, field) = match error {
                HoldError::Malformed | HoldError::WrongKind(_) => (Reason::Invalid, field),
                HoldError::TooMuch(_) => (Reason::Invalid, "hits"),
                HoldError::TooManyLimits => (Reason::Invalid, "descriptors"),
                HoldError::Synced => (Reason::Invalid, field),
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

impl From<NoRules> for Refusal {
    fn from(lack: NoRules) -> Self {
        let reason = match lack {
            NoRules::AtAll => Reason::Unavailable,
            NoRules::Of(_) => Reason::NoRules,
        };
        Self {
            reason,
            ..Self::unavailable(&lack.to_string())
        }
    }
}

impl From<NoAnswerRoom> for Refusal {
    fn from(error: NoAnswerRoom) -> Self {
        Self::unavailable(&error.to_string())
    }
}

impl From<NotPermitted> for Refusal {
    fn from(why: NotPermitted) -> Self {
        let reason = match why {
            NotPermitted::Unknown(_) => Reason::Unauthenticated,
            NotPermitted::Forbidden(_) => Reason::Forbidden,
            NotPermitted::Guessing => Reason::Guessing,
        };
        Self {
            reason,
            field: String::new(),
            message: why.to_string(),
        }
    }
}
