//! One server: its address and its login.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ratekeeper_tls::ClientTls;

/// The default port of a server.
const PORT: u16 = 6379;

/// A server's address, login and TLS. Cheap to copy.
#[derive(Clone, Default)]
pub(crate) struct ServerAddress {
    pub(crate) address: Address,
    pub(crate) login: Arc<Login>,
    /// The TLS settings of the connection; [`None`] if it is not encrypted.
    pub(crate) tls: Option<Arc<ClientTls>>,
}

/// The address a server listens on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// The user, password and database to log in with.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Login {
    /// The user of an ACL; [`None`] for the default one.
    pub(crate) user: Option<String>,
    /// [`None`] if no password is needed.
    pub(crate) password: Option<String>,
    pub(crate) db: i64,
}

impl ServerAddress {
    /// The address, without secrets.
    pub(crate) fn name(&self) -> String {
        self.address.to_string()
    }
}

impl Address {
    pub(crate) fn tcp(host: &str, port: u16) -> Self {
        let host = host.to_owned();
        Self::Tcp { host, port }
    }
}

/// This host, at the default port.
impl Default for Address {
    fn default() -> Self {
        Self::tcp("127.0.0.1", PORT)
    }
}

impl Login {
    /// Returns true unless there is a user without a password.
    pub(crate) fn is_whole(&self) -> bool {
        self.user.is_none() || self.password.is_some()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Without the password, so that it can be logged.
impl fmt::Debug for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerAddress")
            .field("address", &self.address)
            .field("login", &self.login)
            .field("is_encrypted", &self.tls.is_some())
            .finish()
    }
}

/// Without the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .field("db", &self.db)
            .finish_non_exhaustive()
    }
}
