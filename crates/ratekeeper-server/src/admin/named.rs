//! The one whom an operator asks about: by value, by fingerprint, by keyed hash, or by last characters.

use ratekeeper_limiter::{ENTRY_BYTES_MAX, Snapshot};

use super::quotas::HASH;
use crate::admin_json::keys::{fingerprint_and_end, value_of};
use crate::http::ApiError;

/// The fewest characters by which a tenant is looked for by its end.
pub(super) const ENDING_MIN: usize = 4;

/// A tenant as somebody names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Named {
    /// Its value.
    Value(String),
    /// The fingerprint of a secret value, as denials show it: `~1f0c83aa5b92d07e`.
    Fingerprint(String),
    /// `hash:` and its keyed hash in the quota database.
    Hash(String),
    /// The last characters: `…x4f2`, or `*x4f2` for those without the character.
    Ending(String),
}

impl Named {
    /// The tenant that `text`, the value of `field`, names.
    pub(super) fn read(text: &str, field: &str) -> Result<Self, ApiError> {
        if text.is_empty() || text.len() > ENTRY_BYTES_MAX {
            let message = format!("expected 1 to {ENTRY_BYTES_MAX} bytes");
            return Err(ApiError::invalid(field, message));
        }
        let named = match text.strip_prefix(['…', '*']) {
            Some(end) if end.chars().count() < ENDING_MIN => {
                let message = format!("expected at least {ENDING_MIN} of the last characters");
                return Err(ApiError::invalid(field, message));
            }
            Some(end) => Self::Ending(end.to_owned()),
            None if is_fingerprint(text) => Self::Fingerprint(text.to_owned()),
            None if text.starts_with(HASH) => Self::Hash(text.to_owned()),
            None => Self::Value(text.to_owned()),
        };
        Ok(named)
    }

    /// The same text as the end of a value: for whoever typed the last characters alone.
    pub(super) fn as_ending(&self) -> Option<Self> {
        match self {
            Self::Value(text) if text.chars().count() >= ENDING_MIN => {
                Some(Self::Ending(text.clone()))
            }
            _ => None,
        }
    }

    /// The test whether an entry, written as `key:value`, is the tenant's.
    pub(super) fn test(&self, snapshot: &Snapshot) -> impl Fn(&str) -> bool {
        let (texts, ending) = match self {
            Self::Value(text) => (vec![text.clone(), snapshot.fingerprint(text)], None),
            Self::Fingerprint(text) => (vec![text.clone()], None),
            Self::Hash(_) => (Vec::new(), None),
            Self::Ending(end) => (Vec::new(), Some(end.clone())),
        };
        move |key| {
            let value = value_of(key);
            let secret = fingerprint_and_end(value);
            let is_named = |text: &String| {
                let short = secret.map(|(fingerprint, _)| fingerprint);
                text == key || text == value || Some(text.as_str()) == short
            };
            match (&ending, secret) {
                // Who names more than is shown means the one that ends so.
                (Some(end), Some((_, shown))) => {
                    !shown.is_empty() && (end.ends_with(shown) || shown.ends_with(end.as_str()))
                }
                (Some(end), None) => value.ends_with(end.as_str()),
                (None, _) => texts.iter().any(is_named),
            }
        }
    }

    /// The name of the form.
    pub(super) const fn form(&self) -> &'static str {
        match self {
            Self::Value(_) => "value",
            Self::Fingerprint(_) => "fingerprint",
            Self::Hash(_) => "hash",
            Self::Ending(_) => "last_characters",
        }
    }
}

/// Returns true for `~` and 16 hexadecimal digits, and the last characters after `…` if they are there.
fn is_fingerprint(text: &str) -> bool {
    let short = text.split_once('…').map_or(text, |(short, _)| short);
    let digits = short.strip_prefix('~');
    digits.is_some_and(|digits| {
        digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_is_named_in_four_forms() {
        let read = |text| Named::read(text, "tenant").map(|named| named.form());
        for (text, form) in [
            ("acme", "value"),
            ("~1f0c83aa5b92d07e", "fingerprint"),
            ("~1f0c83aa5b92d07e…x4f2", "fingerprint"),
            ("~home", "value"),
            ("hash:5f0c6a8e1b2d3c4f5a69788796a5b4c3", "hash"),
            ("…x4f2", "last_characters"),
            ("*x4f2", "last_characters"),
        ] {
            assert_eq!(read(text).ok(), Some(form), "{text}");
        }
        for bad in ["", "*", "…abc"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
