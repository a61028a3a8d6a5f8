//! Finds the client behind proxies.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

use crate::Malformed;
use crate::forwarded;
use crate::malformed::excerpt;

/// The most trusted proxies in a row.
pub const HOPS_MAX: usize = 32;

/// The most networks in a list of trusted proxies.
const NETWORKS_MAX: usize = 1_000;

/// The proxies whose forwarding headers are trusted.
///
/// Parsed from a comma-separated list of networks (`10.0.0.0/8`), addresses (`192.0.2.1`), and
/// `loopback` for this host: `127.0.0.0/8`, `::1` and Unix sockets. An empty list trusts no proxy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
    unix: bool,
}

impl TrustedProxies {
    /// Returns true if the hop is trusted.
    #[must_use]
    pub fn contains(&self, hop: Hop) -> bool {
        match hop {
            Hop::Unix => self.unix,
            Hop::Address(address) => {
                // A dual-stack socket shows IPv4 peers as mapped addresses.
                let address = address.to_canonical();
                self.networks
                    .iter()
                    .any(|network| network.contains(&address))
            }
        }
    }
}

/// Trusts only this host.
impl Default for TrustedProxies {
    fn default() -> Self {
        Self {
            networks: loopback().to_vec(),
            unix: true,
        }
    }
}

fn loopback() -> [IpNet; 2] {
    let v4 = IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8);
    let v6 = IpNet::new_assert(IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), 128);
    [v4, v6]
}

/// The fault of a list of [`TrustedProxies`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustedProxiesError {
    /// There are too many.
    #[error("more than {NETWORKS_MAX} networks")]
    TooMany,
    /// A part of the list is not a network.
    #[error(
        "`{0}` is not a network; write an address, a network such as 10.0.0.0/8 or fd00::/8, or `loopback`"
    )]
    NotANetwork(Box<str>),
    /// A network's address has bits that its prefix leaves out.
    #[error("`{text}` has bits beyond its prefix; write {meant}")]
    BitsBeyond {
        /// The network as written.
        text: Box<str>,
        /// The network without these bits.
        meant: IpNet,
    },
}

impl FromStr for TrustedProxies {
    type Err = TrustedProxiesError;

    fn from_str(text: &str) -> Result<Self, TrustedProxiesError> {
        let mut list = Self {
            networks: Vec::new(),
            unix: false,
        };
        let parts = text.split(',').map(str::trim);
        for part in parts.filter(|part| !part.is_empty()) {
            if part.eq_ignore_ascii_case("loopback") {
                list.networks.extend(loopback());
                list.unix = true;
            } else {
                list.networks.push(network(part)?);
            }
        }
        if list.networks.len() > NETWORKS_MAX {
            return Err(TrustedProxiesError::TooMany);
        }
        Ok(list)
    }
}

fn network(text: &str) -> Result<IpNet, TrustedProxiesError> {
    let wanted = || TrustedProxiesError::NotANetwork(text.into());
    match text.split_once('/') {
        None => text
            .parse::<IpAddr>()
            .map(IpNet::from)
            .map_err(|_| wanted()),
        Some(_) => {
            let network: IpNet = text.parse().map_err(|_| wanted())?;
            if network.trunc() != network {
                return Err(TrustedProxiesError::BitsBeyond {
                    text: text.into(),
                    meant: network.trunc(),
                });
            }
            Ok(network)
        }
    }
}

/// One end of a connection between proxies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hop {
    /// An address on the network.
    Address(IpAddr),
    /// A Unix socket on this host.
    Unix,
}

/// The header in which trusted proxies pass on the address of their client.
///
/// There is exactly one: a proxy that maintains one of these headers passes the others on
/// unchanged, as the client sent them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ClientHeader {
    /// `X-Forwarded-For`: a list, to which each proxy appends.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239): a list of parameters. Its `host` and `proto` are then used as well.
    Forwarded,
    /// A header with a single address, such as `x-real-ip`, which the proxy overwrites.
    Single(HeaderName),
}

/// The name of a [`ClientHeader`] that no header can have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` cannot be the name of a header; write x-forwarded-for, forwarded, or one with a single address such as \
     x-real-ip"
)]
pub struct ClientHeaderError(Box<str>);

impl FromStr for ClientHeader {
    type Err = ClientHeaderError;

    fn from_str(text: &str) -> Result<Self, ClientHeaderError> {
        match HeaderName::from_str(text) {
            Ok(name) if name == X_FORWARDED_FOR => Ok(Self::XForwardedFor),
            Ok(name) if name == http::header::FORWARDED => Ok(Self::Forwarded),
            Ok(name) => Ok(Self::Single(name)),
            Err(_) => Err(ClientHeaderError(text.into())),
        }
    }
}

