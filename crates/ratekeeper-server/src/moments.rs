//! Times in JSON, which are all in the form of RFC 3339: `#[serde(with = "crate::moments")]`.

use ratekeeper_core::Timestamp;
use ratekeeper_rules::time;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

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
