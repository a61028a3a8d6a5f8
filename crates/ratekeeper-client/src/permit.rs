//! A permit that is held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::client::Inner;
use crate::{Client, Error};

/// Of its time, a permit is renewed when so much has passed: two renewals may be lost.
const RENEWED_AFTER: u32 = 3;

/// The shortest pause between two renewals.
const PAUSE_LEAST: Duration = Duration::from_millis(10);

/// A permit that is held: renewed in the background, given back when it is dropped.
///
/// Dropping it does not wait for the service; [`Self::release`] does.
#[derive(Debug)]
pub struct Permit {
    inner: Arc<Inner>,
    token: String,
    is_lost: Arc<AtomicBool>,
    renewing: JoinHandle<()>,
    runtime: Handle,
    /// Whether it was given back by hand.
    is_released: bool,
}

impl Permit {
    pub(crate) fn new(client: &Client, token: String, expires_after: Duration) -> Self {
        let is_lost = Arc::new(AtomicBool::new(false));
        let runtime = Handle::current();
        let renewing = runtime.spawn(renew(
            client.clone(),
            token.clone(),
            expires_after,
            Arc::clone(&is_lost),
        ));
        Self {
            inner: Arc::clone(&client.0),
            token,
            is_lost,
            renewing,
            runtime,
            is_released: false,
        }
    }

    /// What the service knows it by: to hand it to another process of the same caller.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Whether the service said that it is not held any more: it could not be renewed in time,
    /// and its place may have been given away.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        // Relaxed: says nothing of anything else.
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Gives it back, and waits for the service to say so; whether it was held until now.
    ///
    /// # Errors
    /// [`Error::Away`]; the permit then ends at its deadline. The others as any call has them.
    pub async fn release(mut self) -> Result<bool, Error> {
        self.is_released = true;
        self.renewing.abort();
        self.inner.release(&self.token).await
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.renewing.abort();
        if self.is_released {
            return;
        }
        let (inner, token) = (Arc::clone(&self.inner), std::mem::take(&mut self.token));
        self.runtime.spawn(async move {
            // What cannot be given back ends at its deadline.
            let _ = inner.release(&token).await;
        });
    }
}

/// Renews until it is aborted, or the permit is lost.
async fn renew(
    client: Client,
    token: String,
    mut expires_after: Duration,
    is_lost: Arc<AtomicBool>,
) {
    loop {
        tokio::time::sleep((expires_after / RENEWED_AFTER).max(PAUSE_LEAST)).await;
        match client.0.renew(&token).await {
            Ok(left) => expires_after = left,
            // Again after as long: it may be held still.
            Err(Error::Away(_)) => {}
            Err(_) => return is_lost.store(true, Ordering::Relaxed),
        }
    }
}
