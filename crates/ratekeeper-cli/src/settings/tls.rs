//! Certificates, keys and authorities: of listeners, and of connections to servers.

use super::typed::Typed;
use ratekeeper_server::{BadClientName, ClientName, ListenersTls, TlsConfig};
use ratekeeper_tls::{TlsFile, TlsFileError, TlsFiles, TlsIdentity};

/// The settings that name the TLS files: the authorities to trust, the certificate to present, and its key.
#[derive(Clone, Debug)]
pub(crate) struct TlsSettings {
    pub(crate) authorities: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl TlsSettings {
    /// The settings whose names begin with `prefix`: `store_ca`, `store_cert` and `store_key` with `store_`.
    pub(crate) fn of(prefix: &str) -> Self {
        Self {
            authorities: format!("{prefix}ca"),
            certificate: format!("{prefix}cert"),
            key: format!("{prefix}key"),
        }
    }

    /// The message about a file, after the setting that named it.
    pub(crate) fn blame(&self, error: &TlsFileError) -> String {
        let setting = match error.file {
            TlsFile::Authorities => &self.authorities,
            TlsFile::Certificate => &self.certificate,
            TlsFile::Key => &self.key,
        };
        format!("{setting}: {error}")
    }
}

impl Typed<'_> {
    /// The files for connections to a server: the authorities to trust, and the certificate to present with its key.
    /// Their settings begin with `prefix`.
    pub(super) fn client_tls(&mut self, prefix: &str) -> TlsFiles {
        let names = TlsSettings::of(prefix);
        let (cert, key) = (&names.certificate, &names.key);
        let identity = match (self.full_path(cert), self.full_path(key)) {
            (Some(certificate), Some(key)) => Some(TlsIdentity { certificate, key }),
            (Some(_), None) => self.lacks(cert, key),
            (None, Some(_)) => self.lacks(key, cert),
            (None, None) => None,
        };
        TlsFiles {
            authorities: self.full_path(&names.authorities),
            identity,
        }
    }

    pub(super) fn listeners_tls(&mut self) -> ListenersTls {
        ListenersTls {
            grpc: self.tls("grpc"),
            http: self.tls("http"),
            admin: self.tls("admin"),
            metrics: self.tls("metrics"),
        }
    }

    /// TLS of one listener; `None` if it is off. A part that has no effect without another is an error: whoever
    /// names authorities expects clients to be verified.
    pub(super) fn tls(&mut self, listener: &str) -> Option<TlsConfig> {
        let keys = ["cert", "key", "client_ca", "client_names"];
        let keys = keys.map(|part| format!("{listener}_tls_{part}"));
        let [cert, key, client_ca, client_names] = keys.each_ref().map(String::as_str);
        let names = self.get(client_names, tls_names);
        let paths = (self.path(cert), self.path(key), self.path(client_ca));
        let has_names = !names.is_empty();
        match paths {
            (Some(certificate), Some(private), client_ca_path) => {
                if has_names && client_ca_path.is_none() {
                    self.lacks::<()>(client_names, client_ca);
                }
                Some(TlsConfig {
                    identity: TlsIdentity {
                        certificate,
                        key: private,
                    },
                    client_ca: client_ca_path,
                    client_names: names,
                })
            }
            (None, None, None) if !has_names => None,
            (Some(_), None, _) => self.lacks(cert, key),
            (None, Some(_), _) => self.lacks(key, cert),
            (None, None, Some(_)) => self.lacks(client_ca, cert),
            (None, None, None) => self.lacks(client_names, client_ca),
        }
    }
}

/// The names of clients, with commas between them.
fn tls_names(text: &str) -> Result<Vec<ClientName>, BadClientName> {
    let names = text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    names.map(str::parse).collect()
}
