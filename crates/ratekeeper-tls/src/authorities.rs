//! The system's trust anchors.

use std::sync::OnceLock;

use rustls::RootCertStore;

use crate::anchored::Authorities;
use crate::{TlsFile, TlsFileCause, TlsFileError};

/// The system's trust anchors, read once.
pub(crate) fn of_system() -> Result<Authorities, TlsFileError> {
    static FOUND: OnceLock<Authorities> = OnceLock::new();
    if let Some(authorities) = FOUND.get() {
        return Ok(authorities.clone());
    }
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs.iter().cloned());
    if roots.is_empty() {
        let why = found.errors.first().map(ToString::to_string);
        let why = why.unwrap_or_else(|| "there are none".to_owned());
        return Err(TlsFileError {
            file: TlsFile::Authorities,
            path: None,
            cause: TlsFileCause::NoneOfSystem(why.into()),
        });
    }
    let authorities = Authorities {
        roots,
        certificates: found.certs,
    };
    Ok(FOUND.get_or_init(|| authorities).clone())
}
