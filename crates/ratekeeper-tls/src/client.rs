//! Whom one who connects trusts, and what it shows.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::ring;

use crate::{PemFile, PemPair, TlsFile, TlsFileError, authorities};

/// What connections are encrypted by, as PEM files.
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

impl TlsFiles {
    /// Reads the files, and makes of them what connections are made with, by TLS 1.2 or 1.3 and
    /// without ALPN. Blocks.
    ///
    /// # Errors
    /// One of the files is of no use, or they do not fit together.
    ///
    /// # Panics
    /// If the cryptography that is built in knows neither TLS 1.2 nor 1.3.
    pub fn client_config(&self) -> Result<ClientConfig, TlsFileError> {
        let roots = match &self.authorities {
            Some(path) => PemFile::read(TlsFile::Authorities, path)?.authorities()?,
            None => authorities::of_system()?,
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has what the default versions need")
            .with_root_certificates(roots);
        let Some(identity) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let pair = PemPair::read(identity)?;
        let built = builder.with_client_auth_cert(pair.certificates()?, pair.private_key()?);
        built.map_err(|error| pair.refuse(error))
    }
}
