//! Authorities and certificates for tests, made when they are needed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ratekeeper_server::TlsConfig;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

/// Whoever vouches for servers and clients.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Whether a certificate is still valid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Validity {
    Valid,
    Expired,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for both ends.
    pub(crate) fn issue(&self, name: &str, validity: Validity) -> Identity {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![match name {
            _ if name.contains("://") => SanType::URI(name.try_into().unwrap()),
            _ => SanType::DnsName(name.try_into().unwrap()),
        }];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        if validity == Validity::Expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// A client that trusts this authority, and shows `identity` if it has one.
    pub(crate) fn client(
        &self,
        identity: Option<&Identity>,
        version: &'static SupportedProtocolVersion,
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots);
        match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => builder
                .with_client_auth_cert(identity.chain(), identity.private_key())
                .unwrap(),
        }
    }
}

impl Identity {
    /// Writes both files into `folder`, each moved into place.
    pub(crate) fn write(&self, folder: &Path) {
        put(&folder.join("tls.crt"), &self.certificate);
        put(&folder.join("tls.key"), &self.key);
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![pem(&self.certificate).into()]
    }

    fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pem(&self.key)))
    }
}

/// Replaces a file as a whole.
pub(crate) fn put(path: &Path, text: &str) {
    let draft = path.with_extension("new");
    std::fs::write(&draft, text).unwrap();
    std::fs::rename(draft, path).unwrap();
}

/// What a listener is told, with the files of [`Identity::write`] in `folder`.
pub(crate) fn config(folder: &Path) -> TlsConfig {
    TlsConfig {
        certificate: folder.join("tls.crt"),
        key: folder.join("tls.key"),
        client_ca: None,
        client_names: Vec::new(),
    }
}

/// The same, with clients' authorities in a file of their own.
pub(crate) fn mutual(folder: &Path, authority: &Authority, names: &[&str]) -> TlsConfig {
    let path: PathBuf = folder.join("clients.pem");
    put(&path, &authority.pem());
    TlsConfig {
        client_ca: Some(path),
        client_names: names.iter().map(|name| name.parse().unwrap()).collect(),
        ..config(folder)
    }
}

/// What is between the lines of a PEM file.
fn pem(text: &str) -> Vec<u8> {
    use rustls::pki_types::pem;
    let mut reader = std::io::Cursor::new(text.as_bytes());
    pem::from_buf(&mut reader).unwrap().unwrap().1
}
