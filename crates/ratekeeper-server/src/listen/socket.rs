//! Sockets of both families: listening and accepted ones.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::server::TlsStream;

use super::address::ListenAddress;
use super::peer::PeerAddress;
use crate::listen::unix::SocketFile;

/// A listening socket.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpListener),
    /// With its file, which is removed with the socket.
    Unix(UnixListener, SocketFile),
}

impl Socket {
    /// Listens; a Unix socket's file gets the permissions `mode`, if given.
    pub(super) async fn bind(address: &ListenAddress, mode: Option<u32>) -> io::Result<Self> {
        match address {
            ListenAddress::Tcp(address) => {
                let listener = TcpListener::bind(address).await?;
                keep_little(&listener)?;
                Ok(Self::Tcp(listener))
            }
            ListenAddress::Unix(path) => {
                let (socket, file) = SocketFile::bind(path, mode).await?;
                Ok(Self::Unix(socket, file))
            }
        }
    }

    /// The address it listens on, with the port that was chosen.
    pub(super) fn address(&self) -> io::Result<ListenAddress> {
        match self {
            Self::Tcp(socket) => Ok(ListenAddress::Tcp(socket.local_addr()?)),
            Self::Unix(_, file) => Ok(ListenAddress::Unix(file.path().to_owned())),
        }
    }

    pub(super) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
        let accepted = match self {
            Self::Tcp(socket) => {
                let (stream, address) = ready!(socket.poll_accept(cx))?;
                Accepted {
                    peer: PeerAddress::Tcp(address),
                    stream: Detached::Tcp(stream.into_std()?),
                }
            }
            Self::Unix(socket, _) => {
                let (stream, _) = ready!(socket.poll_accept(cx))?;
                Accepted {
                    peer: PeerAddress::Unix,
                    stream: Detached::Unix(stream.into_std()?),
                }
            }
        };
        Poll::Ready(Ok(accepted))
    }
}

/// The most unsent bytes that the system buffers for a peer.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 16 << 10;

/// Limits the bytes that the system buffers for a peer, which costs no speed: bytes in flight do
/// not count. Otherwise it would buffer megabytes for a peer that reads nothing, and take nothing
/// more for minutes for a slow one, so that the two could not be told apart. Connections inherit
/// this from their listener.
#[cfg(target_os = "linux")]
fn keep_little(listener: &TcpListener) -> io::Result<()> {
    socket2::SockRef::from(listener).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)
}

#[cfg(not(target_os = "linux"))]
fn keep_little(_: &TcpListener) -> io::Result<()> {
    Ok(())
}

/// A connection and its peer.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) peer: PeerAddress,
    pub(super) stream: Detached,
}

/// A connection that is not registered with a runtime yet: the one that serves it need not be the
/// one that accepted it.
#[derive(Debug)]
pub(super) enum Detached {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Detached {
    /// Registers it with the runtime of the calling task.
    pub(super) fn attach(self) -> io::Result<Stream> {
        match self {
            Self::Tcp(stream) => {
                let stream = TcpStream::from_std(stream)?;
                // Decisions are small and awaited: none waits to be sent together with the
                // next. A socket that refuses this is about to fail anyway.
                let _ = stream.set_nodelay(true);
                Ok(Stream::Tcp(stream))
            }
            Self::Unix(stream) => Ok(Stream::Unix(UnixStream::from_std(stream)?)),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket whose unsent bytes can be given up.
pub(super) trait ForgetUnsent {
    /// Has the system drop, at the close that follows, the bytes that the peer has not taken, and
    /// reset the connection. Otherwise it would keep them for minutes, for a peer that never reads.
    fn forget_unsent(&self);
}

impl ForgetUnsent for Stream {
    fn forget_unsent(&self) {
        match self {
            // One that refuses this is closed as any other.
            Self::Tcp(stream) => drop(stream.set_zero_linger()),
            // Its bytes are the reader's, and go with it.
            Self::Unix(_) => {}
        }
    }
}

impl<S: ForgetUnsent> ForgetUnsent for TlsStream<S> {
    fn forget_unsent(&self) {
        self.get_ref().0.forget_unsent();
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        // Both of them do.
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
