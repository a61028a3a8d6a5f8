//! Bounds on the answers of a server.
//!
//! The client library keeps an answer until all of it is there, and makes room for as many items as
//! a server announces. So a server, or whoever answers in its place, could make a node take any
//! amount of memory. Here the answers are measured as they are read, and a connection with one that
//! is too large ends with an error.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes of one answer: several times the map of a cluster in which each slot has another
/// owner than the one before.
const BYTES_MAX: usize = 16 << 20;

/// The most items of one answer, those in lists within lists included.
const ITEMS_MAX: u64 = 1 << 20;

/// A connection whose answers are bounded.
pub(crate) struct Bounded<S> {
    stream: S,
    answer: Answer,
}

impl<S> Bounded<S> {
    pub(crate) fn new(stream: S) -> Self {
        let answer = Answer::default();
        Self { stream, answer }
    }
}

/// An answer that is too large.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an answer of more than {BYTES_MAX} bytes or {ITEMS_MAX} items")]
struct TooLarge;

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let came = buffer.filled().get(before..).unwrap_or_default();
        let measured = self.answer.measure(came);
        Poll::Ready(measured.map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }
}

/// The part of an answer that was read so far (RESP2 and RESP3).
#[derive(Debug, Default)]
struct Answer {
    bytes: usize,
    /// The items that are still to come.
    open: u64,
    /// The first byte of the line under way; None before it.
    kind: Option<u8>,
    number: u64,
    is_negative: bool,
    /// The bytes of a bulk string that are still to come, with the end of its line.
    skip: u64,
}

impl Answer {
    fn measure(&mut self, mut bytes: &[u8]) -> Result<(), TooLarge> {
        while let Some((first, rest)) = bytes.split_first() {
            if self.skip > 0 {
                let here = usize::try_from(self.skip).map_or(bytes.len(), |it| it.min(bytes.len()));
                self.skip -= here as u64;
                bytes = bytes.get(here..).unwrap_or_default();
                self.count(here)?;
                if self.skip == 0 {
                    self.end_item(0)?;
                }
                continue;
            }
            bytes = rest;
            self.count(1)?;
            match (self.kind, *first) {
                (None, kind) => {
                    self.kind = Some(kind);
                    (self.number, self.is_negative) = (0, false);
                }
                (Some(kind), b'\n') => self.end_line(kind)?,
                (_, b'-') => self.is_negative = true,
                (_, digit @ b'0'..=b'9') => {
                    let number = self.number.saturating_mul(10);
                    self.number = number.saturating_add(u64::from(digit - b'0'));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), TooLarge> {
        self.bytes += bytes;
        match self.bytes > BYTES_MAX {
            true => Err(TooLarge),
            false => Ok(()),
        }
    }

    fn end_line(&mut self, kind: u8) -> Result<(), TooLarge> {
        self.kind = None;
        let number = if self.is_negative { 0 } else { self.number };
        match kind {
            b'$' | b'=' | b'!' if !self.is_negative => {
                self.skip = number.saturating_add(2);
                match number > BYTES_MAX as u64 {
                    true => Err(TooLarge),
                    false => Ok(()),
                }
            }
            b'*' | b'~' | b'>' => self.end_item(number),
            b'%' => self.end_item(number.saturating_mul(2)),
            // An attribute comes before what it is about.
            b'|' => self.end_item(number.saturating_mul(2).saturating_add(1)),
            _ => self.end_item(0),
        }
    }

    /// An item is there, which announces that many more.
    fn end_item(&mut self, more: u64) -> Result<(), TooLarge> {
        self.open = self.open.saturating_sub(1).saturating_add(more);
        if self.open == 0 {
            self.bytes = 0;
        }
        match self.open > ITEMS_MAX {
            true => Err(TooLarge),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measures `text` in pieces of each length, and returns what is left of the answer: its bytes.
    fn left(text: &[u8]) -> usize {
        let of_pieces = |length: usize| {
            let mut answer = Answer::default();
            for piece in text.chunks(length) {
                answer.measure(piece).expect("it is small");
            }
            answer.bytes
        };
        let whole = of_pieces(text.len());
        (1..text.len()).for_each(|length| assert_eq!(of_pieces(length), whole, "{length}"));
        whole
    }

    #[test]
    fn a_whole_answer_leaves_nothing() {
        for whole in [
            &b"+OK\r\n"[..],
            b"-ERR no -1 99\r\n",
            b":-5\r\n",
            b"$5\r\n1\r\n*9\r\n",
            b"$0\r\n\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"*2\r\n:1\r\n*2\r\n$1\r\na\r\n+b\r\n",
            b"%1\r\n+a\r\n:1\r\n",
            b"|1\r\n+a\r\n:1\r\n*1\r\n:1\r\n",
            b"~1\r\n=5\r\ntxt:a\r\n",
            b"!3\r\nERR\r\n",
            b"#t\r\n",
            b",1.5\r\n",
            b"_\r\n",
        ] {
            let text = String::from_utf8_lossy(whole).into_owned();
            assert_eq!(left(whole), 0, "{text}");
            assert_eq!(left(&whole.repeat(3)), 0, "{text}");
            assert_ne!(left(&whole[..whole.len() - 1]), 0, "{text}");
        }
    }

    #[test]
    fn an_answer_that_is_too_large_is_an_error() {
        for large in [
            &b"$16777217\r\n"[..],
            b"$99999999999999999999999\r\n",
            b"*1048577\r\n",
            b"*99999999999999999999999\r\n",
            b"%600000\r\n",
            b"*1000000\r\n*1000000\r\n",
        ] {
            let text = String::from_utf8_lossy(large).into_owned();
            assert_eq!(Answer::default().measure(large), Err(TooLarge), "{text}");
        }
        let (mut answer, line) = (Answer::default(), vec![b'+'; 1 << 20]);
        let mut pieces = std::iter::repeat_with(|| answer.measure(&line));
        assert_eq!(pieces.position(|measured| measured.is_err()), Some(16));
        let (mut answer, item) = (
            Answer::default(),
            [b"$1048576\r\n", &line[..], b"\r\n"].concat(),
        );
        answer.measure(b"*20\r\n").expect("twenty are few");
        let mut pieces = std::iter::repeat_with(|| answer.measure(&item));
        assert_eq!(pieces.position(|measured| measured.is_err()), Some(15));
    }
}
