//! The lifetimes of connections and requests, and their independence of each other.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::support::{PATIENCE, RULES, Running, raw, request, start, start_with};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A bare HTTP/2 connection; the task ends when the connection does.
async fn connect<B>(running: &Running) -> (SendRequest<B>, JoinHandle<hyper::Result<()>>)
where
    B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    let stream = TcpStream::connect(running.addresses.grpc).await.unwrap();
    let (sender, connection) = Builder::new(TokioExecutor::new())
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    (sender, tokio::spawn(connection))
}

/// A body that never comes.
struct Never;

impl Body for Never {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

/// A call as gRPC frames it.
fn call(message: &RateLimitRequest, timeout: Option<&str>) -> ::http::Request<Full<Bytes>> {
    let mut body = vec![0];
    let length = u32::try_from(message.encoded_len()).unwrap();
    body.extend(length.to_be_bytes());
    message.encode(&mut body).unwrap();
    let mut request = ::http::Request::post(format!("http://a{METHOD}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(timeout) = timeout {
        request = request.header("grpc-timeout", timeout);
    }
    request.body(Full::new(body.into())).unwrap()
}

/// The status of an answer, which stands in its head or in its trailers.
async fn status(answer: ::http::Response<hyper::body::Incoming>) -> String {
    let text = |value: &::http::HeaderValue| value.to_str().unwrap().to_owned();
    if let Some(status) = answer.headers().get("grpc-status") {
        return text(status);
    }
    let body = answer.into_body().collect().await.unwrap();
    text(&body.trailers().unwrap()["grpc-status"])
}

/// A request whose deadline has passed before we begin is refused, and charged nothing.
#[tokio::test]
async fn a_deadline_that_has_passed_charges_nothing() {
    let running = start(RULES).await;
    let (mut sender, _connection) = connect(&running).await;
    let message = request("d", &[("plain", "a")]);
    for (grpc_timeout, expected) in [("0n", "4"), ("0S", "4"), ("soon", "3"), ("1.5S", "3")] {
        let answer = sender.send_request(call(&message, Some(grpc_timeout)));
        assert_eq!(
            status(answer.await.unwrap()).await,
            expected,
            "{grpc_timeout}"
        );
    }
    let decided: u64 = running
        .limiter
        .snapshot()
        .stats()
        .map(|stats| stats.counts().allowed + stats.counts().denied)
        .sum();
    assert_eq!(decided, 0);
    let answer = sender.send_request(call(&message, Some("10S")));
    assert_eq!(status(answer.await.unwrap()).await, "0");
    running.stop().await;
}

/// The client's patience counts where it is shorter than ours.
#[tokio::test]
async fn a_message_that_does_not_come_in_time_is_deadline_exceeded() {
    let running = start_with(RULES, |config| {
        config.bounds.request_timeout = Duration::from_secs(3_600);
    })
    .await;
    let (mut sender, _connection) = connect(&running).await;
    let request = call(&request("d", &[("plain", "a")]), Some("50m")).map(|_| Never);
    let answer = timeout(PATIENCE, sender.send_request(request)).await;
    assert_eq!(status(answer.unwrap().unwrap()).await, "4");
    running.stop().await;
}

/// Old connections are told to go, and what is asked is answered: no client sees an error.
#[tokio::test]
async fn connections_go_when_they_are_old() {
    let running = start_with(RULES, |config| {
        config.bounds.connection_age_max = Some(Duration::from_millis(50));
    })
    .await;
    // A client that the machine keeps from asking for so long asks nothing on that connection.
    timeout(PATIENCE, async {
        while asked_until_old(&running).await == 0 {}
    })
    .await
    .expect("something is asked before the connection is old");
    running.stop().await;
}

/// Asks on a connection of its own until that goes, and returns the number of answers.
async fn asked_until_old(running: &Running) -> u64 {
    let (mut sender, mut connection) = connect(running).await;
    let message = request("d", &[("other", "a")]);
    let mut answered = 0;
    while !connection.is_finished() && !sender.is_closed() {
        if sender.ready().await.is_err() {
            continue;
        }
        match sender.send_request(call(&message, None)).await {
            Ok(answer) => {
                assert_eq!(status(answer).await, "0");
                answered += 1;
            }
            // It was not sent any more: the connection is closing.
            Err(error) => assert!(error.is_canceled() || error.is_closed(), "{error:?}"),
        }
    }
    (&mut connection).await.unwrap().unwrap();
    answered
}

/// A request that does not finish within the grace of an old connection is cut off.
#[tokio::test]
async fn old_connections_have_their_grace() {
    let running = start_with(RULES, |config| {
        config.bounds.request_timeout = Duration::from_secs(3_600);
        config.bounds.connection_age_max = Some(Duration::from_millis(20));
        config.bounds.connection_age_grace = Duration::from_millis(50);
    })
    .await;
    let (mut sender, connection) = connect(&running).await;
    let request = call(&request("d", &[("plain", "a")]), None).map(|_| Never);
    let answer = timeout(PATIENCE, sender.send_request(request)).await;
    answer.unwrap().unwrap_err();
    let _ = timeout(PATIENCE, connection).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let running = start_with(RULES, |config| {
        config.bounds.connection_idle_max = Some(Duration::from_millis(20));
        // It is there, and says so.
        config.bounds.ping_interval = Duration::from_millis(5);
    })
    .await;
    // A client that the machine keeps from asking for so long finds the connection closed.
    timeout(PATIENCE, async {
        loop {
            let (mut sender, connection) = connect(&running).await;
            let answer = sender.send_request(call(&request("d", &[("other", "a")]), None));
            let Ok(answer) = answer.await else {
                continue;
            };
            assert_eq!(status(answer).await, "0");
            // GOAWAY, and no error.
            return connection.await.unwrap().unwrap();
        }
    })
    .await
    .expect("a client asks, and its connection goes");
    running.stop().await;
}

/// A client that answers no ping is gone.
#[tokio::test]
async fn connections_that_answer_no_ping_are_closed() {
    let running = start_with(RULES, |config| {
        config.bounds.ping_interval = Duration::from_millis(20);
        config.bounds.ping_timeout = Duration::from_millis(20);
    })
    .await;
    let mut stream = TcpStream::connect(running.addresses.grpc).await.unwrap();
    // HTTP/2's preface and empty settings, and then never a word.
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut rest))
        .await
        .unwrap();
    running.stop().await;
}

