//! One server: where it listens, and how to come in.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ratekeeper_tls::ClientTls;

/// Where a server listens by default.
const PORT: u16 = 6379;

/// A server, and what it wants to hear. Cheap to copy.
#[derive(Clone, Default)]
pub(crate) struct Node {
    pub(crate) address: Address,
    pub(crate) login: Arc<Login>,
    /// How the connection is encrypted; [`None`] for one that is not.
    pub(crate) tls: Option<Arc<ClientTls>>,
}

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// Who we are, and which database is ours.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Login {
    /// The user of an ACL; [`None`] for the default one.
    pub(crate) user: Option<String>,
    /// [`None`] where nobody is asked for one.
    pub(crate) password: Option<String>,
    pub(crate) db: i64,
}

impl Node {
    /// Where it is, and nothing secret.
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

/// This host, where servers listen by default.
impl Default for Address {
    fn default() -> Self {
        Self::tcp("127.0.0.1", PORT)
    }
}

impl Login {
    /// Whether there is a password wherever there is a user.
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
impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
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
