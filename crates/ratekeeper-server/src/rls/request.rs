//! From Envoy's words to ours.

use ratekeeper_limiter::{Descriptor, ENTRY_BYTES_MAX, MAX_HITS, Override};
use ratekeeper_proto::WireEntry;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use ratekeeper_rules::{Entry, Unit};
use smallvec::SmallVec;

use super::Refusal;
use crate::config::{DESCRIPTORS_MAX, ENTRIES_MAX};

/// All descriptors' entries, one after the other.
pub(super) type Entries<'a> = SmallVec<[Entry<'a>; 8]>;

/// The borrowed descriptors of a check.
pub(super) type Descriptors<'a> = SmallVec<[Descriptor<'a>; 4]>;

/// The entries of a request that is within its bounds, put into `all`.
pub(super) fn entries<'a>(
    request: &'a RateLimitRequest,
    all: &mut Entries<'a>,
) -> Result<(), Refusal> {
    let invalid = |message: &str| Err(Refusal::Invalid(message.to_owned()));
    if request.domain.is_empty() {
        return invalid("rate limit domain must not be empty");
    }
    if request.descriptors.is_empty() {
        return invalid("rate limit descriptor list must not be empty");
    }
    if request.descriptors.len() > DESCRIPTORS_MAX {
        let message = format!("descriptors: at most {DESCRIPTORS_MAX} in one request");
        return Err(Refusal::OutOfBounds(message));
    }
    for (number, descriptor) in request.descriptors.iter().enumerate() {
        if descriptor.entries.len() > ENTRIES_MAX {
            return Err(Refusal::OutOfBounds(format!(
                "descriptors[{number}].entries: at most {ENTRIES_MAX} in one descriptor"
            )));
        }
        for (at, WireEntry { key, value }) in descriptor.entries.iter().enumerate() {
            if key.len().max(value.len()) > ENTRY_BYTES_MAX {
                return Err(Refusal::OutOfBounds(format!(
                    "descriptors[{number}].entries[{at}]: at most {ENTRY_BYTES_MAX} bytes in a key or a value"
                )));
            }
            all.push(Entry { key, value });
        }
    }
    Ok(())
}

/// The descriptors of a request whose entries are `entries`, put into `all`: each one's part of
/// them, what it costs, and its limit.
pub(super) fn descriptors<'a>(
    request: &RateLimitRequest,
    entries: &'a [Entry<'a>],
    all: &mut Descriptors<'a>,
) -> Result<(), Refusal> {
    let mut rest = entries;
    for (number, descriptor) in request.descriptors.iter().enumerate() {
        // As many as were taken from it, so it is never out of range.
        let (own, others) = rest
            .split_at_checked(descriptor.entries.len())
            .unwrap_or_default();
        rest = others;
        let limit = descriptor.limit.as_ref();
        all.push(Descriptor {
            hits: hits(request.hits_addend, descriptor, number)?,
            limit: limit.map(|limit| own_limit(limit, number)).transpose()?,
            ..Descriptor::new(own)
        });
    }
    Ok(())
}

/// The hits of a descriptor: its own addend, which may be 0, else the request's, else 1.
fn hits(of_request: u32, descriptor: &RateLimitDescriptor, number: usize) -> Result<i64, Refusal> {
    let hits = descriptor
        .hits_addend
        .unwrap_or_else(|| u64::from(of_request.max(1)));
    match i64::try_from(hits) {
        Ok(hits) if hits <= MAX_HITS => Ok(if descriptor.is_negative_hits {
            -hits
        } else {
            hits
        }),
        _ => Err(Refusal::OutOfBounds(format!(
            "descriptors[{number}].hits_addend: {hits} is above {MAX_HITS} (2^53 - 1)"
        ))),
    }
}

fn own_limit(limit: &RateLimitOverride, number: usize) -> Result<Override, Refusal> {
    match unit(limit.unit) {
        Some(unit) => Ok(Override {
            quota: u64::from(limit.requests_per_unit),
            unit,
        }),
        None => Err(Refusal::Invalid(format!(
            "descriptors[{number}].limit.unit: {} is not a unit; use 1 (SECOND) to 7 (WEEK)",
            limit.unit
        ))),
    }
}

/// The unit with that number. Envoy's enum for overrides has no 7, the one for answers does.
const fn unit(number: i32) -> Option<Unit> {
    Some(match number {
        1 => Unit::Second,
        2 => Unit::Minute,
        3 => Unit::Hour,
        4 => Unit::Day,
        5 => Unit::Month,
        6 => Unit::Year,
        7 => Unit::Week,
        _ => return None,
    })
}
