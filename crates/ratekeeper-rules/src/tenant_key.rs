//! Keyed hashes of tenants' values.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::str::FromStr;

/// The secret under which tenants' values are hashed. Without it no one can tell from a hash which
/// value it is of, not even by trying values.
#[derive(Clone, PartialEq, Eq)]
pub struct TenantKey([u8; 16]);

impl TenantKey {
    /// The key with those bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The hash of a tenant's value: SipHash-2-4 of 128 bits, of `tenant`, a zero byte, and the value.
    #[must_use]
    #[inline]
    pub fn hash(&self, tenant: &str) -> TenantHash {
        let [prefix, value] = [u64::from_le_bytes(*b"tenant\0\0"), tenant.len() as u64];
        let length = (value + 7) << 56;
        let mut state = SipState::new(u128::from_le_bytes(self.0));
        // The prefix has seven bytes, so the first byte of the value ends the first word.
        let Some((first, rest)) = tenant.as_bytes().split_first() else {
            return state.finish(prefix | length);
        };
        state.absorb(prefix | u64::from(*first) << 56);
        let (words, tail) = rest.as_chunks::<8>();
        for word in words {
            state.absorb(u64::from_le_bytes(*word));
        }
        state.finish(last_word(rest, tail) | length)
    }
}

/// The bytes of `tail`, the last ones of `all`, as a word. They are fewer than eight.
#[inline]
fn last_word(all: &[u8], tail: &[u8]) -> u64 {
    // One read of eight bytes, of which too many are shifted out, where there are as many.
    if let Some(last) = all.last_chunk() {
        return u64::from_le_bytes(*last) >> 8 >> (56 - 8 * tail.len());
    }
    let shifted = (0..)
        .zip(tail)
        .map(|(at, byte)| u64::from(*byte) << (8 * at));
    shifted.fold(0, |word, byte| word | byte)
}

/// The state of SipHash-2-4. The crate `siphasher`, which tests compare it with, copies the value behind the prefix and
/// reads it byte by byte at its end: a third more instructions.
struct SipState {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl SipState {
    #[expect(clippy::cast_possible_truncation, reason = "the halves are wanted")]
    #[inline]
    const fn new(key: u128) -> Self {
        let (low, high) = (key as u64, (key >> 64) as u64);
        Self {
            v0: low ^ 0x736f_6d65_7073_6575,
            v1: high ^ 0x646f_7261_6e64_6f83,
            v2: low ^ 0x6c79_6765_6e65_7261,
            v3: high ^ 0x7465_6462_7974_6573,
        }
    }

    #[inline]
    const fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.rotate_left(32);
    }

    #[inline]
    const fn absorb(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.round();
        self.v0 ^= word;
    }

    #[inline]
    const fn half(&mut self) -> u64 {
        self.round();
        self.round();
        self.round();
        self.round();
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }

    /// The hash, once the last word is there. A table reads memory by the low half, which is known first.
    #[inline]
    const fn finish(mut self, word: u64) -> TenantHash {
        self.absorb(word);
        self.v2 ^= 0xee;
        let low = self.half();
        self.v1 ^= 0xdd;
        let high = self.half();
        TenantHash::of_halves((high, low))
    }
}

impl Default for TenantKey {
    /// A key that no other process has, for tenants that files name by their values: no one can make
    /// another value of the same hash.
    fn default() -> Self {
        let word = || RandomState::new().build_hasher().finish().to_le_bytes();
        let mut key = [0; 16];
        key[..8].copy_from_slice(&word());
        key[8..].copy_from_slice(&word());
        Self(key)
    }
}

impl fmt::Debug for TenantKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TenantKey(secret)")
    }
}

/// The keyed hash of a tenant's value: 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TenantHash(u128);

impl TenantHash {
    /// The hash as two words, the high one first.
    #[expect(clippy::cast_possible_truncation, reason = "the halves are wanted")]
    #[must_use]
    pub const fn halves(self) -> (u64, u64) {
        ((self.0 >> 64) as u64, self.0 as u64)
    }

    pub(crate) const fn of_halves((high, low): (u64, u64)) -> Self {
        Self((high as u128) << 64 | low as u128)
    }

    /// Half of the hash, for a table.
    #[expect(clippy::cast_possible_truncation, reason = "half of it is wanted")]
    pub(crate) const fn low(self) -> u64 {
        self.0 as u64
    }
}

impl fmt::Display for TenantHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A text that is no hash of a tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a hash has 32 hexadecimal digits")]
pub struct NotATenantHash;

impl FromStr for TenantHash {
    type Err = NotATenantHash;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let hash = u128::from_str_radix(text, 16).ok().filter(|_| is_hex);
        hash.map(Self).ok_or(NotATenantHash)
    }
}

#[cfg(test)]
mod tests {
    use siphasher::sip128::{Hasher128, SipHasher24};

    use super::*;

    #[test]
    fn hashes_are_those_of_siphash() {
        let bytes = *b"\x0b0Uz\x9f\xc4\xe9\x0e3X}\xa2\xc7\xec\x116";
        let key = TenantKey::from_bytes(bytes);
        let text: String = (0..250_u8).map(|at| char::from(b'!' + at % 90)).collect();
        for end in 0..=text.len() {
            let mut hasher = SipHasher24::new_with_key(&bytes);
            hasher.write(b"tenant\0");
            hasher.write(&text.as_bytes()[..end]);
            let hash = TenantHash(hasher.finish128().as_u128());
            assert_eq!(key.hash(&text[..end]), hash, "{end} bytes");
        }
    }
}
