//! Permits are released however a request ends.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use ratekeeper_store::{
    Answer, MemoryConfig, MemoryStore, Never, PermitAct, Request as StoreRequest, Store,
    StoreError, Verdicts,
};
use ratekeeper_tower::{Hold, RulesLayer};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{full, layer, limiter_with, of};

const ONE_AT_A_TIME: &str = "
domain: d
descriptors:
- key: api_key
  concurrency: { limit: 1, timeout: 60s }
";

/// A body that ends when its sender is dropped, and fails on an error from it.
struct Fed(mpsc::Receiver<Result<&'static str, &'static str>>);

impl Body for Fed {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let frame = |text: &'static str| Frame::data(Bytes::from_static(text.as_bytes()));
        let fed = self.0.poll_recv(cx);
        fed.map(|fed| fed.map(|fed| fed.map(frame)))
    }
}

/// The way in which a service ends a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Whole,
    Empty,
    BodyDropped,
    BodyFails,
    ClientGone,
    Fails,
    Panics,
}

#[tokio::test]
async fn a_place_is_free_again_however_a_request_ends() {
    let layer = layer(ONE_AT_A_TIME);
    for end in [
        End::Whole,
        End::Empty,
        End::BodyDropped,
        End::BodyFails,
        End::ClientGone,
        End::Fails,
        End::Panics,
    ] {
        let (feed, fed) = mpsc::channel(1);
        let fed = std::sync::Mutex::new(Some(fed));
        let called = service_fn(async |_: Request<()>| match end {
            End::Fails => Err("it failed"),
            End::Panics => panic!("it panicked"),
            End::ClientGone => std::future::pending().await,
            _ => {
                let fed = fed.lock().expect("a lock").take().expect("called once");
                Ok(Response::new(Fed(fed)))
            }
        });
        // A second request is denied for as long as the first one holds the permit.
        let others = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
        let other = layer.layer(others);
        let status = async || {
            other
                .clone()
                .oneshot(of("ada"))
                .await
                .expect("an answer")
                .status()
        };
        let taken = StatusCode::TOO_MANY_REQUESTS;
        {
            let mut answer = Box::pin(layer.layer(called).oneshot(of("ada")));
            let polled = poll_once(&mut answer).await;
            match (end, polled) {
                (End::ClientGone, Polled::Pending) => assert_eq!(status().await, taken),
                (End::Fails, Polled::Ready(Err(_))) | (End::Panics, Polled::Panicked) => {}
                (_, Polled::Ready(Ok(answer))) => {
                    assert_eq!(status().await, taken, "{end:?}");
                    let mut body = answer.into_body();
                    feed.send(Ok("a part")).await.expect("it is read");
                    assert!(body.frame().await.is_some_and(|frame| frame.is_ok()));
                    assert_eq!(status().await, taken, "{end:?}");
                    match end {
                        End::BodyDropped => drop(body),
                        End::BodyFails => {
                            feed.send(Err("it broke")).await.expect("it is read");
                            assert!(body.frame().await.is_some_and(|frame| frame.is_err()));
                            assert_eq!(status().await, StatusCode::OK, "{end:?}");
                        }
                        _ => {
                            drop(feed);
                            assert!(body.frame().await.is_none());
                            // Before it is dropped: it has ended.
                            assert_eq!(status().await, StatusCode::OK, "{end:?}");
                        }
                    }
                }
                (end, _) => panic!("{end:?} went another way"),
            }
        }
        assert_eq!(status().await, StatusCode::OK, "{end:?}");
    }
}

enum Polled<T> {
    Ready(T),
    Pending,
    Panicked,
}

/// Polls `future` once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Polled<F::Output> {
    std::future::poll_fn(|cx| {
        let poll = std::panic::AssertUnwindSafe(|| Pin::new(&mut *future).poll(cx));
        Poll::Ready(match std::panic::catch_unwind(poll) {
            Ok(Poll::Ready(output)) => Polled::Ready(output),
            Ok(Poll::Pending) => Polled::Pending,
            Err(_) => Polled::Panicked,
        })
    })
    .await
}

/// Counters in memory that count the renewals of permits.
struct Renewals {
    memory: MemoryStore,
    renewed: AtomicU32,
}

impl Store for Renewals {
    type Ticket = Never;

