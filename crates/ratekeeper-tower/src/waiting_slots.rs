//! Slots for waiting requests, with a maximum for each client and each rule.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ratekeeper_http::client_network;
use ratekeeper_store::RuleSlot;

/// The divisor of the slots that one client address may take.
const CLIENT_SHARE: u64 = 8;

/// The divisor of the slots that one rule may take: a flood of invented keys leaves slots for
/// the callers of other rules.
const RULE_SHARE: u64 = 2;

/// A layer's slots for waiting requests.
#[derive(Debug, Default)]
pub(crate) struct WaitingSlots {
    taken: AtomicU64,
    /// Counts by holder. Locked briefly, and only once requests wait.
    holders: Mutex<Holders>,
}

#[derive(Debug, Default)]
struct Holders {
    clients: HashMap<IpAddr, u64>,
    rules: HashMap<RuleSlot, u64>,
}

impl WaitingSlots {
    /// The number of taken slots.
    pub(crate) fn taken(&self) -> u64 {
        // Relaxed, here and below: the count guards nothing but itself.
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns true if one of `most` slots is free for a request of `client`.
    pub(crate) fn has_room(&self, client: Option<IpAddr>, most: u64) -> bool {
        let taken = self.taken();
        if taken >= most {
            return false;
        }
        let own_most = share(most, CLIENT_SHARE);
        let Some(client) = client.filter(|_| taken >= own_most) else {
            return true;
        };
        let held = self
            .holders
            .lock()
            .clients
            .get(&client_network(client))
            .copied();
        held.is_none_or(|held| held < own_most)
    }

    /// Takes one of `most` slots for a request of `client` that `rule` holds back. None if all are
    /// taken, or as many as the client or the rule may have.
    pub(crate) fn take(
        self: &Arc<Self>,
        client: Option<IpAddr>,
        rule: Option<RuleSlot>,
        most: u64,
    ) -> Option<WaitingSlot> {
        let client = client.map(client_network);
        let mut holders = self.holders.lock();
        let has_room = self.taken() < most
            && is_below(&holders.clients, client, share(most, CLIENT_SHARE))
            && is_below(&holders.rules, rule, share(most, RULE_SHARE));
        if !has_room {
            return None;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        add(&mut holders.clients, client);
        add(&mut holders.rules, rule);
        drop(holders);
        Some(WaitingSlot {
            slots: Arc::clone(self),
            client,
            rule,
        })
    }
}

/// The number of `most` slots that one holder may take, at least 1.
fn share(most: u64, part: u64) -> u64 {
    (most / part).max(1)
}

fn is_below<K: Hash + Eq>(held: &HashMap<K, u64>, holder: Option<K>, most: u64) -> bool {
    holder.is_none_or(|holder| held.get(&holder).is_none_or(|held| *held < most))
}

fn add<K: Hash + Eq>(held: &mut HashMap<K, u64>, holder: Option<K>) {
    if let Some(holder) = holder {
        *held.entry(holder).or_default() += 1;
    }
}

fn remove<K: Hash + Eq>(held: &mut HashMap<K, u64>, holder: Option<K>) {
    if let Some(Entry::Occupied(mut count)) = holder.map(|holder| held.entry(holder)) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

/// A taken slot; dropping it frees it.
#[derive(Debug)]
pub(crate) struct WaitingSlot {
    slots: Arc<WaitingSlots>,
    client: Option<IpAddr>,
    rule: Option<RuleSlot>,
}

impl Drop for WaitingSlot {
    fn drop(&mut self) {
        let mut holders = self.slots.holders.lock();
        remove(&mut holders.clients, self.client);
        remove(&mut holders.rules, self.rule);
        self.slots.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    #[test]
    fn no_holder_takes_all_the_slots() {
        const MOST: u64 = 64;
        let slots = Arc::new(WaitingSlots::default());
        let rule = |number| Some(RuleSlot(number));
        let mut held = Vec::new();
        // One client, many rules.
        for number in 0..100 {
            held.extend(slots.take(address("203.0.113.1"), rule(number), MOST));
        }
        assert_eq!(held.len(), 8);
        assert!(!slots.has_room(address("203.0.113.1"), MOST));
        assert!(slots.has_room(address("203.0.113.2"), MOST));
        // Many clients, one rule.
        for number in 0..100_u32 {
            let client = IpAddr::from([198, 51, 100, u8::try_from(number).expect("it is small")]);
            held.extend(slots.take(Some(client), rule(200), MOST));
        }
        assert_eq!(held.len(), 8 + 32);
        assert!(slots.take(address("192.0.2.1"), rule(201), MOST).is_some());
        held.clear();
        assert_eq!(slots.taken(), 0);
        assert!(slots.holders.lock().clients.is_empty());
        assert!(slots.holders.lock().rules.is_empty());
    }

    #[test]
    fn one_network_of_ipv6_is_one_client() {
        let slots = Arc::new(WaitingSlots::default());
        let mut held = Vec::new();
        for host in 0..20_u128 {
            let base: Ipv6Addr = "2001:db8:7::".parse().expect("an address");
            let client = Ipv6Addr::from_bits(base.to_bits() | host).into();
            held.extend(slots.take(Some(client), None, 64));
        }
        assert_eq!(held.len(), 8);
        held.extend(slots.take(address("2001:db8:8::1"), None, 64));
        assert_eq!(held.len(), 9);
    }

    #[test]
    fn a_single_place_is_for_whoever_comes_first() {
        let slots = Arc::new(WaitingSlots::default());
        let first = slots.take(address("192.0.2.1"), Some(RuleSlot(1)), 1);
        assert!(first.is_some());
        assert!(
            slots
                .take(address("192.0.2.2"), Some(RuleSlot(2)), 1)
                .is_none()
        );
        assert!(slots.take(None, None, 0).is_none());
        drop(first);
        assert!(slots.take(None, None, 1).is_some());
    }
}
