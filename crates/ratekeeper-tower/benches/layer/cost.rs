//! Processor time in nanoseconds that the layer adds to a request, in pairs of runs with and
//! without it.

use std::convert::Infallible;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use ratekeeper_testkit::paired::difference;
use ratekeeper_testkit::process::thread_time;
use ratekeeper_tower::{Headers, LayerMode, Switch};
use tokio::runtime::Builder;
use tower::{Layer, Service, service_fn};

use crate::layer;

const REQUESTS: u32 = 50_000;
const PAIRS: usize = 31;

const RATE: &str = "
domain: d
descriptors:
- key: api_key
  rate_limit: { window: 1s, limit: 1000000000 }
";

const TWO_RATES_AND_PERMITS: &str = "
domain: d
descriptors:
- key: api_key
  rate_limit:
  - { window: 1s, limit: 1000000000 }
  - { window: 1h, limit: 1000000000 }
  concurrency: { limit: 20, timeout: 60s }
";

const DENIED: &str = "
domain: d
descriptors:
- key: api_key
  rate_limit: { window: 1h, limit: 0 }
";

pub(crate) fn beside_the_service_alone() {
    // Permits are renewed by tasks, which need a runtime.
    let runtime = Builder::new_current_thread().enable_all().build();
    let _inside = runtime.as_ref().expect("a runtime can be made").enter();
    println!(
        "\nnanoseconds of processor time added to a request by the layer, beside the service alone"
    );
    added("off", RATE, Headers::default(), LayerMode::Off);
    added("one limit, no headers", RATE, Headers::NONE, LayerMode::On);
    added("one limit", RATE, Headers::default(), LayerMode::On);
    added(
        "two limits and a permit",
        TWO_RATES_AND_PERMITS,
        Headers::default(),
        LayerMode::On,
    );
    added("denied", DENIED, Headers::default(), LayerMode::On);
}

fn added(name: &str, rules: &str, headers: Headers, mode: LayerMode) {
    let called = |_: Request<()>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
    };
    let mut alone = service_fn(called);
    let layer = layer(rules).headers(headers).switch(Switch::new(mode));
    let mut limited = layer.layer(alone);
    let runs: Vec<(f64, f64)> = (0..PAIRS)
        .map(|_| (run(&mut limited), run(&mut alone)))
        .collect();
    let (added, (least, most)) = difference(&runs);
    println!("{name:<30} {added:>8.0}   ({least:.0} to {most:.0})");
}

/// Nanoseconds per request.
fn run<S, R>(service: &mut S) -> f64
where
    S: Service<Request<()>, Response = R, Error = Infallible>,
{
    let mut context = Context::from_waker(Waker::noop());
    let begin = thread_time();
    for _ in 0..REQUESTS {
        let request = Request::get("/orders").header("x-api-key", "ada");
        let request = request.body(()).expect("a request");
        let future = pin!(service.call(request));
        match future.poll(&mut context) {
            Poll::Ready(answer) => drop(black_box(answer)),
            Poll::Pending => unreachable!("it is decided at once"),
        }
    }
    (thread_time() - begin).as_secs_f64() * 1e9 / f64::from(REQUESTS)
}
