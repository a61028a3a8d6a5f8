//! The body of an answer, and its way onto the stream.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, Response};
use hyper::body::{Body, Frame};
use pin_project_lite::pin_project;

use crate::listen::body::AnswerBody;
use crate::listen::service::Fault;

pin_project! {
    /// The body of a direct answer.
    #[project = DirectBodyProjected]
    pub(crate) enum DirectBody<B> {
        /// All of it is there.
        Whole { whole: Option<Whole> },
        /// It comes by and by.
        Stream { #[pin] body: B },
    }
}

/// All that follows the head of an answer.
#[derive(Debug)]
pub(crate) struct Whole {
    /// Not empty until it is sent.
    pub(crate) data: Bytes,
    pub(crate) trailers: HeaderMap,
}

impl<B> DirectBody<B> {
    pub(crate) const fn whole(whole: Whole) -> Self {
        Self::Whole { whole: Some(whole) }
    }

    pub(crate) const fn stream(body: B) -> Self {
        Self::Stream { body }
    }

    /// Takes all of it, if it is there and `fits`.
    fn take_whole(&mut self, fits: impl FnOnce(usize) -> bool) -> Option<Whole> {
        match self {
            Self::Whole { whole } => whole.take_if(|whole| fits(whole.data.len())),
            Self::Stream { .. } => None,
        }
    }
}

impl<B: Body<Data = Bytes>> Body for DirectBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project() {
            DirectBodyProjected::Stream { body } => body.poll_frame(cx),
            DirectBodyProjected::Whole { whole } => Poll::Ready(match whole {
                Some(whole) if !whole.data.is_empty() => {
                    Some(Ok(Frame::data(std::mem::take(&mut whole.data))))
                }
                whole => whole
                    .take()
                    .map(|whole| Ok(Frame::trailers(whole.trailers))),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole { whole } => whole.is_none(),
            Self::Stream { body } => body.is_end_stream(),
        }
    }
}

/// The part of an answer that has to wait until its client takes it.
pub(super) type Unsent<B> = (AnswerBody<DirectBody<B>>, SendStream<Bytes>);

/// Sends the head of an answer, and the rest if it is there and fits; otherwise returns the rest, for [`send_rest`].
///
/// # Errors
/// The client has given it up.
pub(super) fn send<B>(
    answer: Response<AnswerBody<DirectBody<B>>>,
    reply: &mut SendResponse<Bytes>,
) -> Result<Option<Unsent<B>>, Fault>
where
    B: Body<Data = Bytes>,
{
    let (head, mut body) = answer.into_parts();
    let is_all = body.is_end_stream();
    let mut stream = match reply.send_response(Response::from_parts(head, ()), is_all) {
        Ok(stream) => stream,
        Err(error) => {
            reply.send_reset(Reason::INTERNAL_ERROR);
            return Err(error.into());
        }
    };
    if is_all {
        return Ok(None);
    }
    let fits = |length| {
        stream.reserve_capacity(length);
        stream.capacity() >= length
    };
    if let Some(Whole { data, trailers }) =
        body.service_mut().and_then(|body| body.take_whole(fits))
    {
        stream.send_data(data, false)?;
        stream.send_trailers(trailers)?;
        return Ok(None);
    }
    Ok(Some((body, stream)))
}

/// Sends the rest of an answer, as fast as its client takes it.
///
/// # Errors
/// The client has given it up, or the answer itself failed.
pub(super) async fn send_rest<B>((body, mut stream): Unsent<B>) -> Result<(), Fault>
where
    B: Body<Data = Bytes, Error: Into<Fault> + Send>,
{
    let mut body = pin!(body);
    loop {
        // No more than shows that the client takes something: h2 asks for the rest. Trailers wait for it too, as the answer
        // of a client that takes nothing would otherwise be over, and what h2 holds of it would have no timeout.
        stream.reserve_capacity(1);
        unless_reset(&mut stream, poll_room).await??;
        let frame = unless_reset(&mut stream, |_, cx| body.as_mut().poll_frame(cx)).await?;
        let frame = match frame {
            None => break,
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                stream.send_reset(Reason::INTERNAL_ERROR);
                return Err(error.into());
            }
        };
        match frame.into_data() {
            Ok(data) => {
                let is_last = body.is_end_stream();
                stream.send_data(data, is_last)?;
                if is_last {
                    return Ok(());
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    stream.reserve_capacity(0);
                    stream.send_trailers(trailers)?;
                    return Ok(());
                }
            }
        }
    }
    stream.send_data(Bytes::new(), true)?;
    Ok(())
}

/// Waits for what `poll` polls.
///
/// # Errors
/// The client has reset the stream meanwhile.
async fn unless_reset<T>(
    stream: &mut SendStream<Bytes>,
    mut poll: impl FnMut(&mut SendStream<Bytes>, &mut Context<'_>) -> Poll<T>,
) -> Result<T, h2::Error> {
    poll_fn(|cx| {
        if let Poll::Ready(reset) = stream.poll_reset(cx) {
            return Poll::Ready(Err(reset.map_or_else(|error| error, Into::into)));
        }
        poll(stream, cx).map(Ok)
    })
    .await
}

/// Ready once the client takes something.
fn poll_room(stream: &mut SendStream<Bytes>, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
    while stream.capacity() == 0 {
        match ready!(stream.poll_capacity(cx)) {
            Some(Ok(_)) => {}
            Some(Err(error)) => return Poll::Ready(Err(error)),
            // It is no longer streaming.
            None => return Poll::Ready(Err(Reason::STREAM_CLOSED.into())),
        }
    }
    Poll::Ready(Ok(()))
}
