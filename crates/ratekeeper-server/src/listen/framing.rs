//! Finds the request that gives two lengths for its body.
//!
//! hyper drops a `Content-Length` beside a `Transfer-Encoding` before anybody sees it, answers, and
//! closes the connection (RFC 9112, section 6.3). The forwarded request then has one meaning, but a
//! client that sends both is broken or hostile, and is better refused. So the bytes are followed
//! here on their way to hyper: heads line by line, bodies only to find their end. Nothing is
//! changed, and input that makes hyper end the connection is not followed any further.

use std::mem;
use std::sync::Arc;

use memchr::memchr;

use super::line::Line;

/// Among a request's extensions where it has both a `Content-Length` and a `Transfer-Encoding`,
/// only the second of which is left: for a [`GatewayService`](crate::GatewayService) to refuse.
#[derive(Clone, Copy, Debug)]
pub struct FramedTwice;

/// Follows the bytes of one connection.
#[derive(Debug)]
pub(super) struct Framing {
    place: MessagePart,
    /// The beginning of an unfinished line.
    begun: Vec<u8>,
    /// The longest line of a head that hyper reads.
    line_bytes_max: usize,
    heads: u32,
    told: Arc<Line>,
}

/// The part of a message that the next byte belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MessagePart {
    RequestLine,
    Header(Head),
    /// A body of this many bytes, which has no lines.
    Data {
        left: u64,
        then: After,
    },
    ChunkSize,
    /// `is_within` is true if the line before ended in a bare line feed, which ends no line here.
    Trailer {
        is_within: bool,
    },
    /// Nothing that follows can be understood.
    Lost,
}

/// The part that comes after a body, or after a piece of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum After {
    RequestLine,
    ChunkSize,
}

/// The part of a head that describes the body, as far as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Head {
    has_length: bool,
    /// None if it is malformed, or if there are two different ones.
    length: Option<u64>,
    /// True if the last coding is `chunked`; None without any.
    is_chunked: Option<bool>,
}

impl Framing {
    /// Records in `line` the first request with both. A line longer than `line_bytes_max` is not
    /// waited for.
    pub(super) fn new(line: Arc<Line>, line_bytes_max: usize) -> Self {
        Self {
            place: MessagePart::RequestLine,
            begun: Vec::new(),
            line_bytes_max,
            heads: 0,
            told: line,
        }
    }

    /// Returns true if the connection has switched to another protocol, which is not understood
    /// here.
    pub(super) fn is_over(&self) -> bool {
        self.told.has_switched()
    }

    /// Follows the bytes just read.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.place != MessagePart::Lost {
            if let MessagePart::Data { left, then } = &mut self.place {
                let taken =
                    usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                *left -= taken as u64;
                bytes = &bytes[taken..];
                if *left == 0 {
                    self.place = then.place();
                }
                continue;
            }
            let Some(end) = memchr(b'\n', bytes) else {
                self.hold(bytes);
                return;
            };
            let (line, rest) = bytes.split_at(end + 1);
            bytes = rest;
            if self.begun.is_empty() {
                self.take(line);
            } else {
                let mut whole = mem::take(&mut self.begun);
                whole.extend_from_slice(line);
                self.take(&whole);
            }
        }
    }

    fn hold(&mut self, bytes: &[u8]) {
        if self.begun.len() + bytes.len() > self.line_bytes_max {
            self.place = MessagePart::Lost;
            self.begun = Vec::new();
        } else {
            self.begun.extend_from_slice(bytes);
        }
    }

    /// Takes a whole line, with its end.
    fn take(&mut self, line: &[u8]) {
        let is_ended_by_both = line.ends_with(b"\r\n");
        let text = &line[..line.len() - if is_ended_by_both { 2 } else { 1 }];
        if let (MessagePart::Header(head), false) = (&mut self.place, text.is_empty()) {
            return head.read(text);
        }
        self.place = match self.place {
            MessagePart::RequestLine => match text {
                // Some clients end a body with one too many.
                b"" => MessagePart::RequestLine,
                text if text.ends_with(b" HTTP/1.1") || text.ends_with(b" HTTP/1.0") => {
                    MessagePart::Header(Head::default())
                }
                _ => MessagePart::Lost,
            },
            MessagePart::Header(head) => self.end_of(head),
            MessagePart::ChunkSize if is_ended_by_both => after_chunk_size(text),
            MessagePart::Trailer { is_within: false } if line == b"\r\n" => {
                MessagePart::RequestLine
            }
            MessagePart::Trailer { .. } => MessagePart::Trailer {
                is_within: !is_ended_by_both,
            },
            MessagePart::ChunkSize | MessagePart::Data { .. } | MessagePart::Lost => {
                MessagePart::Lost
            }
        };
    }

    fn end_of(&mut self, head: Head) -> MessagePart {
        self.heads = self.heads.wrapping_add(1);
        match head {
            Head {
                has_length: true,
                is_chunked: Some(_),
                ..
            } => {
                self.told.mark_framed_twice(self.heads);
                MessagePart::Lost
            }
            Head {
                is_chunked: Some(true),
                ..
            } => MessagePart::ChunkSize,
            Head {
                has_length: false,
                is_chunked: None,
                ..
            }
            | Head {
                length: Some(0), ..
            } => MessagePart::RequestLine,
            Head {
                length: Some(left), ..
            } => MessagePart::Data {
                left,
                then: After::RequestLine,
            },
            _ => MessagePart::Lost,
        }
    }
}

impl After {
    const fn place(self) -> MessagePart {
        match self {
            Self::RequestLine => MessagePart::RequestLine,
            Self::ChunkSize => MessagePart::ChunkSize,
        }
    }
}

impl Head {
    fn read(&mut self, line: &[u8]) {
        // Most lines are told by their first letter.
        if !matches!(line, [b'C' | b'c' | b'T' | b't', ..]) {
            return;
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return;
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = std::str::from_utf8(value)
                .ok()
                .filter(|text| is_digits(text));
            let length = length.and_then(|text| text.parse().ok());
            self.length = length.filter(|_| !self.has_length || self.length == length);
            self.has_length = true;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let last = value
                .rsplit(|byte| *byte == b',')
                .next()
                .unwrap_or_default();
            self.is_chunked = Some(last.trim_ascii().eq_ignore_ascii_case(b"chunked"));
        }
    }
}

/// Returns true if the text is only digits: Rust would parse a sign as well, HTTP allows none.
fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reads the hexadecimal size; extensions after it are ignored.
fn after_chunk_size(line: &[u8]) -> MessagePart {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
    let digits = std::str::from_utf8(&line[..digits.count()]);
    match digits.map(|digits| u64::from_str_radix(digits, 16)) {
        Ok(Ok(0)) => MessagePart::Trailer { is_within: false },
        Ok(Ok(size)) => MessagePart::Data {
            // The end of the line after it, too.
            left: size.saturating_add(2),
            then: After::ChunkSize,
        },
        _ => MessagePart::Lost,
    }
}

#[cfg(test)]
mod tests;
