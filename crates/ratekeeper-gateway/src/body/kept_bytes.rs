//! The bytes of bodies that are kept until a decision is made.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use ratekeeper_http::client_network;

/// The most of one body that is kept before the decision, in bytes.
pub(crate) const AHEAD_MAX: usize = 4 << 20;

/// The most that is kept of all bodies.
const AHEAD_SUM_MAX: usize = 64 << 20;

/// The most that is kept of the bodies of one client address.
const AHEAD_CLIENT_MAX: usize = AHEAD_SUM_MAX / 2;

/// The bytes that are kept of all bodies.
#[derive(Debug, Default)]
pub(crate) struct KeptSums {
    all: usize,
    /// The part of each client address.
    clients: HashMap<IpAddr, usize>,
}

/// The bytes that are kept of one body.
#[derive(Debug)]
pub(crate) struct KeptBytes {
    sums: Arc<Mutex<KeptSums>>,
    client: Option<IpAddr>,
    own: usize,
}

impl KeptBytes {
    /// Counts the bytes of a body of `client` to the `sums` of all.
    pub(crate) fn of(sums: &Arc<Mutex<KeptSums>>, client: Option<IpAddr>) -> Self {
        Self {
            sums: Arc::clone(sums),
            client: client.map(client_network),
            own: 0,
        }
    }

    /// Counts so many more; false if there is no room for them.
    pub(crate) fn add(&mut self, bytes: usize) -> bool {
        self.own += bytes;
        let mut sums = self.sums.lock();
        sums.all += bytes;
        let of_client = self.client.map_or(0, |client| {
            let own = sums.clients.entry(client).or_default();
            *own += bytes;
            *own
        });
        sums.all <= AHEAD_SUM_MAX && of_client <= AHEAD_CLIENT_MAX
    }
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        let mut sums = self.sums.lock();
        sums.all -= self.own;
        if let Some(Entry::Occupied(mut own)) = self.client.map(|it| sums.clients.entry(it)) {
            *own.get_mut() -= self.own;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_leaves_room_for_others() {
        let sums = Arc::default();
        let kept = |client: &str| {
            let client = client.parse().expect("an address");
            KeptBytes::of(&sums, Some(client))
        };
        let mut clients = ["2001:db8:7::1", "2001:db8:7::2", "192.0.2.1"].map(kept);
        let [first, second, other] = &mut clients;
        assert!(first.add(AHEAD_CLIENT_MAX - 1));
        // All hosts of one IPv6 network are one client.
        assert!(second.add(1));
        assert!(!second.add(1));
        assert!(other.add(AHEAD_CLIENT_MAX - 1));
        assert!(!KeptBytes::of(&sums, None).add(1), "all of it is taken");
        drop(clients);
        assert!(sums.lock().all == 0 && sums.lock().clients.is_empty());
    }
}
