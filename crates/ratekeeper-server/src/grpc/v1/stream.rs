//! Messages of checks on one stream.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{Stream, unfold};
use hyper::body::Body;
use ratekeeper_proto::ratekeeper::v1;
use tonic::{Code, Status, Streaming};

use super::messages::{check_requests, check_response};
use crate::access::callers::Power;
use crate::app::App;
use crate::grpc::incoming::Incoming;
use crate::listen::Fault;
use crate::listen::reading::TakenRoom;
use crate::logs::denials::CheckOrigin;
use crate::logs::unreadable::Defect;
use crate::protocol::v1::{Api, Batch, Sender};

pub(crate) type Answers =
    Pin<Box<dyn Stream<Item = Result<v1::CheckStreamResponse, Status>> + Send>>;

/// The sender of a stream: its messages only ever need one permission.
pub(crate) struct StreamSender {
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

/// The messages of a stream.
pub(crate) trait Questions: Send + 'static {
    /// Waits for the next one, and tells the room that it takes; none at the end.
    fn next(&mut self) -> impl Future<Output = Result<Option<Question>, Status>> + Send;
}

/// A message, and the room that it takes until it is answered.
type Question = (v1::CheckStreamRequest, Option<TakenRoom>);

impl<B> Questions for Incoming<B>
where
    B: Body<Data = Bytes, Error: Into<Fault>> + Unpin + Send + 'static,
{
    async fn next(&mut self) -> Result<Option<Question>, Status> {
        let Some(mut message) = self.next().await? else {
            return Ok(None);
        };
        let question = message.read().await?;
        Ok(question.map(|question| (question, message.room)))
    }
}

/// As tonic reads them, for a server of a caller's own.
impl Questions for Streaming<v1::CheckStreamRequest> {
    async fn next(&mut self) -> Result<Option<Question>, Status> {
        let question = self.message().await?;
        Ok(question.map(|question| (question, None)))
    }
}

/// The answers to `questions`, in order. The next message is read once the last answer was taken: a
/// slow reader is read slowly, and only that one answer is buffered for it, within the room for all
/// [`LongAnswers`](crate::app::long_answers::LongAnswers). The stream ends with the client's, with the first
/// message that is invalid, and with the service.
pub(crate) fn answers(app: Arc<App>, sender: StreamSender, questions: impl Questions) -> Answers {
    Box::pin(unfold(
        Some((app, sender, questions, None)),
        async |state| {
            let (app, sender, mut questions, taken) = state?;
            // The last answer's.
            drop(taken);
            let drain = Arc::clone(&app.drain);
            let question = tokio::select! {
                biased;
                question = questions.next() => question,
                () = drain.begun() => {
                    let status = Status::unavailable("the service is shutting down; connect again");
                    return Some((Err(status), None));
                }
            };
            let answer = match question {
                Ok(Some((v1::CheckStreamRequest { checks }, _room))) => {
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
