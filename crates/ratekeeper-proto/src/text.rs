//! Keys and values of descriptors, which are bytes on the wire and text in memory.
//!
//! A proxy forwards what its clients send, and headers may hold any byte. A service that refused such a request would
//! give its proxy no decision, and most proxies let a request without a decision pass: one byte would lift every
//! limit. So each key and value becomes text, and different bytes become different text.
//!
//! Text stays as it is. In anything else, [`MARK`] and two hexadecimal digits stand for each byte that is not part of
//! UTF-8, and for each byte of a `MARK` that was sent: the text says which bytes it was made from. A rule matches the
//! byte FF as `"\uFDD0ff"` in YAML.

use std::borrow::Cow;
use std::fmt::Write;

/// The character before the digits of a byte: a noncharacter, which Unicode keeps out of text that is exchanged.
pub const MARK: char = '\u{FDD0}';

/// Returns the text for `bytes`, which is borrowed if it is the same.
#[must_use]
pub fn read(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if is_plain(text) => Cow::Borrowed(text),
        _ => Cow::Owned(escaped(bytes)),
    }
}

/// Returns true if `text` stands for itself.
#[must_use]
pub fn is_plain(text: &str) -> bool {
    text.is_ascii() || !text.contains(MARK)
}

#[cold]
fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                MARK => write_bytes(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => out.push(c),
            }
        }
        write_bytes(&mut out, chunk.invalid());
    }
    out
}

fn write_bytes(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(out, "{MARK}{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that an escaped text was made from.
    fn bytes_of(text: &str) -> Vec<u8> {
        let mut parts = text.split(MARK);
        let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
        for part in parts {
            let (digits, rest) = part.split_at(2);
            bytes.push(u8::from_str_radix(digits, 16).expect("two digits follow a mark"));
            bytes.extend(rest.as_bytes());
        }
        bytes
    }

    #[test]
    fn text_stays_as_it_is() {
        for text in [
            "",
            "demo",
            "caf\u{e9}",
            "\u{fffd}",
            "\u{1f980}",
            "\0\n\\xff%ff",
        ] {
            assert!(matches!(read(text.as_bytes()), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn what_is_no_text_keeps_the_text_around_it() {
        assert_eq!(read(b"/api/\xffx"), "/api/\u{fdd0}ffx");
        assert_eq!(
            read("\u{fdd0}ff".as_bytes()),
            "\u{fdd0}ef\u{fdd0}b7\u{fdd0}90ff"
        );
    }

    /// So that no two values share a counter.
    #[test]
    fn bytes_can_be_told_from_their_text() {
        let parts: [&[u8]; 9] = [
            b"",
            b"a",
            b"f",
            b"\xff",
            b"\xef",
            b"\xb7",
            b"\x90",
            "\u{fdd0}".as_bytes(),
            "\u{e9}".as_bytes(),
        ];
        for one in parts {
            for two in parts {
                for three in parts {
                    let bytes = [one, two, three, b"0f"].concat();
                    assert_eq!(bytes_of(&read(&bytes)), bytes);
                }
            }
        }
    }
}
