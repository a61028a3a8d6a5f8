//! Stands in for the verification of tokens in builds without `jwt`.

use std::net::IpAddr;
use std::sync::Arc;

use super::{Claims, JwtConfig, OnInvalid};
use crate::identity::IdentityError;

#[derive(Debug)]
pub(crate) enum Tokens {}

impl Tokens {
    pub(in crate::identity) fn open(_: &JwtConfig) -> Result<Self, IdentityError> {
        let message = "this program was built without the feature `jwt`, so it can check no token";
        Err(IdentityError::new("jwt", message))
    }

    pub(crate) const fn on_invalid(&self) -> OnInvalid {
        match *self {}
    }

    pub(in crate::identity) const fn refresh(&self) -> Result<bool, String> {
        match *self {}
    }

    pub(crate) const fn claims(
        &self,
        _: &str,
        _: Option<IpAddr>,
    ) -> Result<Arc<Claims>, &'static str> {
        match *self {}
    }
}
