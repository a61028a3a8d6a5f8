//! Measures the spacing of requests that arrive at twice the rate of a leaky bucket.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use ratekeeper_testkit::paired::quantile;
use ratekeeper_testkit::process::own_time;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::interval;
use tower::{Layer, ServiceExt, service_fn};

use crate::layer;

/// The time during which requests arrive.
const SPAN: Duration = Duration::from_secs(10);

/// The bound of the queue, including the request that leaves at once.
const BURST: u64 = 20;

pub(crate) fn at_twice_the_rate() {
    println!("\na leaky bucket of {BURST}, asked at twice its rate for {SPAN:?}");
    println!(
        "gaps as shares of 1 / rate; waiting are at most {}",
        BURST - 1
    );
    println!(
        "rate/s   left/s   off by   least gap   1st percentile   most waiting   denied   us of a processor each"
    );
    for rate in [20, 50, 100, 200, 500, 1_000] {
        let runtime = Builder::new_multi_thread().enable_all().build();
        runtime
            .expect("a runtime can be made")
            .block_on(measure(rate));
    }
}

async fn measure(rate: u32) {
    let rules = format!(
        "
domain: d
descriptors:
- key: api_key
  rate_limit: {{ window: 1s, limit: {rate}, burst: {BURST}, algorithm: leaky_bucket }}
"
    );
    let layer = layer(&rules);
    let left = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&left);
    let called = service_fn(move |_: Request<()>| {
        noted.lock().expect("no thread panics").push(Instant::now());
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
    });
    let limited = layer.layer(called);
    let mut asked = JoinSet::new();
    let mut ticks = interval(Duration::from_secs(1) / (2 * rate));
    let begin = own_time();
    let end = Instant::now() + SPAN;
    let mut most_waiting = 0;
    while Instant::now() < end {
        ticks.tick().await;
        let request = Request::get("/").header("x-api-key", "ada").body(());
        asked.spawn(limited.clone().oneshot(request.expect("a request")));
        most_waiting = most_waiting.max(layer.counts().waiting);
    }
    while asked.join_next().await.is_some() {}
    // Sending, deciding, waiting and leaving.
    let spent = own_time() - begin;

    let left = left.lock().expect("no thread panics").clone();
    let gaps = left
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_secs_f64());
    let gaps: Vec<f64> = gaps.map(|gap| gap * f64::from(rate)).collect();
    let (Some(first), Some(last)) = (left.first(), left.last()) else {
        return println!("{rate:>6}   nothing left");
    };
    let leaving = (left.len() - 1) as f64 / (*last - *first).as_secs_f64();
    let at = |share| quantile(gaps.iter().copied(), share);
    println!(
        "{rate:>6} {leaving:>8.2} {:>7.2}% {:>11.3} {:>16.3} {most_waiting:>14} {:>8} {:>24.0}",
        100.0 * (leaving / f64::from(rate) - 1.0),
        at(0.0),
        at(0.01),
        layer.counts().denied,
        spent.as_secs_f64() * 1e6 / left.len() as f64,
    );
}
