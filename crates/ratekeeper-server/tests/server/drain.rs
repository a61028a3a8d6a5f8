//! A shutdown in the middle of everything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, RULES, request, start, start_with};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Under load from many tasks, what was decided was answered, and the rest was never sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_is_lost_over_grpc() {
    let running = start(RULES).await;
    let answered = Arc::new(AtomicU64::new(0));
    let enough = Arc::new(Notify::new());
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let channel = running.grpc().await;
        for _ in 0..16 {
            let mut client = channel.clone();
            let (answered, enough) = (Arc::clone(&answered), Arc::clone(&enough));
            tasks.push(tokio::spawn(async move {
                loop {
                    match client
                        .should_rate_limit(request("d", &[("other", "a")]))
                        .await
                    {
                        Ok(_) => {
                            if answered.fetch_add(1, Ordering::Relaxed) == 2_000 {
                                enough.notify_one();
                            }
                        }
                        Err(status) => return status,
                    }
                }
            }));
        }
    }
    timeout(PATIENCE, enough.notified()).await.unwrap();
    let limiter = Arc::clone(&running.limiter);
    let (server, _dir) = running.begin_shutdown();
    let drained = timeout(PATIENCE, server).await.unwrap().unwrap();
    assert_eq!(drained.cut, 0);
    for task in tasks {
        let status = format!("{:?}", timeout(PATIENCE, task).await.unwrap().unwrap());
        // The client could not connect again, had not sent the request yet, or did not
        // send it because of GOAWAY.
        let unsent = [
            "ConnectError",
            "Canceled",
            "GoAway(b\"\", NO_ERROR, Remote)",
        ];
        assert!(
            unsent.iter().any(|reason| status.contains(reason)),
            "{status}"
        );
    }
    let decided: u64 = limiter
        .snapshot()
        .stats()
        .map(|stats| stats.counts().allowed)
        .sum();
    assert_eq!(answered.load(Ordering::Relaxed), decided);
}

/// Less than the time for which an idle connection is kept for a request on its way.
const ON_ITS_WAY: Duration = Duration::from_millis(90);

/// An HTTP/1.1 client that keeps its connection is told to close it, with an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_is_lost_over_http() {
    let running = start(RULES).await;
    let to = running.addresses.http;
    let stop = Arc::new(AtomicBool::new(false));
    let warm = Arc::new(tokio::sync::Barrier::new(9));
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let (stop, warm) = (Arc::clone(&stop), Arc::clone(&warm));
        tasks.push(tokio::spawn(async move {
            let mut stream = BufReader::new(TcpStream::connect(to).await.unwrap());
            let (mut count, mut idle_since) = (0, Instant::now());
            loop {
                let begun = Instant::now();
                let asked = stream.write_all(LIVEZ).await;
                let late = idle_since.elapsed() >= ON_ITS_WAY;
                let told = match asked {
                    Ok(()) => read_livez(&mut stream).await,
                    Err(error) => Err(error),
                };
                idle_since = begun;
                count += 1;
                if count == 10 {
                    warm.wait().await;
                }
                match told {
                    Ok(Livez { is_last: false }) => {}
                    Ok(Livez { is_last: true }) => break,
                    // The server does not wait for a client that the machine keeps from asking.
                    Err(_) if late && stop.load(Ordering::Relaxed) => break,
                    Err(error) => panic!("a request was taken and not answered: {error}"),
                }
            }
            assert!(stop.load(Ordering::Relaxed), "closed without a shutdown");
        }));
    }
    warm.wait().await;
    stop.store(true, Ordering::Relaxed);
    let (server, _dir) = running.begin_shutdown();
    for task in tasks {
        timeout(PATIENCE, task).await.unwrap().unwrap();
    }
    assert_eq!(timeout(PATIENCE, server).await.unwrap().unwrap().cut, 0);
}

const LIVEZ: &[u8] = b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n";

/// An answer of `/livez`.
struct Livez {
    /// True if the connection is closed after it.
    is_last: bool,
}

async fn read_livez(stream: &mut BufReader<TcpStream>) -> std::io::Result<Livez> {
    let (mut is_last, mut line) = (false, String::new());
    while line != "\r\n" {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        is_last |= line.eq_ignore_ascii_case("connection: close\r\n");
    }
    stream.read_exact(&mut [0; 2]).await?;
    Ok(Livez { is_last })
}

