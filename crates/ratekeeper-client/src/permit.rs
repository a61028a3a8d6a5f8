//! A permit that is held.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratekeeper::tower::{Renew, Renewal};
use tokio::runtime::Handle;

use crate::client::Inner;
use crate::{Client, Error};

/// A permit that is held: renewed in the background, given back when it is dropped.
///
/// Dropping it does not wait for the service; [`Self::release`] does.
#[derive(Debug)]
pub struct Permit {
    held: Arc<Held>,
    renewal: Option<Renewal>,
    runtime: Handle,
    /// Whether it was given back by hand.
    is_released: bool,
}

#[derive(Debug)]
struct Held {
    inner: Arc<Inner>,
    token: String,
    expires_after: Duration,
    is_lost: AtomicBool,
}

impl Permit {
    pub(crate) fn new(client: &Client, token: String, expires_after: Duration) -> Self {
        let held = Arc::new(Held {
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

    /// What the service knows it by: to hand it to another process of the same caller.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.held.token
    }

    /// Whether the service said that it is not held any more: it could not be renewed in time,
    /// and its place may have been given away.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        // Relaxed: says nothing of anything else.
        self.held.is_lost.load(Ordering::Relaxed)
    }

    /// Gives it back, and waits for the service to say so; whether it was held until now.
    ///
    /// # Errors
    /// [`Error::Away`]; the permit then ends at its deadline. The others as any call has them.
    pub async fn release(mut self) -> Result<bool, Error> {
        self.is_released = true;
        self.renewal = None;
        self.held.inner.release(&self.held.token).await
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // First: what is given back is not to be taken for lost.
        self.renewal = None;
        if self.is_released {
            return;
        }
        let held = Arc::clone(&self.held);
        self.runtime.spawn(async move {
            // What cannot be given back ends at its deadline.
            let _ = held.inner.release(&held.token).await;
        });
    }
}

impl Renew for Held {
    fn renew(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Option<Duration>> + Send>> {
        Box::pin(async move {
            match self.inner.renew(&self.token).await {
                Ok(left) => Some(left),
                // It may be held still.
                Err(Error::Away(_)) => Some(self.expires_after),
                Err(_) => {
                    self.is_lost.store(true, Ordering::Relaxed);
                    None
                }
            }
        })
    }
}
