//! Messages of checks on one stream.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{Stream, unfold};
use ratekeeper_proto::ratekeeper::v1;
use tonic::{Status, Streaming};

use super::service::Service;
use crate::store::ServedStore;

pub(crate) type Answers =
    Pin<Box<dyn Stream<Item = Result<v1::CheckStreamResponse, Status>> + Send>>;

/// The answers to `questions`, in order. One message is read at a time, when the answer to the
/// last one was taken: whoever reads slowly is read slowly, and nothing is kept for them. The
/// stream ends with theirs, with the first message that makes no sense, and with the service.
pub(super) fn answers<S: ServedStore>(
    service: Service<S>,
    questions: Streaming<v1::CheckStreamRequest>,
) -> Answers {
    Box::pin(unfold(Some((service, questions)), async |state| {
        let (service, mut questions) = state?;
        let drain = Arc::clone(&service.app.drain);
        let question = tokio::select! {
            biased;
            question = questions.message() => question,
            () = drain.begun() => {
                let status = Status::unavailable("the service is shutting down; connect again");
                return Some((Err(status), None));
            }
        };
        let answer = match question {
            Ok(Some(v1::CheckStreamRequest { checks })) => service.decide(&checks).await,
            Ok(None) => return None,
            Err(status) => Err(status),
        };
        match answer {
            Ok(results) => {
                let answer = v1::CheckStreamResponse { results };
                Some((Ok(answer), Some((service, questions))))
            }
            Err(status) => Some((Err(status), None)),
        }
    }))
}
