//! Normalization of paths.

use std::borrow::Cow;
use std::fmt;

use super::{Ambiguities, NormalizedPath};

/// An ambiguity in a path, other than an encoded slash or a backslash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ambiguity {
    /// `/a/../b`: some services resolve it, and some match it literally.
    DotSegment,
    /// `//a/b`: URL parsers take `a` for a host, and the path for `/b`.
    LeadingSlashes,
    /// `/a;x=1`: servlet containers drop the text after the semicolon; others do not.
    Parameters,
    /// `/a#b`: requests have no fragment. Some services cut it off.
    Fragment,
    /// `%00`, `%0A`, `%FF`, `%252F` or `%u002F`: a control character, invalid UTF-8, or an escape
    /// that decodes twice.
    Escape,
}

impl fmt::Display for Ambiguity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DotSegment => "a segment `.` or `..`",
            Self::LeadingSlashes => "two slashes at its beginning",
            Self::Parameters => "a semicolon",
            Self::Fragment => "a fragment",
            Self::Escape => {
                "an encoded control character or percent sign, or bytes that are no UTF-8"
            }
        })
    }
}

/// Normalizes a path as [`Target`](crate::Target) describes.
pub(crate) fn path(raw: &[u8]) -> NormalizedPath<'_> {
    if is_in_one_spelling(raw)
        && let Ok(path) = std::str::from_utf8(raw)
    {
        let path = Cow::Borrowed(path);
        let ambiguities = Ambiguities::default();
        return NormalizedPath { path, ambiguities };
    }
    let mut segments: Vec<String> = Vec::new();
    let mut is_folder = false;
    for raw in raw.split(|byte| *byte == b'/') {
        let segment = decode(raw, |byte| matches!(byte, b'/' | b'%'), Plus::Itself);
        is_folder = matches!(&*segment, "" | "." | "..");
        match &*segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            _ => segments.push(segment),
        }
    }
    let mut out = String::with_capacity(raw.len());
    for segment in &segments {
        out.push('/');
        out.push_str(segment);
    }
    if is_folder || out.is_empty() {
        out.push('/');
    }
    NormalizedPath {
        ambiguities: Ambiguities {
            slash: out.contains("%2F") || out.contains('\\'),
            other: ambiguity(raw, &out),
        },
        path: Cow::Owned(out),
    }
}

/// Bytes with a single spelling and a single reading.
static IS_PLAIN: [bool; 256] = {
    let mut is_plain = [false; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        is_plain[byte as usize] = !matches!(byte, b'%' | b'\\' | b';');
        byte += 1;
    }
    is_plain
};

/// Returns true if a path is already normalized: the common case, decided without allocating.
fn is_in_one_spelling(path: &[u8]) -> bool {
    let mut pairs = path.windows(2);
    path.iter().all(|byte| IS_PLAIN[usize::from(*byte)])
        && !pairs.any(|pair| pair == b"//" || pair == b"/.")
}

/// The first ambiguity of a path besides slashes; `normalized` is the normalized path.
fn ambiguity(raw: &[u8], normalized: &str) -> Option<Ambiguity> {
    let is_leading = |byte: Option<&u8>| matches!(byte, Some(b'/' | b'\\'));
    if is_leading(raw.first()) && is_leading(raw.get(1)) {
        Some(Ambiguity::LeadingSlashes)
    } else if has_dot_segments(raw) {
        Some(Ambiguity::DotSegment)
    } else if normalized.contains(';') {
        Some(Ambiguity::Parameters)
    } else if has_second_reading(normalized) {
        Some(Ambiguity::Escape)
    } else {
        None
    }
}

/// Returns true if an escape is left that is neither a slash nor a literal percent sign.
fn has_second_reading(normalized: &str) -> bool {
    let mut pieces = normalized.split('%').skip(1).map(str::as_bytes);
    pieces.any(|piece| match piece {
        [b'2', b'F', ..] => false,
        // `%25` and two digits, or `u` and four: it stands for another escape.
        [b'2', b'5', b'u', rest @ ..] => rest.get(..4).is_some_and(is_hex),
        [b'2', b'5', high, low, ..] => is_hex(&[*high, *low]),
        [b'2', b'5', ..] => false,
        _ => true,
    })
}

fn is_hex(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_hexdigit)
}

/// Returns true if a segment of a path, as it was sent, is `.` or `..`, with dots and slashes
/// encoded or not, backslashes for slashes, and parameters after a semicolon.
#[must_use]
pub fn has_dot_segments(path: &[u8]) -> bool {
    // Most paths have no segment that begins with a dot.
    let begins = |pair: &[u8]| matches!(pair, [b'/' | b'\\', b'.' | b'%']);
    if !path.contains(&b'%') && !path.windows(2).any(begins) {
        return false;
    }
    let mut dots = Some(0);
    let mut rest = path;
    loop {
        let (byte, after) = match rest {
            [] => return is_dots(dots),
            [b'%', after @ ..] => match escape(after) {
                Some(byte) => (byte, after.get(2..).unwrap_or_default()),
                None => (b'%', after),
            },
            [byte, after @ ..] => (*byte, after),
        };
        rest = after;
        dots = match (byte, dots) {
            (b'/' | b'\\' | b';', dots) if is_dots(dots) => return true,
            (b'/' | b'\\', _) => Some(0),
            (b'.', Some(count)) => Some(count + 1),
            // A name, up to the next slash.
            _ => None,
        };
    }
}

/// Returns true if a segment of this many dots, and nothing else, is a dot segment.
const fn is_dots(dots: Option<usize>) -> bool {
    matches!(dots, Some(1 | 2))
}

/// The meaning of a `+` in encoded text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Plus {
    /// A plus sign, as in paths.
    Itself,
    /// A space, as in forms and queries.
    Space,
}

/// Decodes percent-encoding. Bytes that `keep` selects, control characters and invalid UTF-8 stay
/// encoded.
pub(crate) fn decode(bytes: &[u8], keep: impl Fn(u8) -> bool, plus: Plus) -> String {
    let mut decoded: Vec<u8> = Vec::with_capacity(bytes.len());
    let mut put = |byte: u8, is_escaped: bool| {
        if byte.is_ascii_control() || (is_escaped && keep(byte)) {
            decoded.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            decoded.push(byte);
        }
    };
    let mut rest = bytes;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'%' => match escape(after) {
                Some(byte) => {
                    rest = after.get(2..).unwrap_or_default();
                    put(byte, true);
                }
                // As if the percent sign had been encoded.
                None => put(b'%', true),
            },
            b'+' if plus == Plus::Space => put(b' ', false),
            byte => put(byte, false),
        }
    }
    let mut text = String::with_capacity(decoded.len());
    for chunk in decoded.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// The byte for two hexadecimal digits.
fn escape(bytes: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*bytes.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}
