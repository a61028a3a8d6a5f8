//! What `/v1/check` is asked.

use std::borrow::Cow;

use ratekeeper_limiter::{Check, Descriptor, MAX_HITS, Waiting};
use ratekeeper_rules::Entry;
use serde::Deserialize;
use smallvec::SmallVec;

use super::object::Object;
use crate::config::{DESCRIPTORS_MAX, ENTRIES_MAX};
use crate::http::ApiError;

/// The most checks in one body.
pub(super) const CHECKS_MAX: usize = 1_000;

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
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct View<'a> {
    #[serde(borrow)]
    entries: Vec<Object<Pair<'a>>>,
    /// 1 if absent; 0 looks only.
    hits: Option<u64>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Pair<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow, default)]
    value: Cow<'a, str>,
}

/// Reads a body; what is wrong is named by its path.
pub(super) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let Object(value) = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        // A dot stands for the whole, a question mark for what could not be told.
        let field = if path == "." || path == "?" {
            String::new()
        } else {
            path
        };
        ApiError::invalid(field, error.into_inner().to_string())
    })?;
    reader
        .end()
        .map_err(|error| ApiError::invalid("", error.to_string()))?;
    Ok(value)
}

impl Questions<'_> {
    pub(super) fn validate(&self) -> Result<(), ApiError> {
        if self.checks.len() > CHECKS_MAX {
            let message = format!("at most {CHECKS_MAX} checks in one request");
            return Err(ApiError::invalid("checks", message));
        }
        let mut checks = self.checks.iter().enumerate();
        checks.try_for_each(|(number, check)| check.validate(&format!("checks[{number}].")))
    }
}

type Entries<'a> = SmallVec<[Entry<'a>; 8]>;
type Descriptors<'a> = SmallVec<[Descriptor<'a>; 4]>;

impl Question<'_> {
    /// Checks what types do not; `prefix` leads the paths of what is wrong.
    pub(super) fn validate(&self, prefix: &str) -> Result<(), ApiError> {
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
        }
        Ok(())
    }

    /// Whether it only looks.
    pub(super) fn is_peek(&self) -> bool {
        self.descriptors.iter().all(|view| view.hits == Some(0))
    }

    /// All descriptors' entries, one after the other.
    pub(super) fn entries(&self) -> Entries<'_> {
        let pairs = self.descriptors.iter().flat_map(|view| &view.entries);
        pairs
            .map(|pair| Entry {
                key: &pair.key,
                value: &pair.value,
            })
            .collect()
    }

    /// The descriptors, with what [`Self::entries`] gave.
    pub(super) fn descriptors<'q>(&self, entries: &'q [Entry<'q>]) -> Descriptors<'q> {
        let mut rest = entries;
        let view = |view: &Object<View<'_>>| {
            let (own, others) = rest
                .split_at_checked(view.entries.len())
                .unwrap_or_default();
            rest = others;
            // `validate` has made sure that it fits.
            let hits = i64::try_from(view.hits.unwrap_or(1)).unwrap_or(MAX_HITS);
            Descriptor {
                hits,
                ..Descriptor::new(own)
            }
        };
        self.descriptors.iter().map(view).collect()
    }

    /// Whoever asks here is told the delay, and can wait.
    pub(super) fn check<'q>(&'q self, descriptors: &'q [Descriptor<'q>]) -> Check<'q> {
        Check {
            domain: &self.domain,
            descriptors,
            waiting: Waiting::Can,
        }
    }
}
