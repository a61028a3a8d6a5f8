//! What is wrong with a file.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use rustls::pki_types::pem;
use rustls::server::VerifierBuilderError;

use crate::FILE_BYTES_MAX;

/// What a file is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsFile {
    /// Whom to trust.
    Authorities,
    /// What is shown.
    Certificate,
    /// The private key of that.
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

/// Why a file is of no use.
#[derive(Debug, thiserror::Error)]
#[error("the {file} {} cannot be used: {cause}", place(path.as_deref()))]
#[non_exhaustive]
pub struct TlsFileError {
    /// What it is for.
    pub file: TlsFile,
    /// Where it should lie; [`None`] for the authorities of the system.
    pub path: Option<PathBuf>,
    /// What is wrong.
    pub cause: TlsFileCause,
}

impl TlsFileError {
    /// That `cause` is wrong with what lies at `path`.
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

/// What can be wrong with a file of certificates or keys.
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
    /// There is no certificate in it.
    #[error("there is no `-----BEGIN CERTIFICATE-----` in it")]
    NoCertificate,
    /// The system trusts nobody: why that is, if it is known.
    #[error("{0}; name a file of them")]
    NoneOfSystem(Box<str>),
    /// There is no key in it.
    #[error(
        "there is no private key in it: write a PEM block BEGIN PRIVATE KEY, BEGIN EC PRIVATE KEY or BEGIN RSA PRIVATE KEY"
    )]
    NoKey,
    /// There is a key in it that needs a passphrase.
    #[error(
        "the key in it is encrypted, and there is nobody to ask for the passphrase; decrypt it with `openssl pkey`"
    )]
    EncryptedKey,
    /// The key belongs to another certificate than the one in this file.
    #[error("it is not the key of the certificate in {}", .0.display())]
    OfAnother(PathBuf),
    /// It does not make sense.
    #[error("{0}")]
    Unusable(rustls::Error),
    /// Nobody can be verified by it.
    #[error("{0}")]
    Verifier(VerifierBuilderError),
}
