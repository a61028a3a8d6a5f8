//! The body of an answer.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::line::UnderWay;

/// The size of the very last piece of a long answer over HTTP/2, split off from the rest. HTTP/2
/// takes a whole piece from here and buffers what the client does not take: once the last piece is
/// handed over, the request is finished, and it would go unnoticed that the client never takes it.
const LAST_BYTES: usize = 1 << 10;

/// The largest last piece that is not split.
const SHORT_BYTES_MAX: usize = 4 << 10;

pin_project! {
    /// The service's body, or a text of our own. Until it ends, the request is under way.
    pub(super) struct AnswerBody<B> {
        #[pin]
        body: Option<B>,
        // The whole answer, or the end of the service's.
        text: Bytes,
        under_way: Option<UnderWay>,
    }
}

impl<B> AnswerBody<B> {
    pub(super) const fn of_service(body: B, under_way: Option<UnderWay>) -> Self {
        Self {
            body: Some(body),
            text: Bytes::new(),
            under_way,
        }
    }

    /// The service's body; none if the answer is a text of our own.
    pub(super) const fn service_mut(&mut self) -> Option<&mut B> {
        self.body.as_mut()
    }

    pub(super) const fn of_text(text: Bytes) -> Self {
        Self {
            body: None,
            text,
            under_way: None,
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
        let mut this = self.project();
        let line = this.under_way.as_ref().map(UnderWay::line);
        if !this.text.is_empty() {
            let text = std::mem::take(this.text);
            if let Some(line) = line {
                line.record_handed(text.len());
            }
            return Poll::Ready(Some(Ok(Frame::data(text))));
        }
        let Some(mut body) = this.body.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        let frame = body.as_mut().poll_frame(cx);
        let (Some(line), Poll::Ready(Some(Ok(data)))) = (line, &frame) else {
            if let Some(line) = line {
                line.mark_asked();
            }
            return frame;
        };
        let length = data.data_ref().map_or(0, Bytes::len);
        line.record_handed(length);
        if length <= SHORT_BYTES_MAX || !line.is_http2() || !body.is_end_stream() {
            return frame;
        }
        frame.map_ok(|frame| {
            frame.map_data(|mut data| {
                *this.text = data.split_off(length - LAST_BYTES);
                data
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.text.is_empty() && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let text = self.text.len() as u64;
        let Some(body) = &self.body else {
            return SizeHint::with_exact(text);
        };
        if text == 0 {
            return body.size_hint();
        }
        let (mut hint, within) = (SizeHint::new(), body.size_hint());
        if let Some(upper) = within.upper() {
            hint.set_upper(upper + text);
        }
        hint.set_lower(within.lower() + text);
        hint
    }
}
