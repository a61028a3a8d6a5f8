//! The query of a request.

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query};
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::ApiError;

/// The options in a query. The field of a fault in one of them is `?` and its name.
pub(crate) struct Given<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Given<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = Query::from_request_parts(parts, state).await;
        let query = query.map(|Query(options)| Self(options));
        query.map_err(|rejection| refusal(&rejection))
    }
}

/// Names the option that the rejection is about: axum tells the name and the fault, `status: provided string was ...`.
fn refusal(rejection: &QueryRejection) -> ApiError {
    let text = rejection.body_text();
    let fault = text.split_once("query string: ");
    let fault = fault.map_or(&*text, |(_, fault)| fault);
    let is_name = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    match fault.split_once(": ").filter(|(name, _)| is_name(name)) {
        Some((name, fault)) => ApiError::invalid(format!("?{name}"), fault),
        None => ApiError::invalid("?", fault),
    }
}
