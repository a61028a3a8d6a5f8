//! How encrypted upstreams are trusted.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// The most that a file of authorities may hold, in bytes.
const SIZE_MAX: u64 = 1 << 20;

/// What connections are made with that offer HTTP/2 and HTTP/1.1, and with those that offer
/// HTTP/1.1 alone. Certificates are verified by the authorities in `ca`, or by the system's.
pub(crate) fn client(ca: Option<&Path>) -> Result<(Arc<ClientConfig>, Arc<ClientConfig>), String> {
    let roots = match ca {
        Some(path) => own(path).map_err(|why| format!("ca: {}: {why}", path.display()))?,
        None => system()?,
    };
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut http1 = builder.with_root_certificates(roots).with_no_client_auth();
    http1.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut either = http1.clone();
    either.alpn_protocols.insert(0, b"h2".to_vec());
    Ok((Arc::new(either), Arc::new(http1)))
}

fn own(path: &Path) -> Result<RootCertStore, String> {
    let size = std::fs::metadata(path)
        .map_err(|error| error.to_string())?
        .len();
    if size > SIZE_MAX {
        return Err(format!("it is larger than {SIZE_MAX} bytes"));
    }
    let pem = std::fs::read(path).map_err(|error| error.to_string())?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| format!("it is not PEM: {error}"))?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    match roots.is_empty() {
        true => Err("there is no `-----BEGIN CERTIFICATE-----` in it".to_owned()),
        false => Ok(roots),
    }
}

fn system() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        true => Err(
            "this system has no authorities to trust; name a file of them with `ca: FILE`"
                .to_owned(),
        ),
        false => Ok(roots),
    }
}
