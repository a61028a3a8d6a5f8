//! Who is at the other end of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::tls::PeerName;

/// Who is at the other end of the connection that a request came on: an extension of every
/// request, on every listener, except of Envoy's protocol where clients show no certificates:
/// there the listener says all that is to be known. It is whoever connected, which may be a proxy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Where it is.
    pub address: PeerAddress,
    /// The subject alternative names of its certificate, which was verified: DNS names, URIs
    /// and IP addresses, in the certificate's order. Empty without one.
    pub names: Arc<[PeerName]>,
    /// Whether it came by a listener that only this host can reach: a loopback address, or a
    /// Unix socket.
    pub by_local_listener: bool,
}

/// Where a peer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerAddress {
    /// Somewhere on the network, or on this host by way of it.
    Tcp(SocketAddr),
    /// On this host, at a Unix socket.
    Unix,
}

impl Peer {
    /// One that showed no certificate.
    pub(crate) fn unnamed(address: PeerAddress, by_local_listener: bool) -> Self {
        Self {
            address,
            names: Arc::new([]),
            by_local_listener,
        }
    }

    /// Whether it runs on this host: it came over loopback or a Unix socket.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.address.is_local()
    }
}

impl PeerAddress {
    /// Whether it is one of this host: loopback, or a Unix socket.
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
