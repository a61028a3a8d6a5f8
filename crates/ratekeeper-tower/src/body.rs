//! The body of a response, with what the request holds while it is sent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::usage::UsageReading;

pin_project! {
    /// The body of the inner service's response, or of a refusal. It keeps an `H`, such as the request's permit, until
    /// it has ended, failed, or was dropped.
    #[derive(Debug)]
    pub struct ResponseBody<B, H> {
        #[pin]
        kind: Kind<B>,
        held: Option<H>,
        // None if no usage is read, and once it was.
        reading: Option<UsageReading>,
    }
}

pin_project! {
    #[project = KindProjection]
    #[derive(Debug)]
    enum Kind<B> {
        Inner {
            #[pin]
            body: B,
        },
        Refusal {
            text: Bytes,
        },
    }
}

impl<B: Body, H> ResponseBody<B, H> {
    pub(crate) fn inner(body: B, held: Option<H>, mut reading: Option<UsageReading>) -> Self {
        // An empty body is never polled.
        let is_over = body.is_end_stream();
        if let Some(reading) = reading.take_if(|_| is_over) {
            reading.whole();
        }
        Self {
            kind: Kind::Inner { body },
            held: held.filter(|_| !is_over),
            reading,
        }
    }

    pub(crate) const fn refusal(text: Bytes) -> Self {
        Self {
            kind: Kind::Refusal { text },
            held: None,
            reading: None,
        }
    }
}

impl<B, H> ResponseBody<B, H> {
    /// The inner service's body; None for a refusal.
    pub const fn of_service(&self) -> Option<&B> {
        match &self.kind {
            Kind::Inner { body } => Some(body),
            Kind::Refusal { .. } => None,
        }
    }
}

/// Reads the usage out of `frame`, behind which the body may be over.
fn read<E>(
    reading: &mut Option<UsageReading>,
    frame: &Option<Result<Frame<Bytes>, E>>,
    is_over: bool,
) {
    if let (Some(reading), Some(Ok(frame))) = (reading.as_ref(), frame) {
        reading.frame(frame);
    }
    let is_whole = match frame {
        Some(Ok(_)) if !is_over => return,
        Some(Ok(_)) | None => true,
        Some(Err(_)) => false,
    };
    match (reading.take(), is_whole) {
        (Some(reading), true) => reading.whole(),
        (Some(reading), false) => reading.failed(),
        (None, _) => {}
    }
}

impl<B, H> Body for ResponseBody<B, H>
where
    B: Body<Data = Bytes>,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        match this.kind.project() {
            KindProjection::Inner { mut body } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                if this.reading.is_some() {
                    read(this.reading, &frame, body.is_end_stream());
                }
                if !matches!(frame, Some(Ok(_))) || body.is_end_stream() {
                    *this.held = None;
                }
                Poll::Ready(frame)
            }
            KindProjection::Refusal { text } => {
                let text = std::mem::take(text);
                Poll::Ready((!text.is_empty()).then(|| Ok(Frame::data(text))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Refusal { text } => text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Refusal { text } => SizeHint::with_exact(text.len() as u64),
        }
    }
}
