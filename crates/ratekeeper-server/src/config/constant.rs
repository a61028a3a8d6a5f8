//! One answer to every request: what a server costs that decides nothing.

use std::sync::Arc;

use prost::Message;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitResponse;

/// An answer that is given to every request, unread but decoded: with it a server shows what
/// the transport, the codec and the runtime cost without a decision. For benchmarks.
#[derive(Clone, Debug)]
pub struct ConstantAnswer(Arc<RateLimitResponse>);

/// Bytes that are no answer.
#[derive(Debug, thiserror::Error)]
#[error("the bytes are not an envoy.service.ratelimit.v3.RateLimitResponse")]
pub struct NoAnswer(#[source] prost::DecodeError);

impl ConstantAnswer {
    /// The answer that `bytes` are on the wire.
    ///
    /// # Errors
    /// They are no `RateLimitResponse`.
    pub fn decode(bytes: &[u8]) -> Result<Self, NoAnswer> {
        RateLimitResponse::decode(bytes)
            .map(|answer| Self(Arc::new(answer)))
            .map_err(NoAnswer)
    }

    /// The answer, as a handler owns it.
    pub(crate) fn answer(&self) -> RateLimitResponse {
        RateLimitResponse::clone(&self.0)
    }
}
