//! Times in whole seconds: the wall clock, and JSON, where all are in the form of RFC 3339 by `#[serde(with = "crate::admin_json::moments")]`.

use std::time::{SystemTime, UNIX_EPOCH};

use ratekeeper_core::Timestamp;
use ratekeeper_rules::time;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// Seconds since 1970, by the wall clock.
pub(crate) fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Writes seconds since 1970, as in `2027-01-31T00:00:00Z`.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(crate) fn serialize<S: Serializer>(seconds: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&time::rfc3339(Timestamp::from_secs(*seconds)))
}

/// Reads seconds since 1970.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    let time = time::parse(&text).map_err(D::Error::custom)?;
    Ok(time.as_micros() / 1_000_000)
}

/// Times that may be absent.
pub(crate) mod option {
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes the time; one that is absent is null, if it is written at all.
    pub(crate) fn serialize<S: Serializer>(
        seconds: &Option<u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match seconds {
            Some(seconds) => super::serialize(seconds, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads seconds since 1970.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u64>, D::Error> {
        #[derive(Deserialize)]
        struct Moment(#[serde(with = "super")] u64);
        let moment = Option::<Moment>::deserialize(deserializer)?;
        Ok(moment.map(|Moment(seconds)| seconds))
    }
}
