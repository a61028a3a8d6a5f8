use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ratekeeper_core::Timestamp;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

use super::{JwtConfig, TokenError, Tokens};
use crate::identity::tokens::claim;

const SECRET: &[u8] = b"a secret of at least thirty-two bytes";
/// In the year 2100.
const LATER: u64 = 4_102_444_800;

fn encoded(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// A token with these claims, signed by `sign`.
fn token(header: Value, claims: Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let message = format!("{}.{}", encoded(&header), encoded(&claims));
    let signature = URL_SAFE_NO_PAD.encode(sign(message.as_bytes()));
    format!("{message}.{signature}")
}

fn by_secret(header: Value, claims: Value) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
    token(header, claims, |message| {
        hmac::sign(&key, message).as_ref().to_vec()
    })
}

struct Checking {
    tokens: Tokens,
    dir: tempfile::TempDir,
}

/// A verifier with a file of this content, and additional settings.
fn checking(kind: &str, content: &[u8], more: Value) -> Result<Checking, String> {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("keys");
    std::fs::write(&path, content).expect("a file");
    let mut config = more;
    config[kind] = json!(path);
    let config: JwtConfig = serde_json::from_value(config).map_err(|error| error.to_string())?;
    let tokens = Tokens::open(&config).map_err(|error| error.to_string())?;
    Ok(Checking { tokens, dir })
}

fn subject(tokens: &Tokens, token: &str) -> Result<String, TokenError> {
    let claims = tokens.claims(token, None, None)?;
    Ok(claim(&claims, "sub").expect("a subject"))
}

#[test]
fn a_token_of_the_secret_is_believed_until_it_expires() {
    let checking = checking("secret_file", SECRET, json!({})).expect("good settings");
    let told = |header, claims| subject(&checking.tokens, &by_secret(header, claims));
    let header = || json!({ "alg": "HS256" });
    let good = json!({ "sub": "acme", "exp": LATER });
    assert_eq!(told(header(), good.clone()), Ok("acme".to_owned()));
    for (header, claims, why) in [
        (
            header(),
            json!({ "sub": "acme", "exp": 1_000 }),
            TokenError::Expired,
        ),
        (header(), json!({ "sub": "acme" }), TokenError::MissingClaim),
        (
            header(),
            json!({ "sub": "acme", "exp": LATER, "nbf": LATER }),
            TokenError::Immature,
        ),
        (json!({ "alg": "HS384" }), good.clone(), TokenError::Forged),
        (
            json!({ "alg": "RS256" }),
            good.clone(),
            TokenError::Algorithm,
        ),
        (json!({ "alg": "none" }), good.clone(), TokenError::NotAJwt),
    ] {
        assert_eq!(told(header, claims), Err(why));
    }
    let mut forged = by_secret(header(), good);
    forged.insert(forged.len() - 1, 'A');
    assert!(subject(&checking.tokens, &forged).is_err());
    for junk in ["", "a.b", "a.b.c", "....", &"a".repeat(9_000)] {
        assert!(checking.tokens.claims(junk, None, None).is_err());
    }
}

#[test]
fn a_token_with_critical_extensions_is_refused() {
    let checking = checking("secret_file", SECRET, json!({})).expect("good settings");
    let header = json!({ "alg": "HS256", "crit": ["exp"] });
    let told = by_secret(header, json!({ "sub": "acme", "exp": LATER }));
    assert_eq!(
        subject(&checking.tokens, &told),
        Err(TokenError::CriticalExtensions)
    );
}

#[test]
fn a_sender_of_forged_tokens_is_not_verified_for_a_while() {
    let checking = checking("secret_file", SECRET, json!({})).expect("good settings");
    let (forger, other) = ("192.0.2.1".parse().ok(), "192.0.2.2".parse().ok());
    let good = |subject: usize| {
        by_secret(
            json!({ "alg": "HS256" }),
            json!({ "sub": subject.to_string(), "exp": LATER }),
        )
    };
    let forged = |number| {
        let (message, _) = good(number)
            .rsplit_once('.')
            .map(|(m, s)| (m.to_owned(), s.to_owned()))
            .expect("three parts");
        format!("{message}.{}", URL_SAFE_NO_PAD.encode([0_u8; 32]))
    };
    let told = |token: &str, sender| checking.tokens.claims(token, sender, None).map(|_| ());
    let is_forged = Err(TokenError::Forged);
    assert_eq!(told(&good(1), forger), Ok(()));
    let is_waiting = |result: Result<(), TokenError>| result == Err(TokenError::Suspect);
    let mut checked = 0;
    while !is_waiting(told(&forged(checked), forger)) {
        checked += 1;
        assert!(checked < 1_000, "a forger is checked on and on");
    }
    assert!(checked >= 50, "{checked}");
    // It gets another turn ten times a second, because the reason may have ceased.
    assert_eq!(
        told(&forged(0), forger),
        is_forged,
        "known again, at no cost"
    );
    assert_eq!(told(&good(1), forger), Ok(()), "known to be good");
    assert_eq!(told(&good(2), other), Ok(()));
    assert_eq!(told(&forged(2_000), other), is_forged);
}

