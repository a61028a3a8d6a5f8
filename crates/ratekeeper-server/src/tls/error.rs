//! What is wrong with the files of a certificate.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Which file of a [`TlsConfig`](super::TlsConfig).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsFile {
    /// The certificate.
    Certificate,
    /// The private key.
    Key,
    /// The authorities of clients.
    ClientCa,
}

impl fmt::Display for TlsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificate => "certificate",
            Self::Key => "key",
            Self::ClientCa => "client authorities",
        })
    }
}

/// Why a listener cannot use its certificate.
#[derive(Debug, thiserror::Error)]
#[error("the {file} in {} cannot be used: {cause}", path.display())]
pub struct TlsError {
    /// What is wrong with it.
    pub file: TlsFile,
    /// Where it lies.
    pub path: PathBuf,
    cause: Cause,
}

impl TlsError {
    pub(super) fn new(file: TlsFile, path: impl Into<PathBuf>, cause: Cause) -> Self {
        let path = path.into();
        Self { file, path, cause }
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Cause {
    #[error("{0}")]
    Io(io::Error),
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    #[error("it is not PEM: {0}")]
    Pem(rustls::pki_types::pem::Error),
    #[error("there is no `-----BEGIN CERTIFICATE-----` in it")]
    NoCertificate,
    #[error(
        "there is no private key in it: write a PEM block BEGIN PRIVATE KEY, BEGIN EC PRIVATE KEY or BEGIN RSA PRIVATE KEY"
    )]
    NoKey,
    #[error(
        "the key in it is encrypted, and there is nobody to ask for the passphrase; decrypt it with `openssl pkey`"
    )]
    EncryptedKey,
    #[error("it is not the key of the certificate in {}", .0.display())]
    OfAnother(PathBuf),
    #[error("{0}")]
    Tls(rustls::Error),
    #[error("{0}")]
    Verifier(rustls::server::VerifierBuilderError),
}
