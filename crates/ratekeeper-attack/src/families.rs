//! The families of attacks.

pub(crate) mod addresses;
pub(crate) mod crowds;
pub(crate) mod floods;
pub(crate) mod h2spec;
pub(crate) mod smuggling;
pub(crate) mod spellings;
