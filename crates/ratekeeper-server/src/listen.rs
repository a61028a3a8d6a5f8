//! Accepts connections, bounds them, and lets them go in good order.

mod activity;
mod address;
mod address_slots;
mod body;
mod bounded;
mod bounds;
mod connection;
pub(crate) mod drain;
mod error_body;
mod framing;
mod http2;
mod inline_executor;
mod line;
mod log_limit;
mod pace;
pub(crate) mod peer;
pub(crate) mod problem;
pub(crate) mod reading;
mod refusal;
mod rounds;
pub(crate) mod service;
mod socket;
mod stall_check;
pub(crate) mod tls;
mod unix;
mod visitor;
mod workers;

use std::future::{pending, poll_fn};
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use ratekeeper_http::TrustedProxies;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

pub use address::ListenAddress;
pub use bounds::ServerBounds;
pub use framing::FramedTwice;
pub use pace::{Pace, Patience};
pub use peer::{Peer, PeerAddress};
pub use service::{Fault, HttpService};
pub(crate) use service::{IsBlind, Protocol};
pub(crate) use workers::{Turns, Workers};

use address_slots::AddressSlots;
pub(crate) use address_slots::RefusedCount;
use connection::{ByHyper, Direct, Served, Terms};
use drain::Drain;
pub(crate) use http2::{DirectBody, DirectService, Gathered, RequestBody, Whole};
pub(crate) use log_limit::LogLimit;
use socket::{Accepted, Socket};
use tls::Tls;

/// The wait after a failed accept (most likely, no file descriptors are left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The settings of one listener.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    /// Its name in logs.
    pub(crate) name: &'static str,
    pub(crate) protocol: Protocol,
    pub(crate) address: &'a ListenAddress,
    /// The permissions of a Unix socket's file, if not those of the process's files.
    pub(crate) unix_mode: Option<u32>,
    /// The TLS settings, if connections are encrypted.
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) is_blind: IsBlind,
    /// Proxies that may have any number of connections.
    pub(crate) trusted: TrustedProxies,
    /// Answers those who speak HTTP/1 to a listener of HTTP/2 without TLS.
    pub(crate) http1: Option<Router>,
}

/// A bound socket.
#[derive(Debug)]
pub(crate) struct Listener {
    name: &'static str,
    pub(crate) address: ListenAddress,
    protocol: Protocol,
    tls: Option<Arc<Tls>>,
    is_blind: IsBlind,
    trusted: TrustedProxies,
    http1: Option<Router>,
    socket: Socket,
    refused: RefusedCount,
}

impl Listener {
    /// Returns true if only this host can reach it.
    pub(crate) fn is_local(&self) -> bool {
        self.address.is_local()
    }

    /// Its name, and the number of connections that it has closed because their address had too many.
    pub(crate) fn refused(&self) -> (&'static str, RefusedCount) {
        (self.name, self.refused.clone())
    }

    pub(crate) async fn bind(opening: Opening<'_>) -> io::Result<Self> {
        let socket = Socket::bind(opening.address, opening.unix_mode).await?;
        Ok(Self {
            name: opening.name,
            address: socket.address()?,
            protocol: opening.protocol,
            tls: opening.tls,
            is_blind: opening.is_blind,
            trusted: opening.trusted,
            http1: opening.http1,
            socket,
            refused: RefusedCount::default(),
        })
    }

    /// Serves until the drain begins, and then until every connection is done or the drain timeout
    /// is over. Returns the number of connections that were cut off. `services` gives the service
    /// of a worker, by its number.
    pub(crate) async fn serve<A: HttpService>(
        self,
        mut services: impl FnMut(usize) -> A,
        bounds: ServerBounds,
        room: ConnectionSlots,
        drain: Arc<Drain>,
        turns: Turns,
    ) -> usize {
        let services = move |worker| ByHyper(services(worker));
        self.serve_by(services, bounds, room, drain, turns).await
    }

    /// Serves as [`Self::serve`] does, without a server library between the connections and the service.
    pub(crate) async fn serve_direct<A: DirectService>(
        self,
        mut services: impl FnMut(usize) -> A,
        bounds: ServerBounds,
        room: ConnectionSlots,
        drain: Arc<Drain>,
        turns: Turns,
    ) -> usize {
        let services = move |worker| Direct(services(worker));
        self.serve_by(services, bounds, room, drain, turns).await
    }

