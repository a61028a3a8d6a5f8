//! The wire protocols of Envoy's rate limit service, of the control planes that send it rules (xDS), of etcd, and of
//! Ratekeeper, `ratekeeper.v1`: messages, gRPC clients and servers, JSON.
//!
//! The code under `src/generated` is generated from the files under `proto` and checked in, so that
//! a build needs nothing but Rust. After a change to a `.proto` file, run `UPDATE=1 cargo test -p
//! ratekeeper-proto`; without `UPDATE`, the same test fails while the code is out of date.
//!
//! [`json`] is the JSON form of Envoy's request and response, as Go's protojson maps them. It
//! checks types and ranges, not the meaning of a request.
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
mod entry;
mod fields;
pub mod json;
mod nesting;
pub mod text;

pub use codec::{Codec, decode};
pub use entry::WireEntry;
pub use fields::{FieldValue, MessageFields};
pub use generated::{envoy, etcdserverpb, google, mvccpb, ratekeeper, ratelimit};
pub use nesting::{Nesting, SHORT_BYTES_MAX};

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "made by prost and tonic, not by us"
)]
mod generated {
    include!("generated/mod.rs");
    include!("generated/etcd.rs");
}

/// The most bytes of a message to a service by default: 4 MiB, more than a proxy makes of 60 KiB of headers.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// The descriptors of all files under `proto` and of their imports, encoded as a
/// `google.protobuf.FileDescriptorSet`, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/descriptors.bin");
