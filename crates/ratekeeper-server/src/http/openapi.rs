//! `GET /openapi.json`: the OpenAPI document of the HTTP listener, from the handlers.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{OpenApi as OpenApiDocument, Ref, RefOr, Response as Described};
use utoipa::{Modify, OpenApi};

use super::{auth, limits, v1};
use crate::listen::problem::{PROBLEM_JSON, Problem};
use crate::protocol::v1::{
    AcquireRequest, BatchRequest, CancelRequest, CheckAnswer, CheckRequest, CommitRequest,
    HeldAnswer, LimitAnswer, LimitRequest, LimitsAnswer, LimitsRequest, PermitRequest,
    RefundRequest, ReserveRequest, WindowText,
};

/// The operations of the HTTP listener.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Ratekeeper",
        description = "Decides whether requests may pass."
    ),
    paths(
        v1::check,
        v1::checks,
        v1::limit,
        v1::limits,
        v1::peek,
        v1::acquire,
        v1::release,
        v1::renew,
        v1::reserve,
        v1::commit,
        v1::cancel,
        v1::refund,
        limits::answer,
        auth::answer,
    ),
    components(schemas(
        AcquireRequest,
        CheckAnswer,
        v1::BatchAnswer,
        BatchRequest,
        CancelRequest,
        CheckRequest,
        CommitRequest,
        HeldAnswer,
        LimitAnswer,
        LimitRequest,
        LimitsAnswer,
        LimitsRequest,
        WindowText,
        PermitRequest,
        Problem,
        RefundRequest,
        ReserveRequest,
    )),
    modifiers(&Errors)
)]
pub(crate) struct HttpApi;

/// Adds to each operation the answer to what is refused or fails.
pub(crate) struct Errors;

impl Modify for Errors {
    fn modify(&self, document: &mut OpenApiDocument) {
        for item in document.paths.paths.values_mut() {
            let operations = [
                &mut item.get,
                &mut item.head,
                &mut item.put,
                &mut item.post,
                &mut item.patch,
                &mut item.delete,
                &mut item.options,
                &mut item.trace,
            ];
            for operation in operations.into_iter().flatten() {
                add_error(operation);
            }
        }
    }
}

fn add_error(operation: &mut Operation) {
    let mut error = Described::new("The request is refused, or cannot be served now");
    let content = ContentBuilder::new().schema(Some(RefOr::Ref(Ref::from_schema_name("Problem"))));
    error
        .content
        .insert(PROBLEM_JSON.to_owned(), content.build());
    let responses = &mut operation.responses.responses;
    responses.insert("default".to_owned(), RefOr::T(error));
}

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    // A tree of texts: nothing in there can fail.
    HttpApi::openapi().to_json().unwrap_or_default()
});

pub(super) async fn show() -> Response {
    let kind = [(CONTENT_TYPE, "application/json")];
    (kind, DOCUMENT.as_str()).into_response()
}
