//! A service that requests are forwarded to, at one or several addresses.

mod kept;
mod request_slots;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::HeaderValue;
use http::uri::{Authority, PathAndQuery};
use ratekeeper_tower::Site;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

pub(crate) use self::kept::KeptUpstream;
pub(crate) use self::request_slots::{NoSlot, RequestSlot, RequestSlots, SlotLimits, WaitOrder};
use crate::abandoned::Abandoned;
use crate::metrics::UpstreamCounts;

/// The number of failed connection attempts in a row after which an address is left alone for a while.
const FAILURES_MAX: u32 = 3;

/// The time for which it is left alone, unless all addresses are.
const LEFT_ALONE: Duration = Duration::from_secs(10);

/// The default for the most requests that an upstream has at a time, and for the most that wait for
/// a slot.
pub(crate) const REQUESTS_MAX: usize = 1_024;

/// The protocol spoken with an upstream.
#[derive(Clone, Debug)]
pub(crate) enum Speech {
    /// HTTP/1.1 in the clear.
    Http1,
    /// HTTP/2 in the clear, from the first byte.
    Http2,
    /// The one of the two that the upstream chooses, over TLS.
    Tls(Box<Secured>),
}

/// The TLS settings of an upstream.
#[derive(Clone, Debug)]
pub(crate) struct Secured {
    /// The configuration that offers HTTP/2 and HTTP/1.1.
    pub(crate) either: Arc<ClientConfig>,
    /// The configuration that offers HTTP/1.1 alone, for connections that are to be upgraded.
    pub(crate) http1: Arc<ClientConfig>,
    /// The name that its certificate must have; None for the host of the address.
    pub(crate) name: Option<ServerName<'static>>,
}

/// The settings of the health check that each address of an upstream gets.
#[derive(Clone, Debug)]
pub(crate) struct HealthCheck {
    /// The path to GET; an address that answers with 200 to 399 is healthy.
    pub(crate) path: PathAndQuery,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    /// The number of failed checks in a row that make an address unhealthy.
    pub(crate) unhealthy_threshold: u32,
    /// The number of successful checks in a row that make it healthy again.
    pub(crate) healthy_threshold: u32,
}

/// A service that requests are forwarded to.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// The name in the settings; `upstream` for a single one without a name.
    pub(crate) name: Box<str>,
    /// A number unique in the process, by which kept connections are found.
    pub(crate) id: u64,
    pub(crate) addresses: Box<[Address]>,
    pub(crate) speech: Speech,
    /// The `Host` that it gets instead of the client's.
    pub(crate) host: Option<HeaderValue>,
    pub(crate) connect_timeout: Duration,
    /// The time that it may take to begin its answer, and to go on with it.
    pub(crate) response_timeout: Duration,
    pub(crate) health_check: Option<HealthCheck>,
    pub(crate) slots: RequestSlots,
    pub(crate) counts: Arc<UpstreamCounts>,
    /// The exchanges whose clients are gone.
    pub(crate) abandoned: Abandoned,
    /// The state of its shedders.
    pub(crate) site: Arc<Site>,
    turn: AtomicUsize,
}

/// One address of an upstream.
#[derive(Debug)]
pub(crate) struct Address {
    /// Host and port; `localhost` for a Unix socket.
    pub(crate) authority: Authority,
    /// The file of a Unix socket.
    pub(crate) socket: Option<Box<Path>>,
    /// The number of failed connection attempts in a row.
    failures: AtomicU32,
    /// The time until which it is left alone, in milliseconds after `made`.
    left_alone_until: AtomicU64,
    made: Instant,
    /// True if it chose HTTP/1.1 when it was offered both.
    chose_http1: AtomicBool,
    /// A [`Health`].
    health: AtomicU8,
}

/// The health of an address by its health checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Health {
    /// It was not checked yet, or is not checked at all.
    Unknown,
    Healthy,
    Unhealthy,
}

/// Written as in the settings.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            Some(path) => write!(f, "unix:{}", path.display()),
            None => self.authority.fmt(f),
        }
    }
}

impl Address {
    pub(crate) fn unix(path: &Path) -> Self {
        Self {
            socket: Some(path.into()),
            ..Self::new(Authority::from_static("localhost"))
        }
    }

    pub(crate) fn new(authority: Authority) -> Self {
        Self {
            authority,
            socket: None,
            failures: AtomicU32::new(0),
            left_alone_until: AtomicU64::new(0),
            made: Instant::now(),
            chose_http1: AtomicBool::new(false),
            health: AtomicU8::new(Health::Unknown as u8),
        }
    }

    pub(crate) fn health(&self) -> Health {
        match self.health.load(Ordering::Relaxed) {
            it if it == Health::Healthy as u8 => Health::Healthy,
            it if it == Health::Unhealthy as u8 => Health::Unhealthy,
            _ => Health::Unknown,
        }
    }

    pub(crate) fn set_health(&self, health: Health) {
        self.health.store(health as u8, Ordering::Relaxed);
    }

    /// Records the protocol that it chose of those offered.
    pub(crate) fn record_choice(&self, is_http1: bool) {
        self.chose_http1.store(is_http1, Ordering::Relaxed);
    }

