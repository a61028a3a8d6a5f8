//! From PEM files to what rustls wants, for both ends of a connection.
//!
//! [`PemFile`] is one file, bounded in size, that knows what it is for: whatever is wrong with it is said with its
//! place. A [`PemPair`] is a certificate and its key. [`TlsFiles`] are those of whoever connects, and [`ClientTls`] reads them again when they have changed. This
//! crate opens no connection, watches nothing, and never trusts what it could not verify.
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
mod error;
mod pair;
mod pem;
mod renewed;

pub use anchored::server_verifier;
pub use client::{TlsFiles, TlsIdentity};
pub use error::{TlsFile, TlsFileCause, TlsFileError};
pub use pair::PemPair;
pub use pem::{FILE_BYTES_MAX, PemFile};
pub use renewed::ClientTls;
