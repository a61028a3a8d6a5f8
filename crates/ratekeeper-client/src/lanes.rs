//! The connections: to each service, in order of preference, a few for each runtime that asks.
//!
//! A runtime has connections of its own, so that a call is not handed from thread to thread, and
//! each call takes the one with the fewest under way, so that one that stands still holds up no
//! others. A service that does not answer is passed over for the next one, and looked at once a
//! second until it does.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::runtime::{self, Handle};
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tracing::{info, warn};

use crate::calls::Stub;
use crate::error::was_not_carried_out;

/// The most runtimes that have connections of their own; further ones share.
const RUNTIMES_MAX: usize = 64;

/// So many calls in a row without an answer, and a connection is made anew, a service passed over.
const MISSES_MAX: u32 = 3;

/// Between two looks at a service that does not answer, and two connections in one place.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a look may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// All services, at least one; those that come first are preferred.
#[derive(Debug)]
pub(crate) struct Lanes {
    first: Arc<Place>,
    others: Vec<Arc<Place>>,
}

/// A service, and the connections to it.
#[derive(Debug)]
struct Place {
    name: String,
    endpoint: Endpoint,
    /// For each runtime.
    connections: usize,
    sets: RwLock<Vec<(runtime::Id, Arc<[Lane]>)>>,
    /// Calls in a row that it did not answer.
    misses: AtomicU32,
    /// Whether it is passed over.
    is_down: AtomicBool,
}

/// A connection: made with the first call of its runtime, and again whenever it was lost.
#[derive(Debug)]
struct Lane {
    connection: Mutex<Connection>,
    under_way: AtomicUsize,
    misses: AtomicU32,
}

#[derive(Debug)]
struct Connection {
    stub: Stub,
    made: Instant,
}

/// A call's place on a connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Ride<'a> {
    lanes: &'a Lanes,
    place: Arc<Place>,
    set: Arc<[Lane]>,
    number: usize,
}

// Relaxed everywhere: counts and hints that order nothing else.
impl Lanes {
    /// Lanes to `endpoints`, each with its name; None if there are none.
    pub(crate) fn new(endpoints: Vec<(String, Endpoint)>, connections: usize) -> Option<Self> {
        let place = |(name, endpoint)| {
            Arc::new(Place {
                name,
                endpoint,
                connections: connections.max(1),
                sets: RwLock::default(),
                misses: AtomicU32::new(0),
                is_down: AtomicBool::new(false),
            })
        };
        let mut places = endpoints.into_iter().map(place);
        Some(Self {
            first: places.next()?,
            others: places.collect(),
        })
    }

    /// A place on a connection to the first service that is not passed over; if all are, to the first one.
    pub(crate) fn ride(&self) -> Ride<'_> {
        let mut places = self.places();
        let up = places.find(|place| !place.is_down.load(Ordering::Relaxed));
        let place = Arc::clone(up.unwrap_or(&self.first));
        let set = place.set();
        let under_way = |number: &usize| set[*number].under_way.load(Ordering::Relaxed);
        let number = (0..set.len()).min_by_key(under_way).unwrap_or(0);
        set[number].under_way.fetch_add(1, Ordering::Relaxed);
        Ride {
            lanes: self,
            place,
            set,
            number,
        }
    }

    /// Each service by its name, and whether it is asked when its turn comes.
    pub(crate) fn up(&self) -> Vec<(String, bool)> {
        let is_up = |place: &Place| place.misses.load(Ordering::Relaxed) < MISSES_MAX;
        self.places()
            .map(|place| {
                let is_down = place.is_down.load(Ordering::Relaxed);
                (place.name.clone(), !is_down && is_up(place))
            })
            .collect()
    }

    fn places(&self) -> impl Iterator<Item = &Arc<Place>> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

