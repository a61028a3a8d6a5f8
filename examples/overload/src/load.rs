//! Callers that send requests at a given rate, whatever becomes of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use tokio::time::{Instant, sleep_until, timeout};
use tower::ServiceExt;

/// The patience of a client: an answer after this is of no use to it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Counts of the requests that were sent in one second.
#[derive(Debug, Default)]
pub(crate) struct Second {
    pub(crate) sent: AtomicU32,
    /// Answered in time.
    pub(crate) good: AtomicU32,
    pub(crate) critical: AtomicU32,
    pub(crate) critical_good: AtomicU32,
    /// Refused with 503.
    pub(crate) shed: AtomicU32,
    /// The longest wait for a good answer, in milliseconds.
    pub(crate) slowest_ms: AtomicU32,
}

/// Sends requests for a second, `per_second` of them at random times; those under way when it returns go on.
pub(crate) async fn second(service: &Router, per_second: f64) -> Arc<Second> {
    let second = Arc::new(Second::default());
    let end = Instant::now() + Duration::from_secs(1);
    let mut at = Instant::now();
    loop {
        let gap = -(1.0 - fastrand::f64()).ln() / per_second;
        at += Duration::from_secs_f64(gap);
        if at >= end {
            sleep_until(end).await;
            return second;
        }
        sleep_until(at).await;
        tokio::spawn(ask(service.clone(), Arc::clone(&second)));
    }
}

/// One request of the mix: 10 % tests, 60 % reads, 20 % writes, 10 % critical.
fn request() -> (Request<Body>, bool) {
    let tenant = format!("tenant-{}", fastrand::u32(0..50));
    let (method, path, is_test) = match fastrand::u32(0..10) {
        0 => ("GET", "/orders", true),
        1..=6 => ("GET", "/orders", false),
        7 | 8 => ("POST", "/orders", false),
        _ => ("POST", "/charges", false),
    };
    let mut request = Request::new(Body::empty());
    *request.method_mut() = method.parse().expect("a method");
    *request.uri_mut() = path.parse().expect("a path");
    let headers = request.headers_mut();
    headers.insert("x-api-key", tenant.parse().expect("letters and digits"));
    if is_test {
        headers.insert("x-test-mode", "1".parse().expect("a digit"));
    }
    (request, path == "/charges")
}

async fn ask(service: Router, second: Arc<Second>) {
    // Relaxed: independent counts.
    let add = |count: &AtomicU32| count.fetch_add(1, Ordering::Relaxed);
    let (request, is_critical) = request();
    add(&second.sent);
    if is_critical {
        add(&second.critical);
    }
    let begun = Instant::now();
    match timeout(PATIENCE, service.oneshot(request)).await {
        Ok(Ok(answer)) if answer.status() == StatusCode::OK => {
            add(&second.good);
            if is_critical {
                add(&second.critical_good);
            }
            let took = u32::try_from(begun.elapsed().as_millis()).unwrap_or(u32::MAX);
            second.slowest_ms.fetch_max(took, Ordering::Relaxed);
        }
        Ok(Ok(answer)) if answer.status() == StatusCode::SERVICE_UNAVAILABLE => {
            add(&second.shed);
        }
        _ => {}
    }
}
