use std::convert::Infallible;

use http::Response;
use http_body_util::Empty;
use hyper::body::Bytes;
use tokio::io::DuplexStream;
use tower::service_fn;

use super::*;
use crate::listen::PeerAddress;

/// Nothing of it is the system's.
impl ForgetUnsent for DuplexStream {
    fn forget_unsent(&self) {}
}

const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

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
    let (client, server) = tokio::io::duplex(1 << 10);
    let service = service_fn(move |_| async move {
        sleep(takes).await;
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let terms = Terms {
        service: ByHyper(service),
        protocol: Protocol::Either,
        tls: None,
        bounds,
        drain: Arc::new(Drain::new()),
        http1: None,
        is_blind: |_| true,
        is_local: true,
    };
    tokio::spawn(speak(server, Peer::unnamed(PeerAddress::Unix, true), terms));
    client
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
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    client.write_all(preface).await.expect("it reads");
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
