//! The limit on wrong tokens from one address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The wrong tokens that an address may present at once.
const BURST: u32 = 20;

/// The time after which an address may present one more.
pub(crate) const REFILL: Duration = Duration::from_secs(1);

/// The most addresses that are remembered.
const ADDRESSES_MAX: usize = 4_096;

/// Wrong tokens by address: for each, the time at which all of them are forgiven.
///
/// While an address is over its limit, right tokens from there are refused with the wrong ones: an answer to
/// them would be an answer to a guess.
#[derive(Debug, Default)]
pub(crate) struct Guesses(Mutex<HashMap<Option<IpAddr>, Instant>>);

impl Guesses {
    /// Returns true if `from`, [`None`] for a Unix socket, may present a token now.
    pub(crate) fn may_try(&self, from: Option<IpAddr>) -> bool {
        self.may_try_at(from, Instant::now())
    }

    /// Counts a wrong token.
    pub(crate) fn failed(&self, from: Option<IpAddr>) {
        self.failed_at(from, Instant::now());
    }

    fn may_try_at(&self, from: Option<IpAddr>, now: Instant) -> bool {
        let forgiven = self.0.lock().get(&network(from)).copied();
        forgiven.is_none_or(|forgiven| forgiven <= now + REFILL * (BURST - 1))
    }

    fn failed_at(&self, from: Option<IpAddr>, now: Instant) {
        let mut forgiven = self.0.lock();
        if forgiven.len() >= ADDRESSES_MAX {
            forgiven.retain(|_, forgiven| *forgiven > now);
        }
        if forgiven.len() >= ADDRESSES_MAX {
            // The one that has done least is forgotten first.
            let least = forgiven.iter().min_by_key(|(_, forgiven)| **forgiven);
            if let Some(least) = least.map(|(address, _)| *address) {
                forgiven.remove(&least);
            }
        }
        let until = forgiven.entry(network(from)).or_insert(now);
        *until = (*until).max(now) + REFILL;
    }
}

/// The address, or the IPv6 network that one host often has to itself.
fn network(from: Option<IpAddr>) -> Option<IpAddr> {
    Some(match from?.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_guess_a_few_times_and_then_once_a_second() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        let from = Some("192.0.2.7".parse().expect("an address"));
        for guess in 0..BURST {
            assert!(guesses.may_try_at(from, now), "{guess}");
            guesses.failed_at(from, now);
        }
        assert!(!guesses.may_try_at(from, now));
        assert!(!guesses.may_try_at(from, now + REFILL - Duration::from_nanos(1)));
        assert!(guesses.may_try_at(from, now + REFILL));
        guesses.failed_at(from, now + REFILL);
        assert!(!guesses.may_try_at(from, now + REFILL));
        assert!(guesses.may_try_at(Some("192.0.2.8".parse().expect("an address")), now));
        assert!(guesses.may_try_at(None, now));
    }

    #[test]
    fn an_ipv6_network_is_one_address_and_memory_is_bounded() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        let at = |text: &str| Some(text.parse().expect("an address"));
        for host in 0..BURST {
            guesses.failed_at(at(&format!("2001:db8::{host:x}")), now);
        }
        assert!(!guesses.may_try_at(at("2001:db8::ffff"), now));
        assert!(guesses.may_try_at(at("2001:db8:0:1::1"), now));
        for number in 0..2 * u32::try_from(ADDRESSES_MAX).unwrap() {
            guesses.failed_at(Some(std::net::Ipv4Addr::from(number).into()), now);
        }
        assert!(guesses.0.lock().len() <= ADDRESSES_MAX);
        assert!(
            !guesses.may_try_at(at("2001:db8::ffff"), now),
            "the worst is remembered"
        );
    }
}
