//! Connecting to a server, and asking one that failed if it is back.

use std::sync::atomic::Ordering;
use std::time::Instant;

use ratekeeper_store::StoreError;
use tokio::time::{sleep_until, timeout};

use super::ShardConnection;
use crate::breaker::{Circuit, Probe};
use crate::link::Link;
use crate::metrics::Fault;

impl ShardConnection {
    pub(super) async fn connect(&self) -> Option<Link> {
        match Link::open(&self.shard.server, self.config.connect_timeout).await {
            Ok(link) => {
                self.is_missing.store(false, Ordering::Relaxed);
                Some(link)
            }
            Err(error) => {
                self.shard.failed(Fault::Connection, 1, &error.to_string());
                self.doubt();
                self.is_missing.store(true, Ordering::Relaxed);
                self.queue.fail(StoreError::Unavailable);
                None
            }
        }
    }

    /// Waits for the cooldown to end, then one connection asks the server if it is back. Returns a
    /// connection if it was this connection, and the server is back.
    pub(super) async fn probe(&self) -> Option<Link> {
        // From here on the breaker keeps decisions from waiting.
        self.is_missing.store(false, Ordering::Relaxed);
        let breaker = &self.shard.breaker;
        tokio::select! {
            () = sleep_until(breaker.probe_at().into()) => {}
            () = breaker.wait_for(|circuit| circuit == Circuit::Closed) => return None,
        }
        let Some(probe) = breaker.try_probe(Instant::now()) else {
            breaker
                .wait_for(|circuit| circuit != Circuit::HalfOpen)
                .await;
            return None;
        };
        self.ask(probe).await
    }

    async fn ask(&self, probe: Probe<'_>) -> Option<Link> {
        // Another server may have taken over meanwhile.
        self.doubt();
        let link = Link::open(&self.shard.server, self.config.connect_timeout).await;
        let mut link = match link {
            Ok(link) => link,
            Err(error) => {
                self.shard.failed(Fault::Connection, 1, &error.to_string());
                return None;
            }
        };
        let map = self.topology()?.map();
        let mut connection = link.connection.clone();
        let asked = crate::probe::probe(&mut connection, &self.shard, &map, &self.context);
        let answered = tokio::select! {
            answered = timeout(self.config.deadline, asked) => answered,
            () = &mut link.driver => return None,
        };
        match answered {
            Ok(Ok(())) => {
                probe.answered();
                self.shard.served();
                Some(link)
            }
            Ok(Err(error)) => {
                self.shard.failed(Fault::Refused, 1, &error.to_string());
                None
            }
            Err(_) => {
                self.shard.failed(
                    Fault::Timeout,
                    1,
                    "no answer to a probe within the deadline",
                );
                None
            }
        }
    }
}
