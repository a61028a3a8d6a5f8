//! The certificate settings of listeners in tests.

use std::path::{Path, PathBuf};

use ratekeeper_server::TlsConfig;
pub(crate) use ratekeeper_testkit::certificates::{Authority, Identity, Validity, put};
use ratekeeper_tls::TlsIdentity;

/// The TLS settings of a listener, with the files of [`Identity::write`] in `folder`.
pub(crate) fn config(folder: &Path) -> TlsConfig {
    TlsConfig {
        identity: TlsIdentity {
            certificate: folder.join("tls.crt"),
            key: folder.join("tls.key"),
        },
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
