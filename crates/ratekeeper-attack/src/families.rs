//! The families of attacks.

pub(crate) mod addresses;
pub(crate) mod batches;
pub(crate) mod costs;
pub(crate) mod crowds;
pub(crate) mod downgrade;
pub(crate) mod floods;
pub(crate) mod h2spec;
pub(crate) mod hangups;
pub(crate) mod http2;
pub(crate) mod lifted;
pub(crate) mod octets;
pub(crate) mod places;
pub(crate) mod secrets;
pub(crate) mod smuggling;
pub(crate) mod spellings;
pub(crate) mod stores;
pub(crate) mod tables;
pub(crate) mod tokens;