/// A visitor of the gRPC listener with curl or a browser is told what is there.
#[tokio::test]
async fn the_grpc_listener_tells_what_is_there_over_http1_and_http2() {
    let running = start(RULES).await;
    let to = running.addresses.grpc;
    let (status, text) = running.send(to, "GET", "/", &[], "").await;
    assert_eq!(status, 200, "{text}");
    for part in [
        "gRPC (HTTP/2)",
        "RateLimitService",
        "grpcurl",
        "docs/api.md",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for method in ["GET", "POST", "DELETE"] {
        let (status, told) = running.send(to, method, METHOD, &[], "").await;
        assert_eq!((status, &told), (404, &text), "{method}");
    }
    // What is no HTTP at all is not answered in HTTP/1.
    let answer = raw(to, b"HELO example.com\r\n\r\n").await;
    assert!(!answer.contains("HTTP/1"), "{answer}");

    let (mut sender, connection) = connect::<Full<Bytes>>(&running).await;
    let request = ::http::Request::get("http://a/").body(Full::default());
    let answer = sender.send_request(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, text.as_bytes());
    drop(sender);
    connection.await.unwrap().unwrap();
    running.stop().await;
}

/// A gRPC client that never begins is closed when its head is due; one that has begun is asked
/// whether it is there, and stays.
#[tokio::test]
async fn grpc_connections_that_never_begin_are_closed() {
    let running = start_with(RULES, |config| {
        // Long enough for one that begins on a busy machine.
        config.bounds.head_timeout = Duration::from_secs(2);
    })
    .await;
    let mut begun = TcpStream::connect(running.addresses.grpc).await.unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    begun.write_all(preface).await.unwrap();
    let silent = TcpStream::connect(running.addresses.grpc).await.unwrap();
    let mut partial = TcpStream::connect(running.addresses.grpc).await.unwrap();
    partial.write_all(&preface[..10]).await.unwrap();
    for mut never in [silent, partial] {
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, never.read_to_end(&mut rest))
            .await
            .expect("it is closed");
    }
    // Its PING is answered.
    let ping = b"\0\0\x08\x06\0\0\0\0\0mornings";
    begun.write_all(ping).await.unwrap();
    let mut answers = Vec::new();
    while !answers.windows(8).any(|window| window == b"mornings") {
        let read = timeout(PATIENCE, begun.read_buf(&mut answers)).await;
        assert_ne!(read.unwrap().unwrap(), 0, "it stays open");
    }
    drop(begun);
    running.stop().await;
}

