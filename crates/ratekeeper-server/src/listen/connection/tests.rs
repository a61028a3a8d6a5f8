use std::convert::Infallible;

use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use tokio::io::DuplexStream;
use tower::service_fn;

use super::*;
use crate::listen::PeerAddress;

/// Nothing of it is the system's.
impl ForgetUnsent for DuplexStream {
    fn forget_unsent(&self) {}
}

const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The beginning of HTTP/2, with settings that are empty.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A connection on which either protocol may be spoken, and which may be silent for a day.
fn opened() -> DuplexStream {
    let bounds = ServerBounds {
        head_timeout: HEAD_TIMEOUT,
        idle_timeout: DAY,
        ..ServerBounds::default()
    };
    opened_to(Duration::ZERO, bounds)
}

/// A connection to a gateway that takes so long to answer.
fn opened_to(takes: Duration, bounds: ServerBounds) -> DuplexStream {
    let drain = Arc::new(Drain::new());
    spoken_over(Protocol::Either, ByHyper(slow(takes)), bounds, drain)
}

/// A service that takes so long to answer.
fn slow(takes: Duration) -> impl HttpService {
    service_fn(move |_: Request<Incoming>| async move {
        sleep(takes).await;
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    })
}

fn spoken_over(
    protocol: Protocol,
    service: impl Served,
    bounds: ServerBounds,
    drain: Arc<Drain>,
) -> DuplexStream {
    let (client, server) = tokio::io::duplex(1 << 10);
    let terms = Terms {
        service,
        protocol,
        tls: None,
        bounds,
        drain,
        http1: None,
        is_blind: |_| true,
        is_local: true,
    };
    tokio::spawn(speak(server, Peer::unnamed(PeerAddress::Unix, true), terms));
    client
}

/// Answers nothing: no request comes.
#[derive(Clone)]
struct Unasked;

impl DirectService for Unasked {
    type Body = Empty<Bytes>;

    async fn answer(
        &self,
        _: &mut Request<http2::RequestBody>,
    ) -> Result<Response<http2::DirectBody<Self::Body>>, Infallible> {
        unreachable!("no request comes")
    }
}

async fn is_closed_within(client: &mut DuplexStream, time: Duration) -> bool {
    let closed = async { while client.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {} };
    timeout(time, closed).await.is_ok()
}

