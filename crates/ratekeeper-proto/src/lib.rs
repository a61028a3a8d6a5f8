//! The wire protocols of Envoy's rate limit service and of our own, `ratekeeper.v1`: messages,
//! gRPC client and server, JSON.
//!
//! The code under `src/generated` is made from the files under `proto` and checked in, so
//! that nothing but Rust is needed to build. After a change to a `.proto` file run
//! `UPDATE=1 cargo test -p ratekeeper-proto`; without `UPDATE` the same test fails until
//! that has been done.
//!
//! [`json`] is the JSON form of the request and the response, as Go's protojson has it.
//! Whether a request makes sense is not asked here.
//!
//! ```
//! use ratekeeper_proto::json;
//!
//! let body = br#"{"domain": "api", "descriptors": [{"entries": [{"key": "user", "value": "7"}]}]}"#;
//! let request = json::read_request(body)?;
//! assert_eq!(request.descriptors[0].entries[0].value, "7");
//! # Ok::<(), json::JsonError>(())
//! ```

mod codec;
pub mod json;

pub use codec::Codec;
pub use generated::{envoy, ratekeeper};

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "made by prost and tonic, not by us"
)]
mod generated {
    include!("generated/mod.rs");
}

/// The most bytes of one message to a service, unless who embeds one says otherwise: 64 KiB.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// The descriptors of all files under `proto` and of those that they import, encoded as a
/// `google.protobuf.FileDescriptorSet`: what server reflection serves.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/descriptors.bin");
