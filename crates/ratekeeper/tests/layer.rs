//! The tower layer of limits as values.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use ratekeeper::{Checked, Limit, ManualClock, RateLimitLayer, RateLimiter, forwarded_for};
use tower::{Layer, Service, ServiceExt, service_fn};

fn limiter(limits: impl IntoIterator<Item = Limit>) -> RateLimiter {
    let builder = RateLimiter::builder(limits).clock(&ManualClock::new());
    builder.build().expect("valid limits")
}

/// Counts its calls, and answers with what is left.
#[derive(Clone, Default)]
struct Backend(Arc<AtomicUsize>);

impl Backend {
    fn calls(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn service(
        &self,
    ) -> impl Service<
        Request<()>,
        Response = Response<Full<Bytes>>,
        Error = Infallible,
        Future: Send,
    > + Clone {
        let calls = Arc::clone(&self.0);
        service_fn(move |request: Request<()>| {
            calls.fetch_add(1, Ordering::Relaxed);
            let left = request
                .extensions()
                .get::<Checked>()
                .map(|checked| checked.remaining);
            async move { Ok(Response::new(Full::from(format!("{left:?}")))) }
        })
    }
}

async fn ask(
    layer: &RateLimitLayer,
    backend: &Backend,
    request: Request<()>,
) -> (Response<()>, String) {
    let response = layer.layer(backend.service()).oneshot(request).await;
    let (parts, body) = response.expect("it never fails").into_parts();
    let body = body.collect().await.expect("the body is there").to_bytes();
    let body = String::from_utf8(body.to_vec()).expect("the body is a text");
    (Response::from_parts(parts, ()), body)
}

fn from(peer: &str) -> Request<()> {
    let mut request = Request::new(());
    let peer: SocketAddr = peer.parse().expect("an address");
    request.extensions_mut().insert(peer);
    request
}

fn header<'r>(response: &'r Response<()>, name: &str) -> &'r str {
    let value = response.headers().get(name);
    value.map_or("", |value| value.to_str().expect("a text"))
}

