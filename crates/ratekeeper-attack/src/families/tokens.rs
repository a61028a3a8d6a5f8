//! Tokens: forged ones, and what checking them costs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ratekeeper_testkit::http1::{Answer, say};
use ratekeeper_testkit::recorder::{Recorder, ok};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair};

use super::spellings::STRANGERS;
use crate::plan::Plan;
use crate::row::{Fate, Row};
use crate::target::{Setup, Target};
use crate::token::{SECRET, signed, unsigned};

const RULES: &str = "
domain: api
descriptors:
  - key: sub
    rate_limit: { window: 10000d, limit: 1000000 }
";

const AUTH: &str = "auth: { domain: api, descriptors: [ [ { key: sub, from: 'claim:sub' } ] ] }\n";

const HEAD: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

/// Claims that hold, but for what is added.
const CLAIMS: &str = r#"{"sub":"ada","exp":4102444800,"iss":"us","aud":"api"}"#;

/// Heads that must not be believed, whatever signs them with the secret.
const HEADS: &[&str] = &[
    r#"{"alg":"none"}"#,
    r#"{"alg":"None"}"#,
    r#"{"alg":"nOnE","typ":"JWT"}"#,
    r#"{"alg":""}"#,
    r#"{"typ":"JWT"}"#,
    r#"{"alg":null}"#,
    r#"{"alg":["HS256"]}"#,
    r#"{"alg":"hs256"}"#,
    r#"{"alg":"HS256 "}"#,
    r#"{"alg":"RS256"}"#,
    r#"{"alg":"ES256"}"#,
    r#"{"alg":"EdDSA"}"#,
    r#"{"alg":"HS512"}"#,
    r#"{"alg":"HS256","alg":"none"}"#,
    r#"{"alg":"none","alg":"HS256"}"#,
    r#"{"alg":"HS256","crit":["exp"]}"#,
    r#"{"alg":"HS256","crit":["b64"],"b64":false}"#,
    r#"{"alg":"HS256""#,
    r#""HS256""#,
    "[]",
    "",
];

/// Claims that must not be believed, though they are signed with the secret.
const BAD_CLAIMS: &[&str] = &[
    r#"{"sub":"ada","iss":"us","aud":"api"}"#,
    r#"{"sub":"ada","exp":1,"iss":"us","aud":"api"}"#,
    r#"{"sub":"ada","exp":-4102444800,"iss":"us","aud":"api"}"#,
    r#"{"sub":"ada","exp":"4102444800","iss":"us","aud":"api"}"#,
    r#"{"sub":"ada","exp":null,"iss":"us","aud":"api"}"#,
    r#"{"sub":"ada","exp":[4102444800],"iss":"us","aud":"api"}"#,
    r#"{"sub":"ada","exp":true,"iss":"us","aud":"api"}"#,
    r#"{"sub":"ada","exp":4102444800,"nbf":4102444700,"iss":"us","aud":"api"}"#,
    r#"{"sub":"ada","exp":4102444800,"nbf":"1","iss":"us","aud":"api"}"#,
    r#"{"sub":"ada","exp":4102444800,"aud":"api"}"#,
    r#"{"sub":"ada","exp":4102444800,"iss":"them","aud":"api"}"#,
    r#"{"sub":"ada","exp":4102444800,"iss":"US","aud":"api"}"#,
    r#"{"sub":"ada","exp":4102444800,"iss":"us"}"#,
    r#"{"sub":"ada","exp":4102444800,"iss":"us","aud":"other"}"#,
    r#"{"sub":"ada","exp":4102444800,"iss":"us","aud":[]}"#,
    r#"{"sub":"ada","exp":4102444800,"iss":"us","aud":"api "}"#,
    r#"{"sub":"ada","exp":4102444800,"exp":1,"iss":"us","aud":"api"}"#,
    r#"["ada"]"#,
    r#"{"sub":"ada""#,
    "",
];

/// Public keys of the costly kind.
const KEYS: usize = 8;

/// Forged tokens that are sent in the full form.
const FORGED: u32 = 4_000;

pub(crate) fn attack(program: &Path, plan: &Plan) -> Result<Vec<Row>> {
    Ok(vec![forgeries(program)?, costs(program, plan)?])
}

fn forgeries(program: &Path) -> Result<Row> {
    let upstream = Recorder::start(|_| ok("here"));
    let jwt = "identity: { from: [ remote_address ], jwt: { secret_file: secret, algorithms: [ HS256 ], issuer: us, audience: api } }\n";
    // Every refused token is one of those that an address may show before it is told to wait: here all are checked.
    let mut row = Row::new("forged tokens, gateway");
    let good = signed(HEAD, CLAIMS);
    for chunk in forged(&good).chunks(40) {
        let settings = format!("{AUTH}{jwt}{STRANGERS}");
        let setup = Setup::gateway(program, &upstream.url()).rules(RULES);
        let setup = setup.settings(&settings).file("secret", SECRET);
        let gateway = setup.start();
        let is_good = fate(&gateway, &good) == Fate::Passed;
        row.bound(is_good, "a good token was refused");
        for token in chunk {
            row.count(fate(&gateway, token), token);
        }
        row.measure(&gateway.process);
    }
    Ok(row)
}

