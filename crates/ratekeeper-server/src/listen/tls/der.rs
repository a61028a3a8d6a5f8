//! As much of DER (ITU-T X.690) as it takes to walk through a certificate.

/// The tags that matter here.
pub(super) mod tag {
    pub(crate) const OCTET_STRING: u8 = 0x04;
    pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
    pub(crate) const UTC_TIME: u8 = 0x17;
    pub(crate) const GENERALIZED_TIME: u8 = 0x18;
    pub(crate) const SEQUENCE: u8 = 0x30;
    /// The extensions within what is signed of a certificate.
    pub(crate) const EXTENSIONS: u8 = 0xa3;
    /// These three among general names.
    pub(crate) const DNS_NAME: u8 = 0x82;
    pub(crate) const URI: u8 = 0x86;
    pub(crate) const IP_ADDRESS: u8 = 0x87;
}

/// Values, one after the other.
#[derive(Clone, Copy)]
pub(super) struct Der<'a>(pub(super) &'a [u8]);

impl<'a> Der<'a> {
    /// The next value's tag and content; `Some(None)` at the end, None where this is no DER.
    pub(super) fn next(&mut self) -> Option<Option<(u8, &'a [u8])>> {
        let Some((tag, rest)) = self.0.split_first() else {
            return Some(None);
        };
        // Tags of more than one byte do not occur in certificates.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (length, rest) = length(rest)?;
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(Some((*tag, content)))
    }

    /// Returns the content of the next value, if it has that tag.
    pub(super) fn enter(mut self, tag: u8) -> Option<Self> {
        let (found, content) = self.next()??;
        (found == tag).then_some(Self(content))
    }
}

/// Up to 127 in one byte; else the number of bytes it takes, of which 4 are more than enough.
fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    if *first < 0x80 {
        return Some((usize::from(*first), rest));
    }
    let count = usize::from(first & 0x7f);
    if count == 0 || count > 4 {
        return None;
    }
    let (digits, rest) = rest.split_at_checked(count)?;
    let value = digits
        .iter()
        .fold(0_u64, |value, digit| value << 8 | u64::from(*digit));
    Some((usize::try_from(value).ok()?, rest))
}
