//! Faults of requests.

use http::HeaderName;

/// A meaningless or ambiguous part of a request. No decision is based on it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Malformed {
    /// The place: `header x-forwarded-for`, `query parameter key`, `cookie session`.
    pub place: String,
    /// The problem, and the expected form. Does not contain values that may be secret.
    pub message: String,
}

impl Malformed {
    pub(crate) fn header(name: &HeaderName, message: impl Into<String>) -> Self {
        Self {
            place: format!("header {name}"),
            message: message.into(),
        }
    }

    pub(crate) fn ambiguous(place: String) -> Self {
        Self {
            place,
            message: "not every service finds the same value there; send it once, and its keys in their own letters"
                .to_owned(),
        }
    }

    pub(crate) fn twice(place: String) -> Self {
        Self {
            place,
            message: "it is there twice, with different values; send it once".to_owned(),
        }
    }
}

/// The start of a value from the request, safe to repeat in a message.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    const BYTES_MAX: usize = 60;
    let end = bytes.len().min(BYTES_MAX);
    let text = bytes.get(..end).unwrap_or_default().escape_ascii();
    let more = if end < bytes.len() { "…" } else { "" };
    format!("`{text}{more}`")
}
