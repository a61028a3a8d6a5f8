//! The fields of an encoded message, read where they lie.

use prost::encoding::{WireType, decode_key, decode_varint};

use crate::text;

/// The value of a field, as plain messages have them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldValue<'a> {
    /// A number, a bool or an enum.
    Number(u64),
    /// A text, bytes or a message.
    Bytes(&'a [u8]),
}

impl<'a> FieldValue<'a> {
    /// The bytes; none of a number.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Number(_) => None,
        }
    }

    /// The text; none if it does not stand for itself, as [`text`] says.
    #[inline]
    #[must_use]
    pub fn text(self) -> Option<&'a str> {
        let text = std::str::from_utf8(self.bytes()?).ok()?;
        text::is_plain(text).then_some(text)
    }
}

/// An iterator over the fields of a message, in their order. An item is None, and the last one, where the bytes are no
/// message or a field is of another kind.
#[derive(Clone, Debug)]
pub struct MessageFields<'a>(&'a [u8]);

impl<'a> MessageFields<'a> {
    /// The fields of the message that `bytes` are.
    #[inline]
    #[must_use]
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    #[inline]
    fn field(&mut self) -> Option<(u32, FieldValue<'a>)> {
        // Nearly all fields have a key and a length of one byte each, and reading them so takes a fifth of the time.
        if let [key @ 8..128, length @ ..128, rest @ ..] = self.0
            && key & 7 == WireType::LengthDelimited as u8
        {
            let (bytes, rest) = rest.split_at_checked(usize::from(*length))?;
            self.0 = rest;
            return Some((u32::from(key >> 3), FieldValue::Bytes(bytes)));
        }
        self.any_field()
    }

    fn any_field(&mut self) -> Option<(u32, FieldValue<'a>)> {
        let (number, wire_type) = decode_key(&mut self.0).ok()?;
        let value = decode_varint(&mut self.0);
        let value = match wire_type {
            WireType::Varint => FieldValue::Number(value.ok()?),
            WireType::LengthDelimited => {
                let length = usize::try_from(value.ok()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                FieldValue::Bytes(bytes)
            }
            _ => return None,
        };
        Some((number, value))
    }
}

impl<'a> Iterator for MessageFields<'a> {
    type Item = Option<(u32, FieldValue<'a>)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Option<Vec<(u32, FieldValue<'_>)>> {
        MessageFields::of(bytes).collect()
    }

    #[test]
    fn fields_are_lent_in_their_order() {
        let fields = read(b"\x12\x01b\x08\x96\x01\x0a\x01a").expect("it is a message");
        let expected = [
            (2, FieldValue::Bytes(b"b")),
            (1, FieldValue::Number(150)),
            (1, FieldValue::Bytes(b"a")),
        ];
        assert_eq!(fields, expected);
        assert_eq!(read(b""), Some(Vec::new()));
    }

    /// A length may be written longer than it has to be, and keys of more than a byte exist.
    #[test]
    fn fields_with_long_keys_and_lengths_are_read() {
        let long = [&b"\x0a\x80\x01"[..], &[b'x'; 128], b"\x82\x01\x01a"].concat();
        let fields = read(&long).expect("it is a message");
        let expected = [
            (1, FieldValue::Bytes(&[b'x'; 128])),
            (16, FieldValue::Bytes(b"a")),
        ];
        assert_eq!(fields, expected);
        let padded = read(b"\x0a\x81\x00a").expect("it is a message");
        assert_eq!(padded, [(1, FieldValue::Bytes(b"a"))]);
        assert_eq!(read(b"\x02\x01a"), None, "no field has the number 0");
    }

    #[test]
    fn what_is_no_plain_message_is_none() {
        for bytes in [
            &b"\x12"[..],
            b"\x12\x05ab",
            b"\x08",
            b"\x08\xff",
            b"\x00\x01",
            b"\x09\0\0\0\0\0\0\0\0",
            b"\x0d\0\0\0\0",
            b"\x0b\x0c",
            b"\x08\x01\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert_eq!(read(bytes), None, "{bytes:x?}");
        }
    }

    #[test]
    fn text_is_lent_if_it_stands_for_itself() {
        assert_eq!(
            FieldValue::Bytes("caf\u{e9}".as_bytes()).text(),
            Some("caf\u{e9}")
        );
        assert_eq!(FieldValue::Bytes(b"\xff").text(), None);
        assert_eq!(FieldValue::Bytes("\u{fdd0}ff".as_bytes()).text(), None);
        assert_eq!(FieldValue::Number(1).text(), None);
    }
}
