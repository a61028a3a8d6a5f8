//! From our protocol's words to the limiter's.

use std::fmt;

use ratekeeper_limiter::{Check, Descriptor, ENTRY_BYTES_MAX, MAX_HITS, Override, Waiting};
use ratekeeper_proto::ratekeeper::v1;
use ratekeeper_rules::{Entry, Unit};
use smallvec::SmallVec;

use super::{Refusal, waiting};
use crate::config::{DESCRIPTORS_MAX, ENTRIES_MAX};

/// A request that makes sense.
pub(super) struct Question<'a> {
    domain: &'a str,
    waiting: Waiting,
    /// All descriptors' entries, one after the other.
    entries: SmallVec<[Entry<'a>; 8]>,
    parts: SmallVec<[Part<'a>; 4]>,
}

struct Part<'a> {
    /// Its own, if it has one.
    domain: Option<&'a str>,
    /// The end of its entries in the common list.
    entries_end: usize,
    hits: Option<i64>,
    limit: Option<Override>,
}

pub(super) type Views<'a> = SmallVec<[Descriptor<'a>; 4]>;

/// The place of a request in its message, which prefixes the path of a field.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// It is the message.
    Alone,
    /// It is the check of that number.
    Check(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone => Ok(()),
            Self::Check(number) => write!(f, "checks[{number}]."),
        }
    }
}

impl<'a> Question<'a> {
    pub(super) fn new(
        place: Place,
        domain: &'a str,
        descriptors: &'a [v1::Descriptor],
    ) -> Result<Self, Refusal> {
        if domain.is_empty() {
            let message = "the domain must not be empty";
            return Err(Refusal::invalid(format!("{place}domain"), message));
        }
        if descriptors.is_empty() || descriptors.len() > DESCRIPTORS_MAX {
            let message = format!("expected 1 to {DESCRIPTORS_MAX} descriptors");
            return Err(Refusal::invalid(format!("{place}descriptors"), message));
        }
        let mut question = Self {
            domain,
            // Whoever asks here is told the delay, and can wait.
            waiting: Waiting::Can,
            entries: SmallVec::new(),
            parts: SmallVec::new(),
        };
        for (number, descriptor) in descriptors.iter().enumerate() {
            question.add(descriptor).map_err(|(field, message)| {
                Refusal::invalid(format!("{place}descriptors[{number}].{field}"), message)
            })?;
        }
        Ok(question)
    }

    fn add(&mut self, descriptor: &'a v1::Descriptor) -> Result<(), (String, String)> {
        if descriptor.entries.len() > ENTRIES_MAX {
            let message = format!("at most {ENTRIES_MAX} entries");
            return Err(("entries".to_owned(), message));
        }
        for (number, entry) in descriptor.entries.iter().enumerate() {
            if entry.key.is_empty() {
                let message = "the key must not be empty".to_owned();
                return Err((format!("entries[{number}].key"), message));
            }
            for (part, text) in [("key", &entry.key), ("value", &entry.value)] {
                if text.len() > ENTRY_BYTES_MAX {
                    let message = format!("at most {ENTRY_BYTES_MAX} bytes");
                    return Err((format!("entries[{number}].{part}"), message));
                }
            }
            self.entries.push(Entry {
                key: &entry.key,
                value: &entry.value,
            });
        }
        let hits = descriptor.hits.map(|hits| {
            let hits = i64::try_from(hits).ok().filter(|hits| *hits <= MAX_HITS);
            hits.ok_or_else(|| {
                let message = "at most 9007199254740991 (2^53 - 1)".to_owned();
                ("hits".to_owned(), message)
            })
        });
        let domain = &*descriptor.domain;
        self.parts.push(Part {
            domain: (!domain.is_empty()).then_some(domain),
            entries_end: self.entries.len(),
            hits: hits.transpose()?,
            limit: descriptor.limit.map(own_limit).transpose()?,
        });
        Ok(())
    }

    /// Sets the longest time that the caller can wait.
    pub(super) fn waiting(self, ms_max: Option<u64>) -> Self {
        Self {
            waiting: waiting(ms_max),
            ..self
        }
    }

    /// Returns true if a descriptor has its own limit, which needs a permission.
    pub(super) fn has_override(&self) -> bool {
        self.parts.iter().any(|part| part.limit.is_some())
    }

    /// Refuses a descriptor's own limit where it makes no sense.
    pub(super) fn without_overrides(self) -> Result<Self, Refusal> {
        match self.parts.iter().position(|part| part.limit.is_some()) {
            Some(number) => Err(Refusal::invalid(
                format!("descriptors[{number}].limit"),
                "only a check can bring a limit along; leave it out",
            )),
            None => Ok(self),
        }
    }

    /// Tells for each descriptor whether it has its own hits.
    pub(super) fn own_hits(&self) -> SmallVec<[bool; 8]> {
        self.parts.iter().map(|part| part.hits.is_some()).collect()
    }

    /// The number of the first descriptor that refunds nothing.
    pub(super) fn zero_hits(&self) -> Option<usize> {
        self.parts.iter().position(|part| part.hits == Some(0))
    }

    /// The descriptors, as a check borrows them; those without their own hits cost `hits`.
    pub(super) fn views(&self, hits: i64) -> Views<'_> {
        let mut start = 0;
        let view = |part: &Part<'a>| {
            let entries = self.entries.get(start..part.entries_end);
            start = part.entries_end;
            Descriptor {
                domain: part.domain,
                hits: part.hits.unwrap_or(hits),
                limit: part.limit,
                ..Descriptor::new(entries.unwrap_or_default())
            }
        };
        self.parts.iter().map(view).collect()
    }

    pub(super) const fn check<'q>(&'q self, views: &'q [Descriptor<'q>]) -> Check<'q> {
        Check {
            domain: self.domain,
            descriptors: views,
            waiting: self.waiting,
        }
    }
}

fn own_limit(limit: v1::Override) -> Result<Override, (String, String)> {
    let unit = match limit.unit() {
        v1::Unit::Second => Unit::Second,
        v1::Unit::Minute => Unit::Minute,
        v1::Unit::Hour => Unit::Hour,
        v1::Unit::Day => Unit::Day,
        v1::Unit::Week => Unit::Week,
        v1::Unit::Month => Unit::Month,
        v1::Unit::Year => Unit::Year,
        v1::Unit::Unspecified => {
            let message = "expected a unit from UNIT_SECOND to UNIT_WEEK (1 to 7)".to_owned();
            return Err(("limit.unit".to_owned(), message));
        }
    };
    Ok(Override {
        quota: limit.requests_per_unit,
        unit,
    })
}
