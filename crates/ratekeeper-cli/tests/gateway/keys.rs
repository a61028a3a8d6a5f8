//! Callers prove who they are: by tokens whose keys are at a URL, and by API keys.

use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::eventually;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};

use crate::support::{Answer, Gateway, Upstream, ok};

const RULES: &str =
    "domain: d\ndescriptors:\n- key: client\n  rate_limit: { window: 10000d, limit: 2 }\n";

/// A key that signs tokens.
struct Key {
    id: &'static str,
    pair: Ed25519KeyPair,
}

impl Key {
    fn new(id: &'static str) -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("random bytes");
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("it was just made");
        Self { id, pair }
    }

    /// A token of the subject `acme`, as a header.
    fn token(&self) -> String {
        let head = format!(r#"{{"alg":"EdDSA","kid":"{}"}}"#, self.id);
        let parts = [&*head, r#"{"sub":"acme","exp":4102444800}"#];
        let text = parts
            .map(|part| BASE64_URL_SAFE_NO_PAD.encode(part))
            .join(".");
        let signature = BASE64_URL_SAFE_NO_PAD.encode(self.pair.sign(text.as_bytes()));
        format!("Authorization: Bearer {text}.{signature}")
    }
}

/// A set with the public halves of `keys`.
fn set(keys: &[&Key]) -> String {
    let keys = keys.iter().map(|key| {
        let public = BASE64_URL_SAFE_NO_PAD.encode(key.pair.public_key());
        let id = key.id;
        format!(r#"{{"kty":"OKP","crv":"Ed25519","kid":"{id}","x":"{public}"}}"#)
    });
    format!(r#"{{"keys":[{}]}}"#, keys.collect::<Vec<_>>().join(","))
}

/// A server of keys, and the text that it answers with.
fn serve(text: String) -> (Upstream, Arc<Mutex<String>>) {
    let text = Arc::new(Mutex::new(text));
    let served = Arc::clone(&text);
    let server = Upstream::start(move |_| ok(&served.lock().expect("no panics")));
    (server, text)
}

fn settings(url: &str, seconds: u32) -> String {
    format!(
        "identity: {{ from: ['claim:sub'], jwt: {{ jwks_url: '{url}/keys', jwks_refresh_seconds: {seconds} }} }}\n"
    )
}

#[test]
fn keys_at_a_url_rotate_and_strangers_cannot_have_them_fetched_again_and_again() {
    let upstream = Upstream::start(|_| ok(""));
    let (old, new, stranger) = (Key::new("old"), Key::new("new"), Key::new("stranger"));
    let (server, text) = serve(set(&[&old]));
    let settings = settings(&server.url(), 3600);
    let gateway = Gateway::start_with(RULES, &settings, &["--upstream", &upstream.url()]);
    let status = |key: &Key| gateway.get("/a", &[&key.token()]).status;
    assert_eq!(status(&old), 200, "the start waits for the keys");
    *text.lock().expect("no panics") = set(&[&old, &new]);
    assert_eq!(status(&new), 401);
    eventually("the unknown key is fetched", || status(&new) == 200);
    assert_eq!(status(&old), 200);
    let fetched = server.asked().len();
    assert_eq!(fetched, 2);
    for _ in 0..50 {
        assert_eq!(status(&stranger), 401);
    }
    *text.lock().expect("no panics") = set(&[&new]);
    assert_eq!(status(&old), 200, "it has not been asked since");
    assert!(server.asked().len() <= fetched + 1);
}

#[test]
fn the_last_good_keys_stay_while_there_are_no_others() {
    let upstream = Upstream::start(|_| ok(""));
    let key = Key::new("only");
    let (server, text) = serve("{}".to_owned());
    let settings = settings(&server.url(), 10);
    let gateway = Gateway::start_with(RULES, &settings, &["--upstream", &upstream.url()]);
    let get = || gateway.get("/a", &[&key.token()]);
    let refused = get();
    assert_eq!(refused.status, 401);
    assert_contains(&refused.body, "have not been fetched yet");
    gateway.tells(
        "/readyz",
        "keys of tokens cannot be fetched from http://127.0.0.1:",
    );
    *text.lock().expect("no panics") = set(&[&key]);
    eventually("the keys are there", || get().status == 200);
    gateway.no_longer_tells("/readyz", "keys of tokens");
    *text.lock().expect("no panics") = "{".to_owned();
    gateway.tells("/readyz", "this is not a set of keys");
    gateway.tells("/metrics", "ratelimit_token_keys_up 0");
    assert_eq!(get().status, 200);
}

#[test]
fn a_request_needs_a_known_api_key() {
    let upstream = Upstream::start(|_| ok("hello"));
    // The SHA-256 of `key of acme` and `key of globex`.
    let settings = "\
identity:
  api_keys:
    from: header:x-api-key
    keys:
    - { name: acme, sha256: 'ACME' }
    - { name: globex, sha256: 'GLOBEX' }
    public: [ /health ]
auth: { descriptors: [ [ { key: client, from: client } ] ] }
";
    let settings = settings
        .replace("ACME", &sha256("key of acme"))
        .replace("GLOBEX", &sha256("key of globex"));
    let gateway = Gateway::start_with(RULES, &settings, &["--upstream", &upstream.url()]);
    let get = |path: &str, key: &str| -> Answer {
        match key {
            "" => gateway.get(path, &[]),
            key => gateway.get(path, &[&format!("X-Api-Key: {key}")]),
        }
    };
    for (key, why) in [
        ("", "an API key is needed"),
        ("key of initech", "the API key is not known"),
        (&*sha256("key of acme"), "the API key is not known"),
    ] {
        let refused = get("/a", key);
        assert_eq!(refused.status, 401, "{key}");
        assert_contains(&refused.body, why);
        assert_eq!(refused.header("www-authenticate"), Some("ApiKey"));
    }
    assert!(upstream.asked().is_empty());
    let statuses = |key: &str| [0; 3].map(|_| get("/a", key).status);
    assert_eq!(statuses("key of acme"), [200, 200, 429]);
    assert_eq!(statuses("key of globex"), [200, 200, 429]);
    assert_eq!(get("/health", "").status, 200);
    assert_eq!(get("/health", "key of initech").status, 401);
    assert_eq!(get("/Health", "").status, 401);
}

fn sha256(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let bytes = digest.as_ref().iter();
    bytes.map(|byte| format!("{byte:02x}")).collect()
}
