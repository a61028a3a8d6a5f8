//! The part of a request that selects its limits: validated, and as the limiter reads it.

use std::fmt::Arguments;

use ratekeeper_core::Micros;
use ratekeeper_limiter::{Check, ENTRY_BYTES_MAX, MAX_HITS, Waiting};
use ratekeeper_proto::json::Object;
use smallvec::SmallVec;

use super::refusal::Refusal;
use super::request::{CheckRequest, DescriptorRequest};
use crate::config::{DESCRIPTORS_MAX, ENTRIES_MAX};

/// The domain and the descriptors of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    domain: &'a str,
    descriptors: &'a [Object<DescriptorRequest<'a>>],
    waiting: Waiting,
}

impl<'a> From<&'a CheckRequest<'a>> for Subject<'a> {
    fn from(check: &'a CheckRequest<'a>) -> Self {
        Self::new(&check.domain, &check.descriptors, check.wait_ms_max)
    }
}

impl<'a> Subject<'a> {
    pub(super) fn new(
        domain: &'a str,
        descriptors: &'a [Object<DescriptorRequest<'a>>],
        wait_ms_max: Option<u64>,
    ) -> Self {
        Self {
            domain,
            descriptors,
            // Clients of this protocol are told the delay, and can wait.
            waiting: wait_ms_max
                .map_or(Waiting::Can, |ms| Waiting::Within(Micros::from_millis(ms))),
        }
    }

    /// Refuses a malformed request; `prefix` leads the paths of wrong fields.
    pub(crate) fn validate(&self, prefix: Arguments<'_>) -> Result<(), Refusal> {
        let refuse =
            |field: &str, message: &str| Err(Refusal::invalid(format!("{prefix}{field}"), message));
        if self.domain.is_empty() {
            return refuse("domain", "the domain must not be empty");
        }
        if self.descriptors.is_empty() || self.descriptors.len() > DESCRIPTORS_MAX {
            let message = format!("expected 1 to {DESCRIPTORS_MAX} descriptors");
            return refuse("descriptors", &message);
        }
        for (number, descriptor) in self.descriptors.iter().enumerate() {
            if let Err(refusal) = descriptor.validate() {
                let field = format!("{prefix}descriptors[{number}].{}", refusal.field);
                return Err(Refusal { field, ..refusal });
            }
        }
        Ok(())
    }

    /// The domains of its rules: its own, and those that descriptors name.
    pub(super) fn domains(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let named = self
            .descriptors
            .iter()
            .map(|descriptor| &*descriptor.0.domain);
        std::iter::once(self.domain).chain(named)
    }

    /// Returns true if a descriptor brings a limit along, which needs a permission.
    pub(super) fn has_override(&self) -> bool {
        self.descriptors
            .iter()
            .any(|descriptor| descriptor.limit.is_some())
    }

    /// Refuses limits that descriptors bring along to methods that have no use for them.
    pub(super) fn refuse_overrides(&self) -> Result<(), Refusal> {
        let message = "only a check can bring a limit along; leave it out";
        self.refuse_if("limit", message, |descriptor| descriptor.limit.is_some())
    }

    /// Refuses them to a check that is carried out once.
    pub(super) fn refuse_overrides_beside_key(&self) -> Result<(), Refusal> {
        let message =
            "a check with an `idempotency_key` cannot bring a limit along; leave one of them out";
        self.refuse_if("limit", message, |descriptor| descriptor.limit.is_some())
    }

    /// Refuses descriptors whose hits are 0.
    pub(super) fn refuse_zero_hits(&self) -> Result<(), Refusal> {
        let message = "expected what is to be given back, at least 1";
        self.refuse_if("hits", message, |descriptor| descriptor.hits == Some(0))
    }

    fn refuse_if(
        &self,
        field: &str,
        message: &str,
        is_wrong: impl Fn(&DescriptorRequest<'_>) -> bool,
    ) -> Result<(), Refusal> {
        match self
            .descriptors
            .iter()
            .position(|descriptor| is_wrong(descriptor))
        {
            Some(number) => {
                let field = format!("descriptors[{number}].{field}");
                Err(Refusal::invalid(field, message))
            }
            None => Ok(()),
        }
    }

    /// Marks each descriptor that has hits of its own.
    pub(super) fn own_hits(&self) -> SmallVec<[bool; 8]> {
        let descriptors = self.descriptors.iter();
        descriptors
            .map(|descriptor| descriptor.hits.is_some())
            .collect()
    }

    /// Returns true if the request takes nothing.
    pub(super) fn is_peek(&self) -> bool {
        let mut descriptors = self.descriptors.iter();
        descriptors.all(|descriptor| descriptor.hits == Some(0))
    }

    /// Returns the check of the request; descriptors without hits of their own cost `hits`.
    pub(crate) fn check(&self, hits: i64) -> Check<'a> {
        let mut check = Check::new(self.domain);
        check.waiting = self.waiting;
        for descriptor in self.descriptors {
            let entries = descriptor.entries.iter();
            let terms = check.push(entries.map(|entry| (&*entry.0.key, &*entry.0.value)));
            // `validate` has refused larger ones.
            let given = |hits| i64::try_from(hits).unwrap_or(MAX_HITS);
            terms.domain = Some(&*descriptor.0.domain).filter(|domain| !domain.is_empty());
            terms.hits = descriptor.hits.map_or(hits, given);
            let own = descriptor.limit.as_ref().and_then(|limit| limit.limit());
            terms.limit = own.map(Into::into);
        }
        check
    }
}

impl DescriptorRequest<'_> {
    /// Checks what the types do not.
    fn validate(&self) -> Result<(), Refusal> {
        if self.entries.len() > ENTRIES_MAX {
            let message = format!("at most {ENTRIES_MAX} entries");
            return Err(Refusal::invalid("entries", message));
        }
        for (number, entry) in self.entries.iter().enumerate() {
            if entry.key.is_empty() {
                let field = format!("entries[{number}].key");
                return Err(Refusal::invalid(field, "the key must not be empty"));
            }
            for (part, text) in [("key", &entry.key), ("value", &entry.value)] {
                if text.len() > ENTRY_BYTES_MAX {
                    let message = format!("at most {ENTRY_BYTES_MAX} bytes");
                    let field = format!("entries[{number}].{part}");
                    return Err(Refusal::out_of_bounds(field, message));
                }
            }
        }
        if self.hits.is_some_and(|hits| hits > MAX_HITS.unsigned_abs()) {
            let message = "at most 9007199254740991 (2^53 - 1)";
            return Err(Refusal::out_of_bounds("hits", message));
        }
        let quota = self.limit.as_ref().map(|limit| limit.requests_per_unit);
        if quota.is_some_and(|quota| quota > MAX_HITS.unsigned_abs()) {
            let message = "at most 9007199254740991 (2^53 - 1)";
            return Err(Refusal::invalid("limit.requests_per_unit", message));
        }
        if self
            .limit
            .as_ref()
            .is_some_and(|limit| limit.limit().is_none())
        {
            let message = "expected a unit from UNIT_SECOND to UNIT_WEEK (1 to 7)";
            return Err(Refusal::invalid("limit.unit", message));
        }
        Ok(())
    }
}