    fn decide(&self, request: &StoreRequest<'_>) -> Answer<Never> {
        let act = request.extra.and_then(|extra| extra.permit);
        if act.is_some_and(|permit| permit.act == PermitAct::Renew) {
            self.renewed.fetch_add(1, Ordering::Relaxed);
        }
        self.memory.decide(request)
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_is_renewed_as_long_as_the_request_runs() {
    let store = Renewals {
        memory: MemoryStore::new(MemoryConfig::default()).expect("there is memory"),
        renewed: AtomicU32::new(0),
    };
    let limiter = limiter_with(ONE_AT_A_TIME, store);
    let renewed = || limiter.store().renewed.load(Ordering::Relaxed);
    let layer = RulesLayer::new(Arc::clone(&limiter), "d");
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("slow")));
    let held = layer
        .layer(called)
        .oneshot(of("ada"))
        .await
        .expect("an answer");
    tokio::time::sleep(Duration::from_secs(65)).await;
    // A third of the timeout apart.
    assert_eq!(renewed(), 3);
    drop(held);
    tokio::time::sleep(Duration::from_secs(65)).await;
    assert_eq!(renewed(), 3);
}

/// Counters of which some renewals are not answered.
struct Deaf {
    memory: MemoryStore,
    asked: std::sync::Mutex<Vec<Duration>>,
    begun: Instant,
    unanswered: usize,
}

impl Store for Deaf {
    type Ticket = std::future::Ready<Result<Verdicts, StoreError>>;

    fn decide(&self, request: &StoreRequest<'_>) -> Answer<Self::Ticket> {
        let act = request.extra.and_then(|extra| extra.permit);
        if act.is_some_and(|permit| permit.act == PermitAct::Renew) {
            let mut asked = self.asked.lock().expect("a lock");
            asked.push(self.begun.elapsed());
            if asked.len() <= self.unanswered {
                return Answer::Pending(std::future::ready(Err(StoreError::Timeout)));
            }
        }
        let Answer::Decided(verdicts) = self.memory.decide(request);
        Answer::Decided(verdicts)
    }
}

/// A renewal without an answer is repeated sooner than the next one would be due, so that several may be lost.
#[tokio::test(start_paused = true)]
async fn a_place_outlasts_renewals_without_an_answer() {
    let store = Deaf {
        memory: MemoryStore::new(MemoryConfig::default()).expect("there is memory"),
        asked: std::sync::Mutex::default(),
        begun: Instant::now(),
        unanswered: 3,
    };
    let limiter = limiter_with(ONE_AT_A_TIME, store);
    let layer = RulesLayer::new(Arc::clone(&limiter), "d");
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("slow")));
    let held = layer.layer(called).oneshot(of("ada")).await;
    tokio::time::sleep(Duration::from_secs(56)).await;
    let asked = limiter.store().asked.lock().expect("a lock").clone();
    let seconds: Vec<u64> = asked.iter().map(Duration::as_secs).collect();
    // After a third of its minute, then each twelfth, and a third after the first answer.
    assert_eq!(seconds, [20, 25, 30, 35, 55]);
    drop(held);
}

#[test]
fn places_are_renewed_in_each_runtime_that_takes_some() {
    let store = Renewals {
        memory: MemoryStore::new(MemoryConfig::default()).expect("there is memory"),
        renewed: AtomicU32::new(0),
    };
    let limiter = limiter_with(&ONE_AT_A_TIME.replace("limit: 1", "limit: 9"), store);
    let layer = RulesLayer::new(Arc::clone(&limiter), "d");
    for runtimes in 1..=3 {
        let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("slow")));
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build();
        // It may get the id of the previous runtime, which has ended with everything in it.
        runtime.expect("a runtime can be made").block_on(async {
            let limited = layer.layer(called);
            let asked = (0..3).map(|_| limited.clone().oneshot(of("ada")));
            let mut held = Vec::new();
            for answer in asked {
                held.push(answer.await.expect("an answer"));
            }
            tokio::time::sleep(Duration::from_secs(25)).await;
            assert_eq!(
                limiter.store().renewed.load(Ordering::Relaxed),
                3 * runtimes
            );
        });
    }
}

#[tokio::test]
async fn twenty_in_flight_are_twenty() {
    let rules = ONE_AT_A_TIME.replace("limit: 1", "limit: 20");
    let layer = layer(&rules);
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("slow")));
    let limited = layer.layer(called);
    let ask = async || limited.clone().oneshot(of("ada")).await.expect("an answer");
    let mut held = Vec::new();
    for left in (0..20).rev() {
        let answer = ask().await;
        assert_eq!(answer.headers()["x-ratelimit-remaining"], left.to_string());
        assert_eq!(
            answer.headers()["ratelimit-policy"],
            r#""d.api_key#concurrency";q=20;qu="concurrent-requests""#
        );
        held.push(answer);
    }
    assert_eq!(ask().await.status(), StatusCode::TOO_MANY_REQUESTS);
    held.pop();
    assert_eq!(ask().await.status(), StatusCode::OK);
}

