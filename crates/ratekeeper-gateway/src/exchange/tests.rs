use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::time::{self, sleep_until};

use super::*;
use crate::body::SlotAndPermits;
use crate::connect::Shared;
use crate::routes::{Route, Routes, RoutesConfig};
use crate::upstream::WaitOrder;

const SECOND: Duration = Duration::from_secs(1);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// A server of HTTP/1 and HTTP/2 that tells the target and the `Host` it is asked for. Its port.
async fn server() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(|request: Request<Incoming>| async move {
                let host = request.headers().get(HOST).map(|host| host.as_bytes());
                let host = String::from_utf8_lossy(host.unwrap_or(b"-"));
                let told = format!("{} {host}", request.uri());
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(told))))
            });
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    port
}

/// The route to an upstream at a URL, or at several.
fn route(urls: impl Into<serde_json::Value>) -> Arc<Route> {
    let upstream = serde_json::from_value(urls.into()).expect("URLs are an upstream");
    let config = RoutesConfig {
        upstreams: [("u".to_owned(), upstream)].into(),
        connect_timeout: RESPONSE_TIMEOUT,
        response_timeout: RESPONSE_TIMEOUT,
        ..RoutesConfig::default()
    };
    let routes = Routes::new(&config, &mut |_| Arc::default()).expect("good routes");
    Arc::clone(routes.of(&Request::new(())).expect("there is one"))
}

/// The answer to a POST for `http://api.example/x`.
async fn ask(route: &Arc<Route>, pool: &Pool, connection_use: ConnectionUse) -> Answered {
    let answered = try_ask(route, pool, connection_use).await;
    answered.expect("it answers")
}

async fn try_ask(
    route: &Arc<Route>,
    pool: &Pool,
    connection_use: ConnectionUse,
) -> Result<Answered, Fault> {
    let upstream = &route.upstream;
    let begun = Instant::now();
    let slot = upstream.slots.acquire(None, SECOND, WaitOrder::InTurn);
    let slot = SlotAndPermits::new(slot.await.expect("one is free"), None);
    let slot = HeldSlot::new(route, slot, begun, None);
    let exchange = Exchange {
        upstream,
        pool,
        progress: None,
        body_bytes_max: 0,
        connection_use,
        begun,
    };
    let request = Request::post("/x").header(HOST, "api.example");
    let mut request = request.body(RequestBody::none()).expect("a request");
    let answered = exchange.run(&mut request, &slot).await;
    slot.done();
    answered
}

/// Keeps an HTTP/2 connection to the upstream, which breaks when what is returned is dropped.
async fn keep_connection(route: &Route, pool: &Pool) -> impl Sized {
    let (io, peer) = tokio::io::duplex(1 << 10);
    let builder = http2::Builder::new(TokioExecutor::new());
    let opened = builder.handshake(TokioIo::new(io)).await;
    let (sender, connection) = opened.expect("it is written to");
    let shared = Shared::new(sender, || usize::MAX);
    pool.share((route.upstream.id, 0), shared);
    (connection, peer)
}

#[tokio::test]
async fn a_request_that_was_not_sent_over_http2_is_sent_again_to_the_same_host() {
    let port = server().await;
    for (scheme, told) in [
        ("h2c", "http://api.example/x -"),
        ("http", "/x api.example"),
    ] {
        let (route, pool) = (
            route(format!("{scheme}://127.0.0.1:{port}")),
            Pool::default(),
        );
        let kept = keep_connection(&route, &pool).await;
        let asked = ask(&route, &pool, ConnectionUse::Requests);
        let ((answer, _), ()) = tokio::join!(asked, async { drop(kept) });
        let retries = route.upstream.counts.retries.load(Ordering::Relaxed);
        assert_eq!(retries, 1, "{scheme}");
        let body = answer.into_body().collect().await.expect("all of it");
        assert_eq!(body.to_bytes(), told, "{scheme}");
    }
}

#[tokio::test]
async fn a_connection_for_an_upgrade_is_not_kept() {
    let url = format!("http://127.0.0.1:{}", server().await);
    let (route, pool) = (route(&*url), Pool::default());
    for (connection_use, is_kept) in [
        (ConnectionUse::Upgrade, false),
        (ConnectionUse::Requests, true),
    ] {
        let (answer, lease) = ask(&route, &pool, connection_use).await;
        assert_eq!(lease.is_some(), is_kept, "{connection_use:?}");
        let body = answer.into_body().collect().await.expect("all of it");
        assert_eq!(body.to_bytes(), "/x api.example");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_has_its_time_to_answer_from_the_last_of_the_body_on() {
    let (route, pool) = (route("http://127.0.0.1:1"), Pool::default());
    for (frames, end) in [(&[][..], 60), (&[1], 61), (&[1, 50, 100], 160)] {
        let progress = Arc::new(Progress::default());
        let exchange = Exchange {
            upstream: &route.upstream,
            pool: &pool,
            progress: Some(Arc::clone(&progress)),
            body_bytes_max: u64::MAX,
            connection_use: ConnectionUse::Requests,
            begun: Instant::now(),
        };
        let begun = time::Instant::now();
        let body = async {
            for second in frames {
                sleep_until(begun + *second * SECOND).await;
                progress.record_frame();
            }
        };
        let answer = pin!(pending::<()>());
        let (outcome, ()) = tokio::join!(exchange.in_time(answer), body);
        assert!(matches!(outcome, Err(Failed::TooSlow)));
        assert_eq!(begun.elapsed().as_secs(), end, "{frames:?}");
    }
}

/// An upstream with many addresses may be behind one partition: a request is not to wait for each of them in turn.
#[tokio::test(start_paused = true)]
async fn a_request_waits_in_vain_for_two_addresses_at_most() {
    // Their handshakes never end.
    let mut silent = Vec::new();
    for _ in 0..5 {
        silent.push(TcpListener::bind(("127.0.0.1", 0)).await.expect("a port"));
    }
    let url = |listener: &TcpListener| format!("https://{}", listener.local_addr().unwrap());
    let route = route(silent.iter().map(url).collect::<Vec<_>>());
    let begun = time::Instant::now();
    let answered = try_ask(&route, &Pool::default(), ConnectionUse::Requests).await;
    assert!(matches!(answered, Err(Fault::ConnectTimeout { .. })));
    let waited = begun.elapsed();
    assert!(waited < 3 * RESPONSE_TIMEOUT, "it waited for {waited:?}");
}