/// Tokens that must not be believed, made from a good one.
fn forged(good: &str) -> Vec<String> {
    let mut tokens: Vec<String> = HEADS.iter().map(|head| signed(head, CLAIMS)).collect();
    tokens.extend(BAD_CLAIMS.iter().map(|claims| signed(HEAD, claims)));
    tokens.extend(HEADS.iter().map(|head| unsigned(head, CLAIMS) + "."));
    let parts: Vec<&str> = good.split('.').collect();
    if let [head, claims, signature] = *parts.as_slice() {
        let other = unsigned(HEAD, &CLAIMS.replace("ada", "eve"));
        let last = |char: &str| {
            format!(
                "{head}.{claims}.{}{char}",
                &signature[..signature.len() - 1]
            )
        };
        tokens.extend([
            format!("{other}.{signature}"),
            format!("{head}.{claims}."),
            format!("{head}.{claims}"),
            format!("{head}..{signature}"),
            format!(".{claims}.{signature}"),
            format!("{good}.{signature}"),
            format!("{good}."),
            format!("{good}="),
            format!("{good}A"),
            format!("{head}.{claims}={signature}"),
            format!("{head}.{claims}.{signature}.{signature}.{signature}"),
            good.replace('.', "%2E"),
            good.to_ascii_uppercase(),
            last("_"),
            last("="),
        ]);
    }
    tokens
}

/// Forged tokens of a costly kind: what each costs, beside a request without a token.
fn costs(program: &Path, plan: &Plan) -> Result<Row> {
    let upstream = Recorder::start(|_| ok("here"));
    let jwks = jwks()?;
    let jwt = "identity: { from: [ remote_address ], jwt: { jwks_file: jwks.json } }\n";
    let settings = format!("{AUTH}{jwt}{STRANGERS}");
    let setup = Setup::gateway(program, &upstream.url()).rules(RULES);
    let setup = setup.settings(&settings).file("jwks.json", &jwks);
    let gateway = setup.start();
    let mut row = Row::new(format!("forged tokens of {KEYS} P-384 keys, gateway"));
    let count = FORGED / plan.divisor;
    let begin = gateway.process.processor_time();
    for _ in 0..count {
        fate(&gateway, "");
    }
    let plain = gateway.process.processor_time() - begin;
    for number in 0..count {
        let head = format!(r#"{{"alg":"ES384","kid":"{}"}}"#, number as usize % KEYS);
        let claims = format!(r#"{{"sub":"{number}","exp":4102444800}}"#);
        let signature = BASE64_URL_SAFE_NO_PAD.encode([7; 96]);
        let token = format!("{}.{signature}", unsigned(&head, &claims));
        row.count(fate(&gateway, &token), &token);
    }
    let took = gateway.process.processor_time() - begin - plain;
    // What is checked: 50 tokens at first, and ten a second.
    let allowed = plain * 2 + Duration::from_secs(1);
    row.most("processor time of forged tokens", took, allowed);
    row.measure(&gateway.process);
    Ok(row)
}

/// Public keys whose private halves are lost.
fn jwks() -> Result<String> {
    let random = SystemRandom::new();
    let algorithm = &ECDSA_P384_SHA384_FIXED_SIGNING;
    let key = |number| {
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random);
        let document = document.map_err(|_| anyhow!("no key can be made"))?;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random);
        let pair = pair.map_err(|why| anyhow!("a key that was just made: {why}"))?;
        // A point, uncompressed: 4, and two coordinates of 48 bytes.
        let point = pair.public_key().as_ref();
        let coordinate = |from: usize| {
            let bytes = point.get(from..from + 48).unwrap_or_default();
            BASE64_URL_SAFE_NO_PAD.encode(bytes)
        };
        Ok(format!(
            r#"{{"kty":"EC","crv":"P-384","alg":"ES384","kid":"{number}","x":"{}","y":"{}"}}"#,
            coordinate(1),
            coordinate(49),
        ))
    };
    let keys: Vec<String> = (0..KEYS).map(key).collect::<Result<_>>()?;
    Ok(format!(r#"{{"keys":[{}]}}"#, keys.join(",")))
}

/// The fate of a request with that bearer token, or with none.
fn fate(gateway: &Target, token: &str) -> Fate {
    let line = match token {
        "" => String::new(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{line}Connection: close\r\n\r\n");
    let answer = Answer::try_read(&say(gateway.port, request));
    Fate::Refused.unless(answer.is_some_and(|answer| answer.status == 200))
}