#[tokio::test]
async fn requests_are_limited_by_their_key() {
    let backend = Backend::default();
    let layer = RateLimitLayer::new(limiter(Limit::per_minute(1).named("calls")))
        .key(|parts| parts.extensions.get::<SocketAddr>().copied());
    let (first, body) = ask(&layer, &backend, from("203.0.113.7:1")).await;
    assert_eq!((first.status(), &*body), (StatusCode::OK, "Some(0)"));
    assert_eq!(header(&first, "x-ratelimit-limit"), "1");
    assert_eq!(header(&first, "ratelimit-policy"), r#""calls";q=1;w=60"#);
    assert_eq!(header(&first, "ratelimit"), r#""calls";r=0;t=60"#);
    assert_eq!(header(&first, "retry-after"), "");

    let (denied, body) = ask(&layer, &backend, from("203.0.113.7:2")).await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(&denied, "retry-after"), "60");
    assert_eq!(header(&denied, "x-ratelimit-remaining"), "0");
    assert_eq!(
        body,
        r#"{"error":{"code":"RATE_LIMITED","message":"rate limit exceeded; retry after 1m","retry_after":60,"limit":1}}"#
    );
    assert_eq!(backend.calls(), 1, "the service is not called");

    let (other, _) = ask(&layer, &backend, from("203.0.113.8:1")).await;
    assert_eq!(other.status(), StatusCode::OK);
    // Without the extension there is no key.
    let (unlimited, body) = ask(&layer, &backend, Request::new(())).await;
    assert_eq!((unlimited.status(), &*body), (StatusCode::OK, "None"));
    assert!(!unlimited.headers().contains_key("x-ratelimit-limit"));
}

#[tokio::test]
async fn requests_have_costs_and_denials_an_answer_of_ones_own() {
    let backend = Backend::default();
    let layer = RateLimitLayer::new(limiter(Limit::per_minute(10)))
        .cost(|parts| if parts.uri.path() == "/export" { 8 } else { 1 })
        .denied(|checked, parts| {
            let text = format!("{} wants more than {}", parts.uri, checked.remaining);
            let mut response = Response::new(text);
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response
        })
        .without_headers();
    let export = || Request::get("/export").body(()).expect("a request");
    assert_eq!(ask(&layer, &backend, export()).await.1, "Some(2)");
    let (denied, body) = ask(&layer, &backend, export()).await;
    assert_eq!(denied.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(body, "/export wants more than 2");
    assert!(!denied.headers().contains_key("x-ratelimit-limit"));
    assert_eq!(header(&denied, "retry-after"), "60");
    assert_eq!(ask(&layer, &backend, Request::new(())).await.1, "Some(1)");
}

#[tokio::test]
async fn denied_calls_of_grpc_have_its_status() {
    let backend = Backend::default();
    let layer = RateLimitLayer::new(limiter(Limit::per_minute(1)));
    let call = || {
        let call =
            Request::post("/shop.Shop/List").header("content-type", "application/grpc+proto");
        call.body(()).expect("a request")
    };
    ask(&layer, &backend, call()).await;
    let (denied, body) = ask(&layer, &backend, call()).await;
    assert_eq!((denied.status(), &*body), (StatusCode::OK, ""));
    assert_eq!(header(&denied, "grpc-status"), "8");
    assert_eq!(header(&denied, "content-type"), "application/grpc+proto");
    assert_eq!(header(&denied, "retry-after"), "60");
}

#[tokio::test]
async fn of_two_layers_the_tighter_one_is_told() {
    let backend = Backend::default();
    let all = RateLimitLayer::new(limiter(Limit::per_minute(100).named("all")));
    let route = RateLimitLayer::new(limiter(Limit::per_minute(2).named("route")));
    for (outer, inner) in [(&all, &route), (&route, &all)] {
        let service = outer.layer(inner.layer(backend.service()));
        let response = service
            .oneshot(Request::new(()))
            .await
            .expect("it never fails");
        let (parts, _) = response.into_parts();
        let response = Response::from_parts(parts, ());
        assert_eq!(header(&response, "x-ratelimit-limit"), "2");
        assert!(header(&response, "ratelimit").starts_with(r#""route""#));
        assert_eq!(policies(&response).len(), 2, "{:?}", policies(&response));
    }
}

fn policies(response: &Response<()>) -> Vec<&str> {
    let lines = response.headers().get_all("ratelimit-policy").iter();
    lines.map(|line| line.to_str().expect("a text")).collect()
}

#[tokio::test]
async fn a_denial_of_the_inner_layer_is_told_although_the_outer_one_has_nothing_left_either() {
    let backend = Backend::default();
    let all = RateLimitLayer::new(limiter(Limit::per_minute(2).named("all")));
    let exports = RateLimitLayer::new(limiter(Limit::per_hour(1).named("exports")));
    let service = all.layer(exports.layer(backend.service()));
    let ask = async || {
        let response = service.clone().oneshot(Request::new(())).await;
        let (parts, _) = response.expect("it never fails").into_parts();
        Response::from_parts(parts, ())
    };
    assert_eq!(ask().await.status(), StatusCode::OK);
    let denied = ask().await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(&denied, "retry-after"), "3600");
    assert_eq!(header(&denied, "x-ratelimit-limit"), "1");
    assert_eq!(header(&denied, "x-ratelimit-reset"), "3600");
    assert_eq!(header(&denied, "ratelimit"), r#""exports";r=0;t=3600"#);
    let checked = denied.extensions().get::<Checked>();
    assert!(!checked.expect("it is told").allowed);
    let told = [r#""exports";q=1;w=3600"#, r#""all";q=2;w=60"#];
    assert_eq!(policies(&denied), told);
}

#[test]
fn only_trusted_proxies_have_a_word() {
    let mut headers = http::HeaderMap::new();
    headers.append("x-forwarded-for", "192.0.2.1".parse().expect("a header"));
    headers.append(
        "x-forwarded-for",
        "203.0.113.7 , 10.0.0.2".parse().expect("a header"),
    );
    let read = |proxies| forwarded_for(&headers, proxies).map(|address| address.to_string());
    assert_eq!(read(1).as_deref(), Some("10.0.0.2"));
    assert_eq!(read(2).as_deref(), Some("203.0.113.7"));
    assert_eq!(read(3).as_deref(), Some("192.0.2.1"));
    assert_eq!((read(0), read(4)), (None, None));
    for none in [
        "unknown",
        "203.0.113.7:",
        "[203.0.113.7]",
        "[2001:db8::1",
        "",
    ] {
        headers.append("x-forwarded-for", none.parse().expect("a header"));
        assert_eq!(forwarded_for(&headers, 1), None, "{none}");
    }
}

#[test]
fn proxies_may_write_the_port_too() {
    for (entry, address) in [
        ("203.0.113.7:51234", "203.0.113.7"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
    ] {
        let mut headers = http::HeaderMap::new();
        headers.append("x-forwarded-for", entry.parse().expect("a header"));
        assert_eq!(forwarded_for(&headers, 1), address.parse().ok(), "{entry}");
    }
}
