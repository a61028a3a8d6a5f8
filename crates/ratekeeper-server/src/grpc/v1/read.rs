//! Checks that are read from their bytes without a message between: texts are lent, nothing is copied.

use std::borrow::Cow;

use ratekeeper_proto::{FieldValue, MessageFields};

use crate::protocol::v1::{CHECKS_MAX, CheckRequest, DescriptorRequest, EntryRequest, Object};

/// The texts of the check before, in their order. Checks of a batch have the same domain and keys, and some values: to
/// compare a text costs less than to find out that it is one.
#[derive(Default)]
struct Texts<'a> {
    known: [&'a str; 8],
    next: usize,
}

impl<'a> Texts<'a> {
    fn read(&mut self, value: FieldValue<'a>) -> Option<Cow<'a, str>> {
        let Some(known) = self.known.get_mut(self.next) else {
            return value.text().map(Cow::Borrowed);
        };
        self.next += 1;
        if known.as_bytes() != value.bytes()? {
            *known = value.text()?;
        }
        Some(Cow::Borrowed(known))
    }
}

/// Reads an encoded `CheckBatchRequest`. None if it is not plain, as [`check`] says.
pub(super) fn batch(message: &[u8]) -> Option<Vec<Object<CheckRequest<'_>>>> {
    // Further ones are refused, but by another.
    let count = MessageFields::of(message).take(CHECKS_MAX).count();
    let mut checks = Vec::with_capacity(count);
    let mut texts = Texts::default();
    for field in MessageFields::of(message) {
        let (1, FieldValue::Bytes(message)) = field? else {
            return None;
        };
        texts.next = 0;
        checks.push(Object(check_like(message, &mut texts)?));
    }
    Some(checks)
}

/// Reads an encoded `CheckRequest`. None if it is not plain: if it brings limits along, or texts that do not stand for
/// themselves, or is no message.
pub(super) fn check(message: &[u8]) -> Option<CheckRequest<'_>> {
    check_like(message, &mut Texts::default())
}

fn check_like<'a>(message: &'a [u8], texts: &mut Texts<'a>) -> Option<CheckRequest<'a>> {
    let mut check = CheckRequest {
        domain: Cow::Borrowed(""),
        // Most have one.
        descriptors: Vec::with_capacity(1),
        entries: None,
        hits: None,
        wait_ms_max: None,
        standing: false,
        idempotency_key: Cow::Borrowed(""),
        statuses: false,
    };
    for field in MessageFields::of(message) {
        match field? {
            (1, domain) => check.domain = texts.read(domain)?,
            (2, FieldValue::Bytes(message)) => {
                check.descriptors.push(Object(descriptor(message, texts)?));
            }
            (3, FieldValue::Number(number)) => check.statuses = number != 0,
            (4, FieldValue::Number(wait)) => check.wait_ms_max = Some(wait),
            (5, FieldValue::Number(number)) => check.standing = number != 0,
            (6, key) => check.idempotency_key = texts.read(key)?,
            _ => return None,
        }
    }
    Some(check)
}

fn descriptor<'a>(message: &'a [u8], texts: &mut Texts<'a>) -> Option<DescriptorRequest<'a>> {
    let mut descriptor = DescriptorRequest {
        domain: Cow::Borrowed(""),
        entries: Vec::with_capacity(2),
        hits: None,
        limit: None,
    };
    for field in MessageFields::of(message) {
        match field? {
            (1, FieldValue::Bytes(message)) => {
                descriptor.entries.push(Object(entry(message, texts)?));
            }
            (2, FieldValue::Number(hits)) => descriptor.hits = Some(hits),
            (4, domain) => descriptor.domain = texts.read(domain)?,
            _ => return None,
        }
    }
    Some(descriptor)
}

fn entry<'a>(message: &'a [u8], texts: &mut Texts<'a>) -> Option<EntryRequest<'a>> {
    let mut entry = EntryRequest {
        key: Cow::Borrowed(""),
        value: Cow::Borrowed(""),
    };
    for field in MessageFields::of(message) {
        match field? {
            (1, key) => entry.key = texts.read(key)?,
            (2, value) => entry.value = texts.read(value)?,
            _ => return None,
        }
    }
    Some(entry)
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use ratekeeper_proto::WireEntry;
    use ratekeeper_proto::ratekeeper::v1;

    use super::*;

    fn full() -> v1::CheckRequest {
        let entry = |key: &str, value: &str| WireEntry {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        v1::CheckRequest {
            domain: "d".to_owned(),
            descriptors: vec![
                v1::Descriptor {
                    entries: vec![entry("tenant", "ada"), entry("caf\u{e9}", "")],
                    hits: Some(0),
                    domain: "other".to_owned(),
                    ..Default::default()
                },
                v1::Descriptor::default(),
            ],
            statuses: true,
            wait_ms_max: Some(0),
            standing: true,
            idempotency_key: "once".to_owned(),
        }
    }

    /// Each field is read as prost reads it; a message that has more fields than are known here does not compile above.
    #[test]
    fn what_is_read_is_what_prost_reads() {
        for message in [full(), v1::CheckRequest::default()] {
            let bytes = message.encode_to_vec();
            let read = check(&bytes).expect("it is plain");
            assert_eq!(
                format!("{read:?}"),
                format!("{:?}", CheckRequest::from(&message))
            );
        }
        // Each has texts that the one before it has in other places, or not at all.
        let mut other = full();
        other.domain = "tenant".to_owned();
        other.descriptors[0].entries.swap(0, 1);
        let checks = vec![full(), v1::CheckRequest::default(), full(), other, full()];
        let message = v1::CheckBatchRequest { checks };
        let bytes = message.encode_to_vec();
        let read = batch(&bytes).expect("it is plain");
        let expected = message.checks.iter().map(CheckRequest::from);
        let expected: Vec<_> = expected.map(|check| format!("{check:?}")).collect();
        let read: Vec<_> = read.iter().map(|check| format!("{:?}", check.0)).collect();
        assert_eq!(read, expected);
    }

    #[test]
    fn what_is_not_plain_is_left() {
        let mut limited = full();
        limited.descriptors[0].limit = Some(v1::Override::default());
        let mut bytes = full();
        bytes.descriptors[0].entries[0].value = "\u{fdd0}ff".to_owned();
        for message in [limited, bytes] {
            assert!(check(&message.encode_to_vec()).is_none());
        }
        let whole = full().encode_to_vec();
        assert!(check(&whole[..whole.len() - 1]).is_none());
        assert!(check(b"\x38\x01").is_none(), "a field of a later version");
        assert!(batch(b"\x0a\x02\x0a\x05").is_none());
    }
}
