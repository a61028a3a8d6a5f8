//! Lines of the log that tell of more than one request: each has a bound on how often it is written.

pub(crate) mod debt;
pub(crate) mod denials;
pub(crate) mod dropped;
pub(crate) mod forgotten;
pub(crate) mod growth;
pub(crate) mod shadow;
pub(crate) mod share_alarm;
pub(crate) mod unreadable;
