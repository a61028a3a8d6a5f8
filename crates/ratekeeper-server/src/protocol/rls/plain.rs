//! Requests that are read from their bytes without a message between: nothing is copied.

use ratekeeper_limiter::{Check, ENTRY_BYTES_MAX};
use ratekeeper_proto::MessageFields;
use smallvec::SmallVec;

use crate::config::{DESCRIPTORS_MAX, ENTRIES_MAX};

/// The entries of one descriptor, of which most requests have few.
type Entries<'a> = SmallVec<[(&'a str, &'a str); 4]>;

/// Reads an encoded `RateLimitRequest`. None if it is not plain: if it has anything but a domain and entries that are
/// text, or is refused.
pub(crate) fn read(message: &[u8]) -> Option<Check<'_>> {
    let mut fields = MessageFields::of(message);
    let (1, domain) = fields.next()?? else {
        return None;
    };
    let domain = domain.text().filter(|domain| !domain.is_empty())?;
    let mut check = Check::new(domain);
    let mut descriptors = 0;
    for field in fields {
        let (2, descriptor) = field? else {
            return None;
        };
        descriptors += 1;
        check.push(entries(descriptor.bytes()?)?);
    }
    (1..=DESCRIPTORS_MAX)
        .contains(&descriptors)
        .then_some(check)
}

fn entries(descriptor: &[u8]) -> Option<Entries<'_>> {
    let mut entries = Entries::new();
    for field in MessageFields::of(descriptor) {
        let (1, fields) = field? else {
            return None;
        };
        if entries.len() == ENTRIES_MAX {
            return None;
        }
        entries.push(entry(fields.bytes()?)?);
    }
    Some(entries)
}

fn entry(fields: &[u8]) -> Option<(&str, &str)> {
    let (mut key, mut value) = ("", "");
    for field in MessageFields::of(fields) {
        let (number, text) = field?;
        let text = text.text().filter(|text| text.len() <= ENTRY_BYTES_MAX)?;
        match number {
            1 => key = text,
            2 => value = text,
            _ => return None,
        }
    }
    Some((key, value))
}
