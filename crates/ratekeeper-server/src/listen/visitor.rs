//! Visitors who speak HTTP/1 where HTTP/2 is spoken: people with curl or a browser, who are told what is there.

use tokio::time::timeout;

use super::bounds::ServerBounds;
use super::drain::Drain;
use super::socket::Stream;

/// The beginnings of HTTP/1's methods. HTTP/2 begins with `PRI`.
const METHODS: [&[u8; 3]; 7] = [b"GET", b"HEA", b"POS", b"PUT", b"DEL", b"OPT", b"PAT"];

/// The protocol that a peer begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Beginning {
    Http1,
    /// HTTP/2, or nothing that is known: HTTP/2 has the words for it.
    Other,
    /// Nothing came for too long.
    Never,
}

impl Beginning {
    /// Waits for the first bytes, and leaves them where they are. It has to be known before HTTP/2 says its first
    /// word, which does not wait for the peer's.
    pub(super) async fn of(stream: &Stream, bounds: &ServerBounds, drain: &Drain) -> Self {
        let Stream::Tcp(stream) = stream else {
            return Self::Other;
        };
        let mut first = [0; 3];
        let peeked = tokio::select! {
            peeked = timeout(bounds.head_timeout, stream.peek(&mut first)) => peeked,
            // A connection of HTTP/2 knows how to leave.
            () = drain.begun() => return Self::Other,
        };
        match peeked {
            Err(_) => Self::Never,
            Ok(Ok(3)) if METHODS.contains(&&first) => Self::Http1,
            Ok(_) => Self::Other,
        }
    }
}
