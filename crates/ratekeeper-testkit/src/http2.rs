//! HTTP/2 written byte by byte: frames and header blocks that no client library would send.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::http1;

/// Header fields in the order in which they are sent.
pub type Fields<'a> = &'a [(&'a str, &'a str)];

/// The first answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Headers with this status.
    Status(u16),
    /// The stream, or the connection, ends with an error of the protocol.
    Refused,
}

/// The bytes that open a connection.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The type of a DATA frame.
pub const DATA: u8 = 0;
/// The type of a HEADERS frame.
pub const HEADERS: u8 = 1;
/// The type of a RST_STREAM frame.
pub const RST_STREAM: u8 = 3;
/// The type of a SETTINGS frame.
pub const SETTINGS: u8 = 4;
/// The type of a PING frame.
pub const PING: u8 = 6;
/// The type of a GOAWAY frame.
pub const GOAWAY: u8 = 7;
/// The type of a WINDOW_UPDATE frame.
pub const WINDOW_UPDATE: u8 = 8;
/// The type of a CONTINUATION frame.
pub const CONTINUATION: u8 = 9;
/// The flag of a PING or SETTINGS frame that answers another.
pub const ACK: u8 = 1;
/// The flag of the last frame of a stream.
pub const END_STREAM: u8 = 1;
/// The flag of the last frame of a header block.
pub const END_HEADERS: u8 = 4;
/// The error code CANCEL.
const CANCEL: u32 = 8;

/// The bytes of a frame.
///
/// # Panics
/// If the payload is longer than four GiB.
#[must_use]
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("frames of tests are short");
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// HPACK: literals without indexing, which say what they are told to.
///
/// # Panics
/// If a name or a value has 127 bytes or more.
#[must_use]
pub fn block(fields: Fields<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
            assert!(length < 127, "longer ones are written in another way");
            bytes.push(length);
            bytes.extend(text.as_bytes());
        }
    }
    bytes
}

/// The status at the beginning of a block, by HPACK's index of it or as digits.
fn status(block: &[u8]) -> u16 {
    match block.first() {
        Some(0x88) => 200,
        Some(0x89) => 204,
        Some(0x8c) => 400,
        Some(0x8d) => 404,
        // A literal by the name's index, `:status`, with three digits, which Huffman's code makes two or three bytes.
        Some(0x08 | 0x18 | 0x48) => digits(block.get(1..).unwrap_or_default()),
        _ => panic!("no status that this client reads: {block:x?}"),
    }
}

/// Three digits in HPACK's form: a length, and the text plain or by Huffman's code.
fn digits(text: &[u8]) -> u16 {
    let (Some(length), rest) = (text.first(), text.get(1..).unwrap_or_default()) else {
        return 0;
    };
    let bytes = rest.get(..usize::from(length & 0x7f)).unwrap_or_default();
    if length & 0x80 == 0 {
        let plain = std::str::from_utf8(bytes).ok();
        return plain.and_then(|plain| plain.parse().ok()).unwrap_or(0);
    }
    let mut bits = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1));
    let mut take = |count| (0..count).try_fold(0_u8, |sum, _| Some(sum << 1 | bits.next()?));
    // RFC 7541, appendix B: 0, 1 and 2 are five bits long, the other digits six.
    (0..3).fold(0, |sum, _| {
        let digit = match take(5) {
            Some(short @ 0..=2) => short,
            Some(long) => (long << 1 | take(1).unwrap_or(0)).saturating_sub(0x19) + 3,
            None => 0,
        };
        sum * 10 + u16::from(digit)
    })
}

/// The bytes that open a connection whose streams take this much of an answer at first; as much as is usual without it.
#[must_use]
pub fn opening(window: Option<u32>) -> Vec<u8> {
    const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
    let settings = window.map(|size| [&INITIAL_WINDOW_SIZE[..], &size.to_be_bytes()].concat());
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &settings.unwrap_or_default()));
    bytes
}

/// Begins a request on a connection of its own: its first frames, and the body, if that is all of it.
///
/// # Panics
/// If nothing listens at `port`.
#[must_use]
pub fn begin(port: u16, fields: Fields<'_>, body: Option<&str>) -> TcpStream {
    let mut stream = http1::connect(port);
    let mut bytes = opening(None);
    bytes.extend(frame(HEADERS, END_HEADERS, 1, &block(fields)));
    if let Some(body) = body {
        bytes.extend(frame(DATA, END_STREAM, 1, body.as_bytes()));
    }
    stream.write_all(&bytes).expect("it is read from");
    stream
}

/// Takes back what was begun; the connection stays.
///
/// # Panics
/// If the connection is closed.
pub fn cancel(stream: &mut TcpStream) {
    let reset = frame(RST_STREAM, 0, 1, &CANCEL.to_be_bytes());
    stream.write_all(&reset).expect("it is read from");
}

/// The first headers, or the first error, that come back.
pub fn outcome(stream: &mut TcpStream) -> Outcome {
    loop {
        match read_frame(stream) {
            Some((HEADERS, payload)) => return Outcome::Status(status(&payload)),
            Some((RST_STREAM | GOAWAY, _)) | None => return Outcome::Refused,
            Some(_) => {}
        }
    }
}

/// The type of the next frame and its payload; None at the end.
pub fn read_frame(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let (kind, _, payload) = read_flagged(stream)?;
    Some((kind, payload))
}

/// The type of the next frame, its flags and its payload; None at the end.
pub fn read_flagged(stream: &mut TcpStream) -> Option<(u8, u8, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).ok()?;
    Some((head[3], head[4], payload))
}

#[cfg(test)]
mod tests {
    use super::digits;

    /// 302 and 307 are from RFC 7541, appendix C.6.
    #[test]
    fn a_status_is_read_plain_and_by_huffmans_code() {
        assert_eq!(digits(b"\x03429"), 429);
        assert_eq!(digits(&[0x82, 0x64, 0x02]), 302);
        assert_eq!(digits(&[0x83, 0x64, 0x0e, 0xff]), 307);
        assert_eq!(digits(&[0x83, 0x68, 0x4f, 0xff]), 429);
    }
}
