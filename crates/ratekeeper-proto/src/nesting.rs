//! Bounds what a long message may consist of, before it is decoded: an item of two bytes takes a hundred in memory.

use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::envoy::service::discovery::v3 as xds;
use crate::envoy::service::ratelimit::v3 as rls;
use crate::etcdserverpb as etcd;
use crate::ratekeeper::v1;

/// The most bytes of a message that is decoded as it is: 64 KiB.
pub const SHORT_BYTES_MAX: usize = 64 << 10;

/// The most items of a longer message: as many as a short one can have.
const ITEMS_MAX: usize = SHORT_BYTES_MAX / 2;

/// A message, and the ways to its nested items.
pub trait Nesting: Message + Default {
    /// For each of its repeated fields of messages its number, then that of theirs, and so on.
    const PATHS: &'static [&'static [u32]];
}

/// Counts the items of an encoded message.
pub(crate) fn bound<M: Nesting>(bytes: &[u8]) -> Result<(), &'static str> {
    let mut items = 0;
    for path in M::PATHS {
        match is_bounded(bytes, path, &mut items) {
            Some(true) => {}
            Some(false) => return Err("the message has too many items"),
            // Decoding says what is wrong.
            None => return Ok(()),
        }
    }
    Ok(())
}

/// None if the bytes are no message.
fn is_bounded(mut bytes: &[u8], path: &[u32], items: &mut usize) -> Option<bool> {
    let Some((field, rest)) = path.split_first() else {
        return Some(true);
    };
    while !bytes.is_empty() {
        let (tag, wire_type) = decode_key(&mut bytes).ok()?;
        if tag != *field || wire_type != WireType::LengthDelimited {
            skip_field(wire_type, tag, &mut bytes, DecodeContext::default()).ok()?;
            continue;
        }
        *items += 1;
        let length = usize::try_from(decode_varint(&mut bytes).ok()?).ok()?;
        let (item, after) = bytes.split_at_checked(length)?;
        bytes = after;
        if *items > ITEMS_MAX || !is_bounded(item, rest, items)? {
            return Some(false);
        }
    }
    Some(true)
}

macro_rules! nesting {
    ($($message:ty: $([$($field:literal),*])*;)*) => {
        $(impl Nesting for $message {
            const PATHS: &'static [&'static [u32]] = &[$(&[$($field),*]),*];
        })*
    };
}

// Descriptors and their entries; before them, the checks of a batch. Answers are our own, and the resources of a control
// plane are bounded by the bytes of its message.
nesting! {
    xds::DiscoveryRequest: [];
    xds::DiscoveryResponse: [];
    rls::RateLimitRequest: [2, 1];
    rls::RateLimitResponse: [];
    v1::CheckRequest: [2, 1];
    v1::CheckResponse: [];
    v1::CheckBatchRequest: [1, 2, 1];
    v1::CheckBatchResponse: [];
    v1::CheckStreamRequest: [1, 2, 1];
    v1::CheckStreamResponse: [];
    v1::LimitRequest: [];
    v1::LimitResponse: [];
    v1::LoanAsks: [3] [4];
    v1::LoanAnswers: [2] [3];
    v1::LimitBatchRequest: [1];
    v1::LimitBatchResponse: [];
    v1::PeekRequest: [2, 1];
    v1::PeekResponse: [];
    v1::AcquireRequest: [2, 1];
    v1::AcquireResponse: [];
    v1::ReleaseRequest: [];
    v1::ReleaseResponse: [];
    v1::RenewRequest: [];
    v1::RenewResponse: [];
    v1::ReserveRequest: [2, 1];
    v1::ReserveResponse: [];
    v1::CommitRequest: [];
    v1::CommitResponse: [];
    v1::CancelRequest: [];
    v1::CancelResponse: [];
    v1::RefundRequest: [2, 1];
    v1::RefundResponse: [];
    etcd::RangeRequest: [];
    etcd::RangeResponse: [2];
    etcd::TxnRequest: [];
    etcd::TxnResponse: [3];
    etcd::WatchRequest: [];
    etcd::WatchResponse: [11];
    etcd::AuthenticateRequest: [];
    etcd::AuthenticateResponse: [];
}

#[cfg(test)]
mod tests {
    use crate::WireEntry;
    use crate::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;

    use super::*;

    fn request(descriptors: usize, entries: usize, value: &str) -> Vec<u8> {
        let entry = WireEntry {
            key: "k".to_owned(),
            value: value.to_owned(),
        };
        let descriptor = RateLimitDescriptor {
            entries: vec![entry; entries],
            ..Default::default()
        };
        let request = rls::RateLimitRequest {
            domain: "d".to_owned(),
            descriptors: vec![descriptor; descriptors],
            hits_addend: 3,
        };
        request.encode_to_vec()
    }

    #[test]
    fn few_items_may_be_long_and_many_may_not_be() {
        let bound = bound::<rls::RateLimitRequest>;
        assert_eq!(bound(&request(3, 1, &"x".repeat(34_000))), Ok(()));
        assert_eq!(bound(&request(100, 32, "x")), Ok(()));
        assert_eq!(bound(&request(ITEMS_MAX, 0, "")), Ok(()));
        assert!(bound(&request(ITEMS_MAX + 1, 0, "")).is_err());
        assert!(bound(&request(1, ITEMS_MAX, "")).is_err());
        assert!(bound(&request(ITEMS_MAX / 2, 2, "")).is_err());
    }

    #[test]
    fn what_is_no_message_is_left_to_decoding() {
        for bytes in [&b"\x12\x05\x01"[..], b"\xff", b"\x12"] {
            assert_eq!(bound::<rls::RateLimitRequest>(bytes), Ok(()));
            assert!(rls::RateLimitRequest::decode(bytes).is_err());
        }
    }

    #[test]
    fn all_lists_of_a_message_are_bounded_together() {
        let message = |asks, totals| {
            let message = v1::LoanAsks {
                asks: vec![v1::LoanAsk::default(); asks],
                totals: vec![v1::RegionTotal::default(); totals],
                ..v1::LoanAsks::default()
            };
            message.encode_to_vec()
        };
        let bound = bound::<v1::LoanAsks>;
        assert_eq!(bound(&message(ITEMS_MAX / 2, ITEMS_MAX / 2)), Ok(()));
        assert!(bound(&message(0, ITEMS_MAX + 1)).is_err());
        assert!(bound(&message(ITEMS_MAX / 2, ITEMS_MAX / 2 + 1)).is_err());
    }

    #[test]
    fn batches_are_bounded_as_a_whole() {
        let checks = |count| v1::CheckBatchRequest {
            checks: vec![v1::CheckRequest::default(); count],
        };
        let bound = bound::<v1::CheckBatchRequest>;
        assert_eq!(bound(&checks(ITEMS_MAX).encode_to_vec()), Ok(()));
        assert!(bound(&checks(ITEMS_MAX + 1).encode_to_vec()).is_err());
    }
}
