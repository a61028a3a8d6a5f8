//! Stands in for the verification of tokens in builds without `jwt`.

use std::net::IpAddr;
use std::sync::Arc;

use ratekeeper_core::Timestamp;

use super::{Claims, JwtConfig, KeysPlace, OnInvalid, TokenError};
use crate::identity::{IdentityError, IdentityFault, KeysFault};

#[derive(Debug)]
pub(crate) enum Tokens {}

impl Tokens {
    pub(in crate::identity) fn open(_: &JwtConfig) -> Result<Self, IdentityError> {
        Err(IdentityError::new("jwt", IdentityFault::WithoutJwt))
    }

    pub(crate) const fn on_invalid(&self) -> OnInvalid {
        match *self {}
    }

    pub(in crate::identity) const fn refresh(&self) -> Result<bool, IdentityFault> {
        match *self {}
    }

    pub(in crate::identity) const fn place(&self) -> Option<&KeysPlace> {
        match *self {}
    }

    pub(in crate::identity) const fn take_wanted(&self) -> bool {
        match *self {}
    }

    pub(in crate::identity) const fn put(&self, _: &[u8]) -> Result<(), KeysFault> {
        match *self {}
    }

    pub(crate) const fn claims(
        &self,
        _: &str,
        _: Option<IpAddr>,
        _: Option<Timestamp>,
    ) -> Result<Arc<Claims>, TokenError> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Tokens;

    #[test]
    fn a_build_that_checks_no_tokens_says_so() {
        let config = json!({ "secret_file": "secret" });
        let config = serde_json::from_value(config).expect("settings of tokens");
        let refused = Tokens::open(&config).expect_err("it checks none");
        assert_eq!(
            refused.to_string(),
            "jwt: this program was built without the feature `jwt`, so it can check no token"
        );
    }
}
