//! Budgets are looked at when a request comes, and charged when its response has told what it used.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use ratekeeper_limiter::Check;
use ratekeeper_rules::{UsageEstimate, UsageRules};
use ratekeeper_store::{
    Answer, MemoryConfig, MemoryStore, Request as StoreRequest, Store, StoreError, Verdicts,
};
use ratekeeper_tower::{LayerMode, RulesLayer, SpentFrom, SpentSlot, Switch};
use tokio::sync::mpsc;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Memory, full, header, layer, limiter_with};

/// A budget of a thousand tokens, and a limit of requests.
const BUDGET: &str = "
domain: d
usage: tokens
descriptors:
- key: api_key
  rate_limit:
  - { name: tokens, window: 1h, limit: 1000, post_paid: true }
  - { name: requests, window: 2h, limit: 100000 }
";

const TOLD: &str = r#"{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":200}}"#;

/// A body of these frames, which then ends, fails or hangs.
struct Frames {
    frames: Vec<Frame<Bytes>>,
    end: End,
}

/// The end of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Whole,
    BodyFails,
    ClientGone,
    GoneBeforeTheHead,
    Fails,
}

impl Frames {
    fn of(texts: &[&'static str], end: End) -> Self {
        let frame = |text: &&'static str| Frame::data(Bytes::from_static(text.as_bytes()));
        let frames = texts.iter().rev().map(frame).collect();
        Self { frames, end }
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        match (self.frames.pop(), self.end) {
            (Some(frame), _) => Poll::Ready(Some(Ok(frame))),
            (None, End::BodyFails) => Poll::Ready(Some(Err("it broke off"))),
            (None, End::ClientGone) => Poll::Pending,
            (None, _) => Poll::Ready(None),
        }
    }
}

/// A request of 40 bytes.
fn ask() -> Request<()> {
    let request = Request::post("/v1/chat").header("x-api-key", "ada");
    request
        .header("content-length", "40")
        .body(())
        .expect("a request")
}

/// A layer, and the limiter that it asks.
#[derive(Clone)]
struct Limited {
    layer: RulesLayer<Memory>,
    limiter: Memory,
}

fn limited_by(rules: &str) -> Limited {
    let store = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
    let limiter = limiter_with(rules, store);
    let layer = RulesLayer::new(Arc::clone(&limiter), "d");
    Limited { layer, limiter }
}

impl Limited {
    /// The tokens that are left of the budget, which looking does not change.
    fn left(&self) -> u64 {
        let look = Check::new("d").descriptor([("api_key", "ada")]).hits(0);
        let decision = self.limiter.check_now(&look);
        let binding = decision.answers()[0].binding;
        binding.expect("there are limits").answered.remaining
    }

    fn hits(&self, from: SpentFrom) -> u64 {
        self.layer.counts().usage.hits[from as usize]
    }
}

/// Counters elsewhere: a question is sent when its ticket is polled, and told of then.
struct Elsewhere {
    memory: MemoryStore,
    asked: mpsc::UnboundedSender<()>,
}

impl Store for Elsewhere {
    type Ticket = Pin<Box<dyn Future<Output = Result<Verdicts, StoreError>> + Send>>;

    fn decide(&self, request: &StoreRequest<'_>) -> Answer<Self::Ticket> {
        let asked = self.asked.clone();
        let Answer::Decided(verdicts) = self.memory.decide(request);
        Answer::Pending(Box::pin(async move {
            asked.send(()).expect("somebody listens");
            Ok(verdicts)
        }))
    }
}

#[tokio::test]
async fn a_response_that_ends_in_a_plain_thread_pays_in_a_store_elsewhere() {
    let (asked, mut questions) = mpsc::unbounded_channel();
    let memory = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
    let limiter = limiter_with(BUDGET, Elsewhere { memory, asked });
    let called = service_fn(async |_: Request<()>| {
        let mut response = Response::new(Frames::of(&[TOLD], End::Whole));
        let media_type = HeaderValue::from_static("application/json");
        response.headers_mut().insert("content-type", media_type);
        Ok::<_, Infallible>(response)
    });
    let layer = RulesLayer::new(limiter, "d");
    let response = layer.layer(called).oneshot(ask()).await;
    let mut body = Box::pin(response.expect("an answer").into_body());
    while questions.try_recv().is_ok() {}
    let read = std::thread::spawn(move || {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut cx) {
            assert!(frame.is_ok());
        }
    });
    read.join().expect("it is read");
    let paid = tokio::time::timeout(Duration::from_secs(10), questions.recv()).await;
    assert_eq!(paid, Ok(Some(())));
}