#[test]
fn a_token_is_checked_once() {
    let checking = checking("secret_file", SECRET, json!({})).expect("good settings");
    let kept = |token: &str, now| {
        let keys = checking.tokens.keys.load();
        keys.verified.find(token, now).is_some()
    };
    let claims = json!({ "sub": "acme", "exp": LATER, "nbf": 1_000 });
    let good = by_secret(json!({ "alg": "HS256" }), claims);
    assert!(!kept(&good, 1_000));
    assert_eq!(subject(&checking.tokens, &good), Ok("acme".to_owned()));
    // With the leeway of a minute, as in the verification.
    for (now, is_kept) in [
        (939, false),
        (940, true),
        (LATER + 60, true),
        (LATER + 61, false),
    ] {
        assert_eq!(kept(&good, now), is_kept, "{now}");
    }
    let expired = by_secret(
        json!({ "alg": "HS256" }),
        json!({ "sub": "acme", "exp": 1_000 }),
    );
    assert!(checking.tokens.claims(&expired, None, None).is_err());
    assert!(!kept(&expired, 1_000), "it was not accepted");
    let fraction = json!({ "sub": "acme", "exp": 4_102_444_800.5 });
    let fraction = by_secret(json!({ "alg": "HS256" }), fraction);
    assert_eq!(subject(&checking.tokens, &fraction), Ok("acme".to_owned()));
    assert!(!kept(&fraction, 1_000), "its time is not a whole number");
}

#[test]
fn dates_are_compared_with_the_time_of_the_request() {
    let checking = checking("secret_file", SECRET, json!({})).expect("good settings");
    let told = |exp: Value, at| {
        let claims = json!({ "sub": "acme", "exp": exp, "nbf": 1_000 });
        let token = by_secret(json!({ "alg": "HS256" }), claims);
        let at = Some(Timestamp::from_secs(at));
        checking.tokens.claims(&token, None, at).map(|_| ())
    };
    for exp in [json!(2_000), json!(2_000.4)] {
        // With the leeway of a minute, before and after the token is remembered.
        for _ in 0..2 {
            assert_eq!(told(exp.clone(), 939), Err(TokenError::Immature));
            assert_eq!(told(exp.clone(), 940), Ok(()));
            assert_eq!(told(exp.clone(), 2_060), Ok(()));
            assert_eq!(told(exp.clone(), 2_061), Err(TokenError::Expired));
        }
    }
    for odd in [json!("2000"), json!(-1), json!(null), json!(1e300)] {
        assert!(told(odd.clone(), 1_500).is_err(), "{odd}");
    }
}

#[test]
fn issuer_and_audience_are_asked_for() {
    let more = json!({ "issuer": "https://login.example", "audience": ["api", "admin"], "algorithms": ["HS256"] });
    let checking = checking("secret_file", SECRET, more).expect("good settings");
    let told = |more: Value| {
        let mut claims =
            json!({ "sub": "acme", "exp": LATER, "iss": "https://login.example", "aud": "api" });
        for (name, value) in more.as_object().expect("an object") {
            claims[name] = value.clone();
        }
        subject(
            &checking.tokens,
            &by_secret(json!({ "alg": "HS256" }), claims),
        )
    };
    assert_eq!(told(json!({})), Ok("acme".to_owned()));
    assert_eq!(
        told(json!({ "aud": ["x", "admin"] })),
        Ok("acme".to_owned())
    );
    assert_eq!(told(json!({ "aud": "shop" })), Err(TokenError::Audience));
    assert_eq!(
        told(json!({ "iss": "https://evil.example" })),
        Err(TokenError::Issuer)
    );
    assert!(told(json!({ "iss": null })).is_err());
}

