//! `callers`: callers with permissions beyond checks.

use ratekeeper_server::{BadClientName, Caller, ClientName, Powers, Proof, Role};
use serde::Deserialize;

use super::nested::{self, NestedError};

/// The most callers: every token presented is compared with all of theirs.
const CALLERS_MAX: usize = 1_000;

/// A caller as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    token_sha256: Option<String>,
    tls_name: Option<String>,
    may: Option<Vec<May>>,
    role: Option<Role>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum May {
    Override,
    Refund,
    Hold,
    Regions,
}

/// The fault of a list of callers, with the number of the caller.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallersError {
    #[error(transparent)]
    Nested(#[from] NestedError),
    #[error("at most {CALLERS_MAX} callers")]
    TooMany,
    #[error("[{number}].{fault}")]
    Caller { number: usize, fault: CallerFault },
    #[error("[{number}].name: `{name}` is there twice")]
    SameName { number: usize, name: Box<str> },
    #[error("[{0}]: another caller has the same name or token")]
    SameProof(usize),
}

/// The fault of one caller, with the name of the field.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallerFault {
    #[error("name: it must not be empty")]
    NoName,
    #[error(
        "token_sha256: expected either that, with the SHA-256 of a bearer token, or tls_name, with a name in a client \
         certificate"
    )]
    NotOneProof,
    #[error(
        "may: expected what it may do beyond checks (override, refund, hold, regions), or a role in the admin API (role: \
         viewer, editor or admin)"
    )]
    Nothing,
    #[error(
        "token_sha256: expected 64 hexadecimal digits in quotes, as `printf %s TOKEN | sha256sum` prints them"
    )]
    Sha256,
    #[error("tls_name: {0}")]
    TlsName(BadClientName),
}

/// The callers that `text` lists.
///
/// # Errors
/// The first mistake in it, with the number of the entry and the name of its field.
pub(super) fn callers(text: &str) -> Result<Vec<Caller>, CallersError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let value = nested::parse(text)?;
    let entries: Vec<Entry> = nested::deserialize(value, "expected a list of callers: ")?;
    if entries.len() > CALLERS_MAX {
        return Err(CallersError::TooMany);
    }
    let mut callers: Vec<Caller> = Vec::with_capacity(entries.len());
    for (number, entry) in entries.iter().enumerate() {
        let caller = caller(entry).map_err(|fault| CallersError::Caller { number, fault })?;
        if callers.iter().any(|other| other.name == caller.name) {
            let name = caller.name.as_ref().into();
            return Err(CallersError::SameName { number, name });
        }
        if callers.iter().any(|other| other.proof == caller.proof) {
            return Err(CallersError::SameProof(number));
        }
        callers.push(caller);
    }
    Ok(callers)
}

fn caller(entry: &Entry) -> Result<Caller, CallerFault> {
    if entry.name.is_empty() {
        return Err(CallerFault::NoName);
    }
    let proof = match (&entry.token_sha256, &entry.tls_name) {
        (Some(hash), None) => Proof::TokenSha256(sha256(hash)?),
        (None, Some(name)) => Proof::TlsName(tls_name(name)?),
        _ => return Err(CallerFault::NotOneProof),
    };
    if entry.may.is_none() && entry.role.is_none() {
        return Err(CallerFault::Nothing);
    }
    let mut may = Powers::default();
    for power in entry.may.iter().flatten() {
        match power {
            May::Override => may.overrides = true,
            May::Refund => may.refund = true,
            May::Hold => may.hold = true,
            May::Regions => may.regions = true,
        }
    }
    Ok(Caller {
        name: entry.name.as_str().into(),
        proof,
        may,
        role: entry.role,
    })
}

fn tls_name(text: &str) -> Result<ClientName, CallerFault> {
    text.parse().map_err(CallerFault::TlsName)
}

/// 64 hexadecimal digits.
fn sha256(text: &str) -> Result<[u8; 32], CallerFault> {
    let mut hash = [0; 32];
    let decoded = hex::decode_to_slice(text, &mut hash);
    decoded.map(|()| hash).map_err(|_| CallerFault::Sha256)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    #[test]
    fn callers_are_listed_with_what_they_may() {
        let text = format!(
            "[{{name: a, token_sha256: '{HASH}', may: [hold, refund]}}, {{name: b, tls_name: b.example, may: [override]}}, \
             {{name: c, tls_name: c.example, role: editor}}]"
        );
        let callers = callers(&text).expect("it is good");
        assert_eq!(callers.len(), 3);
        assert_eq!((&*callers[0].name, &*callers[1].name), ("a", "b"));
        let Proof::TokenSha256(hash) = &callers[0].proof else {
            panic!("a token");
        };
        assert_eq!((hash[0], hash[31]), (0x2b, 0x5b));
        assert_eq!(
            callers[1].proof,
            Proof::TlsName("b.example".parse().expect("a name"))
        );
        assert!(callers[0].may.hold && callers[0].may.refund && !callers[0].may.overrides);
        assert!(callers[1].may.overrides && !callers[1].may.hold);
        assert_eq!(
            (callers[0].role, callers[2].role),
            (None, Some(Role::Editor))
        );
        assert!(super::callers("").expect("none").is_empty());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            ("7", "expected a list of callers"),
            (
                "[{name: a, tls_name: x, may: [all]}]",
                "[0].may[0]: unknown variant `all`",
            ),
            (
                "[{name: a, tls_nam: x, may: []}]",
                "[0].tls_nam: unknown field",
            ),
            (
                "[{name: a, tls_name: x, role: owner}]",
                "[0].role: unknown variant `owner`",
            ),
            ("[{name: a, tls_name: x}]", "[0].may: expected what"),
            (
                "[{name: a, may: [hold]}]",
                "[0].token_sha256: expected either that",
            ),
            (
                "[{name: a, tls_name: '', may: []}]",
                "[0].tls_name: `` is not a name of a client",
            ),
            (
                "[{name: '', tls_name: x, may: []}]",
                "[0].name: it must not be empty",
            ),
            (
                "[{name: a, token_sha256: 'abc', may: []}]",
                "[0].token_sha256: expected 64",
            ),
            (
                "[{name: a, tls_name: x, may: []}, {name: a, tls_name: y, may: []}]",
                "[1].name: `a` is there twice",
            ),
            (
                "[{name: a, tls_name: x, may: []}, {name: b, tls_name: X, may: []}]",
                "[1]: another caller has the same",
            ),
        ];
        for (text, message) in cases {
            let said = callers(text).expect_err(text).to_string();
            assert!(said.starts_with(message), "{said}");
        }
    }
}