/// Time passes only where everything waits, so that nothing here depends on the machine.
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_say_what_it_speaks_is_not_waited_for() {
    for begun in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n"] {
        let mut client = opened();
        client.write_all(begun).await.expect("it reads");
        assert!(
            !is_closed_within(&mut client, HEAD_TIMEOUT / 2).await,
            "{begun:?}"
        );
        assert!(
            is_closed_within(&mut client, HEAD_TIMEOUT).await,
            "{begun:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_http2_may_wait_for_its_first_request() {
    let mut client = opened();
    client.write_all(PREFACE).await.expect("it reads");
    let time = HEAD_TIMEOUT + Duration::from_secs(1);
    assert!(!is_closed_within(&mut client, time).await);
}

#[tokio::test(start_paused = true)]
async fn a_client_of_a_gateway_may_be_silent_while_it_waits_for_its_answer() {
    let bounds = ServerBounds {
        head_timeout: DAY,
        ..ServerBounds::default()
    };
    let mut client = opened_to(10 * bounds.idle_timeout, bounds);
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    client.write_all(request).await.expect("it reads");
    let mut answer = [0; 12];
    let read = client.read_exact(&mut answer).await;
    read.expect("it is answered");
    assert_eq!(&answer, b"HTTP/1.1 200");
    assert!(is_closed_within(&mut client, 2 * bounds.idle_timeout).await);
}

/// Nothing is cut for being slow or silent, so that only the drain ends connections.
fn patient() -> ServerBounds {
    ServerBounds {
        head_timeout: DAY,
        idle_timeout: DAY,
        ping_interval: DAY,
        ..ServerBounds::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_clients_that_have_asked_nothing() {
    let half_a_head = &b"GET / HTTP/1.1\r\nHo"[..];
    let cases: [(Protocol, &[u8]); 9] = [
        (Protocol::Http1, b""),
        (Protocol::Http1, half_a_head),
        (Protocol::Either, b""),
        (Protocol::Either, half_a_head),
        (Protocol::Either, &PREFACE[..10]),
        (Protocol::Either, PREFACE),
        (Protocol::Http2, b""),
        (Protocol::Http2, &PREFACE[..10]),
        (Protocol::Http2, PREFACE),
    ];
    for (protocol, begun) in cases {
        let drain = Arc::new(Drain::new());
        let (bounds, begins) = (patient(), Arc::clone(&drain));
        let mut client = match protocol {
            Protocol::Http2 => spoken_over(protocol, Direct(Unasked), bounds, begins),
            _ => spoken_over(protocol, ByHyper(slow(DAY)), bounds, begins),
        };
        client.write_all(begun).await.expect("it reads");
        assert!(!is_closed_within(&mut client, 10 * LINGER).await);
        drain.begin();
        assert!(
            is_closed_within(&mut client, 2 * LINGER).await,
            "{protocol:?} {begun:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_a_silent_client_that_was_told_to_go_before() {
    let drain = Arc::new(Drain::new());
    let bounds = ServerBounds {
        connection_age_max: Some(LINGER),
        connection_age_grace: DAY,
        ..patient()
    };
    let service = Direct(Unasked);
    let mut client = spoken_over(Protocol::Http2, service, bounds, Arc::clone(&drain));
    client.write_all(PREFACE).await.expect("it reads");
    assert!(!is_closed_within(&mut client, 10 * LINGER).await);
    drain.begin();
    assert!(is_closed_within(&mut client, 2 * LINGER).await);
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_what_was_asked() {
    for protocol in [Protocol::Http1, Protocol::Either] {
        let drain = Arc::new(Drain::new());
        let service = ByHyper(slow(10 * LINGER));
        let bounds = ServerBounds {
            request_timeout: DAY,
            ..patient()
        };
        let mut client = spoken_over(protocol, service, bounds, Arc::clone(&drain));
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        client.write_all(request).await.expect("it reads");
        sleep(LINGER).await;
        drain.begin();
        let mut answer = Vec::new();
        let read = client.read_to_end(&mut answer).await;
        read.expect("it is answered");
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{protocol:?}");
    }
}

/// Balancers keep connections for a minute and longer, and lose a request on each that is closed before.
#[tokio::test(start_paused = true)]
async fn a_connection_over_http1_may_be_idle_for_longer_than_a_head_may_take() {
    let bounds = ServerBounds {
        head_timeout: 5 * LINGER,
        idle_timeout: 50 * LINGER,
        request_timeout: DAY,
        ..ServerBounds::default()
    };
    for protocol in [Protocol::Http1, Protocol::Either] {
        let service = ByHyper(slow(10 * LINGER));
        let mut client = spoken_over(protocol, service, bounds, Arc::new(Drain::new()));
        for _ in 0..3 {
            let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
            client.write_all(request).await.expect("it is open");
            let mut answer = [0; 12];
            let read = client.read_exact(&mut answer).await;
            read.expect("it is answered");
            assert_eq!(&answer, b"HTTP/1.1 200");
            assert!(
                !is_closed_within(&mut client, 40 * LINGER).await,
                "{protocol:?}"
            );
        }
        assert!(
            is_closed_within(&mut client, 60 * LINGER).await,
            "{protocol:?}"
        );
    }
}

/// Our half is closed first: over TLS its client is told, and a request on its way resets nothing.
#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_ended_rather_than_cut() {
    let bounds = ServerBounds {
        idle_timeout: 5 * LINGER,
        ..ServerBounds::default()
    };
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for protocol in [Protocol::Http1, Protocol::Either] {
        let service = ByHyper(slow(Duration::ZERO));
        let mut client = spoken_over(protocol, service, bounds, Arc::new(Drain::new()));
        client.write_all(request).await.expect("it is open");
        assert!(is_closed_within(&mut client, 12 * LINGER).await);
        let crossing = client.write_all(request).await;
        assert!(crossing.is_ok(), "{protocol:?}: {crossing:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_trickles_is_not_waited_for() {
    let bounds = ServerBounds {
        head_timeout: 5 * LINGER,
        idle_timeout: 50 * LINGER,
        ..ServerBounds::default()
    };
    let head = b"GET / HTTP/1.1\r\nHost: a\r\n";
    for protocol in [Protocol::Http1, Protocol::Either] {
        let cases: [(&[u8], Duration); 2] = [(b"", 6 * LINGER), (b"\r\n", 58 * LINGER)];
        for (first, most) in cases {
            let drain = Arc::new(Drain::new());
            let service = ByHyper(slow(Duration::ZERO));
            let mut client = spoken_over(protocol, service, bounds, drain);
            if !first.is_empty() {
                let whole = [&head[..], first].concat();
                client.write_all(&whole).await.expect("it is open");
            }
            let begun = tokio::time::Instant::now();
            client.write_all(head).await.expect("it is open");
            while client.write_all(b"a").await.is_ok() && begun.elapsed() < 2 * most {
                sleep(LINGER).await;
            }
            assert!(begun.elapsed() <= most, "{protocol:?} {first:?}");
        }
    }
}
