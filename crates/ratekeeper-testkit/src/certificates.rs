//! Certificate authorities and certificates for tests, generated on demand.
//!
//! ```
//! use ratekeeper_testkit::certificates::{Authority, Validity};
//!
//! let authority = Authority::new();
//! let identity = authority.issue("127.0.0.1", Validity::Valid);
//! assert!(identity.certificate.starts_with("-----BEGIN CERTIFICATE-----"));
//! ```

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

/// A certificate authority for servers and clients.
#[allow(missing_debug_implementations, reason = "it holds a private key")]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
#[allow(missing_debug_implementations, reason = "it holds a private key")]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// The validity period of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Validity {
    /// Valid now.
    Valid,
    /// Expired years ago.
    Expired,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// Creates an authority.
    ///
    /// # Panics
    /// If the system has no random numbers.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        // A certificate whose subject equals its issuer counts as self-signed, so they must differ.
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("the system has random numbers");
        Self(CertifiedIssuer::self_signed(params, key).expect("it can vouch for itself"))
    }

    /// The authority's own certificate as PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for servers and clients, for a host name, an address or a URI.
    ///
    /// # Panics
    /// If the name is none of these.
    #[must_use]
    pub fn issue(&self, name: &str, validity: Validity) -> Identity {
        self.issue_with((name, name), validity)
    }

    /// Issues a certificate with another common name than the name that counts.
    ///
    /// # Panics
    /// As [`Self::issue`].
    #[must_use]
    pub fn issue_as(&self, common_name: &str, name: &str) -> Identity {
        self.issue_with((common_name, name), Validity::Valid)
    }

    fn issue_with(&self, (common_name, name): (&str, &str), validity: Validity) -> Identity {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.subject_alt_names = vec![match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) if name.contains("://") => {
                SanType::URI(name.try_into().expect("a name in ASCII"))
            }
            Err(_) => SanType::DnsName(name.try_into().expect("a name in ASCII")),
        }];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        if validity == Validity::Expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let key = KeyPair::generate().expect("the system has random numbers");
        let certificate = params.signed_by(&key, &self.0);
        let certificate = certificate.expect("it can vouch for others");
        Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// A client that trusts this authority, and presents `identity` if it has one.
    ///
    /// # Panics
    /// If `identity` was not created here.
    #[must_use]
    pub fn client(
        &self,
        identity: Option<&Identity>,
        version: &'static SupportedProtocolVersion,
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        let added = roots.add(self.0.der().clone());
        added.expect("it is a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("the provider knows the version")
            .with_root_certificates(roots);
        match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => builder
                .with_client_auth_cert(identity.chain(), identity.private_key())
                .expect("the key is that of the certificate"),
        }
    }
}

impl Identity {
    /// A self-signed certificate that claims to be an authority, as `openssl req -x509` makes it,
    /// for a host name or an address.
    ///
    /// # Panics
    /// If the name is neither.
    #[must_use]
    pub fn self_signed(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name in ASCII");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("the system has random numbers");
        let certificate = params.self_signed(&key);
        Self {
            certificate: certificate.expect("it can vouch for itself").pem(),
            key: key.serialize_pem(),
        }
    }

    /// Writes both files into `folder`, each atomically: `tls.crt` and `tls.key`.
    ///
    /// # Panics
    /// If they cannot be written.
    pub fn write(&self, folder: &Path) {
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

/// Replaces a file atomically.
///
/// # Panics
/// If it cannot be written.
pub fn put(path: &Path, text: &str) {
    let draft = path.with_extension("new");
    std::fs::write(&draft, text).expect("a file can be written");
    std::fs::rename(draft, path).expect("a file can be moved");
}

/// The decoded content of a PEM file.
fn pem(text: &str) -> Vec<u8> {
    use rustls::pki_types::pem;
    let mut reader = std::io::Cursor::new(text.as_bytes());
    let item = pem::from_buf(&mut reader).expect("it is PEM");
    item.expect("there is something in it").1
}
