//! Traces, from the settings to the collector. A build without the feature `traces` has none, and says so.

#[cfg(not(feature = "traces"))]
mod absent;
#[cfg(feature = "traces")]
mod export;

#[cfg(not(feature = "traces"))]
pub(crate) use absent::Traces;
#[cfg(feature = "traces")]
pub(crate) use export::Traces;
