//! The client's side of TLS: its trust anchors and its certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::ring;

use crate::anchored::{AnchoredVerifier, Authorities};
use crate::{PemFile, PemPair, TlsFile, TlsFileCause, TlsFileError, authorities};

/// PEM files for TLS connections.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsFiles {
    /// The authorities for server certificates; [`None`] for the system's.
    pub authorities: Option<PathBuf>,
    /// The client certificate, for servers that ask for one (mTLS).
    pub identity: Option<TlsIdentity>,
}

/// A certificate with its chain, and its private key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsIdentity {
    /// The certificate's file.
    pub certificate: PathBuf,
    /// The key's file; not encrypted.
    pub key: PathBuf,
}

impl TlsFiles {
    /// Reads the files and builds a client configuration for TLS 1.2 and 1.3 without ALPN. Blocks.
    ///
    /// # Errors
    /// A file is unusable, or the files do not fit together.
    ///
    /// # Panics
    /// If the built-in cryptography supports neither TLS 1.2 nor 1.3.
    pub fn client_config(&self) -> Result<ClientConfig, TlsFileError> {
        let authorities = match &self.authorities {
            Some(path) => of_file(path)?,
            None => authorities::of_system()?,
        };
        let provider = Arc::new(ring::default_provider());
        let verifier = AnchoredVerifier::new(authorities, Arc::clone(&provider));
        let verifier = verifier.map_err(|error| TlsFileError {
            file: TlsFile::Authorities,
            path: self.authorities.clone(),
            cause: TlsFileCause::Verifier(error),
        })?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has what the default versions need")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let Some(identity) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let pair = PemPair::read(identity)?;
        let built = builder.with_client_auth_cert(pair.certificates()?, pair.private_key()?);
        built.map_err(|error| pair.refuse(error))
    }
}

fn of_file(path: &Path) -> Result<Authorities, TlsFileError> {
    let file = PemFile::read(TlsFile::Authorities, path)?;
    Ok(Authorities {
        roots: file.authorities()?,
        certificates: file.certificates()?,
    })
}
