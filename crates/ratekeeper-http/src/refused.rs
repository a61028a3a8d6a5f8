//! Reasons why a request cannot be checked.

use http::{HeaderValue, StatusCode};

use crate::{Malformed, TokenError};

/// The reason why a request cannot be checked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The request is meaningless or ambiguous.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Its bearer token is not accepted.
    #[error(transparent)]
    Unauthenticated(#[from] Unauthenticated),
}

/// A bearer token that is not accepted. The response is 401.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{why}")]
pub struct Unauthenticated {
    /// The reason.
    pub why: TokenError,
}

impl Unauthenticated {
    /// The value of the answer's `WWW-Authenticate` header (RFC 6750, section 3).
    #[must_use]
    pub fn challenge(&self) -> HeaderValue {
        let challenge = format!(
            "Bearer error=\"invalid_token\", error_description=\"{}\"",
            self.why
        );
        HeaderValue::try_from(challenge).unwrap_or(HeaderValue::from_static("Bearer"))
    }
}

impl Refused {
    /// The status of the response.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
        }
    }
}
