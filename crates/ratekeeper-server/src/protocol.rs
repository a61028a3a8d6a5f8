//! The protocols that gRPC and HTTP share: Envoy's and our own.

pub(crate) mod rls;
pub(crate) mod v1;