#[test]
fn keys_of_a_set_are_found_by_their_names_and_renewed() {
    let random = SystemRandom::new();
    let pkcs8 =
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
    let elliptic =
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random);
    let elliptic = elliptic.expect("it was made so");
    let point = &elliptic.public_key().as_ref()[1..];
    let (x, y) = point.split_at(32);
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&random).expect("a key");
    let edwards = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).expect("it was made so");
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let first = json!({ "kty": "EC", "crv": "P-256", "kid": "one", "alg": "ES256", "use": "sig", "x": encode(x), "y": encode(y) });
    let other =
        json!({ "kty": "EC", "crv": "P-256", "kid": "other", "x": encode(y), "y": encode(x) });
    let second = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "two", "x": encode(edwards.public_key().as_ref()) });
    let foreign = json!({ "kty": "new", "kid": "three" });
    let set = |keys: &[&Value]| json!({ "keys": keys }).to_string().into_bytes();

    let checking =
        checking("jwks_file", &set(&[&first, &foreign]), json!({})).expect("good settings");
    let claims = || json!({ "sub": "acme", "exp": LATER });
    let by_first = |header| {
        token(header, claims(), |message| {
            elliptic
                .sign(&random, message)
                .expect("a signature")
                .as_ref()
                .to_vec()
        })
    };
    let by_second = token(
        json!({ "alg": "EdDSA", "kid": "two" }),
        claims(),
        |message| edwards.sign(message).as_ref().to_vec(),
    );
    let named = by_first(json!({ "alg": "ES256", "kid": "one" }));
    assert_eq!(subject(&checking.tokens, &named), Ok("acme".to_owned()));
    assert_eq!(
        subject(&checking.tokens, &by_first(json!({ "alg": "ES256" }))),
        Ok("acme".to_owned())
    );
    let unknown = Err(TokenError::UnknownKey);
    assert_eq!(
        subject(
            &checking.tokens,
            &by_first(json!({ "alg": "ES256", "kid": "two" }))
        ),
        unknown
    );
    assert_eq!(subject(&checking.tokens, &by_second), unknown);
    // A public key must not be accepted as an HMAC secret.
    let confused = token(
        json!({ "alg": "HS256", "kid": "one" }),
        claims(),
        |message| {
            hmac::sign(
                &hmac::Key::new(hmac::HMAC_SHA256, elliptic.public_key().as_ref()),
                message,
            )
            .as_ref()
            .to_vec()
        },
    );
    assert_eq!(
        subject(&checking.tokens, &confused),
        Err(TokenError::Algorithm)
    );

    // A token without a key id is verified if only one key matches.
    let path = checking.dir.path().join("keys");
    std::fs::write(&path, set(&[&other, &second, &first])).expect("a file");
    assert!(matches!(checking.tokens.refresh(), Ok(true)));
    assert_eq!(subject(&checking.tokens, &named), Ok("acme".to_owned()));
    let unnamed = by_first(json!({ "alg": "ES256" }));
    assert_eq!(
        subject(&checking.tokens, &unnamed),
        Err(TokenError::NoKeyId)
    );
    std::fs::write(&path, set(&[&second, &first])).expect("a file");
    assert!(matches!(checking.tokens.refresh(), Ok(true)));
    assert_eq!(subject(&checking.tokens, &unnamed), Ok("acme".to_owned()));

    std::fs::write(&path, set(&[&second])).expect("a file");
    assert!(matches!(checking.tokens.refresh(), Ok(true)));
    assert_eq!(subject(&checking.tokens, &by_second), Ok("acme".to_owned()));
    assert_eq!(
        subject(&checking.tokens, &named),
        unknown,
        "tokens of other keys are not accepted any more"
    );
    std::fs::write(&path, "{}").expect("a file");
    assert!(checking.tokens.refresh().is_err());
    assert_eq!(subject(&checking.tokens, &by_second), Ok("acme".to_owned()));
}

/// The example of RFC 7515, appendix A.2. It has expired, which is checked only after the
/// signature.
#[test]
fn an_rsa_signature_is_checked() {
    let n = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    let message = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let signature = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let set = json!({ "keys": [{ "kty": "RSA", "n": n, "e": "AQAB" }] }).to_string();
    let checking = checking("jwks_file", set.as_bytes(), json!({})).expect("good settings");
    let told = |signature: &str| {
        checking
            .tokens
            .claims(&format!("{message}.{signature}"), None, None)
    };
    assert_eq!(told(signature), Err(TokenError::Expired));
    assert_eq!(
        told(&signature.replacen("cC4", "dC4", 1)),
        Err(TokenError::Forged)
    );
}

#[test]
fn settings_without_meaning_are_refused() {
    for (kind, content, more, wanted) in [
        (
            "secret_file",
            "short",
            json!({}),
            "the secret is shorter than 32 bytes",
        ),
        (
            "jwks_file",
            "[]",
            json!({}),
            "this is not a set of keys (RFC 7517)",
        ),
        (
            "jwks_file",
            r#"{"keys":[]}"#,
            json!({}),
            "there is no key in it that signs",
        ),
        (
            "secret_file",
            "x",
            json!({ "jwks_file": "y" }),
            "expected one of `jwks_file`, `jwks_url` and `secret_file`",
        ),
        (
            "secret_file",
            "x",
            json!({ "alg": "y" }),
            "unknown field `alg`",
        ),
    ] {
        let said = checking(kind, content.as_bytes(), more)
            .err()
            .expect(wanted);
        assert!(said.contains(wanted), "{said}");
    }
    let mixed = checking(
        "secret_file",
        SECRET,
        json!({ "algorithms": ["HS256", "RS256"] }),
    );
    assert_eq!(
        mixed.err().as_deref(),
        Some("jwt.algorithms: `RS256` is none of HS256, HS384, HS512")
    );
}
