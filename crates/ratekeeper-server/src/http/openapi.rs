//! `GET /openapi.json`: the OpenAPI document of the HTTP listener, from the handlers.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
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
    modifiers(&Errors, &TokenScheme)
)]
pub(crate) struct HttpApi;

/// Adds to each operation the answer to what is refused or fails.
pub(crate) struct Errors;

impl Modify for Errors {
    fn modify(&self, document: &mut OpenApiDocument) {
        operations(document).for_each(add_error);
    }
}

/// Tells that each operation may be sent a token, and that some senders need none.
pub(crate) struct TokenScheme;

impl Modify for TokenScheme {
    fn modify(&self, document: &mut OpenApiDocument) {
        const NAME: &str = "token";
        let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        let components = document.components.get_or_insert_default();
        components.add_security_scheme(NAME, bearer);
        let shown = SecurityRequirement::new(NAME, [""; 0]);
        for operation in operations(document) {
            operation.security = Some(vec![shown.clone(), SecurityRequirement::default()]);
        }
    }
}

fn operations(document: &mut OpenApiDocument) -> impl Iterator<Item = &mut Operation> {
    let items = document.paths.paths.values_mut();
    let operations = items.flat_map(|item| {
        [
            &mut item.get,
            &mut item.head,
            &mut item.put,
            &mut item.post,
            &mut item.patch,
            &mut item.delete,
            &mut item.options,
            &mut item.trace,
        ]
    });
    operations.flatten()
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