/// Sends a request that is answered by `frames`, and ends so.
async fn answered(
    layer: &RulesLayer<Memory>,
    media_type: &str,
    frames: &[&'static str],
    end: End,
) -> StatusCode {
    let called = service_fn(async |_: Request<()>| {
        if end == End::Fails {
            return Err("it failed");
        }
        if end == End::GoneBeforeTheHead {
            std::future::pending::<()>().await;
        }
        let mut response = Response::new(Frames::of(frames, end));
        let media_type = HeaderValue::from_str(media_type).expect("a media type");
        response.headers_mut().insert("content-type", media_type);
        Ok(response)
    });
    let mut asking = Box::pin(layer.layer(called).oneshot(ask()));
    if end == End::GoneBeforeTheHead {
        let waker = std::task::Waker::noop();
        assert!(
            asking
                .as_mut()
                .poll(&mut Context::from_waker(waker))
                .is_pending()
        );
        return StatusCode::OK;
    }
    let Ok(response) = asking.await else {
        return StatusCode::INTERNAL_SERVER_ERROR;
    };
    let status = response.status();
    let mut body = response.into_body();
    for _ in frames {
        if !matches!(body.frame().await, Some(Ok(_))) {
            return status;
        }
    }
    if end != End::ClientGone {
        let last = body.frame().await;
        assert_eq!(last.is_some(), end == End::BodyFails);
    }
    status
}

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

#[tokio::test]
async fn the_response_tells_what_the_budget_pays() {
    let limited = limited_by(BUDGET);
    assert_eq!(limited.left(), 1_000);
    for expected in [700, 400] {
        assert_eq!(
            answered(&limited.layer, JSON, &[TOLD], End::Whole).await,
            200
        );
        assert_eq!(limited.left(), expected);
    }
    let totals = limited.layer.counts().usage;
    assert_eq!(totals.responses[SpentFrom::Response as usize], 2);
    assert_eq!(totals.hits[SpentFrom::Response as usize], 600);
}

#[tokio::test]
async fn one_decision_looks_at_budgets_and_takes_from_other_limits() {
    let limited = limited_by(BUDGET);
    let large: &[&str] = &[r#"{"usage":{"prompt_tokens":5000}}"#];
    assert_eq!(answered(&limited.layer, JSON, large, End::Whole).await, 200);
    // Nothing is left of the budget: the request is denied, and takes nothing of the five requests.
    for _ in 0..10 {
        assert_eq!(answered(&limited.layer, JSON, large, End::Whole).await, 429);
    }
    let few = limited_by(&BUDGET.replace("100000", "5"));
    let one: &[&str] = &[r#"{"usage":{"prompt_tokens":1}}"#];
    for status in [200, 200, 200, 200, 200, 429, 429] {
        assert_eq!(answered(&few.layer, JSON, one, End::Whole).await, status);
    }
    assert_eq!(few.hits(SpentFrom::Response), 5);
}

#[tokio::test]
async fn every_end_is_charged_as_the_manual_says() {
    let event = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
    let last = "data: {\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":3}}\n\n";
    let events = &[event, event, event];
    let told = &[event, event, event, last, "data: [DONE]\n\n"];
    // Ten hits for the request, and one for each event, where nothing is told.
    for (frames, end, charged, from) in [
        (&told[..], End::Whole, 103, SpentFrom::Response),
        (&told[..], End::ClientGone, 103, SpentFrom::Response),
        (&events[..], End::Whole, 13, SpentFrom::Estimate),
        (&events[..], End::ClientGone, 13, SpentFrom::Partial),
        (&events[..], End::BodyFails, 13, SpentFrom::Partial),
        (&[], End::BodyFails, 0, SpentFrom::Nothing),
        (&[], End::ClientGone, 10, SpentFrom::Partial),
        (&[], End::GoneBeforeTheHead, 10, SpentFrom::Partial),
        (&[], End::Fails, 0, SpentFrom::Nothing),
    ] {
        let limited = limited_by(BUDGET);
        answered(&limited.layer, EVENTS, frames, end).await;
        let totals = limited.layer.counts().usage;
        assert_eq!(totals.responses[from as usize], 1, "{end:?}: {totals:?}");
        let sum: u64 = totals.hits.iter().sum();
        assert_eq!(sum, charged, "{end:?}");
        assert_eq!(limited.left(), 1_000 - charged, "{end:?}");
    }
}

/// Each request reserves 400 of the budget.
const RESERVED: &str = "
domain: d
usage: { tokens: {}, reserve: 400 }
descriptors:
- key: api_key
  rate_limit: { window: 1h, limit: 1000, post_paid: true }
";

#[tokio::test]
async fn a_window_that_forgets_is_exhausted_by_reservations_too() {
    for algorithm in ["sliding_window", "sliding_log", "fixed_window"] {
        let algorithm = format!("10000h, algorithm: {algorithm}, limit");
        let limited = limited_by(&RESERVED.replace("1h, limit", &algorithm));
        let mut passed = 0;
        while answered(&limited.layer, JSON, &[TOLD], End::Whole).await == 200 {
            passed += 1;
            assert!(passed < 6, "{algorithm}: 300 are used each time");
        }
        assert!(passed >= 3, "{algorithm}: {passed}");
    }
}

#[tokio::test]
async fn reserved_hits_are_settled_at_the_end() {
    let rules = RESERVED.replace("1h, limit", "10000h, algorithm: token_bucket, limit");
    let limited = limited_by(&rules);
    let open = |count: usize| {
        let called = service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(
                TOLD.as_bytes(),
            ))))
        });
        let layer = limited.layer.clone();
        async move {
            let mut open = Vec::new();
            for _ in 0..count {
                open.push(layer.layer(called).oneshot(ask()).await.expect("an answer"));
            }
            open
        }
    };
    // Each of those in flight has reserved 400: three are let in, the last with 200 left, and no fourth.
    let answers = open(4).await;
    let statuses: Vec<_> = answers
        .iter()
        .map(|answer| answer.status().as_u16())
        .collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    // They used 300 each.
    for answer in answers {
        answer.into_body().collect().await.expect("a body");
    }
    assert_eq!(limited.left(), 100);
    // One that fails gives all of it back.
    let mut failed = full("no");
    *failed.status_mut() = StatusCode::BAD_GATEWAY;
    let called =
        service_fn(|_: Request<()>| std::future::ready(Ok::<_, Infallible>(failed.clone())));
    let answer = limited
        .layer
        .layer(called)
        .oneshot(ask())
        .await
        .expect("an answer");
    answer.into_body().collect().await.expect("a body");
    assert_eq!(limited.left(), 100);
}

