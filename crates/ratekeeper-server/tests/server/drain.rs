//! A shutdown in the middle of everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

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
            let mut count = 0;
            loop {
                stream
                    .write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n")
                    .await
                    .unwrap();
                let (mut close, mut line) = (false, String::new());
                while line != "\r\n" {
                    line.clear();
                    let read = stream.read_line(&mut line).await.unwrap();
                    assert!(read > 0, "a request was taken and not answered");
                    close |= line.eq_ignore_ascii_case("connection: close\r\n");
                }
                let mut body = [0; 2];
                stream.read_exact(&mut body).await.unwrap();
                count += 1;
                if count == 10 {
                    warm.wait().await;
                }
                if close {
                    assert!(stop.load(Ordering::Relaxed), "closed without a shutdown");
                    return;
                }
            }
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

/// Idle connections do not keep it waiting, and nobody new gets in.
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
    let mut slow = TcpStream::connect(running.addresses.http).await.unwrap();
    slow.write_all(
        b"POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n",
    )
    .await
    .unwrap();
    // The server has begun to read the body: it asks for it.
    let mut asked = [0; 12];
    timeout(PATIENCE, slow.read_exact(&mut asked))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100");
    let (server, _dir) = running.begin_shutdown();
    assert_eq!(timeout(PATIENCE, server).await.unwrap().unwrap().cut, 1);
}

/// Before anything closes, health checks are told: those that connect anew as well. What is
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
