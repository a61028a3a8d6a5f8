use std::fs;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::*;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    CertifiedIssuer::self_signed(params, key).expect("an authority")
}

fn issue(authority: &Authority, names: Vec<SanType>) -> (rcgen::Certificate, KeyPair) {
    let mut params = CertificateParams::default();
    params.subject_alt_names = names;
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, authority).expect("a certificate");
    (certificate, key)
}

fn client(authority: &Authority, names: Vec<SanType>) -> TlsConnector {
    let (certificate, key) = issue(authority, names);
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate.der().clone()], key)
        .expect("a pair");
    TlsConnector::from(Arc::new(config))
}

/// Requests are given all names in a client's certificate, in order.
#[tokio::test]
async fn the_handshake_tells_the_names_of_the_client() {
    let authority = authority();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let dns = |name: &str| SanType::DnsName(name.try_into().expect("ASCII"));
    let (certificate, key) = issue(&authority, vec![dns("limits.example")]);
    fs::write(path("crt"), certificate.pem()).expect("written");
    fs::write(path("key"), key.serialize_pem()).expect("written");
    fs::write(path("ca"), authority.pem()).expect("written");
    let config = TlsConfig {
        identity: TlsIdentity {
            certificate: path("crt"),
            key: path("key"),
        },
        client_ca: Some(path("ca")),
        client_names: Vec::new(),
    };
    let tls = Tls::load("grpc", Protocol::Http2, config).expect("good files");
    assert!(tls.asks_for_names());

    let uri = SanType::URI("spiffe://mesh/envoy".try_into().expect("ASCII"));
    let connector = client(&authority, vec![uri, dns("envoy.example")]);
    let (ours, theirs) = tokio::io::duplex(16 << 10);
    let name = ServerName::try_from("limits.example").expect("a name");
    let (accepted, connected) = tokio::join!(tls.accept(ours), connector.connect(name, theirs));
    connected.expect("let in");
    let (_, names) = accepted.expect("let in");
    assert_eq!(
        *names,
        [
            PeerName::Uri("spiffe://mesh/envoy".into()),
            PeerName::Dns("envoy.example".into())
        ]
    );
}
