//! Turns PEM files into rustls configurations, for both ends of a connection.
//!
//! [`PemFile`] is a single file, bounded in size, that knows its purpose, so that every error has
//! the path. A [`PemPair`] is a certificate and its key. [`TlsFiles`] are the files of a client,
//! and [`ClientTls`] reads them again when they change. With the feature `connect`, `Destination` opens
//! connections. The crate watches no file, and never trusts anything unverified.
//!
//! ```
//! use ratekeeper_tls::{PemFile, TlsFile};
//!
//! let missing = PemFile::read(TlsFile::Key, "/nowhere/tls.key".as_ref());
//! let why = missing.expect_err("it is not there").to_string();
//! assert!(why.starts_with("the key in /nowhere/tls.key cannot be used: "));
//! ```

mod anchored;
mod authorities;
mod client;
#[cfg(feature = "connect")]
mod destination;
mod error;
mod pair;
mod pem;
mod renewed;

pub use client::{TlsFiles, TlsIdentity};
#[cfg(feature = "connect")]
pub use destination::{Connection, Destination};
pub use error::{TlsFile, TlsFileCause, TlsFileError};
pub use pair::PemPair;
pub use pem::{FILE_BYTES_MAX, PemFile};
pub use renewed::ClientTls;
