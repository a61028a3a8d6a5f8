//! Verifying servers, also those whose certificate is itself one that is trusted.
//!
//! `openssl req -x509` makes a certificate that signs itself and says that it is an authority
//! (CA:TRUE). A server that shows it is refused by web PKI's rules (RFC 5280, section 4.2.1.9), and
//! so is one whose certificate was issued by somebody who is not trusted, though it is. Who is
//! handed that very certificate as what to trust has been told which server to believe: nothing is
//! left to be vouched for. Its dates and its names are verified as ever.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, VerifierBuilderError};
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use crate::TlsFileCause;

/// Whom to trust.
#[derive(Clone, Debug)]
pub(crate) struct Authorities {
    /// As verification takes them.
    pub(crate) roots: RootCertStore,
    /// The same, byte for byte.
    pub(crate) certificates: Vec<CertificateDer<'static>>,
}

/// Verifies that a server's certificate leads to one that is trusted, or is one of those.
#[derive(Debug)]
pub(crate) struct AnchoredVerifier {
    inner: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

/// Why a certificate is refused, where rustls would not say it in words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
enum Refusal {
    #[error(
        "the server shows an authority's own certificate (CA:TRUE), which is not among those that are trusted: put that \
         very certificate into the file of authorities, or give the server one that is not an authority's"
    )]
    Authority,
}

impl AnchoredVerifier {
    pub(crate) fn new(
        authorities: Authorities,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let roots = Arc::new(authorities.roots);
        let inner = WebPkiServerVerifier::builder_with_provider(roots, provider).build()?;
        Ok(Self {
            inner,
            trusted: authorities.certificates,
        })
    }
}

/// Verifies servers by the authorities in `pem`: a server's certificate leads to one of them, or is
/// one of them, byte for byte; its dates and its name are verified as well.
///
/// # Errors
/// `pem` is not PEM, there is no certificate in it, or one of them cannot be used.
pub fn server_verifier(pem: &str) -> Result<Arc<dyn ServerCertVerifier>, TlsFileCause> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let certificates = found.map_err(TlsFileCause::Pem)?;
    if certificates.is_empty() {
        return Err(TlsFileCause::NoCertificate);
    }
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        let added = roots.add(certificate.clone());
        added.map_err(TlsFileCause::Unusable)?;
    }
    let authorities = Authorities {
        roots,
        certificates,
    };
    let verifier = AnchoredVerifier::new(authorities, Arc::new(ring::default_provider()));
    Ok(Arc::new(verifier.map_err(TlsFileCause::Verifier)?))
}

/// What is wrong with a certificate that leads to none that is trusted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// It says that it is an authority.
    IsAuthority,
    /// Nobody who is trusted has issued it.
    Unvouched,
}

impl Flaw {
    /// If that is all: both are found after the dates were looked at, and those that are wrong are
    /// told instead.
    fn of(error: &Error) -> Option<Self> {
        match error {
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => Some(Self::Unvouched),
            Error::InvalidCertificate(CertificateError::Other(OtherError(cause))) => {
                let is_authority = matches!(
                    cause.downcast_ref::<webpki::Error>(),
                    Some(webpki::Error::CaUsedAsEndEntity)
                );
                is_authority.then_some(Self::IsAuthority)
            }
            _ => None,
        }
    }
}

impl ServerCertVerifier for AnchoredVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        let error = match verified {
            Ok(verified) => return Ok(verified),
            Err(error) => error,
        };
        let Some(flaw) = Flaw::of(&error) else {
            return Err(error);
        };
        if self.trusted.iter().any(|it| it == end_entity) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        Err(match flaw {
            Flaw::IsAuthority => Error::Other(OtherError(Arc::new(Refusal::Authority))),
            Flaw::Unvouched => error,
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;
