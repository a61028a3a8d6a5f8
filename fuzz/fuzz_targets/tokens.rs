//! Permits and reservations: text that is none of ours is refused, and whatever is sealed by us is read as it was
//! written.
#![no_main]

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use libfuzzer_sys::fuzz_target;
use ratekeeper_limiter::Seed;
use token::Sealer;

// The limiter shows what became of a token only; this file of it needs nothing but how refusals are made.
#[path = "../../crates/ratekeeper-limiter/src/hold/token.rs"]
#[allow(
    dead_code,
    reason = "not all that the limiter asks of tokens is asked here"
)]
mod token;

/// Stands for the limiter's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HoldError {
    Malformed,
}

fuzz_target!(|bytes: &[u8]| {
    let sealer = Sealer::new(Seed::from_bytes([7; 16]));
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert_eq!(
            sealer.open(text),
            Err(HoldError::Malformed),
            "nobody knows the seed"
        );
    }
    // As if whoever wrote this knew the seed: what is read is what is written again.
    let mac = sealer.hash("token", &[bytes]).to_be_bytes();
    let token = URL_SAFE_NO_PAD.encode([bytes, &mac].concat());
    if let Ok(claim) = sealer.open(&token) {
        assert_eq!(sealer.seal(&claim), token);
    }
});
