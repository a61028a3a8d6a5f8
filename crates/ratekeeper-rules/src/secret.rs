//! Secret values, such as API keys and tokens, which must not be shown.

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

/// The form in which a secret is shown: 8 hexadecimal digits of a fingerprint, and the last 4
/// characters where at least 8 others stay hidden: `~1f0c83aa…9f2c`.
///
/// The fingerprint tells secrets apart in answers, labels and logs. It is the same in every
/// process, because rule ids contain it. It does not protect a secret that can be guessed.
#[must_use]
pub fn fingerprint(secret: &str) -> String {
    let hash = fnv1a(secret.as_bytes());
    let folded = (hash >> 32) ^ (hash & 0xffff_ffff);
    let hidden = secret.chars().count().saturating_sub(4);
    if hidden < 8 {
        return format!("~{folded:08x}");
    }
    let tail: String = secret.chars().skip(hidden).collect();
    format!("~{folded:08x}…{tail}")
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo): the same on every machine and in every version.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
