//! The body of `/v1/check` and `/v1/checks`.

use std::borrow::Cow;
use std::fmt;

use ratekeeper_limiter::{Check, Descriptor, ENTRY_BYTES_MAX, MAX_HITS, Override};
use ratekeeper_rules::{Entry, Unit};
use serde::Deserialize;
use smallvec::SmallVec;

use super::object::Object;
use crate::config::{DESCRIPTORS_MAX, ENTRIES_MAX};
use crate::http::{ApiError, malformed};
use crate::v1::{check_count, waiting};

/// A body of `/v1/checks`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Questions<'a> {
    #[serde(borrow)]
    pub(super) checks: Vec<Object<Question<'a>>>,
}

/// A body of `/v1/check`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Question<'a> {
    #[serde(borrow)]
    domain: Cow<'a, str>,
    #[serde(borrow)]
    descriptors: Vec<Object<View<'a>>>,
    /// The longest time the request can be held back; absent for any turn.
    wait_ms_max: Option<u64>,
    /// True if the answer is to include `standing`.
    #[serde(default)]
    pub(super) standing: bool,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct View<'a> {
    /// The namespace of its rules, if not the check's.
    #[serde(borrow, default)]
    domain: Cow<'a, str>,
    #[serde(borrow)]
    entries: Vec<Object<Pair<'a>>>,
    /// 1 if absent; 0 only looks.
    hits: Option<u64>,
    limit: Option<Object<OwnLimit>>,
}

/// A limit that a descriptor carries.
#[derive(Deserialize, Clone, Copy, Debug)]
#[serde(deny_unknown_fields)]
struct OwnLimit {
    requests_per_unit: u64,
    unit: UnitName,
}

#[derive(Deserialize, Clone, Copy, Debug)]
#[serde(rename_all = "snake_case")]
enum UnitName {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl From<OwnLimit> for Override {
    fn from(limit: OwnLimit) -> Self {
        Self {
            quota: limit.requests_per_unit,
            unit: match limit.unit {
                UnitName::Second => Unit::Second,
                UnitName::Minute => Unit::Minute,
                UnitName::Hour => Unit::Hour,
                UnitName::Day => Unit::Day,
                UnitName::Week => Unit::Week,
                UnitName::Month => Unit::Month,
                UnitName::Year => Unit::Year,
            },
        }
    }
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Pair<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow)]
    value: Cow<'a, str>,
}

/// Parses a body; an error names the field by its path.
pub(super) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    match serde_json::from_slice(body) {
        Ok(Object(value)) => Ok(value),
        // Keeping the path at hand takes as long as reading: only who needs it pays for it.
        Err(_) => match malformed::plain(body) {
            Some(message) => Err(ApiError::invalid("body", message)),
            None => parse_by_path(body),
        },
    }
}

fn parse_by_path<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let Object(value) = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let message = error.into_inner().to_string();
        ApiError::invalid(field(path, &message), message)
    })?;
    reader
        .end()
        .map_err(|error| ApiError::invalid("body", error.to_string()))?;
    Ok(value)
}

/// The name of the wrong field: of a missing field, its own; `body` for anything that is not an
/// object of ours.
fn field(path: String, message: &str) -> String {
    // A dot stands for the whole, a question mark for what could not be told.
    let path = Some(path).filter(|path| path != "." && path != "?");
    let missing = message
        .strip_prefix("missing field `")
        .and_then(|rest| rest.split_once('`'))
        .map(|(name, _)| name);
    match (path, missing) {
        (None, None) => "body".to_owned(),
        (Some(path), None) => path,
        (None, Some(name)) => name.to_owned(),
        (Some(path), Some(name)) => format!("{path}.{name}"),
    }
}

impl Questions<'_> {
    pub(super) fn validate(&self) -> Result<(), ApiError> {
        check_count(self.checks.len())?;
        let mut checks = self.checks.iter().enumerate();
        checks.try_for_each(|(number, check)| check.validate(format_args!("checks[{number}].")))
    }
}

type Entries<'a> = SmallVec<[Entry<'a>; 8]>;
type Descriptors<'a> = SmallVec<[Descriptor<'a>; 4]>;

impl<'a> Question<'a> {
    pub(super) const fn of(domain: Cow<'a, str>, descriptors: Vec<Object<View<'a>>>) -> Self {
        Self {
            domain,
            descriptors,
            wait_ms_max: None,
            standing: false,
        }
    }

    /// Sets the longest time that the caller can wait.
    pub(super) fn waiting(self, wait_ms_max: Option<u64>) -> Self {
        Self {
            wait_ms_max,
            ..self
        }
    }
}

