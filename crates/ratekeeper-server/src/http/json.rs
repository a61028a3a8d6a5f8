//! `/json`: Envoy's protocol as JSON, with the incumbent's status codes and our messages.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use ratekeeper_proto::json::{read_request, write_response};

use super::malformed;
use crate::app::App;
use crate::rls;
use crate::store::ServedStore;

/// Any method, any content type: the incumbent looks at neither.
pub(super) async fn answer<S: ServedStore>(
    State(app): State<Arc<App<S>>>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return refused(rejection.status(), &rejection.body_text()),
    };
    let request = match read_request(&body) {
        Ok(request) => request,
        Err(error) => {
            let message = malformed::plain(&body).unwrap_or_else(|| error.to_string());
            return refused(StatusCode::BAD_REQUEST, &message);
        }
    };
    match rls::decide(&app, &request).await {
        Ok(response) => {
            let status = match response.overall_code() {
                Code::Ok => StatusCode::OK,
                Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
                Code::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
            };
            let content_type = [(CONTENT_TYPE, "application/json")];
            (status, content_type, write_response(&response)).into_response()
        }
        // Rules that are missing are a 400 to the incumbent as well.
        Err(refusal) => refused(StatusCode::BAD_REQUEST, &refusal.to_string()),
    }
}

fn refused(status: StatusCode, message: &str) -> Response {
    (status, format!("{message}\n")).into_response()
}
