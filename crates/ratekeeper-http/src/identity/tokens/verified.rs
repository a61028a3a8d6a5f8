//! A cache of verified tokens.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Claims;

/// The number of sets; a token's hash selects its set, and each set has its own lock.
const SETS: usize = 256;
/// Tokens per set.
const TOKENS: usize = 4;
/// The longest token in the cache, in bytes. With the number of tokens it bounds the memory to a
/// few MiB.
const TOKEN_BYTES_MAX: usize = 4 << 10;

/// The tokens that a set of keys was found to have signed, until they expire or are evicted: 1,024
/// at most.
///
/// A token is looked up by all of its text, so nothing is accepted unverified, even if hashes
/// collide. Hashes are seeded: an attacker cannot choose which token to evict, and since texts are compared
/// only if hashes agree, timing reveals nothing. Rejected tokens are not cached, so only holders of
/// valid tokens take up space.
pub(super) struct VerifiedTokens {
    seed: RandomState,
    sets: Box<[Mutex<Set>]>,
}

#[derive(Default)]
struct Set {
    tokens: [Option<Token>; TOKENS],
    /// The slot to evict next if all tokens are valid.
    next: usize,
}

struct Token {
    hash: u64,
    text: Box<str>,
    /// Seconds since 1970 during which it is valid.
    valid: RangeInclusive<u64>,
    claims: Arc<Claims>,
}

impl VerifiedTokens {
    pub(super) fn new() -> Self {
        Self {
            seed: RandomState::new(),
            sets: (0..SETS).map(|_| Mutex::default()).collect(),
        }
    }

    /// The claims of `token`, if it is cached and valid at `now`, in seconds since 1970.
    pub(super) fn find(&self, token: &str, now: u64) -> Option<Arc<Claims>> {
        let hash = self.seed.hash_one(token);
        let set = self.set(hash).lock();
        let mut tokens = set.tokens.iter().flatten();
        let found = tokens.find(|kept| kept.hash == hash && *kept.text == *token)?;
        found
            .valid
            .contains(&now)
            .then(|| Arc::clone(&found.claims))
    }

    /// Caches a verified token, which is valid during these seconds since 1970.
    pub(super) fn remember(&self, token: &str, valid: RangeInclusive<u64>, claims: &Arc<Claims>) {
        if token.len() > TOKEN_BYTES_MAX {
            return;
        }
        let hash = self.seed.hash_one(token);
        let kept = Token {
            hash,
            text: token.into(),
            valid,
            claims: Arc::clone(claims),
        };
        let mut set = self.set(hash).lock();
        let is_same = |slot: &Option<Token>| slot.as_ref().is_some_and(|own| *own.text == *token);
        let place = set.tokens.iter().position(is_same);
        let place = place.or_else(|| set.tokens.iter().position(Option::is_none));
        let place = place.unwrap_or_else(|| {
            set.next = (set.next + 1) % TOKENS;
            set.next
        });
        set.tokens[place] = Some(kept);
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the remainder is below the number of sets"
    )]
    fn set(&self, hash: u64) -> &Mutex<Set> {
        &self.sets[(hash % SETS as u64) as usize]
    }
}

/// Leaves the tokens out: they are secret.
impl fmt::Debug for VerifiedTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifiedTokens").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(subject: &str) -> Arc<Claims> {
        let claims = [("sub".to_owned(), subject.into())];
        Arc::new(claims.into_iter().collect())
    }

    #[test]
    fn a_token_is_found_while_it_is_valid() {
        let verified = VerifiedTokens::new();
        let acme = claims("acme");
        verified.remember("token", 10..=20, &acme);
        for (now, is_found) in [(9, false), (10, true), (20, true), (21, false)] {
            assert_eq!(verified.find("token", now).is_some(), is_found, "{now}");
        }
        assert_eq!(verified.find("token", 15), Some(acme));
        assert_eq!(verified.find("Token", 15), None);
        assert_eq!(verified.find("", 15), None);
    }

    #[test]
    fn many_tokens_take_each_others_places() {
        let verified = VerifiedTokens::new();
        let one = claims("one");
        let tokens: Vec<String> = (0..8 * SETS * TOKENS)
            .map(|number| number.to_string())
            .collect();
        for token in &tokens {
            verified.remember(token, 0..=1, &one);
            assert!(verified.find(token, 1).is_some(), "the last one is kept");
        }
        let kept = tokens
            .iter()
            .filter(|token| verified.find(token, 1).is_some());
        assert!(kept.count() <= SETS * TOKENS);
        let long = "x".repeat(TOKEN_BYTES_MAX + 1);
        verified.remember(&long, 0..=1, &one);
        assert_eq!(verified.find(&long, 1), None);
    }
}
