//! The hash key of counter names.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

/// The secret key of the hash that names counters, the same on all nodes that share them. Never
/// printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey([u8; 16]);

impl HashKey {
    /// A random key from the operating system, by way of the keys of the standard library's hash maps.
    #[must_use]
    pub fn random() -> Self {
        let word = || RandomState::new().build_hasher().finish().to_le_bytes();
        let mut bytes = [0; 16];
        let (low, high) = bytes.split_at_mut(8);
        low.copy_from_slice(&word());
        high.copy_from_slice(&word());
        Self(bytes)
    }

    /// The key with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes of the key.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_bytes_and_is_never_printed() {
        let bytes = std::array::from_fn(|at| u8::try_from(200 + at).expect("a byte"));
        let key = HashKey::from_bytes(bytes);
        assert_eq!(key.to_bytes(), bytes);
        assert_eq!(format!("{key:?}"), "HashKey(secret)");
    }
}
