//! The address of a listener.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The address of a listener: on the network, or a file of this host. Displayed as it is written in
/// settings: `127.0.0.1:8080`, `unix:/run/ratekeeper/http.sock`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListenAddress {
    /// An address and a port; port 0 asks for a free one.
    Tcp(SocketAddr),
    /// The path of a Unix socket, which is created at start and removed at the end.
    Unix(PathBuf),
}

impl ListenAddress {
    /// The network address, if it is one.
    #[must_use]
    pub const fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Returns true if only this host can reach it: loopback, or a Unix socket.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.tcp().is_none_or(|address| address.ip().is_loopback())
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
