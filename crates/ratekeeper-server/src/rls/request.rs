//! From Envoy's words to ours.

use ratekeeper_limiter::{Check, Descriptor, MAX_HITS, Override, Waiting};
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use ratekeeper_rules::{Entry, Unit};
use smallvec::SmallVec;

use super::Refusal;
use crate::config::{DESCRIPTORS_MAX, ENTRIES_MAX};

/// A request that makes sense: each descriptor's entries, cost and limit.
pub(super) struct Question<'a> {
    domain: &'a str,
    /// All descriptors' entries, one after the other.
    entries: SmallVec<[Entry<'a>; 8]>,
    parts: SmallVec<[Part; 4]>,
}

struct Part {
    /// Where its entries end in the common list.
    entries_end: usize,
    hits: i64,
    limit: Option<Override>,
}

pub(super) type Views<'a> = SmallVec<[Descriptor<'a>; 4]>;

impl<'a> Question<'a> {
    pub(super) fn new(request: &'a RateLimitRequest) -> Result<Self, Refusal> {
        let invalid = |message: &str| Err(Refusal::Invalid(message.to_owned()));
        if request.domain.is_empty() {
            return invalid("rate limit domain must not be empty");
        }
        if request.descriptors.is_empty() {
            return invalid("rate limit descriptor list must not be empty");
        }
        if request.descriptors.len() > DESCRIPTORS_MAX {
            let message = format!("descriptors: at most {DESCRIPTORS_MAX} in one request");
            return Err(Refusal::Invalid(message));
        }
        let mut question = Self {
            domain: &request.domain,
            entries: SmallVec::new(),
            parts: SmallVec::new(),
        };
        for (number, descriptor) in request.descriptors.iter().enumerate() {
            if descriptor.entries.len() > ENTRIES_MAX {
                return Err(Refusal::Invalid(format!(
                    "descriptors[{number}].entries: at most {ENTRIES_MAX} in one descriptor"
                )));
            }
            let entries = descriptor.entries.iter();
            question.entries.extend(entries.map(|entry| Entry {
                key: &entry.key,
                value: &entry.value,
            }));
            question.parts.push(Part {
                entries_end: question.entries.len(),
                hits: hits(request.hits_addend, descriptor, number)?,
                limit: descriptor
                    .limit
                    .as_ref()
                    .map(|limit| own_limit(limit, number))
                    .transpose()?,
            });
        }
        Ok(question)
    }

    /// The descriptors, as a check borrows them.
    pub(super) fn views(&self) -> Views<'_> {
        let mut start = 0;
        let view = |part: &Part| {
            let entries = self
                .entries
                .get(start..part.entries_end)
                .unwrap_or_default();
            start = part.entries_end;
            Descriptor {
                entries,
                hits: part.hits,
                limit: part.limit,
            }
        };
        self.parts.iter().map(view).collect()
    }

    /// Envoy cannot hold a request back.
    pub(super) const fn check<'q>(&'q self, views: &'q [Descriptor<'q>]) -> Check<'q> {
        Check {
            domain: self.domain,
            descriptors: views,
            waiting: Waiting::Cannot,
        }
    }
}

/// What a descriptor costs: its own addend, which may be 0, else the request's, else 1.
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
        _ => Err(Refusal::Invalid(format!(
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
            "descriptors[{number}].limit.unit: {} is no unit; use 1 (SECOND) to 7 (WEEK)",
            limit.unit
        ))),
    }
}

/// The unit of that number. Envoy's enum of overrides has no 7, that of answers has.
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
