//! Checks that are read from their bytes without a message between: texts are lent, nothing is copied.

use std::borrow::Cow;

use ratekeeper_proto::{FieldValue, MessageFields};

use crate::v1::{CheckRequest, DescriptorRequest, EntryRequest, Object};

/// Reads an encoded `CheckBatchRequest`. None if it is not plain, as [`check`] says.
pub(super) fn batch(message: &[u8]) -> Option<Vec<Object<CheckRequest<'_>>>> {
    let mut checks = Vec::new();
    for field in MessageFields::of(message) {
        let (1, FieldValue::Bytes(message)) = field? else {
            return None;
        };
        checks.push(Object(check(message)?));
    }
    Some(checks)
}

/// Reads an encoded `CheckRequest`. None if it is not plain: if it brings limits along, or texts that do not stand for
/// themselves, or is no message.
pub(super) fn check(message: &[u8]) -> Option<CheckRequest<'_>> {
    let mut check = CheckRequest {
        domain: Cow::Borrowed(""),
        descriptors: Vec::new(),
        entries: None,
        hits: None,
        wait_ms_max: None,
        standing: false,
        idempotency_key: Cow::Borrowed(""),
        statuses: false,
    };
    for field in MessageFields::of(message) {
        match field? {
            (1, domain) => check.domain = Cow::Borrowed(domain.text()?),
            (2, FieldValue::Bytes(message)) => check.descriptors.push(Object(descriptor(message)?)),
            (3, FieldValue::Number(number)) => check.statuses = number != 0,
            (4, FieldValue::Number(wait)) => check.wait_ms_max = Some(wait),
            (5, FieldValue::Number(number)) => check.standing = number != 0,
            (6, key) => check.idempotency_key = Cow::Borrowed(key.text()?),
            _ => return None,
        }
    }
    Some(check)
}

fn descriptor(message: &[u8]) -> Option<DescriptorRequest<'_>> {
    let mut descriptor = DescriptorRequest {
        domain: Cow::Borrowed(""),
        entries: Vec::new(),
        hits: None,
        limit: None,
    };
    for field in MessageFields::of(message) {
        match field? {
            (1, FieldValue::Bytes(message)) => descriptor.entries.push(Object(entry(message)?)),
            (2, FieldValue::Number(hits)) => descriptor.hits = Some(hits),
            (4, domain) => descriptor.domain = Cow::Borrowed(domain.text()?),
            _ => return None,
        }
    }
    Some(descriptor)
}

fn entry(message: &[u8]) -> Option<EntryRequest<'_>> {
    let mut entry = EntryRequest {
        key: Cow::Borrowed(""),
        value: Cow::Borrowed(""),
    };
    for field in MessageFields::of(message) {
        match field? {
            (1, key) => entry.key = Cow::Borrowed(key.text()?),
            (2, value) => entry.value = Cow::Borrowed(value.text()?),
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
        let message = v1::CheckBatchRequest {
            checks: vec![full(), v1::CheckRequest::default()],
        };
        assert_eq!(
            batch(&message.encode_to_vec()).map(|checks| checks.len()),
            Some(2)
        );
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