#[tokio::test]
async fn work_that_outlives_its_request_keeps_the_permit() {
    let layer = layer(ONE_AT_A_TIME);
    let kept = Arc::new(std::sync::Mutex::new(None));
    let keeps = Arc::clone(&kept);
    let called = service_fn(move |request: Request<()>| {
        *keeps.lock().expect("a lock") = request.extensions().get::<Hold>().cloned();
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
    });
    let others = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
    let other = layer.layer(others);
    let status = async || {
        let answer = other.clone().oneshot(of("ada")).await;
        answer.expect("an answer").status()
    };
    let mut answer = Box::pin(layer.layer(called).oneshot(of("ada")));
    assert!(matches!(poll_once(&mut answer).await, Polled::Pending));
    // The client is gone.
    drop(answer);
    assert_eq!(status().await, StatusCode::TOO_MANY_REQUESTS);
    assert!(kept.lock().expect("a lock").take().is_some());
    assert_eq!(status().await, StatusCode::OK);
}

/// Counters elsewhere: a release is sent when its ticket is polled, and told of then.
struct Elsewhere {
    memory: MemoryStore,
    releases: mpsc::UnboundedSender<()>,
}

impl Store for Elsewhere {
    type Ticket = Pin<Box<dyn Future<Output = Result<Verdicts, StoreError>> + Send>>;

    fn decide(&self, request: &StoreRequest<'_>) -> Answer<Self::Ticket> {
        let act = request.extra.and_then(|extra| extra.permit);
        let is_release = act.is_some_and(|permit| permit.act == PermitAct::Release);
        let releases = self.releases.clone();
        let Answer::Decided(verdicts) = self.memory.decide(request);
        Answer::Pending(Box::pin(async move {
            if is_release {
                releases.send(()).expect("somebody listens");
            }
            Ok(verdicts)
        }))
    }
}

#[tokio::test]
async fn a_permit_that_a_thread_drops_is_released_in_a_store_elsewhere() {
    let (releases, mut released) = mpsc::unbounded_channel();
    let memory = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
    let limiter = limiter_with(ONE_AT_A_TIME, Elsewhere { memory, releases });
    let kept = Arc::new(std::sync::Mutex::new(None));
    let keeps = Arc::clone(&kept);
    let called = service_fn(move |request: Request<()>| {
        *keeps.lock().expect("a lock") = request.extensions().get::<Hold>().cloned();
        std::future::ready(Ok::<_, Infallible>(full("begun")))
    });
    let layer = RulesLayer::new(limiter, "d");
    drop(layer.layer(called).oneshot(of("ada")).await);
    assert!(released.try_recv().is_err(), "the work goes on");
    let hold = kept.lock().expect("a lock").take();
    assert!(hold.is_some());
    std::thread::spawn(move || drop(hold))
        .join()
        .expect("the work ends");
    let released = tokio::time::timeout(Duration::from_secs(10), released.recv()).await;
    assert_eq!(released, Ok(Some(())));
}

#[tokio::test]
async fn the_response_alone_keeps_the_permit() {
    let layer = layer(ONE_AT_A_TIME);
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("held")));
    let limited = layer.layer(called);
    let ask = async || limited.clone().oneshot(of("ada")).await.expect("an answer");
    let first = ask().await;
    assert_eq!(ask().await.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(first);
    assert_eq!(ask().await.status(), StatusCode::OK);
}

/// Two in flight per key, three in total, with the limits in both orders.
#[tokio::test]
async fn a_request_takes_its_place_in_all_its_limits_or_in_none() {
    let each = "- key: api_key\n  concurrency: { limit: 2, timeout: 1h }\n";
    let all = "- key: method\n  concurrency: { limit: 3, timeout: 1h }\n";
    for rules in [[each, all], [all, each]] {
        let layer = layer(&format!("domain: d\ndescriptors:\n{}", rules.concat()));
        let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("slow")));
        let limited = layer.layer(called);
        let ask = async |key: &str| limited.clone().oneshot(of(key)).await.expect("an answer");
        let passes = async |key: &str| {
            let answer = ask(key).await;
            assert_eq!(answer.status(), StatusCode::OK, "{key} {rules:?}");
            answer
        };
        let is_denied_by = async |limit: &str, key: &str| {
            // Often enough to fill either limit.
            for _ in 0..4 {
                let answer = ask(key).await;
                assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS, "{key}");
                assert_eq!(answer.headers()["x-ratelimit-limit"], limit, "{key}");
            }
        };
        let first = passes("ada").await;
        let _second = passes("ada").await;
        is_denied_by("2", "ada").await;
        // Those took none of the total.
        let _third = passes("bob").await;
        // Bob's limit has room, the total has none.
        is_denied_by("3", "bob").await;
        is_denied_by("3", "eve").await;
        drop(first);
        // Those took none of Bob's.
        let fourth = passes("bob").await;
        is_denied_by("2", "bob").await;
        drop(fourth);
        let _fifth = passes("eve").await;
    }
}
