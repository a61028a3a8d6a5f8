//! Limits as values with counters in Redis.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper::{Error, FailureMode, InRedis, Limit, ManualClock, RateLimiter, WaitError};
use ratekeeper_testkit::proxy::Proxy;
use ratekeeper_testkit::redis::Server;
use tokio::net::TcpListener;

fn name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Longer than any machine needs for a decision.
const AMPLE: Duration = Duration::from_secs(20);

async fn connect(server: &Server, name: &str) -> RateLimiter<InRedis> {
    at(server.port(), name).await
}

async fn at(port: u16, name: &str) -> RateLimiter<InRedis> {
    let builder = RateLimiter::builder([Limit::per_hour(5), Limit::per_day(100)]).name(name);
    let builder = builder.store_deadline(AMPLE);
    let limiter = builder.redis(&format!("redis://127.0.0.1:{port}")).await;
    limiter.expect("Redis is there")
}

#[tokio::test]
async fn limiters_with_one_name_share_their_counters() {
    let server = Server::start();
    let name = name();
    let (one, two) = (connect(&server, &name).await, connect(&server, &name).await);
    assert_eq!(one.check_n("ada", 2).await.remaining, 3);
    let second = two.check_n("ada", 3).await;
    assert_eq!(
        (second.allowed, second.remaining, second.degraded),
        (true, 0, false)
    );
    let denied = one.check("ada").await;
    assert!(!denied.allowed && denied.index == 0);
    let wait = denied.retry_after.expect("a wait helps");
    // A node knows Redis's clock to within a round trip.
    assert!(wait <= Duration::from_secs(3_601), "{wait:?}");
    assert!(!one.peek("ada").await.allowed);
    assert_eq!(one.refund("ada", 2).await.remaining, 2);
    assert!(one.until_allowed_n("ada", 2).await.is_ok());
    assert!(one.check_n("ada", 6).await.is_never());
    assert!(one.check("bob").await.allowed);
    assert!(connect(&server, "other").await.check("ada").await.allowed);
}

#[tokio::test]
async fn a_limit_without_keys_is_shared_too() {
    let server = Server::start();
    let name = name();
    let one = connect(&server, &name).await.without_keys();
    let two = connect(&server, &name).await.without_keys();
    assert_eq!(one.check_n(3).await.remaining, 2);
    assert_eq!(two.check().await.remaining, 1);
    let waited = soon(async { two.clone().until_allowed().await }).await;
    assert!(waited.is_ok());
    let denied = one.check().await;
    assert!(!denied.allowed && !denied.degraded);
    assert!(!two.peek().await.allowed);
    assert_eq!(two.refund(2).await.remaining, 2);
    assert!(soon(one.until_allowed_n(2)).await.is_ok());
}

#[tokio::test]
async fn a_redis_that_is_far_away_decides_within_its_deadline() {
    let server = Server::start();
    let far = Proxy::start(server.port());
    far.delay(Duration::from_millis(20));
    let limiter = at(far.port(), &name()).await;
    for left in (2..5).rev() {
        let answer = limiter.check("ada").await;
        assert_eq!((answer.remaining, answer.degraded), (left, false));
    }
}

/// Fails where `answer` takes longer than any machine needs.
async fn soon<T>(answer: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(AMPLE, answer);
    answer.await.expect("it answers")
}

#[tokio::test]
async fn who_waits_while_redis_is_away_is_let_through_once_it_is_back() {
    let mut server = Server::start();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let limiter = RateLimiter::builder(Limit::per_day(3)).on_store_failure(FailureMode::Deny);
    let limiter = limiter.store_deadline(Duration::from_secs(1));
    let limiter = limiter.redis(&url).await.expect("Redis is there");
    assert!(limiter.check("ada").await.allowed);
    server.process().pause();
    let waits = limiter.until_allowed("ada");
    let comes_back = async {
        let denied = limiter.check("ada").await;
        assert!(denied.degraded && !denied.allowed, "{denied:?}");
        server.process().resume();
    };
    let (waited, ()) = soon(async { tokio::join!(waits, comes_back) }).await;
    assert!(waited.is_ok(), "{waited:?}");
    let never = limiter.until_allowed_n("ada", 4).await;
    assert_eq!(never, Err(WaitError::Never { limit: 3 }));
}

#[tokio::test]
async fn while_redis_is_away_the_failure_mode_answers() {
    // The port is closed.
    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port is free");
    let url = format!(
        "redis://{}",
        closed.local_addr().expect("it has an address")
    );
    drop(closed);
    let limiter = RateLimiter::builder(Limit::per_hour(1));
    let local = limiter
        .redis(&url)
        .await
        .expect("an absent Redis is no error");
    let first = local.check("ada").await;
    assert!(first.allowed && first.degraded);
    assert!(
        !local.check("ada").await.allowed,
        "this node counts by itself"
    );
    let limiter = RateLimiter::builder(Limit::per_hour(1)).on_store_failure(FailureMode::Deny);
    let deny = limiter
        .redis(&url)
        .await
        .expect("an absent Redis is no error");
    let denied = deny.check("ada").await;
    assert!(!denied.allowed && denied.degraded);
}

#[tokio::test]
async fn what_passed_while_redis_was_away_is_charged_afterwards() {
    let mut server = Server::start();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let limiter = RateLimiter::builder(Limit::per_hour(10)).redis(&url).await;
    let limiter = limiter.expect("Redis is there");
    assert_eq!(limiter.check("ada").await.remaining, 9);
    server.process().pause();
    for _ in 0..3 {
        let answer = limiter.check("ada").await;
        assert!(answer.allowed && answer.degraded, "{answer:?}");
    }
    server.process().resume();
    let charged = async {
        // Nothing of this test calls the maintenance by which they are posted.
        while (
            limiter.peek("ada").await.degraded,
            limiter.peek("ada").await.remaining,
        ) != (false, 6)
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(charged).await;
}

#[tokio::test]
async fn what_is_no_redis_is_refused_when_the_limiter_is_made() {
    let refused = RateLimiter::builder(Limit::per_hour(1))
        .redis("http://127.0.0.1")
        .await;
    assert!(matches!(refused, Err(Error::RedisUrl(_))), "{refused:?}");
    let clock = ManualClock::new();
    let refused = RateLimiter::builder(Limit::per_hour(1))
        .clock(&clock)
        .redis("redis://127.0.0.1");
    assert!(matches!(refused.await, Err(Error::ClockWithRedis)));

    let stranger = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port is free");
    let url = format!(
        "redis://{}",
        stranger.local_addr().expect("it has an address")
    );
    tokio::spawn(async move {
        while let Ok((stream, _)) = stranger.accept().await {
            let _ = stream.try_write(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let refused = RateLimiter::builder(Limit::per_hour(1)).redis(&url).await;
    assert!(matches!(refused, Err(Error::NotRedis(_))), "{refused:?}");
}

#[test]
fn outside_of_a_runtime_is_an_error() {
    let connecting = RateLimiter::builder(Limit::per_hour(1)).redis("redis://127.0.0.1");
    let mut connecting = std::pin::pin!(connecting);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let answer = std::future::Future::poll(connecting.as_mut(), &mut context);
    assert!(matches!(
        answer,
        std::task::Poll::Ready(Err(Error::NoRuntime))
    ));
}
