//! The client with a real service that is up, stopped, hung, and back again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ratekeeper::{Limiter, LimiterOptions, MemoryConfig, MemoryStore};
use ratekeeper_client::{
    CheckRequest, Client, Config, ConfigError, Error, FallbackPolicy, ToReserve,
};
use ratekeeper_server::{ListenAddress, RulesLoader, RulesSource, Server, ServerConfig};
use ratekeeper_stores::Stores;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{broadcast, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

/// Far more than any step needs; reached only when a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Windows that end decades from now, so that no test sees an edge.
const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window }
  - key: job
    concurrency: { limit: 1, timeout: 3s }
  - key: long_job
    concurrency: { limit: 1, timeout: 1h }
";

struct Running {
    address: ListenAddress,
    limiter: Arc<Limiter<Stores>>,
    shutdown: oneshot::Sender<()>,
    task: JoinHandle<()>,
    _dir: TempDir,
}

impl Running {
    async fn start(grpc: &str) -> Self {
        Self::start_with(grpc, MemoryConfig::default()).await
    }

    async fn start_with(grpc: &str, memory: MemoryConfig) -> Self {
        let free: ListenAddress = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0).into();
        let mut config = ServerConfig {
            grpc: Some(match grpc.strip_prefix("unix:") {
                Some(path) => ListenAddress::Unix(path.into()),
                None => ListenAddress::Tcp(grpc.parse().unwrap()),
            }),
            http: Some(free.clone()),
            admin: free,
            drain_delay: Duration::ZERO,
            ..ServerConfig::default()
        };
        config.bounds.drain_timeout = Duration::from_millis(100);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("rules.yaml"), RULES).unwrap();
        let mut loader = RulesLoader::new(RulesSource {
            path: dir.path().to_owned(),
            tenants: None,
            read: ratekeeper::rules::ReadOptions::default(),
            options: ratekeeper::rules::Options::default(),
        });
        let rules = loader.load().unwrap().rules;
        let store = MemoryStore::new(memory).unwrap();
        let limiter = Arc::new(Limiter::new(rules, store.into(), LimiterOptions::default()));
        let server = Server::bind(config, Arc::clone(&limiter), loader)
            .await
            .unwrap();
        let address = server.addresses().grpc.unwrap();
        let (shutdown, stop) = oneshot::channel();
        let task = tokio::spawn(async move {
            server
                .run(async {
                    let _ = stop.await;
                })
                .await;
        });
        Self {
            address,
            limiter,
            shutdown,
            task,
            _dir: dir,
        }
    }

    fn client(&self, change: impl FnOnce(&mut Config)) -> Client {
        client(&self.address.to_string(), change)
    }

    async fn stop(self) {
        let _ = self.shutdown.send(());
        self.task.await.unwrap();
    }
}

/// A client with a deadline that only a hung service reaches.
fn client(address: &str, change: impl FnOnce(&mut Config)) -> Client {
    let mut config = Config::new(match address.starts_with("unix:") {
        true => address.to_owned(),
        false => format!("http://{address}"),
    });
    config.deadline = PATIENCE;
    change(&mut config);
    Client::new(config).unwrap()
}

fn user(name: &str) -> CheckRequest {
    CheckRequest::new("d").descriptor([("user", name)])
}

fn job() -> CheckRequest {
    CheckRequest::new("d").descriptor([("job", "a")])
}

/// A concurrency limit whose permits outlive any test.
fn long_job() -> CheckRequest {
    CheckRequest::new("d").descriptor([("long_job", "a")])
}

/// A proxy between client and service that holds answers back until told otherwise.
struct Gate {
    address: String,
    open: watch::Sender<bool>,
    /// Stalls the existing connections without closing them.
    stand_still: broadcast::Sender<()>,
    task: JoinHandle<()>,
}

impl Gate {
    async fn start(to: &ListenAddress) -> Self {
        Self::start_at("127.0.0.1:0", to).await
    }

