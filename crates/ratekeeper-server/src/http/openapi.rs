//! The part of the OpenAPI document about the HTTP listener.
//!
//! Answers are written by hand, for speed; their schemas stand here. A test compares them with real answers.

mod schemas;

use utoipa::OpenApi;

use super::{auth, limits, v1};
use crate::v1::{
    AcquireRequest, BatchRequest, CancelRequest, CheckRequest, CommitRequest, PermitRequest,
    RefundRequest, ReserveRequest,
};
pub(super) use schemas::{BatchAnswerSchema, DecisionSchema, HeldSchema};

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
        BatchAnswerSchema,
        BatchRequest,
        CancelRequest,
        CheckRequest,
        CommitRequest,
        DecisionSchema,
        HeldSchema,
        PermitRequest,
        RefundRequest,
        ReserveRequest,
    ))
)]
pub(crate) struct HttpApi;
