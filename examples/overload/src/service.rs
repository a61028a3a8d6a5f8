//! A service that can do only so much at a time.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::any;
use tokio::sync::Semaphore;

/// Requests that it works on at a time.
const WORKERS: u32 = 8;

/// The time that each takes.
const WORK: Duration = Duration::from_millis(50);

/// Requests per second that it can answer.
pub(crate) fn capacity() -> f64 {
    f64::from(WORKERS) / WORK.as_secs_f64()
}

/// The service. Like many real ones it does not notice that a client has gone: it works for it all the same.
pub(crate) fn service() -> Router {
    let workers = Arc::new(Semaphore::new(WORKERS as usize));
    Router::new().fallback(any(async move || {
        let work = tokio::spawn(async move {
            // First in, first out. The semaphore is never closed.
            let worker = workers.acquire_owned().await;
            tokio::time::sleep(WORK).await;
            drop(worker);
        });
        match work.await {
            Ok(()) => StatusCode::OK,
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }))
}
