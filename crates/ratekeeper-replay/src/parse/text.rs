//! Converts bytes of a log to text.

use std::borrow::Cow;

/// The text, if any: servers write an empty value or `-` for a missing one.
pub(super) fn present(bytes: &[u8]) -> Option<Cow<'_, str>> {
    match bytes {
        b"" | b"-" => None,
        _ => Some(lossy(bytes)),
    }
}

/// The bytes as text; invalid UTF-8 is replaced by U+FFFD.
pub(super) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    // Same result as `from_utf8_lossy` alone, which is slower on plain ASCII.
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// Strips the port that Envoy and others append to an address: `10.0.0.1:443`, `[2001:db8::1]:443`,
/// `[::1]`. A bare IPv6 address keeps its colons.
pub(super) fn without_port(address: &[u8]) -> &[u8] {
    if let Some(inner) = address.strip_prefix(b"[") {
        return match memchr::memchr(b']', inner) {
            Some(end) => &inner[..end],
            None => address,
        };
    }
    let Some(colon) = memchr::memchr(b':', address) else {
        return address;
    };
    let (host, port) = (&address[..colon], &address[colon + 1..]);
    let is_port = !port.is_empty() && port.iter().all(u8::is_ascii_digit);
    if is_port && !host.is_empty() {
        host
    } else {
        address
    }
}

/// Undoes the escapes of Apache (`\"`, `\\`, `\t`, `\xhh`), NGINX (`\x22`) and JSON (`\u00e4`,
/// surrogate pairs included). Anything else stays as it is.
pub(super) fn unescape(bytes: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr::memchr(b'\\', bytes) else {
        return Cow::Borrowed(bytes);
    };
    let mut out = Vec::with_capacity(bytes.len());
    out.extend_from_slice(&bytes[..first]);
    let mut rest = &bytes[first..];
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        rest = unescape_one(after, &mut out);
    }
    Cow::Owned(out)
}

/// Writes the character of the escape whose backslash stands before `rest`; returns the remaining
/// bytes.
fn unescape_one<'a>(rest: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    let Some((&kind, after)) = rest.split_first() else {
        out.push(b'\\');
        return rest;
    };
    let plain = match kind {
        b'"' | b'\\' | b'/' | b'\'' => kind,
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 8,
        b'f' => 12,
        b'v' => 11,
        b'x' => {
            let Some(byte) = hex(after, 2) else {
                out.extend_from_slice(b"\\x");
                return after;
            };
            out.push(u8::try_from(byte).unwrap_or(u8::MAX)); // two hex digits
            return &after[2..];
        }
        b'u' => return unescape_unicode(after, out),
        _ => {
            out.extend_from_slice(&[b'\\', kind]);
            return after;
        }
    };
    out.push(plain);
    after
}

fn unescape_unicode<'a>(rest: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    let Some(high) = hex(rest, 4) else {
        out.extend_from_slice(b"\\u");
        return rest;
    };
    let mut rest = &rest[4..];
    let mut code = high;
    if (0xd800..0xdc00).contains(&high) {
        let low = rest.strip_prefix(b"\\u").and_then(|digits| hex(digits, 4));
        if let Some(low) = low.filter(|low| (0xdc00..0xe000).contains(low)) {
            code = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
            rest = &rest[6..];
        }
    }
    let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    rest
}

fn hex(bytes: &[u8], digits: usize) -> Option<u32> {
    bytes.get(..digits)?.iter().try_fold(0, |number, &byte| {
        let digit = char::from(byte).to_digit(16)?;
        Some(number * 16 + digit)
    })
}

/// [`unescape`], then [`present`].
pub(super) fn unescaped(bytes: &[u8]) -> Option<Cow<'_, str>> {
    match unescape(bytes) {
        Cow::Borrowed(bytes) => present(bytes),
        Cow::Owned(bytes) => present(&bytes).map(|text| Cow::Owned(text.into_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_go_and_addresses_stay() {
        for (written, address) in [
            ("10.0.0.1", "10.0.0.1"),
            ("10.0.0.1:443", "10.0.0.1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("[::1]", "::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("::1", "::1"),
            ("host.example", "host.example"),
            ("host.example:80", "host.example"),
            ("unix:", "unix:"),
            ("[::1", "[::1"),
            (":80", ":80"),
        ] {
            assert_eq!(
                without_port(written.as_bytes()),
                address.as_bytes(),
                "{written}"
            );
        }
    }

    #[test]
    fn escapes_of_all_servers() {
        for (written, meant) in [
            (r"plain", "plain"),
            (r#"a\"b"#, "a\"b"),
            (r"a\\b", "a\\b"),
            (r"a\x22b", "a\"b"),
            (r"\u00e4\ud83d\ude00", "ä😀"),
            (r"\ud83dx", "\u{fffd}x"),
            (r"\t\q\x1", "\t\\q\\x1"),
            (r"end\", "end\\"),
            (r"\u12", "\\u12"),
        ] {
            assert_eq!(unescape(written.as_bytes()), meant.as_bytes(), "{written}");
        }
    }
}
