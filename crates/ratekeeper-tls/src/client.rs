//! Whom one who connects trusts, and what it shows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::ring;

use crate::anchored::{AnchoredVerifier, Authorities};
use crate::{PemFile, PemPair, TlsFile, TlsFileCause, TlsFileError, authorities};

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
