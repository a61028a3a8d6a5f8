//! The body of a response.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of the inner service's response, or of a denial.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http_body::Body;
    /// use ratekeeper::RateLimitBody;
    ///
    /// /// The length of a response, whoever answered.
    /// fn length<B: Body<Data = Bytes>>(body: &RateLimitBody<B>) -> Option<u64> {
    ///     body.size_hint().exact()
    /// }
    /// ```
    #[derive(Debug)]
    pub struct RateLimitBody<B> {
        #[pin]
        kind: Kind<B>,
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
        Denial {
            text: Bytes,
        },
    }
}

impl<B> RateLimitBody<B> {
    pub(crate) const fn inner(body: B) -> Self {
        Self {
            kind: Kind::Inner { body },
        }
    }

    pub(crate) const fn denial(text: Bytes) -> Self {
        Self {
            kind: Kind::Denial { text },
        }
    }
}

impl<B: Body<Data = Bytes>> Body for RateLimitBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProjection::Inner { body } => body.poll_frame(cx),
            KindProjection::Denial { text } => {
                let text = std::mem::take(text);
                Poll::Ready((!text.is_empty()).then(|| Ok(Frame::data(text))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Denial { text } => text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Denial { text } => SizeHint::with_exact(text.len() as u64),
        }
    }
}

/// An empty body, as tonic and others want to make one.
impl<B> Default for RateLimitBody<B> {
    fn default() -> Self {
        Self::denial(Bytes::new())
    }
}
