//! Clients that send too much, too slowly, or nothing at all.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use crate::support::{PATIENCE, RULES, raw, request, start, start_with};
use ratekeeper_server::Patience;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Reads until the other side closes; fails if it does not.
async fn closed(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes))
        .await
        .unwrap();
    bytes
}

#[tokio::test]
async fn a_head_that_never_ends_is_cut_off() {
    let running = start_with(RULES, |config| {
        config.bounds.head_timeout = Duration::from_millis(50);
    })
    .await;
    let mut stream = TcpStream::connect(running.addresses.http).await.unwrap();
    stream
        .write_all(b"POST /v1/check HTTP/1.1\r\nhost: a\r\nx: ")
        .await
        .unwrap();
    closed(stream).await;
    running.stop().await;
}

#[tokio::test]
async fn a_body_that_never_ends_is_a_408() {
    let running = start_with(RULES, |config| {
        config.bounds.request_timeout = Duration::from_millis(50);
    })
    .await;
    let answer = raw(
        running.addresses.http,
        b"POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(error_of(&answer)["code"], "TIMEOUT");
    running.stop().await;
}

/// The problem in an HTTP answer.
fn error_of(answer: &str) -> serde_json::Value {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

/// The body never comes, and is not waited for.
#[tokio::test]
async fn a_body_that_says_that_it_is_too_large_is_refused_at_once() {
    let running = start_with(RULES, |config| {
        config.bounds.request_timeout = Duration::from_secs(3_600);
    })
    .await;
    for (to, path) in [
        (running.addresses.http, "/v1/check"),
        (running.addresses.http, "/v1/checks"),
        (running.addresses.admin, "/admin/v1/explain"),
    ] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: 1048577\r\n\r\n"
        );
        let answer = raw(to, head.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{path} {answer}");
        assert_eq!(error_of(&answer)["code"], "TOO_LARGE");
    }
    running.stop().await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let running = start(RULES).await;
    let mut head = b"GET /livez HTTP/1.1\r\nhost: a\r\nx: ".to_vec();
    head.extend([b'a'; 20_000]);
    head.extend(b"\r\n\r\n");
    let answer = raw(running.addresses.http, &head).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert_eq!(error_of(&answer)["code"], "TOO_LARGE");
    // What is larger still is not read to its end.
    head.truncate(head.len() - 4);
    head.extend([b'a'; 200_000]);
    let answer = raw(running.addresses.http, &head).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    running.stop().await;
}

#[tokio::test]
async fn what_is_no_http_is_refused() {
    let running = start(RULES).await;
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"nonsense\r\n\r\n",
    ] {
        let answer = raw(running.addresses.http, bytes).await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400 "),
            "{answer}"
        );
        raw(running.addresses.grpc, bytes).await;
    }
    running
        .grpc()
        .await
        .should_rate_limit(request("d", &[("user", "a")]))
        .await
        .unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let running = start_with(RULES, |config| {
        config.bounds.idle_timeout = Duration::from_millis(50);
    })
    .await;
    for to in [running.addresses.grpc, running.addresses.http] {
        closed(TcpStream::connect(to).await.unwrap()).await;
        // Half of HTTP/2's preface, and then nothing.
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
        closed(stream).await;
    }
    running.stop().await;
}

#[tokio::test]
async fn a_grpc_message_that_never_ends_is_deadline_exceeded() {
    let running = start_with(RULES, |config| {
        config.bounds.request_timeout = Duration::from_millis(50);
    })
    .await;
    let (_body, stream) = tokio::sync::mpsc::channel::<Result<_, std::convert::Infallible>>(1);
    let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
    let body = http_body_util::StreamBody::new(stream);
    let body: http_body_util::StreamBody<
        tokio_stream::wrappers::ReceiverStream<
            Result<hyper::body::Frame<bytes::Bytes>, std::convert::Infallible>,
        >,
    > = body;
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .http2_only(true)
        .build_http();
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let request = ::http::Request::post(format!("http://{}{path}", running.addresses.grpc))
        .header("content-type", "application/grpc")
        .body(body)
        .unwrap();
    let answer = timeout(PATIENCE, client.request(request))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(answer.headers()["grpc-status"], "4");
    running.stop().await;
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_for_their_turn() {
    let running = start_with(RULES, |config| config.bounds.connections_max = 2).await;
    let to = running.addresses.http;
    let first = TcpStream::connect(to).await.unwrap();
    let second = TcpStream::connect(to).await.unwrap();
    let get = b"GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let third = tokio::spawn(raw(to, get));
    // Both places are taken by connections that say nothing; one goes, the third is served.
    drop(first);
    let answer = timeout(PATIENCE, third).await.unwrap().unwrap();
    assert!(answer.ends_with("OK"), "{answer}");
    drop(second);
    running.stop().await;
}

/// One host cannot keep everybody else out. Addresses of loopback are not counted, so this one
/// comes by way of the network.
#[tokio::test]
async fn connections_of_one_address_are_bounded() {
    // Nothing is sent: the kernel says which of our addresses it would send from.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let address = socket
        .connect("192.0.2.1:9")
        .and_then(|()| socket.local_addr());
    let own = address.map(|address| address.ip());
    let Some(own) = own.ok().filter(|own| !own.is_loopback()) else {
        println!("this host has no address but loopback: nothing to see");
        return;
    };
    let running = start_with(RULES, |config| {
        config.http = Some(SocketAddr::new(own, 0).into());
        config.bounds.connections_per_address_max = 1;
    })
    .await;
    let to = running.addresses.http;
    let get = b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n";
    let mut first = TcpStream::connect(to).await.unwrap();
    first.write_all(get).await.unwrap();
    let mut start = [0; 12];
    timeout(PATIENCE, first.read_exact(&mut start))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    // The second is closed without a word.
    let second = TcpStream::connect(to).await.unwrap();
    assert_eq!(closed(second).await, b"");
    drop(first);
    running.stop().await;
}

/// The system would keep what a client never takes for minutes, uncounted.
#[tokio::test]
async fn a_client_that_takes_nothing_is_reset() {
    let running = start_with(RULES, |config| {
        config.bounds.patience = Patience {
            stall_timeout: Some(Duration::from_millis(200)),
            rate_min: 1 << 30,
        };
    })
    .await;
    let check = serde_json::json!({"domain": "d", "standing": true,
        "descriptors": [{"entries": [{"key": "user", "value": "a"}]}]});
    let body = serde_json::json!({"checks": vec![check; 1_000]}).to_string();
    let head = format!(
        "POST /v1/checks HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let mut client = TcpStream::connect(running.addresses.http).await.unwrap();
    // More than the buffers of both sides take: in the end it is held back, and then reset.
    let reset = async {
        loop {
            let sent = async {
                client.write_all(head.as_bytes()).await?;
                client.write_all(body.as_bytes()).await
            };
            if let Err(error) = sent.await {
                return error.kind();
            }
        }
    };
    let kind = timeout(PATIENCE, reset).await.unwrap();
    assert!(
        matches!(
            kind,
            std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe
        ),
        "{kind:?}"
    );
    running.stop().await;
}
