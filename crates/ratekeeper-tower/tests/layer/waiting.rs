//! Requests over a leaky bucket's rate wait for their turn.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, StatusCode};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{full, header, layer, of};

/// One leaves every 100 ms; with the one that leaves at once, five are let in.
const TEN_A_SECOND: &str = "
domain: d
descriptors:
- key: api_key
  rate_limit: { window: 1s, limit: 10, burst: 5, algorithm: leaky_bucket }
";

#[tokio::test(start_paused = true)]
async fn requests_leave_one_by_one_and_what_does_not_fit_is_denied() {
    let layer = layer(TEN_A_SECOND);
    let left = Arc::new(Mutex::new(Vec::new()));
    let start = Instant::now();
    let called = service_fn(|_: Request<()>| {
        left.lock().expect("a lock").push(start.elapsed());
        async { Ok::<_, Infallible>(full("")) }
    });
    let limited = layer.layer(called);
    let asked = (0..8).map(|_| limited.clone().oneshot(of("ada")));
    let answers = all(asked).await;
    let statuses: Vec<u16> = answers
        .iter()
        .map(|answer| answer.status().as_u16())
        .collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429, 429]);
    assert!(!header(answers[5].headers(), "retry-after").is_empty());
    let left = left.lock().expect("a lock").clone();
    assert_eq!(left.len(), 5);
    // The limiter's clock runs on while tokio's stands still, so turns come a little early by tokio's.
    for pair in left.windows(2) {
        assert!(pair[1] - pair[0] <= Duration::from_millis(101), "{left:?}");
    }
    assert_eq!(layer.counts().waited, 4);
    assert_eq!(layer.counts().waiting, 0);
}

async fn all<F: Future<Output = Result<T, Infallible>>, T>(
    futures: impl Iterator<Item = F>,
) -> Vec<T> {
    let mut waiting: Vec<_> = futures
        .map(|future| (Some(Box::pin(future)), None))
        .collect();
    std::future::poll_fn(|cx| {
        for (future, output) in &mut waiting {
            if let Some(asked) = future
                && let std::task::Poll::Ready(Ok(ready)) = asked.as_mut().poll(cx)
            {
                *output = Some(ready);
                *future = None;
            }
        }
        match waiting.iter().all(|(future, _)| future.is_none()) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    waiting
        .into_iter()
        .filter_map(|(_, output)| output)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_only_watches_holds_nobody_back() {
    let watching = TEN_A_SECOND.replace("- key: api_key", "- key: api_key\n  shadow_mode: true");
    let layer = layer(&watching).wait_max(Duration::from_millis(150));
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
    let limited = layer.layer(called);
    for _ in 0..8 {
        let answer = limited.clone().oneshot(of("ada")).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
    }
    assert_eq!(layer.counts().waited, 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_they_may_nor_more_of_them() {
    let short = layer(TEN_A_SECOND).wait_max(Duration::from_millis(150));
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
    let limited = short.layer(called);
    let answers = all((0..3).map(|_| limited.clone().oneshot(of("ada")))).await;
    let statuses: Vec<u16> = answers
        .iter()
        .map(|answer| answer.status().as_u16())
        .collect();
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(header(answers[2].headers(), "retry-after"), "1");

    let few = layer(TEN_A_SECOND).waiting_max(1);
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
    let limited = few.layer(called);
    let answers = all((0..3).map(|_| limited.clone().oneshot(of("ada")))).await;
    let overloaded = answers[2].status();
    assert_eq!(overloaded, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(header(answers[2].headers(), "retry-after"), "1");
    assert_eq!(few.counts().overloaded, 1);
}

#[tokio::test(start_paused = true)]
async fn who_goes_leaves_the_queue() {
    let layer = layer(TEN_A_SECOND);
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
    let limited = layer.layer(called);
    limited.clone().oneshot(of("ada")).await.expect("an answer");
    let waits = limited.clone().oneshot(of("ada"));
    let gone = tokio::time::timeout(Duration::from_millis(10), waits).await;
    assert!(gone.is_err(), "it waits");
    assert_eq!(layer.counts().waiting, 0);
}
