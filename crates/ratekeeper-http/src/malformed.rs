//! What a request says that cannot be meant.

use http::HeaderName;

/// Something in a request that has no meaning, or two. Nothing is decided on the ground of it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Malformed {
    /// Where: `header x-forwarded-for`, `query parameter key`, `cookie session`.
    pub place: String,
    /// What is wrong, and what was expected. Values that may be secret are not in it.
    pub message: String,
}

impl Malformed {
    pub(crate) fn header(name: &HeaderName, message: impl Into<String>) -> Self {
        Self {
            place: format!("header {name}"),
            message: message.into(),
        }
    }

    pub(crate) fn twice(place: String) -> Self {
        Self {
            place,
            message: "it is there twice, with different values; send it once".to_owned(),
        }
    }
}

/// The start of what somebody sent, as a message may repeat it.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    const BYTES_MAX: usize = 60;
    let end = bytes.len().min(BYTES_MAX);
    let text = bytes.get(..end).unwrap_or_default().escape_ascii();
    let more = if end < bytes.len() { "…" } else { "" };
    format!("`{text}{more}`")
}
