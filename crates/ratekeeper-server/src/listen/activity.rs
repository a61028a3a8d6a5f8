//! Watches what moves on a connection, and returns its socket at the end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::framing::Framing;

/// Counts reads and writes. A clock of its own would cost more than the count does.
#[derive(Clone, Debug, Default)]
pub(super) struct Activity(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    moves: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    /// The peer takes nothing more for now.
    is_blocked: AtomicBool,
}

impl Activity {
    /// A number that changes whenever anything has moved.
    pub(super) fn count(&self) -> u64 {
        self.0.moves.load(Ordering::Relaxed)
    }

    /// The bytes received from the peer.
    pub(super) fn bytes_read(&self) -> u64 {
        self.0.bytes_read.load(Ordering::Relaxed)
    }

    /// The bytes that the peer, or the system on its behalf, has taken.
    pub(super) fn bytes_written(&self) -> u64 {
        self.0.bytes_written.load(Ordering::Relaxed)
    }

    /// Returns true if there is output waiting that the peer does not take.
    pub(super) fn is_blocked(&self) -> bool {
        self.0.is_blocked.load(Ordering::Relaxed)
    }

    fn record_read(&self, bytes: usize) {
        add(&self.0.moves, 1);
        add(&self.0.bytes_read, bytes as u64);
    }

    fn record_write(&self, outcome: &Poll<io::Result<usize>>) {
        self.0
            .is_blocked
            .store(outcome.is_pending(), Ordering::Relaxed);
        if let Poll::Ready(written) = outcome {
            add(&self.0.moves, 1);
            add(
                &self.0.bytes_written,
                *written.as_ref().unwrap_or(&0) as u64,
            );
        }
    }

    fn record_flush(&self, outcome: &Poll<io::Result<()>>) {
        self.0
            .is_blocked
            .store(outcome.is_pending(), Ordering::Relaxed);
    }
}

/// The recording and the looking happen in one task, so no addition has to be atomic.
fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// A socket whose reads and writes are counted.
pub(super) struct Watched<S> {
    /// There until the drop.
    socket: Option<S>,
    activity: Activity,
    framing: Option<Framing>,
    back: Option<oneshot::Sender<S>>,
}

impl<S> Watched<S> {
    /// Wraps `socket`; what is read is shown to `framing`, and the receiver gets the socket back
    /// once the wrapper is dropped.
    pub(super) fn new(
        socket: S,
        framing: Option<Framing>,
    ) -> (Self, Activity, oneshot::Receiver<S>) {
        let activity = Activity::default();
        let (back, receiver) = oneshot::channel();
        let watched = Self {
            socket: Some(socket),
            activity: activity.clone(),
            framing,
            back: Some(back),
        };
        (watched, activity, receiver)
    }

    fn record_write(&mut self, outcome: &Poll<io::Result<usize>>) {
        self.activity.record_write(outcome);
        // What it began to follow would be kept for as long as a tunnel lives.
        self.framing.take_if(|framing| framing.is_over());
    }

    fn socket(&mut self) -> io::Result<Pin<&mut S>>
    where
        S: Unpin,
    {
        self.socket
            .as_mut()
            .map(Pin::new)
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<S> Drop for Watched<S> {
    fn drop(&mut self) {
        if let (Some(socket), Some(back)) = (self.socket.take(), self.back.take()) {
            // No task waits for it any more: then it is closed here.
            let _ = back.send(socket);
        }
    }
}

// The socket is never pinned to its place here.
impl<S> Unpin for Watched<S> {}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = ready!(self.socket()?.poll_read(cx, buf));
        self.activity.record_read(buf.filled().len() - before);
        if let Some(framing) = &mut self.framing {
            framing.follow(&buf.filled()[before..]);
        }
        Poll::Ready(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = self.socket()?.poll_write(cx, buf);
        self.record_write(&outcome);
        outcome
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = self.socket()?.poll_write_vectored(cx, bufs);
        self.record_write(&outcome);
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.socket
            .as_ref()
            .is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = self.socket()?.poll_flush(cx);
        self.activity.record_flush(&outcome);
        outcome
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket()?.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::listen::ServerBounds;
    use crate::listen::drain::Drain;
    use crate::listen::line::Line;
    use crate::listen::{Peer, PeerAddress, Protocol};

    #[tokio::test]
    async fn what_follows_a_change_of_protocols_is_not_followed() {
        let peer = Peer::unnamed(PeerAddress::Unix, true);
        let (bounds, drain) = (ServerBounds::default(), Arc::new(Drain::new()));
        let line = Arc::new(Line::new(peer, Protocol::Either, bounds, drain, |_| false));
        let framing = Framing::new(Arc::clone(&line), 100);
        let (mut client, server) = duplex(1 << 10);
        let (mut watched, ..) = Watched::new(server, Some(framing));

        let begun = b"GET / HTTP/1.1\r\nUpgrade: echo\r\n\r\nalready";
        client.write_all(begun).await.expect("it is open");
        let mut read = vec![0; begun.len()];
        watched.read_exact(&mut read).await.expect("it is open");
        watched.write_all(b"x").await.expect("it is open");
        assert!(watched.framing.is_some());

        line.mark_switch();
        watched.write_all(b"x").await.expect("it is open");
        assert!(watched.framing.is_none());
    }
}