/// Idle connections do not keep it waiting, and no new client gets in.
#[tokio::test]
async fn idle_connections_go_at_once() {
    let running = start(RULES).await;
    let mut client = running.grpc().await;
    client
        .should_rate_limit(request("d", &[("other", "a")]))
        .await
        .unwrap();
    let idle = TcpStream::connect(running.addresses.http).await.unwrap();
    let addresses = running.addresses;
    let (server, _dir) = running.begin_shutdown();
    assert_eq!(timeout(PATIENCE, server).await.unwrap().unwrap().cut, 0);
    for to in [addresses.grpc, addresses.http, addresses.admin] {
        TcpStream::connect(to).await.unwrap_err();
    }
    drop(idle);
}

/// A request that does not finish in time is cut off, and counted.
#[tokio::test]
async fn the_drain_ends() {
    let running = start_with(RULES, |config| {
        config.bounds.drain_timeout = Duration::from_millis(200);
        config.bounds.request_timeout = Duration::from_secs(3_600);
    })
    .await;
    let slow = slow_post(running.addresses.http, "/v1/check").await;
    let (server, _dir) = running.begin_shutdown();
    assert_eq!(timeout(PATIENCE, server).await.unwrap().unwrap().cut, 1);
    drop(slow);
}

/// A request whose body the server has begun to read, and does not get.
async fn slow_post(to: SocketAddr, path: &str) -> TcpStream {
    let mut slow = TcpStream::connect(to).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {to}\r\ncontent-type: application/json\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n"
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    // It asks for the body.
    let mut asked = [0; 12];
    timeout(PATIENCE, slow.read_exact(&mut asked))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100");
    slow
}

/// The admin listener stops last, and its clients get less time than those of checks: both together end before whoever
/// stops the node loses patience.
#[tokio::test]
async fn an_operator_does_not_hold_up_the_end() {
    let running = start_with(RULES, |config| {
        config.bounds.drain_timeout = Duration::from_secs(3_600);
        config.bounds.request_timeout = Duration::from_secs(3_600);
    })
    .await;
    let slow = slow_post(running.addresses.admin, "/admin/v1/explain").await;
    let (server, _dir) = running.begin_shutdown();
    assert_eq!(timeout(PATIENCE, server).await.unwrap().unwrap().cut, 1);
    drop(slow);
}

/// Before anything closes, health checks are told: those that reconnect as well. What is
/// asked meanwhile is answered. Whoever is in a hurry ends the delay, once.
#[tokio::test]
async fn readiness_goes_before_the_listeners() {
    let mut running = start_with(RULES, |config| {
        config.drain_delay = Duration::from_secs(3_600);
    })
    .await;
    let channel = Channel::from_shared(format!("http://{}", running.addresses.grpc));
    let mut health = HealthClient::new(channel.unwrap().connect().await.unwrap());
    let ask = HealthCheckRequest::default();
    let mut watch = health.watch(ask.clone()).await.unwrap().into_inner();
    let serving = watch.message().await.unwrap().unwrap();
    assert_eq!(serving.status(), ServingStatus::Serving);
    running.announce_shutdown();
    let leaving = timeout(PATIENCE, watch.message()).await.unwrap().unwrap();
    assert_eq!(leaving.unwrap().status(), ServingStatus::NotServing);

    let (status, body) = running.http("GET", "/readyz", "").await;
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["state"]), (503, &"draining".into()));
    assert_eq!(running.http("GET", "/healthcheck", "").await.0, 500);
    let mut client = running.grpc().await;
    client
        .should_rate_limit(request("d", &[("other", "a")]))
        .await
        .unwrap();
    drop((client, health, watch));

    assert!(running.delay.end());
    assert!(!running.delay.end());
    let drained = timeout(PATIENCE, running.stop()).await.unwrap();
    assert_eq!(drained.cut, 0);
}

/// The delay ends by itself, and then there is nothing left to end.
#[tokio::test]
async fn the_delay_ends() {
    let running = start_with(RULES, |config| {
        config.drain_delay = Duration::from_millis(20);
    })
    .await;
    let delay = running.delay.clone();
    let drained = timeout(PATIENCE, running.stop()).await.unwrap();
    assert_eq!(drained.cut, 0);
    assert!(!delay.end());
}
