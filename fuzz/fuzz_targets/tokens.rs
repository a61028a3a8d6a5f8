//! Permits and reservations: foreign text is refused, and sealed tokens are read as they were written.
#![no_main]

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use error::HoldError;
use libfuzzer_sys::fuzz_target;
use ratekeeper_limiter::HashKey;
use token::Sealer;

// The limiter exposes only the outcome of a token; this file of it needs nothing but its error type.
#[path = "../../crates/ratekeeper-limiter/src/hold/token.rs"]
#[allow(
    dead_code,
    reason = "not all that the limiter asks of tokens is asked here"
)]
mod token;

/// A stand-in for the limiter's error.
mod error {
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum HoldError {
        Malformed,
    }
}

fuzz_target!(|bytes: &[u8]| {
    let sealer = Sealer::new(HashKey::from_bytes([7; 16]));
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert_eq!(
            sealer.open(text),
            Err(HoldError::Malformed),
            "the hash key is unknown"
        );
    }
    // As if the author of these bytes knew the hash key: reading and writing them again gives the same bytes.
    let mac = sealer.hash("token", &[bytes]).to_be_bytes();
    let token = URL_SAFE_NO_PAD.encode([bytes, &mac].concat());
    if let Ok(claim) = sealer.open(&token) {
        assert_eq!(sealer.seal(&claim), token);
    }
});
