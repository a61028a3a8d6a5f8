//! The peer of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use super::tls::names::PeerName;

/// The peer of the connection that a request came on: an extension of every request on every
/// listener, except for Envoy's protocol where clients present no certificates; there the listener
/// tells all there is to know. It is the direct peer, which may be a proxy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The address it connects from.
    pub address: PeerAddress,
    /// The subject alternative names of its verified certificate: DNS names, URIs and IP addresses,
    /// in the certificate's order. Empty without one.
    pub names: Arc<[PeerName]>,
    /// True if it came by a listener that only this host can reach: a loopback address, or a Unix
    /// socket.
    pub by_local_listener: bool,
}

/// The address of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerAddress {
    /// A network address, which may be one of this host.
    Tcp(SocketAddr),
    /// A Unix socket on this host.
    Unix,
}

impl Peer {
    /// A peer that presented no certificate.
    pub(crate) fn unnamed(address: PeerAddress, by_local_listener: bool) -> Self {
        Self {
            address,
            names: Arc::new([]),
            by_local_listener,
        }
    }

    /// Returns true if it runs on this host: it came over loopback or a Unix socket.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.address.is_local()
    }
}

impl PeerAddress {
    /// Returns true if it is on this host: loopback, or a Unix socket.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            // A socket for both families shows IPv4 peers as mapped addresses.
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_unix_sockets_are_local() {
        let at = |address: &str| {
            Peer::unnamed(PeerAddress::Tcp(address.parse().expect("an address")), true).is_local()
        };
        assert!(at("127.0.0.1:1"));
        assert!(at("127.9.9.9:1"));
        assert!(at("[::1]:1"));
        assert!(at("[::ffff:127.0.0.1]:1"));
        assert!(!at("10.0.0.1:1"));
        assert!(!at("[::ffff:10.0.0.1]:1"));
        assert!(!at("[fe80::1]:1"));
        assert!(Peer::unnamed(PeerAddress::Unix, true).is_local());
    }
}
