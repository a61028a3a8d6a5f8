//! Secret values, such as API keys and tokens, which must not be shown.

use sha2::{Digest, Sha256};

/// Entry keys whose values are secrets by default; compared without regard to case, and with `-`
/// and `_` equal.
const SECRET_KEYS: [&str; 12] = [
    "api_key",
    "apikey",
    "x_api_key",
    "token",
    "access_token",
    "auth_token",
    "x_auth_token",
    "bearer_token",
    "authorization",
    "proxy_authorization",
    "cookie",
    "password",
];

/// Returns true if values of entries with this key are secrets by default.
#[must_use]
pub fn is_secret_by_default(key: &str) -> bool {
    SECRET_KEYS.iter().any(|secret| same_name(secret, key))
}

fn same_name(secret: &str, key: &str) -> bool {
    secret.len() == key.len()
        && secret.bytes().zip(key.bytes()).all(|(secret, key)| {
            secret
                == if key == b'-' {
                    b'_'
                } else {
                    key.to_ascii_lowercase()
                }
        })
}

/// A secret as the names of rules show it: `~9f86d081884c7d65…9f2c`.
///
/// The same in every process, so that a rule's id is, and made without a key: 64 bits of SHA-256. It
/// tells nothing of a secret that cannot be guessed. Whoever has a key at hand shows
/// [`with_hash`] of a keyed hash instead.
#[must_use]
pub fn fingerprint(secret: &str) -> String {
    let digest = Sha256::new()
        .chain_update("ratekeeper: a secret in a rule's name\0")
        .chain_update(secret)
        .finalize();
    let (head, _) = digest.split_at(8);
    let hash = head
        .iter()
        .fold(0, |hash, byte| hash << 8 | u64::from(*byte));
    with_hash(secret, hash)
}

/// A secret that is shown as `hash` and, where at least 8 other characters stay hidden, its last 4.
#[must_use]
pub fn with_hash(secret: &str, hash: u64) -> String {
    let hidden = secret.chars().count().saturating_sub(4);
    if hidden < 8 {
        return format!("~{hash:016x}");
    }
    let tail: String = secret.chars().skip(hidden).collect();
    format!("~{hash:016x}…{tail}")
}
