//! How connections are encrypted: whom to trust, and what to show.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;
use std::{fmt, io};

use parking_lot::Mutex;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// The most that one of the files may hold, in bytes: a bundle of all public authorities is a
/// fifth of that.
const SIZE_MAX: u64 = 1 << 20;

/// What connections are encrypted by, as PEM files. A file that has changed is read again for the
/// next connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsFiles {
    /// The authorities that vouch for servers; [`None`] for those that the system trusts.
    pub authorities: Option<PathBuf>,
    /// What is shown to servers that ask for a certificate (mTLS).
    pub identity: Option<TlsIdentity>,
}

/// A certificate, with what leads from it to its authority, and its private key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsIdentity {
    /// The certificate's file.
    pub certificate: PathBuf,
    /// The key's file; not encrypted.
    pub key: PathBuf,
}

/// Which of the files something is wrong with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsFile {
    /// Whom to trust.
    Authorities,
    /// What is shown.
    Certificate,
    /// The private key of that.
    Key,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {cause}", path = .path.display())]
#[non_exhaustive]
pub struct TlsFileError {
    /// Which it is.
    pub file: TlsFile,
    /// Where it should lie.
    pub path: PathBuf,
    /// What is wrong.
    pub cause: TlsFileCause,
}

/// What can be wrong with a file of certificates or keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFileCause {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is too large.
    #[error("it is larger than {SIZE_MAX} bytes")]
    TooLarge,
    /// It is not PEM.
    #[error("it is not PEM: {0}")]
    Pem(pem::Error),
    /// There is none in it.
    #[error("there is no certificate in it (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// There is none in it that can be used.
    #[error(
        "there is no private key in it (-----BEGIN PRIVATE KEY-----); one that is encrypted has to be decrypted first"
    )]
    NoKey,
    /// It does not make sense, or not beside the other one.
    #[error("{0}")]
    Unusable(rustls::Error),
}

/// Encryption by certain files.
#[derive(Default)]
pub(crate) struct Tls {
    files: TlsFiles,
    /// What was made of the files, and of which state of them.
    made: Mutex<Option<(Stamps, Arc<ClientConfig>)>>,
}

/// Tells states of the files apart.
type Stamps = Vec<(SystemTime, u64)>;

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}

impl Tls {
    pub(crate) fn new(files: TlsFiles) -> Self {
        Self {
            files,
            made: Mutex::new(None),
        }
    }

    /// What the next connection is encrypted by. While a file cannot be read that could before,
    /// as when it is renewed by deleting it first, it is what the last one was.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, TlsFileError> {
        let mut made = self.made.lock();
        let current = self.stamps().and_then(|stamps| match &*made {
            Some((of, config)) if *of == stamps => Ok((stamps, Arc::clone(config))),
            _ => Ok((stamps, Arc::new(self.make()?))),
        });
        match (current, &*made) {
            (Ok(current), _) => Ok(Arc::clone(&made.insert(current).1)),
            (Err(error), Some((_, config))) if matches!(error.cause, TlsFileCause::Io(_)) => {
                Ok(Arc::clone(config))
            }
            (Err(error), _) => Err(error),
        }
    }

    fn stamps(&self) -> Result<Stamps, TlsFileError> {
        let identity = self.files.identity.as_ref();
        let files = [
            (TlsFile::Authorities, self.files.authorities.as_ref()),
            (TlsFile::Certificate, identity.map(|it| &it.certificate)),
            (TlsFile::Key, identity.map(|it| &it.key)),
        ];
        let files = files
            .into_iter()
            .filter_map(|(file, path)| Some((file, path?)));
        files.map(|(file, path)| stamp(file, path)).collect()
    }

    fn make(&self) -> Result<ClientConfig, TlsFileError> {
        let roots = match &self.files.authorities {
            Some(path) => authorities(path)?,
            None => system_authorities()?,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has what the default versions need")
            .with_root_certificates(roots);
        let Some(TlsIdentity { certificate, key }) = &self.files.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let shown = certificates(TlsFile::Certificate, certificate)?;
        let built = builder.with_client_auth_cert(shown, private_key(key)?);
        built.map_err(|error| {
            let (file, path) = match error {
                rustls::Error::InvalidCertificate(_) => (TlsFile::Certificate, certificate),
                _ => (TlsFile::Key, key),
            };
            TlsFileError::new(file, path, TlsFileCause::Unusable(error))
        })
    }
}

impl TlsFileError {
    fn new(file: TlsFile, path: &Path, cause: TlsFileCause) -> Self {
        let path = path.to_path_buf();
        Self { file, path, cause }
    }
}

fn stamp(file: TlsFile, path: &Path) -> Result<(SystemTime, u64), TlsFileError> {
    let refuse = |cause| TlsFileError::new(file, path, cause);
    let metadata = path.metadata().map_err(|error| refuse(error.into()))?;
    if metadata.len() > SIZE_MAX {
        return Err(refuse(TlsFileCause::TooLarge));
    }
    let changed = metadata.modified().map_err(|error| refuse(error.into()))?;
    Ok((changed, metadata.len()))
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsFileError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(TlsFile::Authorities, path)? {
        let added = roots.add(authority);
        added.map_err(|error| {
            TlsFileError::new(TlsFile::Authorities, path, TlsFileCause::Unusable(error))
        })?;
    }
    Ok(roots)
}

/// Those that the system trusts, read once.
fn system_authorities() -> Result<RootCertStore, TlsFileError> {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Ok(roots.clone());
    }
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(ToString::to_string);
        let why = why.unwrap_or_else(|| "there are none".to_owned());
        let cause = TlsFileCause::Io(io::Error::other(why));
        let place = Path::new("the authorities that the system trusts");
        return Err(TlsFileError::new(TlsFile::Authorities, place, cause));
    }
    Ok(ROOTS.get_or_init(|| roots).clone())
}

fn certificates(file: TlsFile, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let refuse = |cause| TlsFileError::new(file, path, cause);
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match found.map_err(TlsFileCause::of) {
        Ok(found) if Vec::is_empty(&found) => Err(refuse(TlsFileCause::NoCertificate)),
        Ok(found) => Ok(found),
        Err(cause) => Err(refuse(cause)),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    let key = PrivateKeyDer::from_pem_file(path);
    key.map_err(|error| TlsFileError::new(TlsFile::Key, path, TlsFileCause::of(error)))
}

impl TlsFileCause {
    fn of(error: pem::Error) -> Self {
        match error {
            pem::Error::Io(error) => Self::Io(error),
            pem::Error::NoItemsFound => Self::NoKey,
            error => Self::Pem(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_testkit::certificates::{Authority, put};

    use super::*;

    #[test]
    fn a_file_that_is_gone_for_a_moment_is_missed_by_nobody() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("ca.pem");
        put(&path, &Authority::new().pem());
        let files = TlsFiles {
            authorities: Some(path.clone()),
            identity: None,
        };
        let tls = Tls::new(files.clone());
        let before = tls.config().expect("the file is good");
        std::fs::remove_file(&path).expect("it was there");
        let meanwhile = tls.config().expect("the last one serves on");
        assert!(Arc::ptr_eq(&before, &meanwhile));
        assert!(Tls::new(files).config().is_err());
        // What is there and no good is not passed over.
        put(&path, "no certificate");
        assert!(tls.config().is_err());
        put(&path, &Authority::new().pem());
        let after = tls.config().expect("the new file is good");
        assert!(!Arc::ptr_eq(&before, &after));
    }
}
