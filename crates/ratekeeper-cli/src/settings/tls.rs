//! Certificates, keys and authorities: of listeners, and of connections to servers.

use super::checks::Checks;
use super::given::Given;
use ratekeeper_server::{BadClientName, ClientName, ListenersTls, TlsConfig};
use ratekeeper_tls::{TlsFile, TlsFileError, TlsFiles, TlsIdentity};
use std::path::PathBuf;

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

/// The value of a setting that names a file.
type File = Given<Option<PathBuf>>;

impl Checks<'_> {
    /// The files for connections to a server: the authorities to trust, and the certificate to present with its key.
    pub(super) fn client_tls(&mut self, authorities: &File, cert: &File, key: &File) -> TlsFiles {
        TlsFiles {
            authorities: (**authorities).clone(),
            identity: self.identity(cert, key),
        }
    }

    /// A certificate and its key; one without the other is an error.
    fn identity(&mut self, cert: &File, key: &File) -> Option<TlsIdentity> {
        match ((**cert).clone(), (**key).clone()) {
            (Some(certificate), Some(key)) => Some(TlsIdentity { certificate, key }),
            (Some(_), None) => self.lacks(&cert.said, &key.said),
            (None, Some(_)) => self.lacks(&key.said, &cert.said),
            (None, None) => None,
        }
    }

    pub(super) fn listeners_tls(&mut self) -> ListenersTls {
        let it = self.values;
        ListenersTls {
            grpc: self.tls(
                [&it.grpc_tls_cert, &it.grpc_tls_key, &it.grpc_tls_client_ca],
                &it.grpc_tls_client_names,
            ),
            http: self.tls(
                [&it.http_tls_cert, &it.http_tls_key, &it.http_tls_client_ca],
                &it.http_tls_client_names,
            ),
            admin: self.tls(
                [
                    &it.admin_tls_cert,
                    &it.admin_tls_key,
                    &it.admin_tls_client_ca,
                ],
                &it.admin_tls_client_names,
            ),
            metrics: self.tls(
                [
                    &it.metrics_tls_cert,
                    &it.metrics_tls_key,
                    &it.metrics_tls_client_ca,
                ],
                &it.metrics_tls_client_names,
            ),
        }
    }

    /// TLS of the gateway's listener.
    pub(super) fn gateway_tls(&mut self) -> Option<TlsConfig> {
        let it = self.values;
        self.tls(
            [
                &it.listen_tls_cert,
                &it.listen_tls_key,
                &it.listen_tls_client_ca,
            ],
            &it.listen_tls_client_names,
        )
    }

    /// TLS of one listener; `None` if it is off. A part that has no effect without another is an error: whoever
    /// names authorities expects clients to be verified.
    fn tls(
        &mut self,
        [cert, key, client_ca]: [&File; 3],
        client_names: &Given<Vec<ClientName>>,
    ) -> Option<TlsConfig> {
        let identity = self.identity(cert, key);
        let is_off = cert.is_none() && key.is_none();
        if is_off && client_ca.is_some() {
            self.lacks::<()>(&client_ca.said, &cert.said);
        } else if (is_off || identity.is_some()) && client_ca.is_none() && !client_names.is_empty()
        {
            self.lacks::<()>(&client_names.said, &client_ca.said);
        }
        Some(TlsConfig {
            identity: identity?,
            client_ca: (**client_ca).clone(),
            client_names: (**client_names).clone(),
        })
    }
}

/// The names of clients, with commas between them.
pub(super) fn tls_names(text: &str) -> Result<Vec<ClientName>, BadClientName> {
    let names = text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    names.map(str::parse).collect()
}
