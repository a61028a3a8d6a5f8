//! The settings of the listeners.

use super::meaning::{drain_delay, keepalive, stall_timeout, worker_threads};
use super::typed::Typed;
use super::values;
use ratekeeper_server::{ListenAddress, ListenersTls, Patience, ServerBounds};
use std::num::NonZeroUsize;
use std::time::Duration;

/// The addresses that are opened, and when they are closed.
#[derive(Debug)]
pub(crate) struct Listen {
    pub(crate) grpc: ListenAddress,
    pub(crate) http: ListenAddress,
    pub(crate) admin: ListenAddress,
    pub(crate) metrics: Option<ListenAddress>,
    /// Of Unix sockets' files; `None` leaves them to the umask.
    pub(crate) unix_mode: Option<u32>,
    pub(crate) tls: ListenersTls,
    /// The number of threads that serve them.
    pub(crate) worker_threads: NonZeroUsize,
    /// Limits on how slow their clients may be, and how long gRPC connections last.
    pub(crate) bounds: ServerBounds,
    /// The time they stay open after a shutdown began.
    pub(crate) drain_delay: Duration,
}

impl Typed<'_> {
    pub(super) fn listen(&mut self) -> Listen {
        Listen {
            grpc: self.get("grpc", values::listen_address),
            http: self.get("http", values::listen_address),
            admin: self.get("admin", values::listen_address),
            metrics: self.get("metrics", |text| {
                values::maybe(text, values::listen_address)
            }),
            unix_mode: self.get("unix_mode", |text| values::maybe(text, values::permissions)),
            tls: self.listeners_tls(),
            worker_threads: self.get("worker_threads", worker_threads),
            bounds: self.bounds(),
            drain_delay: self.get("drain_delay", drain_delay),
        }
    }

    fn bounds(&mut self) -> ServerBounds {
        ServerBounds {
            patience: Patience {
                stall_timeout: self.get("stall_timeout", stall_timeout),
                rate_min: self.get("min_rate", values::size),
            },
            connection_age_max: self.get("grpc_max_connection_age", values::some_duration),
            connection_age_grace: self.get("grpc_max_connection_age_grace", values::duration),
            connection_idle_max: self.get("grpc_max_connection_idle", values::some_duration),
            ping_interval: self.get("grpc_keepalive_time", keepalive),
            ping_timeout: self.get("grpc_keepalive_timeout", keepalive),
            ..ServerBounds::default()
        }
    }
}
