//! An upstream that can do only so much at a time, and gets slower when it is crowded.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::any;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Requests that it works on at a time.
const WORKERS: u32 = 10;

/// The time that each takes while it is not crowded.
const WORK: Duration = Duration::from_millis(50);

/// The requests in it from which on they get in each other's way.
const CROWDED: u32 = 4 * WORKERS;

/// Requests per second that it can answer.
pub(crate) const CAPACITY: f64 = WORKERS as f64 * 1_000.0 / WORK.as_millis() as f64;

/// A running upstream; ends when dropped.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    server: JoinHandle<()>,
}

impl Upstream {
    pub(crate) async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let workers = Arc::new(Semaphore::new(WORKERS as usize));
        let inside = Arc::new(AtomicU32::new(0));
        let app = Router::new().fallback(any(async move || {
            // On its own, so that it goes on for a client that has gone, as many services do.
            let work = tokio::spawn(work(workers, inside));
            match work.await {
                Ok(()) => StatusCode::OK,
                Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
            }
        }));
        let server = tokio::spawn(async move {
            // It ends with the task.
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { address, server })
    }
}

async fn work(workers: Arc<Semaphore>, inside: Arc<AtomicU32>) {
    // Relaxed: a count.
    inside.fetch_add(1, Ordering::Relaxed);
    // First in, first out. The semaphore is never closed.
    let worker = workers.acquire_owned().await;
    let crowd = inside.load(Ordering::Relaxed).saturating_sub(CROWDED);
    let slower = 1.0 + f64::from(crowd) / f64::from(CROWDED);
    tokio::time::sleep(WORK.mul_f64(slower)).await;
    inside.fetch_sub(1, Ordering::Relaxed);
    drop(worker);
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.server.abort();
    }
}