    async fn serve_by<A: Served>(
        self,
        mut services: impl FnMut(usize) -> A,
        bounds: ServerBounds,
        room: ConnectionSlots,
        drain: Arc<Drain>,
        mut turns: Turns,
    ) -> usize {
        let connections_max = bounds.connections_max.max(1);
        let mut connections = JoinSet::new();
        let mut terms = |worker| Terms {
            service: services(worker),
            protocol: self.protocol,
            tls: self.tls.clone(),
            bounds,
            drain: Arc::clone(&drain),
            is_blind: self.is_blind,
            http1: self.http1.clone(),
            is_local: self.is_local(),
        };
        let shares = AddressSlots::new(
            self.name,
            bounds.connections_per_address_max,
            self.trusted.clone(),
            self.refused.clone(),
        );
        let mut spawn = |connections: &mut JoinSet<()>,
                         (accepted, seat): (Accepted, ConnectionSlot)| {
            let Some(share) = shares.take(accepted.peer) else {
                return;
            };
            let (worker, runtime, place) = turns.next();
            let served = connection::serve(accepted, terms(worker));
            connections.spawn_on(
                async move {
                    served.await;
                    drop((place, share, seat));
                },
                runtime,
            );
        };
        let mut accept = Accept {
            listener: &self,
            room,
            is_failing: false,
            failures: LogLimit::default(),
            was_said: false,
        };
        loop {
            while connections.try_join_next().is_some() {}
            let is_full = connections.len() >= connections_max;
            tokio::select! {
                biased;
                () = drain.begun() => break,
                _ = connections.join_next(), if is_full => {}
                accepted = accept.next(), if !is_full => spawn(&mut connections, accepted),
            }
        }
        // Whoever has connected before the socket closes is answered as well.
        while connections.len() < connections_max
            && let Some(accepted) = accept.waiting().await
        {
            spawn(&mut connections, accepted);
        }
        let Self { name, socket, .. } = self;
        drop(socket);
        finish(name, connections, drain.time(bounds.drain_timeout)).await
    }
}

/// The connections that several listeners may have in total.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionSlots(Arc<Semaphore>);

/// One of them, given back when dropped.
type ConnectionSlot = OwnedSemaphorePermit;

impl ConnectionSlots {
    pub(crate) fn new(connections_max: usize) -> Self {
        let connections_max = connections_max.clamp(1, Semaphore::MAX_PERMITS);
        Self(Arc::new(Semaphore::new(connections_max)))
    }

    async fn seat(&self) -> ConnectionSlot {
        match Arc::clone(&self.0).acquire_owned().await {
            Ok(seat) => seat,
            // It is never closed.
            Err(_) => pending().await,
        }
    }
}

/// Accepts, and logs now and then that it cannot.
struct Accept<'a> {
    listener: &'a Listener,
    room: ConnectionSlots,
    is_failing: bool,
    failures: LogLimit,
    /// True once a failure was logged.
    was_said: bool,
}

impl Accept<'_> {
    async fn next(&mut self) -> (Accepted, ConnectionSlot) {
        // First: what is accepted has a file descriptor, and there may be none left to give.
        let seat = self.room.seat().await;
        loop {
            match poll_fn(|cx| self.listener.socket.poll_accept(cx)).await {
                Ok(accepted) => {
                    self.is_failing = false;
                    if std::mem::take(&mut self.was_said) {
                        info!(
                            listener = self.listener.name,
                            "connections are accepted again"
                        );
                    }
                    return (accepted, seat);
                }
                // The peer gave up while it waited.
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    let began = !std::mem::replace(&mut self.is_failing, true);
                    if began && self.failures.may_say() {
                        self.was_said = true;
                        warn!(%error, listener = self.listener.name, "connections cannot be accepted");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// A connection that is there already.
    async fn waiting(&mut self) -> Option<(Accepted, ConnectionSlot)> {
        // Lets the runtime take notice of what the kernel has ready.
        tokio::task::yield_now().await;
        let seat = Arc::clone(&self.room.0).try_acquire_owned().ok()?;
        let accepted = poll_fn(|cx| match self.listener.socket.poll_accept(cx) {
            Poll::Ready(Ok(accepted)) => Poll::Ready(Some(accepted)),
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Ready(None),
        });
        Some((accepted.await?, seat))
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
    )
}

async fn finish(name: &'static str, mut connections: JoinSet<()>, patience: Duration) -> usize {
    let all_done = async { while connections.join_next().await.is_some() {} };
    if timeout(patience, all_done).await.is_ok() {
        return 0;
    }
    let cut = connections.len();
    warn!(
        listener = name,
        connections = cut,
        "drain timeout: closing the remaining connections"
    );
    connections.shutdown().await;
    cut
}
