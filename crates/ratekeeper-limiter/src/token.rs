//! Permits and reservations as text that only we can write.
//!
//! A token carries all that it stands for, so that nothing is kept of it here, and any node
//! with the same store and hash key can settle it:
//!
//! ```text
//!  byte 0       1      2     18    26      34     42       50                      end - 16
//!  | version | kind | id | taken at | until | hits | caller | part | part | ... | MAC |
//!       1        1    16      8        8       8       8      32 each               16
//!  part: | rule and limit | subject | identity | hits |      integers are big-endian
//! ```
//!
//! The MAC is SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, 2012), under a key
//! that is derived from the limiter's hash key and used for nothing else: without that key, each attempt
//! to forge a token succeeds with probability 2^-128. A token without parts stands for hits that
//! no store counted, and is written under a key that is no secret: forging one gains nothing, and a
//! node with another key, or a changed one, can settle it too. As text it is base64url
//! (RFC 4648, section 5) without padding.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ratekeeper_core::formats::HOLD;
use ratekeeper_core::{MAX_COUNT, Timestamp};
use ratekeeper_store::CounterKey;
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;

use ratekeeper_store::HashKey;

/// The most limits that one permit or reservation may be held in.
pub(crate) const PARTS_MAX: usize = 64;

/// The most characters of a token.
pub const TOKEN_CHARS_MAX: usize =
    (HEAD_BYTES + PARTS_MAX * PART_BYTES + MAC_BYTES).div_ceil(3) * 4;

#[expect(clippy::cast_possible_truncation, reason = "few versions")]
const VERSION: u8 = HOLD.version as u8;
const HEAD_BYTES: usize = 50;
const PART_BYTES: usize = 32;
const MAC_BYTES: usize = 16;

/// The bit set in a part's hits if only a cancel gives them back.
const FIXED: u64 = 1 << 63;

/// The kind of hold that a token stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Permit,
    Reservation,
}

/// The part of a hold that lies in one limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HoldPart {
    /// The name of the rule and its limit's identity: another limit has other counters.
    pub(crate) rule: u64,
    pub(crate) key: CounterKey,
    /// The hits taken, at most 2^53 - 1.
    pub(crate) hits: u64,
    /// True if a commit leaves it as it is.
    pub(crate) is_fixed: bool,
}

/// The contents of a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    pub(crate) kind: Kind,
    pub(crate) id: u128,
    pub(crate) taken_at: Timestamp,
    /// The time before which a reservation must be settled.
    pub(crate) until: Timestamp,
    /// The hits reserved.
    pub(crate) hits: u64,
    /// A hash of the caller that it belongs to.
    pub(crate) caller: u64,
    pub(crate) parts: Vec<HoldPart>,
}

/// Writes and reads tokens, and derives ids.
#[derive(Clone, Copy)]
pub(crate) struct Sealer {
    key: [u8; 16],
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer(secret)")
    }
}

impl Sealer {
    pub(crate) fn new(hash_key: HashKey) -> Self {
        let mut hasher = SipHasher24::new_with_key(&hash_key.to_bytes());
        hasher.write(b"ratekeeper: permits and reservations, 1");
        let key = hasher.finish128().as_bytes();
        Self { key }
    }

    /// A sealer with a public key, for tokens that stand for nothing.
    pub(crate) fn public() -> Self {
        Self::new(HashKey::from_bytes([0; 16]))
    }

