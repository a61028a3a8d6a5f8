//! Clients that disconnect while a remote store is being asked.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{Request, StatusCode};
use ratekeeper_limiter::Limiter;
use ratekeeper_store::{
    Answer, MemoryConfig, MemoryStore, Request as StoreRequest, Store, StoreError, Verdicts,
};
use ratekeeper_tower::RulesLayer;
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{full, header, limiter_with, of};

/// The round trip to the store.
const ROUND_TRIP: Duration = Duration::from_secs(1);

const HOUR: Duration = Duration::from_secs(3_600);

/// Counters that answer after a round trip.
struct Far(MemoryStore);

impl Store for Far {
    type Ticket = Pin<Box<dyn Future<Output = Result<Verdicts, StoreError>> + Send>>;

    fn decide(&self, request: &StoreRequest<'_>) -> Answer<Self::Ticket> {
        let Answer::Decided(verdicts) = self.0.decide(request);
        Answer::Pending(Box::pin(async {
            sleep(ROUND_TRIP).await;
            Ok(verdicts)
        }))
    }
}

fn far(rules: &str) -> RulesLayer<Arc<Limiter<Far>>> {
    let memory = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
    RulesLayer::new(limiter_with(rules, Far(memory)), "d").wait_max(5 * HOUR)
}

/// Polls `future` once, and drops it.
async fn begin_and_go<F: Future>(future: F) {
    let mut future = Box::pin(future);
    std::future::poll_fn(|cx| {
        assert!(
            future.as_mut().poll(cx).is_pending(),
            "it is asked elsewhere"
        );
        Poll::Ready(())
    })
    .await;
    drop(future);
    sleep(3 * ROUND_TRIP).await;
}

#[tokio::test(start_paused = true)]
async fn an_unclaimed_turn_is_given_back_and_what_came_with_it() {
    let permits = "- key: path\n  concurrency: { limit: 9, timeout: 60s }\n";
    for more in ["", permits] {
        let rules = format!(
            "
domain: d
descriptors:
- key: api_key
  rate_limit: {{ window: 10h, limit: 10, burst: 5, algorithm: leaky_bucket }}
- key: method
  rate_limit: {{ window: 8760h, limit: 3 }}
{more}"
        );
        let layer = far(&rules);
        let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
        let limited = layer.layer(called);
        let ask = || limited.clone().oneshot(of("ada"));
        assert_eq!(ask().await.expect("an answer").status(), StatusCode::OK);
        for _ in 0..3 {
            begin_and_go(ask()).await;
        }
        let start = Instant::now();
        let answer = ask().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(header(answer.headers(), "x-ratelimit-remaining"), "1");
        // The second turn, which each of the disconnected clients would have had.
        let waited = start.elapsed();
        assert!(waited > HOUR / 2 && waited < HOUR * 3 / 2, "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unclaimed_permit_is_given_back() {
    let layer = far("
domain: d
descriptors:
- key: api_key
  concurrency: { limit: 1, timeout: 8760h }
");
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("held")));
    let limited = layer.layer(called);
    let ask = || limited.clone().oneshot(of("ada"));
    begin_and_go(ask()).await;
    let held = ask().await.expect("an answer");
    assert_eq!(held.status(), StatusCode::OK);
    let denied = ask().await.expect("an answer");
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test(start_paused = true)]
async fn what_was_reserved_for_nobody_is_given_back() {
    let permits = "- key: path\n  concurrency: { limit: 5000, timeout: 8760h }\n";
    for more in ["", permits] {
        let layer = far(&format!(
            "
domain: d
usage: {{ tokens: {{}}, reserve: 400 }}
descriptors:
- key: api_key
  rate_limit: {{ window: 8760h, limit: 1000, post_paid: true }}
{more}"
        ));
        let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
        let limited = layer.layer(called);
        let ask = || limited.clone().oneshot(of("ada"));
        for _ in 0..3 {
            begin_and_go(ask()).await;
        }
        let answer = ask().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(header(answer.headers(), "x-ratelimit-remaining"), "600");
    }
}
