//! The number of connections per address, bounded so that one host cannot take them all.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ratekeeper_http::{Hop, TrustedProxies, client_network};
use tracing::warn;

use super::log_limit::LogLimit;
use super::peer::PeerAddress;

/// The connections of one listener by address. An address is kept only while it has connections, so
/// there are never more addresses than connections.
#[derive(Debug)]
pub(super) struct AddressSlots {
    listener: &'static str,
    each_max: usize,
    /// Proxies, which have the connections of all their clients.
    trusted: TrustedProxies,
    places: Arc<Places>,
    refusals: LogLimit,
    refused: RefusedCount,
}

/// The number of connections that were closed because their address had its full share.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefusedCount(Arc<AtomicU64>);

impl RefusedCount {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The connections of each address.
type Places = Mutex<HashMap<IpAddr, Held>>;

/// The connections of one address.
#[derive(Debug, Default)]
struct Held {
    connections: usize,
}

/// The slot of one connection, given back when dropped.
#[derive(Debug)]
pub(super) struct AddressSlot {
    /// None if the peer is not counted.
    counted: Option<(IpAddr, Arc<Places>)>,
}

impl AddressSlots {
    pub(super) fn new(
        listener: &'static str,
        each_max: usize,
        trusted: TrustedProxies,
        refused: RefusedCount,
    ) -> Self {
        Self {
            listener,
            each_max: each_max.max(1),
            trusted,
            refused,
            places: Arc::default(),
            refusals: LogLimit::default(),
        }
    }

    /// Takes a slot for a connection of `peer`; none if its address has its full share. A peer on
    /// this host may have any number: it could stop us anyway. So may a trusted proxy.
    pub(super) fn take(&self, peer: PeerAddress) -> Option<AddressSlot> {
        let Some(place) = self.place_of(peer) else {
            return Some(AddressSlot { counted: None });
        };
        let mut places = self.places.lock();
        let held = places.entry(place).or_default();
        if held.connections >= self.each_max {
            self.refused.0.fetch_add(1, Ordering::Relaxed);
            if self.refusals.may_say() {
                let (listener, most) = (self.listener, self.each_max);
                warn!(listener, address = %place, most, "one address has reached its connection limit; further connections are closed");
            }
            return None;
        }
        held.connections += 1;
        Some(AddressSlot {
            counted: Some((place, Arc::clone(&self.places))),
        })
    }

    /// The unit that is counted: an IPv4 address, or an IPv6 /64; none for peers without a bound.
    fn place_of(&self, peer: PeerAddress) -> Option<IpAddr> {
        let PeerAddress::Tcp(address) = peer else {
            return None;
        };
        let address = address.ip();
        let is_bounded = !peer.is_local() && !self.trusted.contains(Hop::Address(address));
        is_bounded.then(|| client_network(address))
    }
}

impl Drop for AddressSlot {
    fn drop(&mut self) {
        let Some((place, places)) = self.counted.take() else {
            return;
        };
        if let Entry::Occupied(mut entry) = places.lock().entry(place) {
            let held = entry.get_mut();
            held.connections -= 1;
            if held.connections == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> PeerAddress {
        PeerAddress::Tcp(address.parse().expect("an address"))
    }

    fn slots(each_max: usize, trusted: &str) -> AddressSlots {
        let trusted = trusted.parse().expect("networks");
        AddressSlots::new("gRPC", each_max, trusted, RefusedCount::default())
    }

    #[test]
    fn a_trusted_proxy_has_no_share_and_refusals_are_counted() {
        let shares = slots(1, "192.0.2.0/24");
        for proxy in [at("192.0.2.1:1"), at("[::ffff:192.0.2.1]:2")] {
            let held = [shares.take(proxy), shares.take(proxy)];
            assert!(held.iter().all(Option::is_some), "{proxy:?}");
        }
        let _first = shares.take(at("203.0.113.1:1")).expect("the first");
        assert_eq!(shares.refused.get(), 0);
        assert!(shares.take(at("203.0.113.1:2")).is_none());
        assert_eq!(shares.refused.get(), 1);
    }

    #[test]
    fn an_address_has_its_share_and_no_more() {
        let shares = slots(2, "");
        let first = shares.take(at("192.0.2.1:1")).expect("one of two");
        let second = shares.take(at("[::ffff:192.0.2.1]:2")).expect("two of two");
        assert!(shares.take(at("192.0.2.1:3")).is_none());
        assert!(shares.take(at("192.0.2.2:1")).is_some(), "another address");
        drop(first);
        let third = shares.take(at("192.0.2.1:4")).expect("one is free again");
        assert!(shares.take(at("192.0.2.1:5")).is_none());
        drop((second, third));
        assert!(shares.places.lock().is_empty(), "what is gone is forgotten");
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_this_host_is_none() {
        let shares = slots(1, "");
        let _first = shares.take(at("[2001:db8:0:1::1]:1")).expect("the first");
        assert!(shares.take(at("[2001:db8:0:1:ffff::2]:1")).is_none());
        assert!(shares.take(at("[2001:db8:0:2::1]:1")).is_some());
        for local in [at("127.0.0.1:1"), at("[::1]:1"), PeerAddress::Unix] {
            let held = [shares.take(local), shares.take(local)];
            assert!(held.iter().all(Option::is_some), "{local:?}");
        }
    }
}