#[tokio::test]
async fn a_layer_that_only_counts_charges_too() {
    let switch = Switch::new(LayerMode::Shadow);
    let mut limited = limited_by(BUDGET);
    limited.layer = limited.layer.switch(switch.clone());
    for _ in 0..5 {
        assert_eq!(
            answered(&limited.layer, JSON, &[TOLD], End::Whole).await,
            200
        );
    }
    assert_eq!(limited.hits(SpentFrom::Response), 1_500);
    switch.set(LayerMode::On);
    assert_eq!(
        answered(&limited.layer, JSON, &[TOLD], End::Whole).await,
        429
    );
    switch.set(LayerMode::Off);
    assert_eq!(
        answered(&limited.layer, JSON, &[TOLD], End::Whole).await,
        200
    );
    assert_eq!(limited.hits(SpentFrom::Response), 1_500);
}

#[tokio::test]
async fn only_who_reads_bodies_asks_for_plain_ones() {
    let asked = async |layer: RulesLayer<Memory>| {
        let called = service_fn(async |request: Request<()>| {
            let asked = request.headers().get("accept-encoding").cloned();
            let mut response = full("");
            if let Some(asked) = asked {
                response.headers_mut().insert("x-asked", asked);
            }
            Ok::<_, Infallible>(response)
        });
        let mut request = ask();
        request
            .headers_mut()
            .insert("accept-encoding", HeaderValue::from_static("gzip, br"));
        let answer = layer
            .layer(called)
            .oneshot(request)
            .await
            .expect("an answer");
        header(answer.headers(), "x-asked").to_owned()
    };
    assert_eq!(asked(layer(BUDGET)).await, "identity");
    assert_eq!(
        asked(layer(&BUDGET.replace("usage: tokens", ""))).await,
        "gzip, br"
    );
    assert_eq!(
        asked(layer(BUDGET).usage(UsageRules::header("x-tokens"))).await,
        "gzip, br"
    );
}

#[tokio::test]
async fn a_program_says_where_usage_is_told() {
    let rules = UsageRules::header("x-tokens").estimate(UsageEstimate::Hits(7));
    let mut limited = limited_by(&BUDGET.replace("usage: tokens", ""));
    limited.layer = limited.layer.usage(rules);
    let called = service_fn(async |request: Request<()>| {
        let mut response = full("hello");
        if request.uri().path() == "/told" {
            response
                .headers_mut()
                .insert("x-tokens", HeaderValue::from_static("250"));
        }
        Ok::<_, Infallible>(response)
    });
    for (path, hits) in [("/told", 250), ("/", 7)] {
        let mut request = ask();
        *request.uri_mut() = path.parse().expect("a path");
        let slot = SpentSlot::default();
        request.extensions_mut().insert(slot.clone());
        let answer = limited
            .layer
            .layer(called)
            .oneshot(request)
            .await
            .expect("an answer");
        assert_eq!(slot.get(), None, "the response has not ended");
        answer.into_body().collect().await.expect("a body");
        assert_eq!(slot.get().map(|spent| spent.hits), Some(hits), "{path}");
    }
    assert_eq!(limited.left(), 743);
}

/// Trailers come behind the body.
#[tokio::test]
async fn trailers_tell_it_at_the_end() {
    let limited = limited_by(&BUDGET.replace("tokens\n", "{ header: x-tokens }\n"));
    let called = service_fn(async |_: Request<()>| {
        let trailers = HeaderMap::from_iter([(
            HeaderName::from_static("x-tokens"),
            HeaderValue::from_static("33"),
        )]);
        let mut body = Frames::of(&["hello"], End::Whole);
        body.frames.insert(0, Frame::trailers(trailers));
        Ok::<_, Infallible>(Response::new(body))
    });
    let answer = limited
        .layer
        .layer(called)
        .oneshot(ask())
        .await
        .expect("an answer");
    answer.into_body().collect().await.expect("a body");
    assert_eq!(limited.left(), 967);
}
