//! TLS settings for connections to upstreams.

use std::path::Path;
use std::sync::Arc;

use ratekeeper_tls::{TlsFileError, TlsFiles};
use rustls::ClientConfig;

/// Returns two client configurations: one that offers HTTP/2 and HTTP/1.1, and one that offers
/// HTTP/1.1 alone. Certificates are verified against the authorities in `ca`, or the system's.
pub(crate) fn client(
    ca: Option<&Path>,
) -> Result<(Arc<ClientConfig>, Arc<ClientConfig>), TlsFileError> {
    let files = TlsFiles {
        authorities: ca.map(Path::to_path_buf),
        identity: None,
    };
    let mut http1 = files.client_config()?;
    http1.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut either = http1.clone();
    either.alpn_protocols.insert(0, b"h2".to_vec());
    Ok((Arc::new(either), Arc::new(http1)))
}
