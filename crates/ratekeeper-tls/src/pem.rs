//! A PEM file.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::{TlsFile, TlsFileCause, TlsFileError};

/// The largest file, in bytes; a bundle of all public authorities has a fifth of that.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// A PEM file in memory.
#[derive(Clone, PartialEq, Eq)]
pub struct PemFile {
    file: TlsFile,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl fmt::Debug for PemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The contents may be secret.
        f.debug_struct("PemFile")
            .field("file", &self.file)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl PemFile {
    /// Reads a file; blocks.
    ///
    /// # Errors
    /// It cannot be read, or is larger than [`FILE_BYTES_MAX`]. The contents are not checked.
    pub fn read(file: TlsFile, path: &Path) -> Result<Self, TlsFileError> {
        let bytes = read(path).map_err(|cause| TlsFileError::new(file, path, cause))?;
        let path = path.to_owned();
        Ok(Self { file, path, bytes })
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The contents.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// An error about this file.
    #[must_use]
    pub fn refuse(&self, cause: TlsFileCause) -> TlsFileError {
        TlsFileError::new(self.file, &self.path, cause)
    }

    /// The certificates, at least one, in the order of the file.
    ///
    /// # Errors
    /// It is not PEM, or has no certificate.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        let found = found.map_err(|error| self.refuse(TlsFileCause::Pem(error)))?;
        if found.is_empty() {
            return Err(self.refuse(TlsFileCause::NoCertificate));
        }
        Ok(found)
    }

    /// The first private key.
    ///
    /// # Errors
    /// It is not PEM, or has no key that can be used without a passphrase.
    pub fn private_key(&self) -> Result<PrivateKeyDer<'static>, TlsFileError> {
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|error| {
            self.refuse(match error {
                PemError::NoItemsFound if self.is_encrypted() => TlsFileCause::EncryptedKey,
                PemError::NoItemsFound => TlsFileCause::NoKey,
                error => TlsFileCause::Pem(error),
            })
        })
    }

    /// The certificates as trust anchors.
    ///
    /// # Errors
    /// It is not PEM, has no certificate, or has one that is not an authority.
    pub fn authorities(&self) -> Result<RootCertStore, TlsFileError> {
        let mut roots = RootCertStore::empty();
        for authority in self.certificates()? {
            let added = roots.add(authority);
            added.map_err(|error| self.refuse(TlsFileCause::Unusable(error)))?;
        }
        Ok(roots)
    }

    fn is_encrypted(&self) -> bool {
        const BEGIN: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
        self.bytes
            .windows(BEGIN.len())
            .any(|window| window == BEGIN)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsFileCause> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(TlsFileCause::TooLarge);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use ratekeeper_testkit::certificates::{Authority, Validity, put};

    use super::*;

    #[test]
    fn errors_name_the_file_and_its_purpose() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("file.pem");
        let good = Authority::new().issue("localhost", Validity::Valid);
        let encrypted =
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let large = " ".repeat(usize::try_from(FILE_BYTES_MAX).expect("it fits") + 1);
        let cut = "-----BEGIN CERTIFICATE-----\nAAAA";
        let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (file, text, part) in [
            (TlsFile::Authorities, &*good.key, "no `-----BEGIN CERT"),
            (TlsFile::Authorities, nonsense, "invalid peer certificate"),
            (TlsFile::Certificate, cut, "it is not PEM"),
            (TlsFile::Certificate, &large, "larger than 1048576 bytes"),
            (TlsFile::Key, &good.certificate, "there is no private key"),
            (TlsFile::Key, encrypted, "the key in it is encrypted"),
        ] {
            put(&path, text);
            let found = PemFile::read(file, &path).and_then(|read| match file {
                TlsFile::Authorities => read.authorities().map(drop),
                TlsFile::Certificate => read.certificates().map(drop),
                TlsFile::Key => read.private_key().map(drop),
            });
            let said = found.expect_err(part).to_string();
            let begin = format!("the {file} in {} cannot be used: ", path.display());
            assert!(said.starts_with(&begin) && said.contains(part), "{said}");
        }
    }

    #[test]
    fn a_key_is_not_printed() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("tls.key");
        put(&path, "secret");
        let read = PemFile::read(TlsFile::Key, &path).expect("it is there");
        let bytes = format!("{:?}", b"secret".as_slice());
        let said = format!("{read:?}");
        assert!(!said.contains("secret") && !said.contains(&bytes), "{said}");
    }
}