    async fn start_at(address: &str, to: &ListenAddress) -> Self {
        let to = to.tcp().unwrap();
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (open, is_open) = watch::channel(true);
        let (stand_still, _) = broadcast::channel(1);
        let stops = stand_still.clone();
        let task = tokio::spawn(async move {
            let mut lines = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let (mut from_client, mut to_client) = near.into_split();
                let far = TcpStream::connect(to).await.unwrap();
                let (mut from_service, mut to_service) = far.into_split();
                lines.spawn(async move {
                    let _ = tokio::io::copy(&mut from_client, &mut to_service).await;
                });
                let mut is_open = is_open.clone();
                let mut stop = stops.subscribe();
                lines.spawn(async move {
                    let mut bytes = [0; 4096];
                    while let Ok(count @ 1..) = from_service.read(&mut bytes).await {
                        if stop.try_recv().is_ok() {
                            return std::future::pending().await;
                        }
                        is_open.wait_for(|is_open| *is_open).await.unwrap();
                        if to_client.write_all(&bytes[..count]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self {
            address,
            open,
            stand_still,
            task,
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Gate {
    /// Closes its port and all connections.
    async fn close(mut self) {
        self.task.abort();
        assert!((&mut self.task).await.unwrap_err().is_cancelled());
    }
}

/// Checks that the permit which `begin` makes the service grant, through a gate that holds the
/// answer back, is released once the gate opens. The second client of `begin` asks directly.
async fn is_given_back(deadline: Duration, begin: impl AsyncFnOnce(&Client, &Client)) {
    let running = Running::start("127.0.0.1:0").await;
    let direct = running.client(|_| {});
    let gate = Gate::start(&running.address).await;
    let client = client(&gate.address, |config| config.deadline = deadline);
    wait(async || client.peek(&long_job()).await.is_ok()).await;
    gate.open.send(false).unwrap();
    begin(&client, &direct).await;
    is_taken(&direct).await;
    gate.open.send(true).unwrap();
    wait(async || direct.peek(&long_job()).await.unwrap().would_allow).await;
    drop(gate);
    running.stop().await;
}

#[tokio::test]
async fn a_permit_whose_answer_is_late_is_given_back() {
    is_given_back(Duration::from_secs(2), async |client, _| {
        let held = client.acquire(&long_job()).await.unwrap();
        assert!(held.answer.degraded && held.permit.is_none());
    })
    .await;
}

#[tokio::test]
async fn a_permit_that_no_caller_waits_for_is_given_back() {
    is_given_back(PATIENCE, async |client, direct| {
        let question = long_job();
        tokio::select! {
            _ = client.acquire(&question) => panic!("its answer is held back"),
            () = is_taken(direct) => {}
        }
    })
    .await;
}

/// A release that nobody waits for is repeated, as the acquire whose answer is late.
#[tokio::test]
async fn a_permit_is_released_although_the_first_attempt_fails() {
    let (_port, address) = reserved();
    let running = Running::start("127.0.0.1:0").await;
    let direct = running.client(|_| {});
    for is_awaited in [false, true] {
        let gate = Gate::start_at(&address, &running.address).await;
        let client = client(&address, |config| config.retries.burst = 0);
        let permit = client.acquire(&long_job()).await.unwrap().permit.unwrap();
        gate.close().await;
        let before = client.counts().calls;
        match is_awaited {
            false => drop(permit),
            true => {
                let released = permit.release().await;
                assert!(matches!(released, Err(Error::Away(_))), "{released:?}");
            }
        }
        // The second attempt has begun, so the first one has failed.
        wait(async || client.counts().calls >= before + 2).await;
        let gate = Gate::start_at(&address, &running.address).await;
        wait(async || direct.peek(&long_job()).await.unwrap().would_allow).await;
        gate.close().await;
    }
    running.stop().await;
}

#[tokio::test]
async fn a_permit_is_released_although_its_release_is_given_up() {
    let running = Running::start("127.0.0.1:0").await;
    let client = running.client(|_| {});
    let permit = client.acquire(&long_job()).await.unwrap().permit.unwrap();
    let mut release = Box::pin(permit.release());
    std::future::poll_fn(|cx| {
        assert!(release.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    drop(release);
    wait(async || client.peek(&long_job()).await.unwrap().would_allow).await;
    running.stop().await;
}

#[tokio::test]
async fn a_permit_is_lost_once_its_time_is_over_while_the_service_is_away() {
    let running = Running::start("127.0.0.1:0").await;
    let gate = Gate::start(&running.address).await;
    let client = client(&gate.address, |config| {
        config.deadline = Duration::from_secs(5)
    });
    let permit = client.acquire(&job()).await.unwrap().permit.unwrap();
    gate.close().await;
    assert!(!permit.is_lost());
    wait(async || permit.is_lost()).await;
    running.stop().await;
}

/// Waits until the permit of [`long_job`] is taken.
async fn is_taken(direct: &Client) {
    wait(async || !direct.peek(&long_job()).await.unwrap().would_allow).await;
}

/// A port that no other process is given while the socket is there: a service may come, go and come back to it.
fn reserved() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket
        .bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))
        .unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

/// Waits until `holds` returns true.
async fn wait(mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
}

#[tokio::test]
async fn checks_are_the_services() {
    let running = Running::start("127.0.0.1:0").await;
    let client = running.client(|_| {});
    for left in [2, 1, 0] {
        let answer = client.check(&user("a")).await.unwrap();
        let limit = answer.limit.clone().unwrap();
        assert!(answer.allowed && !answer.degraded && answer.retry_after().is_none());
        assert_eq!(
            (limit.rule_id(), limit.limit, limit.remaining),
            ("d.user", 3, left)
        );
    }
    let denied = client.check(&user("a")).await.unwrap();
    assert!(!denied.allowed && denied.retry_after().is_some());
    let questions = [user("a"), user("b").hits(3), user("b")];
    let answers = client.check_batch(&questions).await.unwrap();
    let allowed: Vec<_> = answers.iter().map(|answer| answer.allowed).collect();
    assert_eq!(allowed, [false, true, false]);
    assert!(!client.peek(&user("b")).await.unwrap().would_allow);
    let refund = client.refund(&user("b").hits(2), Some("k")).await.unwrap();
    assert_eq!(refund.limit.unwrap().remaining, 2);
    assert!(client.peek(&user("b")).await.unwrap().would_allow);
    let refused = client.check(&CheckRequest::new("d")).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(why) if why.starts_with("descriptors: ")));
    let long = user(&"x".repeat(5 << 20));
    let refused = client.check(&long).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(why) if why.contains("at most 4194304")));
    // What the service cannot read, it denies.
    let denied = client.check(&user(&"x".repeat(70_000))).await.unwrap();
    assert!(!denied.allowed && denied.limit.is_none());
    assert_eq!(client.trouble(), None);
    let counts = client.counts();
    assert_eq!((counts.fallbacks, counts.refused), (0, 2));
    running.stop().await;
}

#[tokio::test]
async fn a_permit_is_renewed_until_it_is_dropped() {
    let running = Running::start("127.0.0.1:0").await;
    let client = running.client(|_| {});
    let held = client.acquire(&job()).await.unwrap();
    let permit = held.permit.unwrap();
    // Twice its timeout by the service's clock: it can only be held because it was renewed.
    let clock = running.limiter.clock();
    let end = clock.now().after(ratekeeper::Micros::from_secs(6));
    wait(async || clock.now() > end).await;
    let denied = client.acquire(&job()).await.unwrap();
    assert!(!denied.answer.allowed && denied.permit.is_none());
    assert!(!permit.is_lost());
    drop(permit);
    wait(async || client.peek(&job()).await.unwrap().would_allow).await;
    let again = client.acquire(&job()).await.unwrap().permit.unwrap();
    assert!(again.release().await.unwrap());
    assert!(client.peek(&job()).await.unwrap().would_allow);
    running.stop().await;
}

#[tokio::test]
async fn permits_are_taken_where_no_more_keys_can_be_remembered() {
    let smallest = MemoryConfig {
        memory_limit: MemoryConfig::LEAST,
        ..MemoryConfig::default()
    };
    let running = Running::start_with("127.0.0.1:0", smallest).await;
    let client = running.client(|_| {});
    // The service remembers each key for five minutes, in 64 KiB.
    for number in 0..2_000 {
        let job = CheckRequest::new("d").descriptor([("long_job", number.to_string())]);
        let held = client.acquire(&job).await.unwrap();
        assert!(!held.answer.degraded, "{number}");
        assert!(held.permit.unwrap().release().await.unwrap());
    }
    running.stop().await;
}

#[tokio::test]
async fn a_permit_that_was_lost_says_so() {
    let running = Running::start("127.0.0.1:0").await;
    let client = running.client(|_| {});
    let permit = client.acquire(&job()).await.unwrap().permit.unwrap();
    let released = running
        .limiter
        .caller("")
        .release(permit.token())
        .await
        .unwrap();
    assert!(released.was_held);
    wait(async || permit.is_lost()).await;
    assert!(!permit.release().await.unwrap());
    running.stop().await;
}

#[tokio::test]
async fn reservations_are_settled_once() {
    let running = Running::start("127.0.0.1:0").await;
    let client = running.client(|_| {});
    let mut wanted = ToReserve::new(user("a"), 3);
    wanted.idempotency_key = Some("k".to_owned());
    let reserved = client.reserve(&wanted).await.unwrap().reservation.unwrap();
    assert_eq!(
        client
            .reserve(&wanted)
            .await
            .unwrap()
            .reservation
            .unwrap()
            .token,
        reserved.token
    );
    assert!(!client.check(&user("a")).await.unwrap().allowed);
    for is_repeat in [false, true] {
        let settled = client.commit(&reserved, 1).await.unwrap();
        assert_eq!((settled.given_back, settled.is_repeat), (2, is_repeat));
    }
    let refused = client.cancel(&reserved).await.unwrap_err();
    assert!(matches!(refused, Error::State(_)), "{refused:?}");
    assert!(client.check(&user("a").hits(2)).await.unwrap().allowed);
    running.stop().await;
}

#[tokio::test]
async fn a_service_that_is_away_is_answered_for_until_it_is_back() {
    let (_port, address) = reserved();
    let running = Running::start(&address).await;
    let local = ratekeeper::from_yaml(&RULES.replace(": 3,", ": 1,")).unwrap();
    let clients = [
        FallbackPolicy::Allow,
        FallbackPolicy::Deny,
        FallbackPolicy::Local(Arc::new(local)),
    ]
    .map(|fallback| running.client(|config| config.fallback = fallback));
    for client in &clients {
        assert!(!client.check(&user("a")).await.unwrap().degraded);
    }
    running.stop().await;
    for (client, expected) in clients
        .iter()
        .zip([[true, true], [false, false], [true, false]])
    {
        for allowed in expected {
            let answer = client.check(&user("a")).await.unwrap();
            assert_eq!((answer.allowed, answer.degraded), (allowed, true));
        }
        assert_eq!(client.counts().fallbacks, 2);
        assert!(matches!(client.peek(&user("a")).await, Err(Error::Away(_))));
        let held = client.acquire(&job()).await.unwrap();
        assert!(held.answer.degraded && held.permit.is_none());
        assert!(
            client.counts().retries > 0,
            "no service was reached, so nothing was charged"
        );
    }
    let back = Running::start(&address).await;
    for client in &clients {
        wait(async || !client.check(&user("a")).await.unwrap().degraded).await;
    }
    back.stop().await;
}

fn first_is_up(client: &Client) -> bool {
    client.services().first().is_some_and(|(_, is_up)| *is_up)
}

#[tokio::test]
async fn the_next_service_is_asked_while_the_first_is_away() {
    let (_port, address) = reserved();
    let first = Running::start(&address).await;
    let second = Running::start("127.0.0.1:0").await;
    let next = format!("http://{}", second.address);
    let client = client(&address, |config| config.endpoints.push(next));
    let left = async || {
        let answer = client.check(&user("a")).await.unwrap();
        assert!(!answer.degraded);
        answer.limit.unwrap().remaining
    };
    assert_eq!([left().await, left().await], [2, 1]);
    first.stop().await;
    assert_eq!(left().await, 2, "the counters of the second");
    assert!(!first_is_up(&client));
    let back = Running::start(&address).await;
    wait(async || first_is_up(&client)).await;
    assert_eq!(
        left().await,
        2,
        "the counters of the first, which started over"
    );
    assert_eq!(client.counts().fallbacks, 0);
    back.stop().await;
    second.stop().await;
}

/// A service that accepts and never answers is skipped, too: only a few calls lose their deadline.
#[tokio::test]
async fn a_service_that_hangs_is_passed_over() {
    let hung = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = hung.local_addr().unwrap().to_string();
    let running = Running::start("127.0.0.1:0").await;
    let next = format!("http://{}", running.address);
    let client = client(&address, |config| {
        config.deadline = Duration::from_millis(500);
        config.endpoints.push(next);
    });
    wait(async || !client.check(&user("a").hits(0)).await.unwrap().degraded).await;
    assert!(!first_is_up(&client));
    assert!(client.counts().fallbacks >= 3);
    drop(hung);
    running.stop().await;
}

/// A stalled connection delays no call that begins after the stall was noticed.
#[tokio::test]
async fn a_connection_that_stands_still_is_replaced() {
    let running = Running::start("127.0.0.1:0").await;
    let gate = Gate::start(&running.address).await;
    let client = client(&gate.address, |config| {
        config.deadline = Duration::from_secs(1);
        config.connections = 1;
    });
    wait(async || client.peek(&user("a")).await.is_ok()).await;
    gate.stand_still.send(()).unwrap();
    let before = client.counts().calls;
    wait(async || client.peek(&user("a")).await.is_ok()).await;
    let lost = client.counts().calls - before;
    assert!(lost <= 10, "{lost}: the ping that finds it out takes 15 s");
    running.stop().await;
}

/// A service that accepts and never answers costs a call its deadline and no more. A check is not
/// retried, because it may have been executed.
#[tokio::test]
async fn a_service_that_hangs_costs_a_deadline() {
    let hung = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = hung.local_addr().unwrap().to_string();
    let client = client(&address, |config| {
        config.deadline = Duration::from_millis(50)
    });
    let answer = tokio::time::timeout(PATIENCE, client.check(&user("a"))).await;
    let answer = answer.unwrap().unwrap();
    assert!(answer.allowed && answer.degraded);
    assert_eq!((client.counts().calls, client.counts().retries), (1, 0));
    drop(hung);
}

#[tokio::test]
async fn retries_end_with_the_budget() {
    let (_gone, address) = reserved();
    let client = client(&address, |config| {
        config.retries.burst = 3;
        config.retries.percent = 0;
    });
    for _ in 0..5 {
        assert!(client.check(&user("a")).await.unwrap().degraded);
    }
    assert_eq!((client.counts().calls, client.counts().retries), (5, 3));
}

/// A synchronous program makes a runtime for each of its jobs.
#[test]
fn a_client_is_used_from_one_runtime_after_another() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let running = runtime.block_on(Running::start("127.0.0.1:0"));
    let client = runtime.block_on(async { running.client(|_| {}) });
    for job in 0..70 {
        let mut own = tokio::runtime::Builder::new_current_thread();
        let own = own.enable_all().build().unwrap();
        let answer = own.block_on(client.check(&user("a").hits(0))).unwrap();
        assert!(!answer.degraded, "{job}");
    }
    runtime.block_on(running.stop());
}

#[tokio::test]
async fn a_call_may_have_all_the_time_it_takes() {
    let running = Running::start("127.0.0.1:0").await;
    let client = running.client(|config| config.deadline = Duration::MAX);
    assert!(client.peek(&user("a")).await.unwrap().would_allow);
    running.stop().await;
}

#[tokio::test]
async fn unix_sockets_are_called_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("grpc.sock");
    let running = Running::start(&format!("unix:{}", path.display())).await;
    let client = client(&format!("unix:{}", path.display()), |_| {});
    assert!(!client.check(&user("a")).await.unwrap().degraded);
    running.stop().await;
}

#[tokio::test]
async fn an_unknown_token_is_reported() {
    let running = Running::start("127.0.0.1:0").await;
    let client = running.client(|config| config.token = Some("x".to_owned()));
    assert!(
        client.check(&user("a")).await.is_ok(),
        "checks need no permission"
    );
    let refused = client.acquire(&job()).await.unwrap_err();
    assert!(matches!(refused, Error::NotAllowed(_)), "{refused:?}");
    running.stop().await;
}

#[test]
fn settings_are_shown_without_the_token() {
    let mut config = Config::new("http://a:1");
    assert!(format!("{config:?}").contains("token: None"));
    config.token = Some("s3cret".to_owned());
    let shown = format!("{config:?}");
    assert!(shown.contains("http://a:1") && shown.contains("token: Some(..)"));
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[tokio::test]
async fn invalid_settings_are_refused() {
    let with = |endpoint: &str, change: fn(&mut Config)| {
        let mut config = Config::new(endpoint);
        change(&mut config);
        Client::new(config).err()
    };
    for endpoint in ["", "localhost:8081", "ftp://a", "http://"] {
        let error = with(endpoint, |_| {});
        assert!(
            matches!(error, Some(ConfigError::Endpoint(_))),
            "{endpoint} {error:?}"
        );
    }
    let error = with("https://a:1", |_| {});
    assert!(
        matches!(error, Some(ConfigError::NoAuthorities)),
        "{error:?}"
    );
    let error = with("http://a:1", |config| {
        config.token = Some("a\nb".to_owned())
    });
    assert!(matches!(error, Some(ConfigError::Token)), "{error:?}");
    let error = with("http://a:1", |config| config.deadline = Duration::ZERO);
    assert!(matches!(error, Some(ConfigError::Deadline)), "{error:?}");
}