/// Answers of hundreds of KiB that clients do not read are bounded together, and those who take theirs are
/// answered again once the others have had their time.
#[tokio::test]
async fn long_answers_that_are_not_read_are_bounded() {
    let running = start_with(RULES, |config| {
        config.bounds.long_answers_bytes_max = 400 << 10;
        // Long enough to see that there is no room, on a busy machine.
        config.bounds.patience.stall_timeout = Some(Duration::from_secs(6));
        config.bounds.patience.rate_min = 1 << 20;
    })
    .await;
    let check = r#"{"domain":"d","descriptors":[{"entries":[{"key":"other","value":"a"}]}]}"#;
    let body = format!(r#"{{"checks":[{}]}}"#, vec![check; 1_000].join(","));
    let length = body.len();
    let ask = format!(
        "POST /v1/checks HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut deaf = socket.connect(running.addresses.http).await.unwrap();
    deaf.write_all(ask.as_bytes()).await.unwrap();
    deaf.readable().await.unwrap();
    let (status, refused) = running.http("POST", "/v1/checks", &body).await;
    assert_eq!(status, 503, "{refused}");
    let (status, _) = running.http("GET", "/livez", "").await;
    assert_eq!(status, 200, "short answers have room");
    timeout(PATIENCE, async {
        while running.http("POST", "/v1/checks", &body).await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .expect("there is room again");
    running.stop().await;
}

/// It is the statuses that make an answer long, and each descriptor has one.
#[tokio::test]
async fn few_checks_of_many_descriptors_have_long_answers() {
    let running = start_with(RULES, |config| {
        config.bounds.long_answers_bytes_max = 400 << 10;
    })
    .await;
    let batch = |checks: usize, descriptors: usize| {
        let descriptor = r#"{"entries":[{"key":"other","value":"a"}],"hits":0}"#;
        let check = format!(
            r#"{{"domain":"d","descriptors":[{}]}}"#,
            vec![descriptor; descriptors].join(",")
        );
        format!(r#"{{"checks":[{}]}}"#, vec![check; checks].join(","))
    };
    for (checks, descriptors, expected) in
        [(64, 1, 200), (10, 100, 200), (11, 100, 503), (64, 100, 503)]
    {
        let body = batch(checks, descriptors);
        let (status, _) = running.http("POST", "/v1/checks", &body).await;
        assert_eq!(status, expected, "{checks} of {descriptors}");
    }
    running.stop().await;
}

/// A client that asks on and on and reads no answer is cut off.
#[tokio::test]
async fn http_clients_that_take_no_answers_are_closed() {
    let running = start_with(RULES, |config| {
        config.bounds.patience.stall_timeout = Some(Duration::from_millis(200));
        config.bounds.patience.rate_min = 1 << 20;
    })
    .await;
    let mut full = TcpStream::connect(running.addresses.http).await.unwrap();
    let ask = b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n".repeat(1_000);
    timeout(PATIENCE, async {
        while full.write_all(&ask).await.is_ok() {}
    })
    .await
    .expect("it is closed");
    running.stop().await;
}

/// Served by one thread, so that a request that blocks it would delay all others: none does.
#[tokio::test]
async fn slow_clients_delay_no_other() {
    let running = start_with(RULES, |config| {
        config.worker_threads = NonZeroUsize::new(1);
    })
    .await;
    // One that asks and does not read: no window is left for answers.
    let mut deaf = TcpStream::connect(running.addresses.grpc).await.unwrap();
    deaf.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    // SETTINGS_INITIAL_WINDOW_SIZE = 0
    deaf.write_all(b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0")
        .await
        .unwrap();
    // One in the middle of a head, one in the middle of a body, one that says nothing.
    let mut head = TcpStream::connect(running.addresses.http).await.unwrap();
    head.write_all(b"POST /v1/check HT").await.unwrap();
    let mut body = TcpStream::connect(running.addresses.http).await.unwrap();
    body.write_all(b"POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{")
        .await
        .unwrap();
    let silent = TcpStream::connect(running.addresses.grpc).await.unwrap();
    // One that asks for a lot and reads none of it.
    let mut full = TcpStream::connect(running.addresses.http).await.unwrap();
    let ask = b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n".repeat(1_000);
    let stuffed = tokio::spawn(async move {
        // Until the pipe is full both ways.
        let _ = timeout(Duration::from_millis(200), async {
            while full.write_all(&ask).await.is_ok() {}
        })
        .await;
        full
    });
    for _ in 0..100 {
        let (status, _) = running.http("GET", "/livez", "").await;
        assert_eq!(status, 200);
    }
    let mut client = running.grpc().await;
    for _ in 0..100 {
        client
            .should_rate_limit(request("d", &[("other", "a")]))
            .await
            .unwrap();
    }
    let full = stuffed.await.unwrap();
    let (status, _) = running.http("GET", "/livez", "").await;
    assert_eq!(status, 200);
    drop((deaf, head, body, silent, full, client));
    running.stop().await;
}

/// A client that says no more, and still listens, gets its answer.
#[tokio::test]
async fn half_closed_connections_are_answered() {
    let running = start(RULES).await;
    let mut stream = TcpStream::connect(running.addresses.http).await.unwrap();
    stream
        .write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");

    // Half a request, and then no more of it: closed, with or without a word.
    let mut stream = TcpStream::connect(running.addresses.http).await.unwrap();
    stream
        .write_all(b"POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{")
        .await
        .unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    let _ = timeout(PATIENCE, stream.read_to_string(&mut answer))
        .await
        .unwrap();
    assert!(!answer.starts_with("HTTP/1.1 200 "), "{answer}");

    // Over gRPC as well.
    let mut stream = TcpStream::connect(running.addresses.grpc).await.unwrap();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut rest))
        .await
        .unwrap();
    running.stop().await;
}

/// The drain loses nothing where connections are served by threads of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_drain() {
    let running = start_with(RULES, |config| {
        config.worker_threads = NonZeroUsize::new(3);
    })
    .await;
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let mut client = running.grpc().await;
        tasks.push(tokio::spawn(async move {
            let mut answered = 0_u64;
            while client
                .should_rate_limit(request("d", &[("other", "a")]))
                .await
                .is_ok()
            {
                answered += 1;
            }
            answered
        }));
    }
    let limiter = std::sync::Arc::clone(&running.limiter);
    let allowed = move || -> u64 {
        let snapshot = limiter.snapshot();
        snapshot.stats().map(|stats| stats.counts().allowed).sum()
    };
    timeout(PATIENCE, async {
        while allowed() < 500 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    let (server, _dir) = running.begin_shutdown();
    assert_eq!(timeout(PATIENCE, server).await.unwrap().unwrap().cut, 0);
    let mut answered = 0;
    for task in tasks {
        answered += timeout(PATIENCE, task).await.unwrap().unwrap();
    }
    assert_eq!(answered, allowed());
}
