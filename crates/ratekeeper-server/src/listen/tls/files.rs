//! From files to what rustls wants.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

use ratekeeper_tls::{PemFile, PemPair, TlsFile, TlsFileCause, TlsFileError};
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{NoClientAuth, WebPkiClientVerifier, danger::ClientCertVerifier};

use super::verify::Named;
use super::{TlsConfig, expiry};
use crate::listen::service::Protocol;

/// The files as they were read.
pub(super) struct Files {
    pair: PemPair,
    client_ca: Option<PemFile>,
}

/// Tells readings apart, and says nothing about the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Fingerprint(u64);

impl Files {
    pub(super) fn fingerprint(&self) -> Fingerprint {
        static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Fingerprint(SEED.hash_one((
            self.pair.certificate.bytes(),
            self.pair.key.bytes(),
            self.client_ca.as_ref().map(PemFile::bytes),
        )))
    }
}

/// Reads what `config` names.
pub(super) fn read(config: &TlsConfig) -> Result<Files, TlsFileError> {
    let authorities = config.client_ca.as_deref();
    Ok(Files {
        pair: PemPair::read(&config.identity)?,
        client_ca: authorities
            .map(|path| PemFile::read(TlsFile::Authorities, path))
            .transpose()?,
    })
}

/// Makes of the files what connections are accepted with, and reads the end of the certificate, in seconds since 1970: 0 if
/// it says none that can be read.
pub(super) fn understand(
    files: &Files,
    config: &TlsConfig,
    protocol: Protocol,
) -> Result<(ServerConfig, i64), TlsFileError> {
    let pair = &files.pair;
    let (chain, key) = (pair.certificates()?, pair.private_key()?);
    let expiry = chain.first().and_then(|own| expiry::of_certificate(own));
    let provider = Arc::new(ring::default_provider());
    let verifier = verifier(files, config, &provider)?;
    let built = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map(|builder| builder.with_client_cert_verifier(verifier))
        .and_then(|builder| builder.with_single_cert(chain, key));
    let mut built = built.map_err(|error| pair.refuse(error))?;
    built.alpn_protocols = match protocol {
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Http2 => vec![b"h2".to_vec()],
        Protocol::Either => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    Ok((built, expiry.unwrap_or_default()))
}

fn verifier(
    files: &Files,
    config: &TlsConfig,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsFileError> {
    let Some(file) = &files.client_ca else {
        return Ok(Arc::new(NoClientAuth));
    };
    let roots = Arc::new(file.authorities()?);
    let built = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider)).build();
    let verifier = built.map_err(|error| file.refuse(TlsFileCause::Verifier(error)))?;
    if config.client_names.is_empty() {
        return Ok(verifier);
    }
    Ok(Arc::new(Named::new(verifier, config.client_names.clone())))
}
