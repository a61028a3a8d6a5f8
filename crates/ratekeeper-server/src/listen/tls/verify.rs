//! Admits clients by name, on top of rustls's verification. It runs within the handshake, so that a
//! refused client is told.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::names::{self, ClientName, PeerName};

/// Admits clients that `inner` accepts, if they have one of the names.
#[derive(Debug)]
pub(super) struct Named {
    inner: Arc<dyn ClientCertVerifier>,
    allowed: Vec<ClientName>,
}

impl Named {
    pub(super) fn new(inner: Arc<dyn ClientCertVerifier>, allowed: Vec<ClientName>) -> Self {
        Self { inner, allowed }
    }

    fn allows(&self, certificate: &CertificateDer<'_>) -> bool {
        let names = names::of_certificate(certificate).unwrap_or_default();
        let is_allowed = |name: &PeerName| self.allowed.iter().any(|allowed| allowed.matches(name));
        names.iter().any(is_allowed)
    }
}

impl ClientCertVerifier for Named {
    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .inner
            .verify_client_cert(certificate, intermediates, now)?;
        if self.allows(certificate) {
            Ok(verified)
        } else {
            let refused = CertificateError::ApplicationVerificationFailure;
            Err(Error::InvalidCertificate(refused))
        }
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
