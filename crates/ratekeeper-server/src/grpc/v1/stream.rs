//! Messages of checks on one stream.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{Stream, unfold};
use ratekeeper_proto::ratekeeper::v1;
use tonic::{Code, Status, Streaming};

use super::messages::{check_requests, check_response};
use crate::access::callers::Power;
use crate::app::App;
use crate::logs::denials::CheckOrigin;
use crate::logs::unreadable::Defect;
use crate::protocol::v1::{Api, Batch, Sender};

pub(crate) type Answers =
    Pin<Box<dyn Stream<Item = Result<v1::CheckStreamResponse, Status>> + Send>>;

/// The sender of a stream: its messages only ever need one permission.
pub(super) struct StreamSender {
    /// The error if it may not bring limits along.
    pub(super) may_override: Result<(), Status>,
}

impl Sender for StreamSender {
    type Error = Status;

    fn permit(&self, power: Power) -> Result<&str, Status> {
        debug_assert_eq!(power, Power::Override, "a stream has checks only");
        self.may_override.clone().map(|()| "")
    }

    fn origin(&self) -> CheckOrigin<'_> {
        CheckOrigin::new("v1", None)
    }
}

/// The error for a message that cannot be read, as other methods have it.
fn unread(app: &App, status: Status) -> Status {
    let defect = match status.code() {
        Code::OutOfRange => Defect::TooLarge,
        Code::DataLoss => Defect::Malformed,
        _ => return status,
    };
    app.unreadable.refuse("v1", defect, status.message());
    Status::invalid_argument(status.message())
}

/// The answers to `questions`, in order. The next message is read once the last answer was taken: a
/// slow reader is read slowly, and only that one answer is buffered for it, within the room for all
/// [`LongAnswers`](crate::app::long_answers::LongAnswers). The stream ends with the client's, with the first
/// message that is invalid, and with the service.
pub(super) fn answers(
    app: Arc<App>,
    sender: StreamSender,
    questions: Streaming<v1::CheckStreamRequest>,
) -> Answers {
    Box::pin(unfold(
        Some((app, sender, questions, None)),
        async |state| {
            let (app, sender, mut questions, taken) = state?;
            // The last answer's.
            drop(taken);
            let drain = Arc::clone(&app.drain);
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
                    let checks = check_requests(&checks);
                    let api = Api::new(&app, &sender);
                    api.check_all(&checks, check_response).await
                }
                Ok(None) => return None,
                Err(status) => Err(unread(&app, status)),
            };
            match answer {
                Ok(Batch { results, room }) => {
                    let answer = v1::CheckStreamResponse { results };
                    Some((Ok(answer), Some((app, sender, questions, room))))
                }
                Err(status) => Some((Err(status), None)),
            }
        },
    ))
}
