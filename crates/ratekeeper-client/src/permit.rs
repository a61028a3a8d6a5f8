//! A permit held at the service.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ratekeeper::tower::{Renew, Renewal};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::client::Inner;
use crate::{Client, Error, unsettled};

/// A permit held at the service: renewed in the background, released when dropped.
///
/// Dropping it does not wait for the service; [`Self::release`] does. A release without an answer is repeated in the
/// background for some seconds.
#[derive(Debug)]
pub struct Permit {
    held: Arc<PermitState>,
    renewal: Option<Renewal>,
    runtime: Handle,
    /// True once the service has answered its release.
    is_released: bool,
}

#[derive(Debug)]
struct PermitState {
    inner: Arc<Inner>,
    token: String,
    expires_after: Duration,
    /// True once the service says so.
    is_lost: AtomicBool,
    /// The time at which it ends unless it is renewed; None if it has none.
    ends: Mutex<Option<Instant>>,
}

impl Permit {
    pub(crate) fn new(client: &Client, token: String, expires_after: Duration) -> Self {
        let held = Arc::new(PermitState {
            inner: Arc::clone(&client.0),
            token,
            expires_after,
            is_lost: AtomicBool::new(false),
            ends: Mutex::new(end_of(expires_after)),
        });
        Self {
            renewal: Renewal::begin(held.clone(), expires_after),
            held,
            runtime: Handle::current(),
            is_released: false,
        }
    }

    /// The token that identifies it to the service, for handing it to another process of the same
    /// caller.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.held.token
    }

    /// Returns true if it could not be renewed in time, by the service's word or because its time is over while the
    /// service is away: another request may have its slot.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        let has_ended = |end: Instant| end <= Instant::now();
        // Relaxed: orders no other access.
        self.held.is_lost.load(Ordering::Relaxed) || self.held.ends.lock().is_some_and(has_ended)
    }

    /// Releases it and waits for the service's answer. Returns true if it was held until now.
    ///
    /// # Errors
    /// [`Error::Away`]; the release is then repeated in the background, as if the permit had been dropped. Otherwise as for
    /// any call.
    pub async fn release(mut self) -> Result<bool, Error> {
        self.renewal = None;
        let answer = self.held.inner.release(&self.held.token).await;
        // Whoever gives up waiting drops it unreleased.
        self.is_released = !matches!(answer, Err(Error::Away(_)));
        answer
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // First, so that the renewal does not take the released permit for a lost one.
        self.renewal = None;
        if self.is_released {
            return;
        }
        let (inner, token) = (Arc::clone(&self.held.inner), self.held.token.clone());
        self.runtime.spawn(unsettled::release_dropped(inner, token));
    }
}

impl Renew for PermitState {
    fn renew(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Option<Duration>> + Send>> {
        Box::pin(async move {
            match self.inner.renew(&self.token).await {
                Ok(left) => {
                    *self.ends.lock() = end_of(left);
                    Some(left)
                }
                // It may still be held.
                Err(Error::Away(_)) => Some(Renewal::unanswered(self.expires_after)),
                Err(_) => {
                    self.is_lost.store(true, Ordering::Relaxed);
                    None
                }
            }
        })
    }
}

/// The end of a permit whose lifetime begins now; None if the service told none.
fn end_of(lifetime: Duration) -> Option<Instant> {
    let told = Some(lifetime).filter(|lifetime| !lifetime.is_zero());
    told.and_then(|lifetime| Instant::now().checked_add(lifetime))
}
