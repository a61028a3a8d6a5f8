//! Reasons why a request cannot be checked.

use http::{HeaderValue, StatusCode};

use crate::{ApiKeyError, Malformed, TokenError};

/// The reason why a request cannot be checked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The request is meaningless or ambiguous.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Its bearer token or API key is not accepted.
    #[error(transparent)]
    Unauthenticated(#[from] Unauthenticated),
}

/// A proof that is missing or not accepted. The response is 401.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unauthenticated {
    /// The bearer token.
    #[error(transparent)]
    Token(TokenError),
    /// The API key.
    #[error(transparent)]
    ApiKey(ApiKeyError),
}

impl Unauthenticated {
    /// The value of the answer's `WWW-Authenticate` header (RFC 6750, section 3; RFC 9110, section 11.6.1).
    #[must_use]
    pub fn challenge(&self) -> HeaderValue {
        match self {
            Self::Token(why) => {
                let challenge =
                    format!("Bearer error=\"invalid_token\", error_description=\"{why}\"");
                HeaderValue::try_from(challenge).unwrap_or(HeaderValue::from_static("Bearer"))
            }
            Self::ApiKey(_) => HeaderValue::from_static("ApiKey"),
        }
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
