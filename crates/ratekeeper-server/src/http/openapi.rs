//! The part of the OpenAPI document about the HTTP listener.
//!
//! Requests are read as borrowed texts and answers are written by hand, for speed; their schemas stand here. A test
//! compares them with real answers.

mod schemas;

use utoipa::OpenApi;

use super::{limits, v1};
pub(crate) use schemas::CheckSchema;
pub(super) use schemas::{
    AcquireSchema, BatchAnswerSchema, BatchSchema, CancelSchema, CommitSchema, DecisionSchema,
    HeldSchema, PermitSchema, RefundSchema, ReserveSchema,
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
    ),
    components(schemas(
        AcquireSchema,
        BatchAnswerSchema,
        BatchSchema,
        CancelSchema,
        CheckSchema,
        CommitSchema,
        DecisionSchema,
        HeldSchema,
        PermitSchema,
        RefundSchema,
        ReserveSchema,
    ))
)]
pub(crate) struct HttpApi;
