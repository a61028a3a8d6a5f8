//! JSON Web Tokens, good and forged.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::hmac;

/// The secret that the applications in `apps/` check tokens with.
pub(crate) const SECRET: &str = "a secret of at least thirty-two bytes";

/// The text of a token with this head and these claims, both JSON, signed with [`SECRET`].
pub(crate) fn signed(head: &str, claims: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let text = unsigned(head, claims);
    let signature = hmac::sign(&key, text.as_bytes());
    format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}

/// The first two parts of a token.
pub(crate) fn unsigned(head: &str, claims: &str) -> String {
    let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}", part(head), part(claims))
}

/// A good token of the subject `ada`.
pub(crate) fn of_ada() -> String {
    signed(
        r#"{"alg":"HS256","typ":"JWT"}"#,
        r#"{"sub":"ada","exp":4102444800}"#,
    )
}