impl Question<'_> {
    /// Returns true if a descriptor has its own limit, which needs a permission.
    pub(super) fn has_override(&self) -> bool {
        self.descriptors.iter().any(|view| view.limit.is_some())
    }

    /// Refuses a descriptor's own limit where it makes no sense.
    pub(super) fn refuse_overrides(&self) -> Result<(), ApiError> {
        let mut views = self.descriptors.iter();
        match views.position(|view| view.limit.is_some()) {
            Some(number) => Err(ApiError::invalid(
                format!("descriptors[{number}].limit"),
                "only a check can bring a limit along; leave it out",
            )),
            None => Ok(()),
        }
    }

    /// Tells for each descriptor whether it has its own hits.
    pub(super) fn own_hits(&self) -> SmallVec<[bool; 8]> {
        self.descriptors
            .iter()
            .map(|view| view.hits.is_some())
            .collect()
    }

    /// The number of the first descriptor that refunds nothing.
    pub(super) fn zero_hits(&self) -> Option<usize> {
        self.descriptors
            .iter()
            .position(|view| view.hits == Some(0))
    }

    /// Checks what the types do not; `prefix` leads the paths of wrong fields.
    pub(super) fn validate(&self, prefix: fmt::Arguments<'_>) -> Result<(), ApiError> {
        let refuse = |field: &str, message: &str| {
            Err(ApiError::invalid(format!("{prefix}{field}"), message))
        };
        if self.domain.is_empty() {
            return refuse("domain", "the domain must not be empty");
        }
        if self.descriptors.is_empty() || self.descriptors.len() > DESCRIPTORS_MAX {
            let message = format!("expected 1 to {DESCRIPTORS_MAX} descriptors");
            return refuse("descriptors", &message);
        }
        for (number, view) in self.descriptors.iter().enumerate() {
            if view.hits.is_some_and(|hits| hits > MAX_HITS.unsigned_abs()) {
                let field = format!("descriptors[{number}].hits");
                return refuse(&field, "at most 9007199254740991 (2^53 - 1)");
            }
            if view.entries.len() > ENTRIES_MAX {
                let field = format!("descriptors[{number}].entries");
                return refuse(&field, &format!("at most {ENTRIES_MAX} entries"));
            }
            if let Some(empty) = view.entries.iter().position(|pair| pair.key.is_empty()) {
                let field = format!("descriptors[{number}].entries[{empty}].key");
                return refuse(&field, "the key must not be empty");
            }
            for (at, pair) in view.entries.iter().enumerate() {
                for (part, text) in [("key", &pair.key), ("value", &pair.value)] {
                    if text.len() > ENTRY_BYTES_MAX {
                        let field = format!("descriptors[{number}].entries[{at}].{part}");
                        return refuse(&field, &format!("at most {ENTRY_BYTES_MAX} bytes"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns true if the check takes nothing.
    pub(super) fn is_peek(&self) -> bool {
        self.descriptors.iter().all(|view| view.hits == Some(0))
    }

    /// The entries of all descriptors, one after the other.
    pub(super) fn entries(&self) -> Entries<'_> {
        let pairs = self.descriptors.iter().flat_map(|view| &view.entries);
        pairs
            .map(|pair| Entry {
                key: &pair.key,
                value: &pair.value,
            })
            .collect()
    }

    /// The descriptors, given the result of [`Self::entries`]; those without their own hits cost
    /// `cost`.
    pub(super) fn descriptors<'q>(
        &'q self,
        entries: &'q [Entry<'q>],
        cost: i64,
    ) -> Descriptors<'q> {
        let mut rest = entries;
        let view = |view: &'q Object<View<'_>>| {
            let (own, others) = rest
                .split_at_checked(view.entries.len())
                .unwrap_or_default();
            rest = others;
            // `validate` has made sure that it fits.
            let hits = view
                .hits
                .map_or(cost, |hits| i64::try_from(hits).unwrap_or(MAX_HITS));
            Descriptor {
                domain: Some(&*view.domain).filter(|domain| !domain.is_empty()),
                hits,
                limit: view.limit.as_ref().map(|limit| limit.0.into()),
                ..Descriptor::new(own)
            }
        };
        self.descriptors.iter().map(view).collect()
    }

    pub(super) fn check<'q>(&'q self, descriptors: &'q [Descriptor<'q>]) -> Check<'q> {
        Check {
            domain: &self.domain,
            descriptors,
            waiting: waiting(self.wait_ms_max),
        }
    }
}
