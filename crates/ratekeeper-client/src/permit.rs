//! A permit held at the service.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratekeeper::tower::{Renew, Renewal};
use tokio::runtime::Handle;

use crate::client::Inner;
use crate::{Client, Error};

/// A permit held at the service: renewed in the background, released when dropped.
///
/// Dropping it does not wait for the service; [`Self::release`] does.
#[derive(Debug)]
pub struct Permit {
    held: Arc<PermitState>,
    renewal: Option<Renewal>,
    runtime: Handle,
    /// True once it was released explicitly.
    is_released: bool,
}

#[derive(Debug)]
struct PermitState {
    inner: Arc<Inner>,
    token: String,
    expires_after: Duration,
    is_lost: AtomicBool,
}

impl Permit {
    pub(crate) fn new(client: &Client, token: String, expires_after: Duration) -> Self {
        let held = Arc::new(PermitState {
            inner: Arc::clone(&client.0),
            token,
            expires_after,
            is_lost: AtomicBool::new(false),
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

    /// Returns true if the service reported that it is no longer held: it could not be renewed in
    /// time, and another request may have its slot.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        // Relaxed: orders no other access.
        self.held.is_lost.load(Ordering::Relaxed)
    }

    /// Releases it and waits for the service's answer. Returns true if it was held until now.
    ///
    /// # Errors
    /// [`Error::Away`]; the permit then ends at its deadline. Otherwise as for any call.
    pub async fn release(mut self) -> Result<bool, Error> {
        self.is_released = true;
        self.renewal = None;
        self.held.inner.release(&self.held.token).await
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // First, so that the renewal does not take the released permit for a lost one.
        self.renewal = None;
        if self.is_released {
            return;
        }
        let held = Arc::clone(&self.held);
        self.runtime.spawn(async move {
            // If the release fails, the permit ends at its deadline.
            let _ = held.inner.release(&held.token).await;
        });
    }
}

impl Renew for PermitState {
    fn renew(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Option<Duration>> + Send>> {
        Box::pin(async move {
            match self.inner.renew(&self.token).await {
                Ok(left) => Some(left),
                // It may still be held.
                Err(Error::Away(_)) => Some(self.expires_after),
                Err(_) => {
                    self.is_lost.store(true, Ordering::Relaxed);
                    None
                }
            }
        })
    }
}
