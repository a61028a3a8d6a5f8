//! The room that the answer to a large batch has until its client has taken it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use hyper::body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;
use tonic::body::Body;

use crate::listen::DirectBody;

/// Room of [`LongAnswers`](crate::app::long_answers::LongAnswers), on its way among an answer's extensions.
#[derive(Clone, Debug)]
pub(super) struct HeldRoom {
    // Extensions are cloned.
    _held: Arc<OwnedSemaphorePermit>,
}

impl HeldRoom {
    pub(super) fn new(held: OwnedSemaphorePermit) -> Self {
        let _held = Arc::new(held);
        Self { _held }
    }
}

/// Has the body of `answer` hold the room that the answer was given, if it was given any.
pub(crate) fn hold_room(answer: Response<Body>) -> Response<Body> {
    hold(answer, |body| body)
}

/// Does the same for an answer that does not come by tonic.
pub(crate) fn hold_room_direct(answer: Response<DirectBody<Body>>) -> Response<DirectBody<Body>> {
    hold(answer, DirectBody::stream)
}

fn hold<B>(mut answer: Response<B>, read: impl FnOnce(Body) -> B) -> Response<B>
where
    B: hyper::body::Body<Data = Bytes, Error = Status> + Send + 'static,
{
    match answer.extensions_mut().remove() {
        None => answer,
        Some(room) => answer.map(|body| {
            let body = Body::new(body);
            read(Body::new(RoomBody { body, _room: room }))
        }),
    }
}

/// A body whose room is free again when it is dropped.
struct RoomBody {
    body: Body,
    _room: HeldRoom,
}

impl hyper::body::Body for RoomBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
