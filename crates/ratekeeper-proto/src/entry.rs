//! An entry of a descriptor, in Envoy's protocol and in ours.

use bytes::{Buf, BufMut};
use prost::encoding::{
    DecodeContext, WireType, check_wire_type, decode_varint, skip_field, string,
};
use prost::{DecodeError, Message};
use serde::Deserialize;

use crate::json::reading;
use crate::text;

/// The numbers of the two fields.
const KEY: u32 = 1;
const VALUE: u32 = 2;

/// An entry of a descriptor. Both fields may be any bytes on the wire, and are read as [`text`] says.
///
/// Written by hand in place of the generated type, which refuses a whole request for one byte that is no UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WireEntry {
    /// The name of a property. Not empty.
    #[serde(deserialize_with = "reading::entry_text")]
    pub key: String,
    /// The value of the property; may be empty.
    #[serde(deserialize_with = "reading::entry_text")]
    pub value: String,
}

impl Message for WireEntry {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        for (tag, text) in [(KEY, &self.key), (VALUE, &self.value)] {
            if !text.is_empty() {
                string::encode(tag, text, buf);
            }
        }
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        let (name, text) = match tag {
            KEY => ("key", &mut self.key),
            VALUE => ("value", &mut self.value),
            _ => return skip_field(wire_type, tag, buf, ctx),
        };
        read_text(wire_type, text, buf).map_err(|mut error| {
            error.push("Entry", name);
            error
        })
    }

    fn encoded_len(&self) -> usize {
        let length = |(tag, text): (u32, &String)| match text.is_empty() {
            true => 0,
            false => string::encoded_len(tag, text),
        };
        length((KEY, &self.key)) + length((VALUE, &self.value))
    }

    fn clear(&mut self) {
        self.key.clear();
        self.value.clear();
    }
}

/// Reads a field of bytes as text, which is copied once.
fn read_text(
    wire_type: WireType,
    text: &mut String,
    buf: &mut impl Buf,
) -> Result<(), DecodeError> {
    check_wire_type(WireType::LengthDelimited, wire_type)?;
    let length = decode_varint(buf)?;
    let length = usize::try_from(length)
        .ok()
        .filter(|length| *length <= buf.remaining());
    let Some(length) = length else {
        #[expect(deprecated, reason = "prost has no other way to make an error")]
        return Err(DecodeError::new("buffer underflow"));
    };
    if let Some(bytes) = buf.chunk().get(..length) {
        *text = text::read(bytes).into_owned();
        buf.advance(length);
    } else {
        *text = text::read(&buf.copy_to_bytes(length)).into_owned();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, value: &str) -> WireEntry {
        WireEntry {
            key: key.to_owned(),
            value: value.to_owned(),
        }
    }

    #[test]
    fn it_is_encoded_as_the_protocols_have_it() {
        assert_eq!(entry("k", "").encode_to_vec(), b"\x0a\x01k");
        let both = entry("key", "value");
        let bytes = both.encode_to_vec();
        assert_eq!(bytes, b"\x0a\x03key\x12\x05value");
        assert_eq!(both.encoded_len(), bytes.len());
        assert_eq!(WireEntry::decode(&*bytes), Ok(both));
    }

    #[test]
    fn it_is_read_whatever_bytes_it_has() {
        let read = |bytes: &[u8]| WireEntry::decode(bytes);
        assert_eq!(
            read(b"\x0a\x01k\x12\x02a\xff"),
            Ok(entry("k", "a\u{fdd0}ff"))
        );
        assert_eq!(read(b"\x0a\x01\xfe"), Ok(entry("\u{fdd0}fe", "")));
        // In pieces, with a field of a later version, and with the last value of two.
        let pieces = (&b"\x0a\x01k\x1a\x01?\x12\x03x"[..]).chain(&b"yz\x12\x02\xff\xff"[..]);
        assert_eq!(
            WireEntry::decode(pieces),
            Ok(entry("k", "\u{fdd0}ff\u{fdd0}ff"))
        );
        let pieces = (&b"\x12\x03x"[..]).chain(&b"y\xff"[..]);
        assert_eq!(WireEntry::decode(pieces), Ok(entry("", "xy\u{fdd0}ff")));
    }

    #[test]
    fn what_is_no_entry_is_an_error() {
        for bytes in [
            &b"\x0a\x05k"[..],
            b"\x0a",
            b"\x08\x01",
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert!(WireEntry::decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