impl Ride<'_> {
    pub(crate) fn stub(&self) -> Stub {
        self.lane().connection.lock().stub.clone()
    }

    /// The call has ended so.
    pub(crate) fn ended<T>(&self, answer: &Result<T, Status>) {
        let Err(status) = answer else {
            return self.answered();
        };
        match status.code() {
            Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Internal => {
                self.lane().missed(&self.place);
                self.missed(MISSES_MAX);
            }
            // Nobody is there, or what is there says that it cannot.
            Code::Unavailable if was_not_carried_out(status) => self.missed(1),
            Code::Unavailable => self.missed(MISSES_MAX),
            _ => self.answered(),
        }
    }

    fn answered(&self) {
        // Read first: while all is well, no thread writes what others read.
        for misses in [&self.lane().misses, &self.place.misses] {
            if misses.load(Ordering::Relaxed) > 0 {
                misses.store(0, Ordering::Relaxed);
            }
        }
    }

    /// The service has missed a call; it is passed over after `most` of them, if there are others.
    fn missed(&self, most: u32) {
        let misses = self.place.misses.fetch_add(1, Ordering::Relaxed);
        if misses.saturating_add(1) >= most && !self.lanes.others.is_empty() {
            self.place.pass_over();
        }
    }

    fn lane(&self) -> &Lane {
        &self.set[self.number]
    }
}

impl Drop for Ride<'_> {
    fn drop(&mut self) {
        self.lane().under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Place {
    /// The connections of the runtime that asks.
    fn set(&self) -> Arc<[Lane]> {
        let id = Handle::current().id();
        let of = |sets: &[(runtime::Id, Arc<[Lane]>)]| {
            let own = sets.iter().find(|(of, _)| *of == id);
            let shared = sets.first().filter(|_| sets.len() >= RUNTIMES_MAX);
            own.or(shared).map(|(_, set)| Arc::clone(set))
        };
        if let Some(set) = of(&self.sets.read()) {
            return set;
        }
        let mut sets = self.sets.write();
        of(&sets).unwrap_or_else(|| {
            let set: Arc<[Lane]> = (0..self.connections).map(|_| Lane::new(self)).collect();
            sets.push((id, Arc::clone(&set)));
            set
        })
    }

    fn pass_over(self: &Arc<Self>) {
        if self.is_down.swap(true, Ordering::Relaxed) {
            return;
        }
        warn!(
            service = self.name,
            "a rate limit service gives no answer, and is passed over"
        );
        let watching = Watching(Arc::downgrade(self));
        tokio::spawn(async move {
            loop {
                sleep(PAUSE).await;
                let Some(place) = watching.0.upgrade() else {
                    return;
                };
                if is_serving(place.endpoint.connect_lazy()).await {
                    info!(service = place.name, "a rate limit service answers again");
                    return;
                }
            }
        });
    }
}

/// Whether who is on `channel` says that it serves; connects where nobody has yet.
async fn is_serving(channel: Channel) -> bool {
    let mut health = HealthClient::new(channel);
    let answer = timeout(PATIENCE, health.check(HealthCheckRequest::default())).await;
    matches!(answer, Ok(Ok(answer)) if answer.get_ref().status() == ServingStatus::Serving)
}

/// Whoever looks at a service that is passed over; when that ends, in whichever way, it is asked again.
struct Watching(Weak<Place>);

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(place) = self.0.upgrade() {
            place.misses.store(0, Ordering::Relaxed);
            place.is_down.store(false, Ordering::Relaxed);
        }
    }
}

impl Lane {
    fn new(place: &Place) -> Self {
        Self {
            connection: Mutex::new(Connection::new(place)),
            under_way: AtomicUsize::new(0),
            misses: AtomicU32::new(0),
        }
    }

    /// A call on it was not answered. One that is silent is not waited for until its end is noticed.
    fn missed(&self, place: &Place) {
        let misses = self.misses.fetch_add(1, Ordering::Relaxed);
        if misses.saturating_add(1) < MISSES_MAX {
            return;
        }
        let mut connection = self.connection.lock();
        if connection.made.elapsed() >= PAUSE {
            *connection = Connection::new(place);
            self.misses.store(0, Ordering::Relaxed);
        }
    }
}

impl Connection {
    fn new(place: &Place) -> Self {
        let channel = place.endpoint.connect_lazy();
        // Connects now: the call that comes to need it has little time.
        tokio::spawn(is_serving(channel.clone()));
        Self {
            stub: Stub::new(channel),
            made: Instant::now(),
        }
    }
}
