//! One point of a curve: a gateway and an upstream of its own under one offered load.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use ratekeeper_testkit::paired::quantile;
use ratekeeper_testkit::ratekeeper::Setup;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::Times;
use super::client::{Clients, Outcome, PATIENCE};
use super::upstream::{CAPACITY, Upstream};

const RULES: &str = "
domain: shop
descriptors:
  - key: api_key
    rate_limit: { window: 1m, limit: 1000000000 }
";

/// The results under one load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    /// Offered load, as a multiple of capacity.
    pub(crate) load: f64,
    /// Answers in time, as a part of capacity.
    pub(crate) goodput: f64,
    /// The part of critical requests that succeeded.
    pub(crate) critical: f64,
    /// Latencies of answers in time; of none, the clients' patience.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

/// A request that was sent, and what became of it.
struct Sent {
    at: Duration,
    is_critical: bool,
    outcome: Outcome,
}

pub(crate) async fn measure(binary: &Path, shed: &str, load: f64, times: Times) -> Result<Point> {
    let upstream = Upstream::start().await?;
    let setup = Setup::gateway(binary, &format!("http://{}", upstream.address));
    let gateway = setup.rules(&format!("{RULES}{shed}")).start();
    let clients = Clients::new(SocketAddr::from((Ipv4Addr::LOCALHOST, gateway.port)));
    let sent = offer(&clients, load, times.warm + times.measured).await;
    Ok(summary(load, times, &sent))
}

/// Sends requests at random times, whatever becomes of those before them.
async fn offer(clients: &Clients, load: f64, during: Duration) -> Vec<Sent> {
    let mut rng = fastrand::Rng::with_seed(7);
    let begun = Instant::now();
    let mut at = Duration::ZERO;
    let mut asked = JoinSet::new();
    loop {
        let gap = -(1.0 - rng.f64()).ln() / (load * CAPACITY);
        at += Duration::from_secs_f64(gap);
        if at >= during {
            break;
        }
        sleep_until(begun + at).await;
        let (request, is_critical) = request(&mut rng);
        let clients = clients.clone();
        asked.spawn(async move {
            Sent {
                at,
                is_critical,
                outcome: clients.ask(request).await,
            }
        });
    }
    asked.join_all().await
}

/// One request of the mix: 10 % tests, 60 % reads, 20 % writes, 10 % critical, by 50 tenants.
fn request(rng: &mut fastrand::Rng) -> (Request<Empty<Bytes>>, bool) {
    let (method, class) = match rng.u32(0..10) {
        0 => ("GET", "x-test"),
        1..=6 => ("GET", "x-usual"),
        7 | 8 => ("POST", "x-usual"),
        _ => ("POST", "x-critical"),
    };
    let request = Request::builder()
        .method(method)
        .uri("/orders")
        .header("host", "shop")
        .header("x-api-key", format!("tenant-{}", rng.u32(0..50)))
        .header(class, "1");
    let request = request.body(Empty::new()).expect("its parts are good");
    (request, class == "x-critical")
}

/// Goodput counts answers that came within the measured time; the rest goes by when requests were sent.
fn summary(load: f64, times: Times, sent: &[Sent]) -> Point {
    let measured = times.warm..times.warm + times.measured;
    let mut good = 0;
    let mut latencies = Vec::new();
    let (mut critical, mut critical_good) = (0_u32, 0_u32);
    for Sent {
        at,
        is_critical,
        outcome,
    } in sent
    {
        if let Outcome::Good(took) = outcome
            && measured.contains(&(*at + *took))
        {
            good += 1;
            latencies.push(took.as_secs_f64() * 1e3);
        }
        if *is_critical && measured.contains(at) {
            critical += 1;
            critical_good += u32::from(matches!(outcome, Outcome::Good(_)));
        }
    }
    if latencies.is_empty() {
        latencies.push(PATIENCE.as_secs_f64() * 1e3);
    }
    Point {
        load,
        goodput: f64::from(good) / times.measured.as_secs_f64() / CAPACITY,
        critical: f64::from(critical_good) / f64::from(critical.max(1)),
        p50_ms: quantile(latencies.iter().copied(), 0.5),
        p99_ms: quantile(latencies, 0.99),
    }
}
