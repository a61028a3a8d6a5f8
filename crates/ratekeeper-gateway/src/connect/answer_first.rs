//! A stream that reads the answer of an upstream that has stopped reading.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that is read to its end before a write fails, once its peer accepts no more data.
///
/// An upstream may answer before it has read the whole request, and close. hyper ends a connection as soon as a write fails,
/// so it would be a matter of luck which of the two, the error or the answer, was seen first.
#[derive(Debug)]
pub(super) struct AnswerFirst<S> {
    stream: S,
    is_read_out: bool,
    /// The task whose write is to fail.
    writer: Option<Waker>,
}

impl<S> AnswerFirst<S> {
    pub(super) const fn new(stream: S) -> Self {
        Self {
            stream,
            is_read_out: false,
            writer: None,
        }
    }

    fn written<T>(
        &mut self,
        outcome: Poll<io::Result<T>>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<T>> {
        match outcome {
            Poll::Ready(Err(error)) if is_of_peer(&error) && !self.is_read_out => {
                self.writer = Some(cx.waker().clone());
                Poll::Pending
            }
            outcome => outcome,
        }
    }
}

fn is_of_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
    )
}

impl<S: AsyncRead + Unpin> AsyncRead for AnswerFirst<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buf.remaining();
        let outcome = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        if outcome.is_err() || (room > 0 && buf.remaining() == room) {
            self.is_read_out = true;
            if let Some(writer) = self.writer.take() {
                writer.wake();
            }
        }
        Poll::Ready(outcome)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for AnswerFirst<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.written(outcome, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.written(outcome, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        self.written(outcome, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::yield_now;

    use super::*;

    /// Writes as much as is accepted, and returns the outcome.
    async fn written(stream: &mut AnswerFirst<TcpStream>) -> Poll<io::Error> {
        loop {
            let outcome = poll_fn(|cx| Poll::Ready(Pin::new(&mut *stream).poll_write(cx, b"x")));
            match outcome.await {
                Poll::Ready(Ok(_)) => yield_now().await,
                Poll::Ready(Err(error)) => return Poll::Ready(error),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    #[tokio::test]
    async fn an_answer_is_read_before_a_write_fails() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let stream = TcpStream::connect(address).await.expect("it listens");
        let mut stream = AnswerFirst::new(stream);
        stream.write_all(b"asked").await.expect("it is open");
        let (mut peer, _) = listener.accept().await.expect("somebody connects");
        peer.write_all(b"answer").await.expect("it is open");
        // A connection closed with unread bytes is reset.
        peer.readable().await.expect("it is open");
        drop(peer);

        assert!(written(&mut stream).await.is_pending());
        let mut answer = [0; 6];
        stream.read_exact(&mut answer).await.expect("it was said");
        assert_eq!(&answer, b"answer");
        assert!(written(&mut stream).await.is_pending());
        let _ = stream.read(&mut answer).await;
        assert!(written(&mut stream).await.is_ready(), "there is no more");
    }
}
