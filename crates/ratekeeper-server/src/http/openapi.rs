//! The part of the OpenAPI document about the HTTP listener.

use utoipa::OpenApi;

use super::{auth, limits, v1};
use crate::v1::{
    AcquireRequest, Answer, BatchRequest, CancelRequest, CheckRequest, CommitRequest, HeldAnswer,
    PermitRequest, RefundRequest, ReserveRequest,
};

/// The operations of the HTTP listener.
#[derive(OpenApi)]
#[openapi(
    paths(
        v1::check,
        v1::checks,
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
        Answer,
        v1::BatchAnswer,
        BatchRequest,
        CancelRequest,
        CheckRequest,
        CommitRequest,
        HeldAnswer,
        PermitRequest,
        RefundRequest,
        ReserveRequest,
    ))
)]
pub(crate) struct HttpApi;
