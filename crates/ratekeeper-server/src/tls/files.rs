//! From files to what rustls wants.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoClientAuth, WebPkiClientVerifier, danger::ClientCertVerifier};
use rustls::{Error, RootCertStore, ServerConfig};

use super::TlsConfig;
use super::error::{Cause, TlsError, TlsFile};
use super::verify::Named;
use crate::listen::Protocol;

/// The most that one of the files may hold, in bytes: a bundle of all public authorities is a
/// fifth of that.
const SIZE_MAX: u64 = 1 << 20;

/// The files as they were read.
pub(super) struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// Tells readings apart, and says nothing about the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Fingerprint(u64);

impl Files {
    pub(super) fn fingerprint(&self) -> Fingerprint {
        static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Fingerprint(SEED.hash_one((&self.certificate, &self.key, &self.client_ca)))
    }
}

/// Reads what `config` names.
pub(super) fn read(config: &TlsConfig) -> Result<Files, TlsError> {
    let read =
        |file, path: &Path| read_file(path).map_err(|cause| TlsError::new(file, path, cause));
    Ok(Files {
        certificate: read(TlsFile::Certificate, &config.certificate)?,
        key: read(TlsFile::Key, &config.key)?,
        client_ca: match &config.client_ca {
            Some(path) => Some(read(TlsFile::ClientCa, path)?),
            None => None,
        },
    })
}

fn read_file(path: &Path) -> Result<Vec<u8>, Cause> {
    let file = File::open(path).map_err(Cause::Io)?;
    let mut bytes = Vec::new();
    file.take(SIZE_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(Cause::Io)?;
    if bytes.len() as u64 > SIZE_MAX {
        return Err(Cause::TooLarge(SIZE_MAX));
    }
    Ok(bytes)
}

/// Makes of the files what connections are accepted with.
pub(super) fn understand(
    files: &Files,
    config: &TlsConfig,
    protocol: Protocol,
) -> Result<ServerConfig, TlsError> {
    let of_certificate = |cause| TlsError::new(TlsFile::Certificate, &config.certificate, cause);
    let of_key = |cause| TlsError::new(TlsFile::Key, &config.key, cause);
    let chain = certificates(&files.certificate).map_err(of_certificate)?;
    let key = private_key(&files.key).map_err(of_key)?;
    let provider = Arc::new(ring::default_provider());
    let verifier = verifier(files, config, &provider)?;
    let built = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map(|builder| builder.with_client_cert_verifier(verifier))
        .and_then(|builder| builder.with_single_cert(chain, key));
    let mut built = built.map_err(|error| match error {
        Error::InconsistentKeys(_) => of_key(Cause::OfAnother(config.certificate.clone())),
        Error::InvalidCertificate(_) => of_certificate(Cause::Tls(error)),
        _ => of_key(Cause::Tls(error)),
    })?;
    built.alpn_protocols = match protocol {
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Http2 => vec![b"h2".to_vec()],
        Protocol::Either => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    Ok(built)
}

fn verifier(
    files: &Files,
    config: &TlsConfig,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let (Some(path), Some(bytes)) = (&config.client_ca, &files.client_ca) else {
        return Ok(Arc::new(NoClientAuth));
    };
    let of_file = |cause| TlsError::new(TlsFile::ClientCa, path, cause);
    let mut roots = RootCertStore::empty();
    for authority in certificates(bytes).map_err(of_file)? {
        roots
            .add(authority)
            .map_err(|error| of_file(Cause::Tls(error)))?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
            .build()
            .map_err(|error| of_file(Cause::Verifier(error)))?;
    if config.client_names.is_empty() {
        return Ok(verifier);
    }
    Ok(Arc::new(Named::new(verifier, config.client_names.clone())))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Cause> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(Cause::Pem)?;
    if found.is_empty() {
        return Err(Cause::NoCertificate);
    }
    Ok(found)
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, Cause> {
    match PrivateKeyDer::from_pem_slice(pem) {
        Ok(key) => Ok(key),
        Err(PemError::NoItemsFound) if is_encrypted(pem) => Err(Cause::EncryptedKey),
        Err(PemError::NoItemsFound) => Err(Cause::NoKey),
        Err(error) => Err(Cause::Pem(error)),
    }
}

fn is_encrypted(pem: &[u8]) -> bool {
    const BEGIN: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
    pem.windows(BEGIN.len()).any(|window| window == BEGIN)
}
