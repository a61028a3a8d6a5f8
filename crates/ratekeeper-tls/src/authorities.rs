//! Whom the system trusts.

use std::sync::OnceLock;

use rustls::RootCertStore;

use crate::{TlsFile, TlsFileCause, TlsFileError};

/// Those that the system trusts, read once.
pub(crate) fn of_system() -> Result<RootCertStore, TlsFileError> {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Ok(roots.clone());
    }
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(ToString::to_string);
        let why = why.unwrap_or_else(|| "there are none".to_owned());
        return Err(TlsFileError {
            file: TlsFile::Authorities,
            path: None,
            cause: TlsFileCause::NoneOfSystem(why.into()),
        });
    }
    Ok(ROOTS.get_or_init(|| roots).clone())
}
