//! Verification of servers, including those whose certificate is itself a trust anchor.
//!
//! `openssl req -x509` makes a self-signed certificate that claims to be an authority (CA:TRUE).
//! The rules of web PKI (RFC 5280, section 4.2.1.9) refuse a server that presents it, and also one
//! whose certificate comes from an untrusted issuer, even if the certificate itself is trusted.
//! Here a certificate that is configured as trusted, byte for byte, is accepted: its chain has
//! nothing left to prove. Its dates and names are verified as usual.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, VerifierBuilderError};
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

/// Trust anchors.
#[derive(Clone, Debug)]
pub(crate) struct Authorities {
    /// In the form that verification uses.
    pub(crate) roots: RootCertStore,
    /// The same certificates, byte for byte.
    pub(crate) certificates: Vec<CertificateDer<'static>>,
}

/// Accepts a server whose certificate leads to a trusted one, or is one.
#[derive(Debug)]
pub(crate) struct AnchoredVerifier {
    inner: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

/// The reason for refusing a certificate, where rustls has no clear message.
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

/// The fault of a certificate that does not lead to a trusted one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// It claims to be an authority.
    IsAuthority,
    /// Its issuer is not trusted.
    Unvouched,
}

impl Flaw {
    /// Classifies an error. rustls checks the dates first, so an expired certificate is reported as
    /// such.
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
