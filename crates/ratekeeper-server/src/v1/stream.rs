//! Messages of checks on one stream.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{Stream, unfold};
use ratekeeper_proto::ratekeeper::v1;
use tonic::{Status, Streaming};

use super::Refusal;
use super::service::Service;
use crate::store::ServedStore;

pub(crate) type Answers =
    Pin<Box<dyn Stream<Item = Result<v1::CheckStreamResponse, Status>> + Send>>;

/// The answers to `questions`, in order. The next message is read once the last answer was taken: a
/// slow reader is read slowly, and only that one answer is buffered for it, within the room for all
/// [`LongAnswers`](crate::http::LongAnswers). The stream ends with the client's, with the first
/// message that is invalid, and with the service.
pub(super) fn answers<S: ServedStore>(
    service: Service<S>,
    questions: Streaming<v1::CheckStreamRequest>,
) -> Answers {
    Box::pin(unfold(Some((service, questions, None)), async |state| {
        let (service, mut questions, taken) = state?;
        // The last answer's.
        drop(taken);
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
            Ok(Some(v1::CheckStreamRequest { checks })) => {
                let room = service.app.long_answers.room(checks.len());
                match room.map_err(Refusal::from) {
                    Ok(room) => service.decide(&checks).await.map(|results| (results, room)),
                    Err(refusal) => Err(refusal.into()),
                }
            }
            Ok(None) => return None,
            Err(status) => Err(status),
        };
        match answer {
            Ok((results, room)) => {
                let answer = v1::CheckStreamResponse { results };
                Some((Ok(answer), Some((service, questions, room))))
            }
            Err(status) => Some((Err(status), None)),
        }
    }))
}
