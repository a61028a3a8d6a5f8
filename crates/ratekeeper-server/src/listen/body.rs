//! What an answer carries.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::line::UnderWay;

pin_project! {
    /// The service's body, or a text of our own. Until it ends, the request is under way.
    pub(super) struct AnswerBody<B> {
        #[pin]
        body: Option<B>,
        text: Bytes,
        _under_way: Option<UnderWay>,
    }
}

impl<B> AnswerBody<B> {
    pub(super) const fn of_service(body: B, under_way: Option<UnderWay>) -> Self {
        Self {
            body: Some(body),
            text: Bytes::new(),
            _under_way: under_way,
        }
    }

    pub(super) const fn of_text(text: Bytes) -> Self {
        Self {
            body: None,
            text,
            _under_way: None,
        }
    }
}

impl<B: Body<Data = Bytes>> Body for AnswerBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.project();
        match this.body.as_pin_mut() {
            Some(body) => body.poll_frame(cx),
            None if this.text.is_empty() => Poll::Ready(None),
            None => Poll::Ready(Some(Ok(Frame::data(std::mem::take(this.text))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Some(body) => body.is_end_stream(),
            None => self.text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(self.text.len() as u64),
        }
    }
}
