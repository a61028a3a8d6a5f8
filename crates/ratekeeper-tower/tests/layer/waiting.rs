//! Requests over a leaky bucket's rate wait for their turn.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use http::{Request, StatusCode};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{full, header, layer, of};

/// One request leaves every hour; five are admitted, including the one that leaves at once. The
/// limiter's clock runs on while tokio's is paused: compared with hours, delays of a slow machine
/// are negligible.
const HOURLY: &str = "
domain: d
descriptors:
- key: api_key
  rate_limit: { window: 10h, limit: 10, burst: 5, algorithm: leaky_bucket }
";

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test(start_paused = true)]
async fn requests_leave_one_by_one_and_what_does_not_fit_is_denied() {
    let layer = layer(HOURLY).wait_max(5 * HOUR);
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
    // Each turn is computed by a clock that ran on, so by tokio's turns come a little early.
    for pair in left.windows(2) {
        let apart = pair[1] - pair[0];
        assert!(
            apart > HOUR / 2 && apart <= HOUR + Duration::from_millis(1),
            "{left:?}"
        );
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
async fn a_queue_that_only_watches_delays_no_request() {
    let watching = HOURLY.replace("- key: api_key", "- key: api_key\n  shadow_mode: true");
    let layer = layer(&watching).wait_max(HOUR);
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
    let limited = layer.layer(called);
    for _ in 0..8 {
        let answer = limited.clone().oneshot(of("ada")).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
    }
    assert_eq!(layer.counts().waited, 0);
}

#[tokio::test(start_paused = true)]
async fn no_request_waits_longer_than_it_may_nor_do_more_of_them() {
    // The second waits an hour; the turn after that is too late in one case, and has no slot in the
    // other.
    let short = layer(HOURLY).wait_max(HOUR + HOUR / 2);
    let few = layer(HOURLY).wait_max(5 * HOUR).waiting_max(1);
    for (layer, soonest) in [(short, HOUR / 2), (few, 2 * HOUR)] {
        let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
        let limited = layer.layer(called);
        let answers = all((0..12).map(|_| limited.clone().oneshot(of("ada")))).await;
        let (passed, denied) = answers.split_at(2);
        for answer in passed {
            assert_eq!(answer.status(), StatusCode::OK);
        }
        // A denied request takes no turn, so the next turn is as near for all.
        for answer in denied {
            assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
            let wait = header(answer.headers(), "retry-after");
            let wait = Duration::from_secs(wait.parse().expect("seconds"));
            assert!(wait <= soonest && wait > soonest / 2, "{wait:?}");
        }
        assert_eq!(layer.counts().waited, 1);
        assert_eq!(layer.counts().overloaded, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_denial_for_the_wait_names_the_queue() {
    let tight = "- key: method\n  rate_limit: { window: 10000d, limit: 3 }\n";
    let layer = layer(&format!("{HOURLY}{tight}")).wait_max(HOUR + HOUR / 2);
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
    let limited = layer.layer(called);
    let answers = all((0..3).map(|_| limited.clone().oneshot(of("ada")))).await;
    assert_eq!(answers[2].status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(answers[2].headers(), "x-ratelimit-limit"), "10");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_leaves_the_queue() {
    let layer = layer(HOURLY).wait_max(5 * HOUR);
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
    let limited = layer.layer(called);
    limited.clone().oneshot(of("ada")).await.expect("an answer");
    let waits = limited.clone().oneshot(of("ada"));
    let gone = tokio::time::timeout(Duration::from_millis(10), waits).await;
    assert!(gone.is_err(), "it waits");
    assert_eq!(layer.counts().waiting, 0);
}

/// Polls `future` once.
async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx).is_pending())).await
}

/// The retry time of a refused request.
fn told(answer: &http::Response<impl Sized>) -> u64 {
    let seconds = header(answer.headers(), "retry-after").parse();
    seconds.expect("a number of seconds")
}

#[tokio::test(start_paused = true)]
async fn the_place_of_the_last_one_is_free_again_when_its_client_goes() {
    let layer = layer(HOURLY).wait_max(5 * HOUR);
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
    let limited = layer.layer(called);
    let ask = || Box::pin(limited.clone().oneshot(of("ada")));
    assert_eq!(ask().await.expect("an answer").status(), StatusCode::OK);
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let mut answer = ask();
        assert!(is_pending(&mut answer).await);
        waiting.push(answer);
    }
    let full_queue = ask().await.expect("an answer");
    assert_eq!(full_queue.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(told(&full_queue) <= 3_600);

    // The turn of one in the middle passes unused: those behind it know theirs.
    drop(waiting.remove(1));
    let denied = ask().await.expect("an answer");
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);

    drop(waiting.pop());
    let mut next = ask();
    assert!(is_pending(&mut next).await);
    assert_eq!(layer.counts().waiting, 3);
    let denied = ask().await.expect("an answer");
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    let start = Instant::now();
    assert_eq!(next.await.expect("an answer").status(), StatusCode::OK);
    // The fourth turn, which the dropped request would have had.
    let waited = start.elapsed();
    assert!(waited > 3 * HOUR && waited < 5 * HOUR, "{waited:?}");
}

/// One request to `/slow` leaves every hour; each key has one in flight at a time.
const SLOW: &str = "
domain: d
descriptors:
- key: path
  value: /slow
  rate_limit: { window: 10h, limit: 10, burst: 5, algorithm: leaky_bucket }
- key: api_key
  concurrency: { limit: 1, timeout: 60s, retry_after: 7s }
  rate_limit: { window: 100h, limit: 4 }
";

fn to(path: &str) -> Request<()> {
    let request = Request::get(path).header("x-api-key", "ada");
    request.body(()).expect("a request")
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_takes_its_permit_at_its_turn() {
    let layer = layer(SLOW).wait_max(5 * HOUR);
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("held")));
    let limited = layer.layer(called);
    let ask = |path: &str| Box::pin(limited.clone().oneshot(to(path)));
    let first = ask("/slow").await.expect("an answer");
    assert_eq!(first.status(), StatusCode::OK);
    // It is in flight until its response has been read, even if it left at once.
    let denied = ask("/fast").await.expect("an answer");
    assert_eq!((denied.status().as_u16(), told(&denied)), (429, 7));
    drop(first);

    let mut waits = ask("/slow");
    assert!(is_pending(&mut waits).await);
    let other = ask("/fast").await.expect("an answer");
    assert_eq!(other.status(), StatusCode::OK);
    // Its turn comes while the other one is still in flight.
    let denied = waits.await.expect("an answer");
    assert_eq!((denied.status().as_u16(), told(&denied)), (429, 7));
    assert_eq!(layer.counts().waiting, 0);
    drop(other);

    // It gave back its hit of the rate limit: two of four are left.
    let mut waits = ask("/slow");
    assert!(is_pending(&mut waits).await);
    let held = waits.await.expect("an answer");
    assert_eq!(held.status(), StatusCode::OK);
    assert_eq!(header(held.headers(), "x-ratelimit-remaining"), "0");
    assert!(header(held.headers(), "ratelimit-policy").contains("concurrent-requests"));
    let denied = ask("/fast").await.expect("an answer");
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(held);
    let last = ask("/fast").await.expect("an answer");
    assert_eq!(last.status(), StatusCode::OK);
    drop(last);
    let denied = ask("/fast").await.expect("an answer");
    assert!(told(&denied) > 7, "the rate denies: {denied:?}");
}
