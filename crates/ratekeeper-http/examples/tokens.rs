//! Prints the cost of verifying a bearer token: on its first request, and once it is cached.
//!
//! ```text
//! cargo run --release -p ratekeeper-http --features jwt --example tokens
//! ```
//!
//! It generates its own keys; for RSA with `openssl`.

#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of measurements, and of tests, are rounded on purpose"
)]

use std::error::Error;
use std::path::Path;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, Method, Uri};
use ratekeeper_http::{Describer, Forwarding, Hop, Identity, IdentityConfig, Original};
use ratekeeper_rules::RuleSet;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use ring::{hmac, rsa};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn Error>>;
type Sign = Box<dyn Fn(&[u8]) -> Result<Vec<u8>>>;

/// More than the cache holds, so that each has been evicted when its turn comes again.
const TOKENS: usize = 4_096;
/// Rounds, of which the best counts: the machine's other work can only slow a round down.
const ROUNDS: usize = 5;
const SECRET: &[u8] = b"a secret of at least thirty-two bytes";

fn main() -> Result<()> {
    println!("| algorithm | bytes | new token, us | known token, us |\n|---|---:|---:|---:|");
    for (algorithm, keys, sign) in [hs256(), rs256()?, es256()?, eddsa()?] {
        measure(algorithm, &keys, &sign)?;
    }
    Ok(())
}

fn measure(algorithm: &str, keys: &Keys, sign: &Sign) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let describer = Describer {
        identity: keys.identity(folder.path())?,
        ..Describer::default()
    };
    let tokens: Result<Vec<HeaderMap>> = (0..TOKENS)
        .map(|number| request(algorithm, number, sign))
        .collect();
    let tokens = tokens?;
    let (mut new, mut known) = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        new = new.min(cost(&describer, tokens.iter())?);
        known = known.min(cost(&describer, std::iter::repeat_n(&tokens[0], TOKENS))?);
    }
    let bytes = tokens[0]["authorization"].len() - "Bearer ".len();
    println!("| {algorithm} | {bytes} | {new:.1} | {known:.2} |");
    Ok(())
}

/// CPU time of this thread per request, in microseconds.
fn cost<'a>(describer: &Describer, all: impl Iterator<Item = &'a HeaderMap>) -> Result<f64> {
    let (uri, hop) = (
        Uri::from_static("/orders"),
        Hop::Address([203, 0, 113, 7].into()),
    );
    let forwarding = Forwarding::default();
    let begun = clock_gettime(ClockId::ThreadCPUTime);
    for headers in all {
        let original = Original::received(hop, "http", &Method::GET, &uri, headers, &forwarding)?;
        let caller = describer.caller(&original, &RuleSet::default())?;
        assert_eq!(caller.key, "sub", "the token is believed");
    }
    let ended = clock_gettime(ClockId::ThreadCPUTime);
    let seconds =
        (ended.tv_sec - begun.tv_sec) as f64 + (ended.tv_nsec - begun.tv_nsec) as f64 / 1e9;
    Ok(seconds * 1e6 / TOKENS as f64)
}

/// A request with a token of about the size that login services issue.
fn request(algorithm: &str, number: usize, sign: &Sign) -> Result<HeaderMap> {
    let header = json!({ "alg": algorithm, "typ": "JWT" });
    let claims = json!({
        "iss": "https://login.example/", "aud": "api", "sub": format!("user-{number}"), "exp": 4_102_444_800_u64,
        "iat": 1_767_225_600, "org": { "id": "acme" }, "scope": "openid profile email orders:read orders:write",
    });
    let message = format!(
        "{}.{}",
        encoded(header.to_string()),
        encoded(claims.to_string())
    );
    let token = format!("Bearer {message}.{}", encoded(sign(message.as_bytes())?));
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::try_from(token)?);
    Ok(headers)
}

/// The keys that verify signatures.
enum Keys {
    Secret,
    Public(Value),
}

impl Keys {
    fn identity(&self, folder: &Path) -> Result<Identity> {
        let path = folder.join("keys");
        let kind = match self {
            Self::Secret => {
                std::fs::write(&path, SECRET)?;
                "secret_file"
            }
            Self::Public(key) => {
                std::fs::write(&path, json!({ "keys": [key] }).to_string())?;
                "jwks_file"
            }
        };
        let config = json!({ "from": ["claim:sub"], "jwt": { kind: path } });
        Ok(Identity::open(&serde_json::from_value::<IdentityConfig>(
            config,
        )?)?)
    }
}

fn hs256() -> (&'static str, Keys, Sign) {
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
    let sign = move |message: &[u8]| Ok(hmac::sign(&key, message).as_ref().to_vec());
    ("HS256", Keys::Secret, Box::new(sign))
}

fn rs256() -> Result<(&'static str, Keys, Sign)> {
    let mut openssl = Command::new("openssl");
    openssl.args([
        "genpkey",
        "-algorithm",
        "RSA",
        "-pkeyopt",
        "rsa_keygen_bits:2048",
        "-outform",
        "DER",
    ]);
    let made = openssl.output()?;
    // The format depends on the version of openssl.
    let key = RsaKeyPair::from_pkcs8(&made.stdout).or_else(|_| RsaKeyPair::from_der(&made.stdout));
    let key = key.map_err(told)?;
    let public: rsa::PublicKeyComponents<Vec<u8>> = key.public().into();
    let public = json!({ "kty": "RSA", "n": encoded(public.n), "e": encoded(public.e) });
    let sign = move |message: &[u8]| {
        let mut signature = vec![0; key.public().modulus_len()];
        let random = SystemRandom::new();
        key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
            .map_err(told)?;
        Ok(signature)
    };
    Ok(("RS256", Keys::Public(public), Box::new(sign)))
}

fn es256() -> Result<(&'static str, Keys, Sign)> {
    let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(told)?;
    let key = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).map_err(told)?;
    let (x, y) = key.public_key().as_ref()[1..].split_at(32);
    let public = json!({ "kty": "EC", "crv": "P-256", "x": encoded(x), "y": encoded(y) });
    let sign =
        move |message: &[u8]| Ok(key.sign(&random, message).map_err(told)?.as_ref().to_vec());
    Ok(("ES256", Keys::Public(public), Box::new(sign)))
}

fn eddsa() -> Result<(&'static str, Keys, Sign)> {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(told)?;
    let key = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).map_err(told)?;
    let x = encoded(key.public_key().as_ref());
    let public = json!({ "kty": "OKP", "crv": "Ed25519", "x": x });
    let sign = move |message: &[u8]| Ok(key.sign(message).as_ref().to_vec());
    Ok(("EdDSA", Keys::Public(public), Box::new(sign)))
}

/// The message of ring's error.
fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