    /// Records that a connection was opened.
    pub(crate) fn record_success(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    /// Records that a connection attempt failed.
    pub(crate) fn record_failure(&self) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures >= FAILURES_MAX {
            let until = self.age_ms() + millis(LEFT_ALONE);
            self.left_alone_until.store(until, Ordering::Relaxed);
        }
    }

    /// Returns true if it failed so often that others are tried first.
    pub(crate) fn is_left_alone(&self) -> bool {
        self.left_alone_until.load(Ordering::Relaxed) > self.age_ms()
    }

    fn is_same(&self, other: &Self) -> bool {
        self.authority == other.authority && self.socket == other.socket
    }

    /// Returns true if others are tried first.
    fn is_asked_last(&self) -> bool {
        self.is_left_alone() || self.health() == Health::Unhealthy
    }

    fn age_ms(&self) -> u64 {
        millis(self.made.elapsed())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Upstream {
    pub(crate) fn new(
        name: &str,
        addresses: Vec<Address>,
        speech: Speech,
        kept: &KeptUpstream,
    ) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        Self {
            name: name.into(),
            id: IDS.fetch_add(1, Ordering::Relaxed),
            addresses: addresses.into(),
            speech,
            host: None,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(60),
            health_check: None,
            slots: RequestSlots::new(SlotLimits {
                slots: REQUESTS_MAX,
                waiting: REQUESTS_MAX,
                per_address: REQUESTS_MAX,
            }),
            counts: Arc::clone(&kept.counts),
            abandoned: kept.abandoned.clone(),
            site: Arc::clone(&kept.site),
            turn: AtomicUsize::new(0),
        }
    }

    /// Returns true if one connection to this address may serve all requests, as far as is known.
    pub(crate) fn may_share(&self, index: usize) -> bool {
        match self.speech {
            Speech::Http1 => false,
            Speech::Http2 => true,
            Speech::Tls(_) => !self.addresses[index].chose_http1.load(Ordering::Relaxed),
        }
    }

    /// Takes over the known health of the same addresses. Without a health check it takes over nothing:
    /// an unhealthy address would never be checked again.
    pub(crate) fn inherit(&self, before: &Self) {
        if self.health_check.is_none() {
            return;
        }
        for address in &self.addresses {
            let mut others = before.addresses.iter();
            if let Some(same) = others.find(|it| it.is_same(address)) {
                address.set_health(same.health());
            }
        }
    }

    /// The addresses in the order in which this request tries them: in turn, those that failed
    /// lately or are unhealthy last. If all are, all of them take turns.
    pub(crate) fn order(&self) -> impl Iterator<Item = usize> + Clone {
        let count = self.addresses.len();
        let first = match count {
            1 => 0,
            _ => self.turn.fetch_add(1, Ordering::Relaxed) % count,
        };
        let all = move |is_last: bool| {
            (0..count)
                .map(move |step| (first + step) % count)
                .filter(move |index| {
                    // A single address is always tried.
                    count == 1 && !is_last
                        || count > 1 && self.addresses[*index].is_asked_last() == is_last
                })
        };
        all(false).chain(all(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(addresses: &[&'static str]) -> Upstream {
        let addresses = addresses.iter().copied().map(Authority::from_static);
        let addresses = addresses.map(Address::new);
        let kept = KeptUpstream::default();
        Upstream::new("u", addresses.collect(), Speech::Http1, &kept)
    }

    #[test]
    fn addresses_take_turns() {
        let upstream = upstream(&["a:1", "b:1", "c:1"]);
        let order = || upstream.order().collect::<Vec<_>>();
        assert_eq!(order(), [0, 1, 2]);
        assert_eq!(order(), [1, 2, 0]);
        assert_eq!(order(), [2, 0, 1]);
        assert_eq!(order(), [0, 1, 2]);
    }

    #[test]
    fn one_that_fails_is_tried_last_and_a_single_one_always() {
        let two = upstream(&["a:1", "b:1"]);
        for _ in 0..FAILURES_MAX {
            two.addresses[0].record_failure();
        }
        for _ in 0..4 {
            assert_eq!(two.order().collect::<Vec<_>>(), [1, 0]);
        }
        let unwell = upstream(&["a:1", "b:1", "c:1"]);
        unwell.addresses[1].set_health(Health::Unhealthy);
        for _ in 0..4 {
            assert_eq!(unwell.order().last(), Some(1));
        }
        for address in &unwell.addresses {
            address.set_health(Health::Unhealthy);
        }
        let first: Vec<_> = (0..3).filter_map(|_| unwell.order().next()).collect();
        assert_eq!(first, [1, 2, 0], "all take turns");
        let single = upstream(&["a:1"]);
        for _ in 0..FAILURES_MAX {
            single.addresses[0].record_failure();
        }
        assert_eq!(single.order().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn failures_count_in_a_row() {
        let upstream = upstream(&["a:1", "b:1"]);
        let address = &upstream.addresses[0];
        for _ in 0..10 {
            address.record_failure();
            address.record_failure();
            address.record_success();
        }
        assert!(!address.is_left_alone());
    }
}
