//! The settings for bearer tokens (JWT, RFC 7519), and the claims of verified tokens.

#[cfg(any(test, not(feature = "jwt")))]
#[cfg_attr(feature = "jwt", expect(dead_code, reason = "a test alone opens it"))]
mod absent;
#[cfg(feature = "jwt")]
mod checked;
#[cfg(feature = "jwt")]
mod rejected;
#[cfg(feature = "jwt")]
mod signatures;
#[cfg(feature = "jwt")]
mod verified;

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

#[cfg(not(feature = "jwt"))]
pub(crate) use absent::Tokens;
#[cfg(feature = "jwt")]
pub(crate) use checked::Tokens;

/// The claims of a verified token.
pub(crate) type Claims = serde_json::Map<String, serde_json::Value>;

/// The reason a bearer token is not accepted. Its text repeats nothing of the token, and has no
/// quotation marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The token is longer than any that is read.
    #[error("the token is longer than 8 KiB")]
    TooLong,
    /// The text is not a signed token.
    #[error("the bearer token is not a JWT")]
    NotAJwt,
    /// Its `crit` names extensions (RFC 7515, section 4.1.11).
    #[error("the token has critical extensions, which are not supported")]
    CriticalExtensions,
    /// Its algorithm is not accepted.
    #[error("the token's algorithm is not accepted")]
    Algorithm,
    /// It has no `kid`, and several keys fit.
    #[error("the token does not name its key (kid), and there are several")]
    NoKeyId,
    /// No known key fits.
    #[error("no known key has signed the token")]
    UnknownKey,
    /// Its signature is wrong.
    #[error("the token's signature does not match a known key")]
    Forged,
    /// Its sender has sent many forged ones, and has to wait.
    #[error("too many tokens of this address were forged; try again in a few seconds")]
    Suspect,
    /// It is past its `exp`.
    #[error("the token has expired")]
    Expired,
    /// It is before its `nbf`.
    #[error("the token is not valid yet")]
    Immature,
    /// Its `iss` is not accepted.
    #[error("the token's issuer is not accepted here")]
    Issuer,
    /// Its `aud` names others.
    #[error("the token is for another audience")]
    Audience,
    /// No keys have been fetched yet.
    #[error("the keys of tokens have not been fetched yet")]
    NoKeys,
    /// It lacks a claim that the settings require.
    #[error("the token lacks a required claim")]
    MissingClaim,
}

/// The settings for the verification of tokens.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JwtConfig {
    jwks_file: Option<PathBuf>,
    jwks_url: Option<Box<str>>,
    jwks_ca: Option<PathBuf>,
    jwks_refresh_seconds: Option<u32>,
    secret_file: Option<PathBuf>,
    algorithms: Option<Vec<String>>,
    issuer: Option<OneOrMany>,
    audience: Option<OneOrMany>,
    leeway_seconds: Option<u32>,
    on_invalid: Option<OnInvalid>,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// The place of keys that somebody else fetches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeysPlace {
    /// The URL of a set of keys (RFC 7517).
    pub url: Box<str>,
    /// The authorities that verify its server's certificate; [`None`] for the system's.
    pub authorities: Option<PathBuf>,
    /// The time between two fetches.
    pub refresh_every: Duration,
}

/// The treatment of a request whose token is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnInvalid {
    /// It is refused with 401.
    #[default]
    Refuse,
    /// It counts as a request without a token.
    Anonymous,
}

/// The value of a claim as text: by its name, or by a JSON pointer (`/org/id`).
pub(crate) fn claim(claims: &Claims, name: &str) -> Option<String> {
    use serde_json::Value;
    let value = match name.strip_prefix('/') {
        None => claims.get(name),
        Some(path) => {
            let (first, rest) = path.split_once('/').unwrap_or((path, ""));
            let inner = claims.get(&first.replace("~1", "/").replace("~0", "~"))?;
            match rest {
                "" => Some(inner),
                rest => inner.pointer(&format!("/{rest}")),
            }
        }
    };
    match value? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(switch) => Some(switch.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::claim;

    #[test]
    fn claims_are_found_by_name_or_pointer() {
        let claims = json!({ "sub": "a", "https://x.example/org": "b", "org": { "id": 7, "tags": [] }, "ok": true });
        let claims = claims.as_object().expect("an object");
        let found = |name| claim(claims, name);
        assert_eq!(found("sub").as_deref(), Some("a"));
        assert_eq!(found("https://x.example/org").as_deref(), Some("b"));
        assert_eq!(found("/org/id").as_deref(), Some("7"));
        assert_eq!(found("/ok").as_deref(), Some("true"));
        for missing in ["nobody", "org", "/org", "/org/tags", "/org/id/x", "/"] {
            assert_eq!(found(missing), None, "{missing}");
        }
    }
}
