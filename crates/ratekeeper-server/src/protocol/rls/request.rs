//! From Envoy's words to ours.

use ratekeeper_limiter::{Check, ENTRY_BYTES_MAX, MAX_HITS, Override};
use ratekeeper_proto::WireEntry;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use ratekeeper_rules::Unit;

use super::Refusal;
use crate::config::{DESCRIPTORS_MAX, ENTRIES_MAX};

/// Reads `request`, which must be within its bounds, into `check`: the entries of each descriptor, its cost and its limit.
pub(super) fn read<'a>(
    request: &'a RateLimitRequest,
    check: &mut Check<'a>,
) -> Result<(), Refusal> {
    validate(request)?;
    for (number, descriptor) in request.descriptors.iter().enumerate() {
        let entries = descriptor.entries.iter();
        let limit = descriptor.limit.as_ref();
        let terms = check.push(entries.map(|entry| (&*entry.key, &*entry.value)));
        terms.hits = hits(request.hits_addend, descriptor, number)?;
        let own = limit.map(|limit| own_limit(limit, number)).transpose()?;
        terms.limit = own.map(Into::into);
    }
    Ok(())
}

/// Refuses a request that names nothing to limit, or more than is read.
fn validate(request: &RateLimitRequest) -> Result<(), Refusal> {
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
        let is_long =
            |WireEntry { key, value }: &WireEntry| key.len().max(value.len()) > ENTRY_BYTES_MAX;
        if let Some(at) = descriptor.entries.iter().position(is_long) {
            return Err(Refusal::OutOfBounds(format!(
                "descriptors[{number}].entries[{at}]: at most {ENTRY_BYTES_MAX} bytes in a key or a value"
            )));
        }
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
