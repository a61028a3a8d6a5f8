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

/// A secret as shown in the names of rules: `~9f86d081884c7d65…9f2c`.
///
/// The hash is 64 bits of SHA-256 without a key, so that a rule has the same id in every process. It
/// reveals nothing about a secret that cannot be guessed. Code that has a key shows a keyed hash,
/// [`with_hash`].
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

/// Shows a secret as `hash` and its last 4 characters, if at least 8 others stay hidden.
#[must_use]
pub fn with_hash(secret: &str, hash: u64) -> String {
    match tail(secret) {
        "" => format!("~{hash:016x}"),
        tail => format!("~{hash:016x}…{tail}"),
    }
}

/// Shows a secret as its last 4 characters, `…9f2c`, if at least 8 others stay hidden; else as `…`.
#[must_use]
pub fn end(secret: &str) -> String {
    format!("…{}", tail(secret))
}

/// The last 4 characters, if at least 8 others stay hidden; else none.
fn tail(secret: &str) -> &str {
    let last = secret.char_indices().rev().nth(3).map(|(at, _)| at);
    let (hidden, tail) = last.map_or((secret, ""), |at| secret.split_at(at));
    match hidden.chars().count() >= 8 {
        true => tail,
        false => "",
    }
}
