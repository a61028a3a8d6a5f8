//! Keys of tokens that somebody else fetches: this crate opens no connection.

use std::sync::Arc;

use super::tokens::{KeysPlace, Tokens};
use super::{Identity, KeysFault};

/// Takes the keys that tokens are verified with. Clones are of the same keys.
#[derive(Clone, Debug)]
pub struct KeyFeed {
    tokens: Arc<Tokens>,
    place: KeysPlace,
}

impl KeyFeed {
    /// The place to fetch the keys from.
    #[must_use]
    pub const fn place(&self) -> &KeysPlace {
        &self.place
    }

    /// Returns true if a token has named an unknown key since the last call: the keys may be others by now. Whoever asks
    /// bounds how often they are fetched for that reason, because anybody can send such tokens.
    #[must_use]
    pub fn take_wanted(&self) -> bool {
        self.tokens.take_wanted()
    }

    /// Puts a fetched set of keys (RFC 7517) in place of the one in force. Tokens that other keys verified are verified
    /// again.
    ///
    /// # Errors
    /// It is no set, or has no key that signs; the old keys stay.
    pub fn put(&self, content: &[u8]) -> Result<(), KeysFault> {
        self.tokens.put(content)
    }
}

impl Identity {
    /// The feed of the keys of tokens, if they are to be fetched.
    #[must_use]
    pub fn key_feed(&self) -> Option<KeyFeed> {
        let tokens = self.tokens.as_ref()?;
        let place = tokens.place()?.clone();
        Some(KeyFeed {
            tokens: Arc::clone(tokens),
            place,
        })
    }
}
