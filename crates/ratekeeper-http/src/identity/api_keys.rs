//! API keys that requests need.
//!
//! Only the SHA-256 of a key is kept. That is enough for keys that cannot be guessed; a password would need a slow hash.

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::{IdentityError, IdentityFault};
use crate::source::{ValueSource, ValueSourceError};
use ratekeeper_rules::{PathFolding, PathPattern, PathPatternError};

/// The most keys: each key presented is compared with all of them.
const KEYS_MAX: usize = 1_000;

/// The most patterns of paths that need no key.
const PUBLIC_MAX: usize = 100;

/// The settings of the keys.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ApiKeysConfig {
    from: String,
    keys: Vec<Entry>,
    public: Option<Vec<String>>,
}

/// A key as it is written.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Box<str>,
    sha256: String,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The fault of the settings of API keys. Its text repeats no key and no hash.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiKeyFault {
    /// The part of the request is malformed.
    #[error("from: {0}")]
    From(#[from] ValueSourceError),
    /// The part of the request holds no secret.
    #[error("from: `{0}` is no secret; write header:NAME, query:NAME, cookie:NAME or bearer")]
    NotASecret(Box<str>),
    /// There are none, or too many.
    #[error("keys: expected 1 to {KEYS_MAX} keys")]
    Count,
    /// Two keys have the same hash, or one has no name.
    #[error("keys[{0}]: it has no name, or the same SHA-256 as another")]
    Key(usize),
    /// The hash is none.
    #[error(
        "keys[{0}].sha256: expected 64 hexadecimal digits in quotes, as `printf %s KEY | sha256sum` prints them"
    )]
    Sha256(usize),
    /// A pattern of public paths is malformed.
    #[error("public[{number}]: {fault}")]
    Public {
        /// The number of the pattern.
        number: usize,
        /// The fault.
        fault: PathPatternError,
    },
    /// There are too many patterns.
    #[error("public: at most {PUBLIC_MAX} patterns")]
    TooManyPublic,
}

/// The reason why an API key is not accepted. Repeats nothing of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiKeyError {
    /// The request has none.
    #[error("an API key is needed")]
    Missing,
    /// The key is unknown.
    #[error("the API key is not known")]
    Unknown,
}

/// The keys that requests need, hashed.
#[derive(Debug)]
pub(crate) struct ApiKeys {
    source: ValueSource,
    keys: Vec<ApiKey>,
    public: Vec<PathPattern>,
}

struct ApiKey {
    name: Box<str>,
    sha256: [u8; 32],
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiKey")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl ApiKeys {
    pub(super) fn new(config: &ApiKeysConfig) -> Result<Self, IdentityError> {
        let made = Self::made(config);
        made.map_err(|fault| IdentityError::new("api_keys", IdentityFault::ApiKeys(fault)))
    }

    fn made(config: &ApiKeysConfig) -> Result<Self, ApiKeyFault> {
        let source: ValueSource = config.from.parse()?;
        let may_be_secret = matches!(
            source,
            ValueSource::Header(_)
                | ValueSource::Query(_)
                | ValueSource::Cookie(_)
                | ValueSource::Bearer
        );
        if !may_be_secret {
            return Err(ApiKeyFault::NotASecret(config.from.as_str().into()));
        }
        if !(1..=KEYS_MAX).contains(&config.keys.len()) {
            return Err(ApiKeyFault::Count);
        }
        let mut keys: Vec<ApiKey> = Vec::with_capacity(config.keys.len());
        for (number, entry) in config.keys.iter().enumerate() {
            let sha256 = sha256(&entry.sha256).ok_or(ApiKeyFault::Sha256(number))?;
            if entry.name.is_empty() || keys.iter().any(|other| other.sha256 == sha256) {
                return Err(ApiKeyFault::Key(number));
            }
            keys.push(ApiKey {
                name: entry.name.clone(),
                sha256,
            });
        }
        let public = config.public.as_deref().unwrap_or_default();
        if public.len() > PUBLIC_MAX {
            return Err(ApiKeyFault::TooManyPublic);
        }
        let public = public.iter().enumerate().map(|(number, pattern)| {
            PathPattern::parse(pattern).map_err(|fault| ApiKeyFault::Public { number, fault })
        });
        Ok(Self {
            source,
            keys,
            public: public.collect::<Result<_, _>>()?,
        })
    }

    /// The part of a request that has the key.
    pub(crate) const fn source(&self) -> &ValueSource {
        &self.source
    }

    /// Returns true if requests for `path` need no key. Letters count: what a rule takes for the same path, a service may not.
    pub(crate) fn is_public(&self, path: &str) -> bool {
        let mut public = self.public.iter();
        public.any(|pattern| pattern.matches(path, PathFolding::NONE))
    }

    /// The name of the one who has this key. Takes the same time for each key: all hashes are compared as a whole.
    pub(crate) fn owner(&self, key: &str) -> Option<&str> {
        let sha256: [u8; 32] = Sha256::digest(key).into();
        let mut owner = None;
        for known in &self.keys {
            let difference = known.sha256.iter().zip(&sha256);
            let difference = difference.fold(0, |all, (known, byte)| all | (known ^ byte));
            if std::hint::black_box(difference) == 0 {
                owner = Some(&*known.name);
            }
        }
        owner
    }
}

fn sha256(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (number, byte) in hash.iter_mut().enumerate() {
        let digits = text.get(number * 2..number * 2 + 2)?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        *byte = u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The SHA-256 of `test`.
    const TEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    fn keys(config: Value) -> Result<ApiKeys, String> {
        let config: ApiKeysConfig = serde_json::from_value(config).expect("a configuration");
        ApiKeys::new(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn a_key_is_known_by_its_hash() {
        let keys = keys(json!({
            "from": "header:x-api-key",
            "keys": [ { "name": "acme", "sha256": TEST } ],
            "public": [ "/health", "/docs/**" ],
        }));
        let keys = keys.expect("they are good");
        assert_eq!(keys.owner("test"), Some("acme"));
        for other in ["", "Test", "test ", TEST] {
            assert_eq!(keys.owner(other), None, "{other}");
        }
        assert!(keys.is_public("/health") && keys.is_public("/docs/a/b"));
        assert!(!keys.is_public("/Health") && !keys.is_public("/healthy") && !keys.is_public("/"));
        assert!(!format!("{keys:?}").contains("159"), "{keys:?}");
    }

    #[test]
    fn settings_that_would_let_everybody_in_are_refused() {
        let key = json!({ "name": "acme", "sha256": TEST });
        for (from, list, part) in [
            (
                "remote_address",
                json!([key]),
                "`remote_address` is no secret",
            ),
            (
                "colour",
                json!([key]),
                "`colour` is not a part of a request",
            ),
            ("bearer", json!([]), "1 to 1000 keys"),
            (
                "bearer",
                json!([key, key]),
                "keys[1]: it has no name, or the same",
            ),
            (
                "bearer",
                json!([{ "name": "a", "sha256": "test" }]),
                "keys[0].sha256: expected 64",
            ),
        ] {
            let said = keys(json!({ "from": from, "keys": list })).expect_err(part);
            assert!(
                said.starts_with("api_keys: ") && said.contains(part),
                "{said}"
            );
        }
    }
}