    /// A keyed hash of some texts, each with its length before it; `purpose` keeps hashes for
    /// different purposes apart.
    pub(crate) fn hash(&self, purpose: &str, texts: &[&[u8]]) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        for text in std::iter::once(&purpose.as_bytes()).chain(texts) {
            hasher.write_u64(text.len() as u64);
            hasher.write(text);
        }
        hasher.finish128().as_u128()
    }

    /// The hash by which a token names the caller it belongs to.
    pub(crate) fn caller(&self, name: &str) -> u64 {
        low(self.hash("caller", &[name.as_bytes()]))
    }

    pub(crate) fn seal(&self, claim: &Claim) -> String {
        let size = HEAD_BYTES + claim.parts.len() * PART_BYTES + MAC_BYTES;
        let mut bytes = Vec::with_capacity(size);
        bytes.push(VERSION);
        bytes.push(match claim.kind {
            Kind::Permit => b'p',
            Kind::Reservation => b'r',
        });
        bytes.extend(claim.id.to_be_bytes());
        let Claim {
            taken_at, until, ..
        } = claim;
        let head = [
            taken_at.as_micros(),
            until.as_micros(),
            claim.hits,
            claim.caller,
        ];
        bytes.extend(head.into_iter().flat_map(u64::to_be_bytes));
        for part in &claim.parts {
            let hits = part.hits | if part.is_fixed { FIXED } else { 0 };
            let words = [part.rule, part.key.subject, part.key.identity, hits];
            bytes.extend(words.into_iter().flat_map(u64::to_be_bytes));
        }
        let mac = self.hash("token", &[&bytes]);
        bytes.extend(mac.to_be_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Returns the contents of `token`; None if it was not sealed under this key, or was changed.
    pub(crate) fn open(&self, token: &str) -> Option<Claim> {
        if token.len() > TOKEN_CHARS_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (sealed, mac) = bytes.split_last_chunk()?;
        // A single comparison, which takes the same time wherever the two differ.
        if self.hash("token", &[sealed]) ^ u128::from_be_bytes(*mac) != 0 {
            return None;
        }
        read(sealed)
    }
}

/// Reads authenticated bytes; None if another version wrote them.
fn read(sealed: &[u8]) -> Option<Claim> {
    let (&[version, kind], rest) = sealed.split_first_chunk()?;
    let (id, rest) = rest.split_first_chunk()?;
    let (head, rest) = rest.split_at_checked(HEAD_BYTES - 18)?;
    let (head, _) = head.as_chunks::<8>();
    let [taken_at, until, hits, caller] = <&[_; 4]>::try_from(head).ok()?.map(u64::from_be_bytes);
    let (parts, left) = rest.as_chunks::<PART_BYTES>();
    let in_range = [taken_at, until, hits]
        .iter()
        .all(|word| *word <= MAX_COUNT);
    if version != VERSION || !left.is_empty() || parts.len() > PARTS_MAX || !in_range {
        return None;
    }
    let part = |bytes: &[u8; PART_BYTES]| {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |index: usize| words.get(index).map_or(0, |word| u64::from_be_bytes(*word));
        HoldPart {
            rule: word(0),
            key: CounterKey {
                subject: word(1),
                identity: word(2),
            },
            hits: word(3) & !FIXED,
            is_fixed: word(3) & FIXED != 0,
        }
    };
    Some(Claim {
        kind: match kind {
            b'p' => Kind::Permit,
            b'r' => Kind::Reservation,
            _ => return None,
        },
        id: u128::from_be_bytes(*id),
        taken_at: Timestamp::from_micros(taken_at),
        until: Timestamp::from_micros(until),
        hits,
        caller,
        parts: parts.iter().map(part).collect(),
    })
}

/// The lower half of a hash.
#[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
pub(crate) const fn low(hash: u128) -> u64 {
    hash as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer(byte: u8) -> Sealer {
        Sealer::new(HashKey::from_bytes([byte; 16]))
    }

    fn claim(parts: usize) -> Claim {
        let part = |number: usize| HoldPart {
            rule: number as u64,
            key: CounterKey {
                subject: u64::MAX,
                identity: 1,
            },
            hits: (1 << 53) - 1,
            is_fixed: number.is_multiple_of(2),
        };
        Claim {
            kind: Kind::Reservation,
            id: 7,
            taken_at: Timestamp::from_secs(1),
            until: Timestamp::from_secs(2),
            hits: 3,
            caller: 4,
            parts: (0..parts).map(part).collect(),
        }
    }

    #[test]
    fn a_token_says_what_was_written() {
        for parts in [0, 1, 2, PARTS_MAX] {
            let token = sealer(1).seal(&claim(parts));
            assert!(token.len() <= TOKEN_CHARS_MAX);
            assert_eq!(sealer(1).open(&token), Some(claim(parts)), "{parts}");
            assert_eq!(sealer(2).open(&token), None);
        }
        let token = sealer(1).seal(&claim(PARTS_MAX + 1));
        assert_eq!(sealer(1).open(&token), None);
    }

    #[test]
    fn a_token_that_was_touched_is_refused() {
        let token = sealer(1).seal(&claim(2));
        let bytes = URL_SAFE_NO_PAD.decode(&token).expect("it is base64url");
        for place in 0..bytes.len() {
            let mut touched = bytes.clone();
            touched[place] ^= 0x10;
            let touched = URL_SAFE_NO_PAD.encode(touched);
            assert_eq!(sealer(1).open(&touched), None, "{place}");
            let cut = URL_SAFE_NO_PAD.encode(&bytes[..place]);
            assert_eq!(sealer(1).open(&cut), None, "{place}");
        }
        for text in [
            "",
            "=",
            "a",
            "äöü",
            "aaaa aaaa",
            &"A".repeat(TOKEN_CHARS_MAX + 1),
        ] {
            assert_eq!(sealer(1).open(text), None, "{text}");
        }
    }

    #[test]
    fn what_another_version_may_have_sealed_is_refused() {
        let claim = claim(1);
        let sealed = |change: fn(&mut Vec<u8>)| {
            let token = sealer(1).seal(&claim);
            let mut bytes = URL_SAFE_NO_PAD.decode(token).expect("it is base64url");
            bytes.truncate(bytes.len() - MAC_BYTES);
            change(&mut bytes);
            let mac = sealer(1).hash("token", &[&bytes]);
            bytes.extend(mac.to_be_bytes());
            sealer(1).open(&URL_SAFE_NO_PAD.encode(bytes))
        };
        assert_eq!(sealed(|_| {}), Some(claim.clone()));
        assert_eq!(sealed(|bytes| bytes[0] += 1), None, "the version");
        assert_eq!(sealed(|bytes| bytes[1] = b'x'), None, "the kind");
        assert_eq!(sealed(|bytes| bytes[18] = 1), None, "a time beyond all");
        assert_eq!(sealed(|bytes| bytes.push(0)), None, "half a part");
    }

    #[test]
    fn hashes_of_texts_that_run_together_differ() {
        let hash = |texts: &[&str]| {
            let texts: Vec<_> = texts.iter().map(|text| text.as_bytes()).collect();
            sealer(1).hash("p", &texts)
        };
        assert_ne!(hash(&["ab", ""]), hash(&["a", "b"]));
        assert_ne!(sealer(1).caller("a"), sealer(1).caller("b"));
    }
}