impl fmt::Display for ClientHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name().as_str())
    }
}

static FORWARDED: HeaderName = http::header::FORWARDED;
static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

impl ClientHeader {
    /// The header's name.
    #[must_use]
    pub fn name(&self) -> &HeaderName {
        match self {
            Self::XForwardedFor => &X_FORWARDED_FOR,
            Self::Forwarded => &FORWARDED,
            Self::Single(name) => name,
        }
    }
}

/// The trusted proxies, and their header.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Forwarding {
    /// The trusted proxies.
    pub trusted: TrustedProxies,
    /// The header that they maintain.
    pub client_header: ClientHeader,
}

impl Forwarding {
    /// The client's address: going from `peer` back towards the client, the first that is not a
    /// trusted proxy; if all are, the last one. Values beyond the first untrusted address come from
    /// untrusted senders, and are not even parsed.
    ///
    /// If a proxy reports `unknown` or an obfuscated identifier (RFC 7239, section 6.3), that proxy
    /// counts as the client. None only for a peer at a Unix socket without a header.
    ///
    /// # Errors
    /// A trusted proxy reported something that is not an address, or there are more than
    /// [`HOPS_MAX`] trusted proxies in a row.
    pub fn client(&self, peer: Hop, headers: &HeaderMap) -> Result<Option<IpAddr>, Malformed> {
        let lines = headers.get_all(self.client_header.name()).iter();
        match &self.client_header {
            ClientHeader::XForwardedFor => self.walk(peer, lines.rev().flat_map(list)),
            ClientHeader::Single(name) => {
                let mut lines = lines;
                let first = lines.next();
                if self.trusted.contains(peer) && lines.any(|other| Some(other) != first) {
                    return Err(Malformed::twice(format!("header {name}")));
                }
                self.walk(peer, first.into_iter().map(HeaderValue::as_bytes))
            }
            ClientHeader::Forwarded if self.trusted.contains(peer) => {
                let elements = forwarded::parse(headers)?;
                let hops = elements.iter().rev();
                self.walk(peer, hops.map(|element| element.node.as_bytes()))
            }
            ClientHeader::Forwarded => Ok(peer.address()),
        }
    }

    /// Walks from `peer` along `hops`, the nearest first.
    fn walk<'h>(
        &self,
        peer: Hop,
        hops: impl Iterator<Item = &'h [u8]>,
    ) -> Result<Option<IpAddr>, Malformed> {
        let mut nearest = peer;
        for (number, hop) in hops.enumerate() {
            if !self.trusted.contains(nearest) {
                break;
            }
            if number == HOPS_MAX {
                return Err(
                    self.malformed(format!("more than {HOPS_MAX} trusted proxies in a row"))
                );
            }
            match Node::parse(hop) {
                Some(Node::Address(address)) => nearest = Hop::Address(address),
                Some(Node::Hidden) => break,
                None => {
                    let message = format!("{} is not an IP address", excerpt(hop));
                    return Err(self.malformed(message));
                }
            }
        }
        Ok(nearest.address())
    }

    fn malformed(&self, message: String) -> Malformed {
        Malformed::header(self.client_header.name(), message)
    }
}

impl Hop {
    fn address(self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(address.to_canonical()),
            Self::Unix => None,
        }
    }
}

/// The values in a line of a list header, the last one first.
fn list(line: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    let values = line.as_bytes().rsplit(|byte| *byte == b',');
    values
        .map(<[u8]>::trim_ascii)
        .filter(|value| !value.is_empty())
}

/// A node as a proxy reports it (RFC 7239, section 6; `X-Forwarded-For` uses the same forms).
enum Node {
    Address(IpAddr),
    /// `unknown`, or an obfuscated identifier: `_hidden`.
    Hidden,
}

impl Node {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.trim();
        if text.starts_with('_') || text.eq_ignore_ascii_case("unknown") {
            return Some(Self::Hidden);
        }
        let address = if let Ok(address) = text.parse::<IpAddr>() {
            address
        } else if let Ok(socket) = text.parse::<SocketAddr>() {
            socket.ip()
        } else {
            let inner = text.strip_prefix('[')?.strip_suffix(']')?;
            IpAddr::V6(inner.parse().ok()?)
        };
        Some(Self::Address(address.to_canonical()))
    }
}

#[cfg(test)]
mod tests;
