//! Load shedders inside a layer of limits.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty};
use ratekeeper_rules::{Options, Source, load};
use ratekeeper_tower::{Shed, ShedLayer, UploadBody};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{full, get, header, layer};

const RULES: &str = "
domain: d
tenant: api_key
plans: [free, pro]
secrets: []
descriptors:
  - key: api_key
    rate_limit: { window: 10000d, limit: 5 }
tenants: [ { tenant: eve, plan: pro } ]
shed:
  classify: [ { class: critical, plan: pro } ]
  fleet: { capacity: 2, reserve: 50% }
";

#[tokio::test]
async fn a_plan_gives_a_class_and_shed_requests_keep_their_hits() {
    let latch = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&latch);
    let called = service_fn(move |request: Request<UploadBody<Empty<Bytes>>>| {
        let held = Arc::clone(&held);
        async move {
            if request.headers()["x-api-key"] == "slow" {
                // It is never closed.
                drop(held.acquire().await);
            }
            Ok::<_, Infallible>(full("done"))
        }
    });
    let shedding = ShedLayer::default();
    let service = layer(RULES).layer(shedding.layer(called));
    let of = |key: &str| get(key).body(Empty::new()).expect("a request");
    let slow = tokio::spawn(service.clone().oneshot(of("slow")));
    while shedding.counts().in_flight[1] == 0 {
        tokio::task::yield_now().await;
    }
    let ask = async |key: &str| {
        let answer = service.clone().oneshot(of(key)).await;
        answer.expect("an answer")
    };
    for _ in 0..9 {
        let shed = ask("bob").await;
        assert_eq!(shed.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(header(shed.headers(), "retry-after"), "1");
    }
    assert_eq!(ask("eve").await.status(), StatusCode::OK);
    latch.add_permits(1);
    let slow = slow.await.expect("no panic").expect("an answer");
    // In flight until its body has ended.
    drop(slow);
    let passed = ask("bob").await;
    assert_eq!(passed.status(), StatusCode::OK);
    assert_eq!(header(passed.headers(), "x-ratelimit-remaining"), "4");
}

/// A client whose deadline has passed is refused only where something is.
#[tokio::test]
async fn in_shadow_mode_a_passed_deadline_refuses_nothing() {
    const LATE: [(&str, &str); 2] = [
        ("grpc-timeout", "0S"),
        ("x-envoy-expected-rq-timeout-ms", "0"),
    ];
    for (mode, status) in [
        ("shadow", StatusCode::OK),
        ("\"on\"", StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let rules = RULES.replace("shed:\n", &format!("shed:\n  mode: {mode}\n"));
        let called = service_fn(|_: Request<UploadBody<Empty<Bytes>>>| async {
            Ok::<_, Infallible>(full("done"))
        });
        let shedding = ShedLayer::default();
        let service = layer(&rules).layer(shedding.layer(called));
        for (name, value) in LATE {
            let late = get("bob").header(name, value).body(Empty::<Bytes>::new());
            let answer = service.clone().oneshot(late.expect("a request")).await;
            assert_eq!(answer.expect("an answer").status(), status, "{mode}");
        }
        let counts = shedding.counts();
        let (by, read) = (Shed::Deadline as usize, 1);
        let counted = (counts.shed[by].1[read], counts.shadow[by].1[read]);
        let expected = match mode {
            "shadow" => (0, 2),
            _ => (2, 0),
        };
        assert_eq!(counted, expected, "{mode}");
    }
}

/// A body of which nothing comes.
struct Silent;

impl Body for Silent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

/// The adaptive limit, 20 at first, after clients have broken off their uploads to a service that does this with each.
async fn limit_after<F>(
    work: impl Fn(UploadBody<Silent>) -> F + Clone + Send + Sync + 'static,
) -> u32
where
    F: Future<Output = ()> + Send + 'static,
{
    let shedding = adaptive();
    let service = shedding.layer(service_fn(move |request: Request<_>| {
        let working = work(request.into_body());
        async {
            working.await;
            Ok::<_, Infallible>(full("done"))
        }
    }));
    for _ in 0..6 {
        let mut clients = JoinSet::new();
        for _ in 0..12 {
            let upload = Request::post("/upload").body(Silent).expect("a request");
            clients.spawn(service.clone().oneshot(upload));
        }
        // Their patience, which is longer than a round trip may be while none is known.
        tokio::time::sleep(Duration::from_millis(150)).await;
        clients.shutdown().await;
    }
    shedding.state().limit
}

/// A layer with the adaptive limit, 20 at first.
fn adaptive() -> ShedLayer {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: "shed: { adaptive: {} }".to_owned(),
    };
    let rules = load(&[source], &Options::default()).expect("the rules are good");
    ShedLayer::new(rules.rules.shed().cloned().expect("they shed"))
}

/// A service that reads bodies before it answers, and is full for all that have one: it looks at the body, and refuses.
#[tokio::test]
async fn refused_uploads_are_drops_also_beside_answers() {
    type Either = http_body_util::Either<Empty<Bytes>, Silent>;
    let shedding = adaptive();
    let service = shedding.layer(service_fn(|request: Request<UploadBody<Either>>| async {
        let mut body = request.into_body();
        if body.is_end_stream() {
            // The work of a round trip.
            tokio::time::sleep(Duration::from_millis(100)).await;
            return Ok::<_, Infallible>(full("done"));
        }
        let look =
            |cx: &mut Context<'_>| Poll::Ready(Pin::new(&mut body).poll_frame(cx).is_ready());
        assert!(!std::future::poll_fn(look).await);
        let mut refusal = full("full");
        *refusal.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        Ok(refusal)
    }));
    for _ in 0..8 {
        let mut clients = JoinSet::new();
        let mut ask = |method: Method, body: Either| {
            let request = Request::builder().method(method).uri("/").body(body);
            clients.spawn(service.clone().oneshot(request.expect("a request")));
        };
        (0..12).for_each(|_| ask(Method::GET, Either::Left(Empty::new())));
        (0..4).for_each(|_| ask(Method::POST, Either::Right(Silent)));
        clients.join_all().await;
    }
    assert!(shedding.state().limit < 20);
}

#[tokio::test]
async fn an_upload_that_its_client_breaks_off_is_no_sign_of_load() {
    let reads = limit_after(|body| async {
        let _ = body.collect().await;
    });
    assert_eq!(reads.await, 20);
    // A service that does not read the body at all is to blame.
    let is_stuck = limit_after(|body| async move {
        std::future::pending::<()>().await;
        drop(body);
    });
    assert!(is_stuck.await < 20);
}
