//! A certificate and its key, which have to match.

use rustls::Error;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::{PemFile, TlsFile, TlsFileCause, TlsFileError, TlsIdentity};

/// The two files of an identity, as they were read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PemPair {
    /// The certificate with its chain.
    pub certificate: PemFile,
    /// Its private key.
    pub key: PemFile,
}

impl PemPair {
    /// Reads both; blocks.
    ///
    /// # Errors
    /// One of them cannot be read, or is too large.
    pub fn read(identity: &TlsIdentity) -> Result<Self, TlsFileError> {
        Ok(Self {
            certificate: PemFile::read(TlsFile::Certificate, &identity.certificate)?,
            key: PemFile::read(TlsFile::Key, &identity.key)?,
        })
    }

    /// The chain to present.
    ///
    /// # Errors
    /// As [`PemFile::certificates`].
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
        self.certificate.certificates()
    }

    /// The key of the chain's first certificate.
    ///
    /// # Errors
    /// As [`PemFile::private_key`].
    pub fn private_key(&self) -> Result<PrivateKeyDer<'static>, TlsFileError> {
        self.key.private_key()
    }

    /// Attributes an error of rustls to one of the two files.
    #[must_use]
    pub fn refuse(&self, error: Error) -> TlsFileError {
        match error {
            Error::InconsistentKeys(_) => {
                let certificate = self.certificate.path().to_owned();
                self.key.refuse(TlsFileCause::OfAnother(certificate))
            }
            Error::InvalidCertificate(_) => self.certificate.refuse(TlsFileCause::Unusable(error)),
            _ => self.key.refuse(TlsFileCause::Unusable(error)),
        }
    }
}
