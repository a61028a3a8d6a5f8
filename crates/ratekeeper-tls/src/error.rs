//! Errors about certificate and key files.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use rustls::pki_types::pem;
use rustls::server::VerifierBuilderError;

use crate::FILE_BYTES_MAX;

/// The purpose of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsFile {
    /// The trust anchors.
    Authorities,
    /// The certificate to present.
    Certificate,
    /// The private key of the certificate.
    Key,
}

impl fmt::Display for TlsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Authorities => "authorities",
            Self::Certificate => "certificate",
            Self::Key => "key",
        })
    }
}

/// The reason why a file is unusable.
#[derive(Debug, thiserror::Error)]
#[error("the {file} {} cannot be used: {cause}", place(path.as_deref()))]
#[non_exhaustive]
pub struct TlsFileError {
    /// The purpose of the file.
    pub file: TlsFile,
    /// The path of the file; [`None`] for the authorities of the system.
    pub path: Option<PathBuf>,
    /// The cause.
    pub cause: TlsFileCause,
}

impl TlsFileError {
    /// An error about the file at `path`.
    #[must_use]
    pub fn new(file: TlsFile, path: &Path, cause: TlsFileCause) -> Self {
        Self {
            file,
            path: Some(path.to_owned()),
            cause,
        }
    }
}

fn place(path: Option<&Path>) -> String {
    match path {
        Some(path) => format!("in {}", path.display()),
        None => "of this system".to_owned(),
    }
}

/// The fault of a file of certificates or keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFileCause {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is too large.
    #[error("it is larger than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    /// It is not PEM.
    #[error("it is not PEM: {0}")]
    Pem(pem::Error),
    /// It has no certificate.
    #[error("there is no `-----BEGIN CERTIFICATE-----` in it")]
    NoCertificate,
    /// The system has no trust anchors; with the reason if it is known.
    #[error("{0}; name a file of them")]
    NoneOfSystem(Box<str>),
    /// It has no key.
    #[error(
        "there is no private key in it: write a PEM block BEGIN PRIVATE KEY, BEGIN EC PRIVATE KEY or BEGIN RSA PRIVATE KEY"
    )]
    NoKey,
    /// Its key is encrypted with a passphrase.
    #[error("the key in it is encrypted; decrypt it with `openssl pkey`")]
    EncryptedKey,
    /// The key does not belong to the certificate in this file.
    #[error("it is not the key of the certificate in {}", .0.display())]
    OfAnother(PathBuf),
    /// Its content is invalid.
    #[error("{0}")]
    Unusable(rustls::Error),
    /// No server can be verified with it.
    #[error("{0}")]
    Verifier(VerifierBuilderError),
}
