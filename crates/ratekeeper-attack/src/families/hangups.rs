//! Hang-ups: clients that go away while the upstream works for them, to have more of it at a time than they may.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use ratekeeper_testkit::http1::connect;
use ratekeeper_testkit::http2::{
    END_HEADERS, END_STREAM, HEADERS, RST_STREAM, block, frame, opening,
};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::recorder::{Asked, Recorder, ok};

use crate::plan::Plan;
use crate::row::{Fate, Row};
use crate::target::Setup;

/// The requests that the upstream may have at a time.
const LIMIT: usize = 3;

const PERMITS: &str = "
domain: api
descriptors:
  - key: path
    value: /slow
    concurrency: { limit: 3, timeout: 60s }
";

const PLACES: &str =
    "upstream_requests_max: 3\nupstream_queue_max: 0\nupstream_address_share: 100%\n";

const FINISH: &str = "routes: [ { upstream: upstream, on_client_gone: finish } ]\n";

/// The time that the upstream works for a request, whether its client is still there or not.
const WORK: Duration = Duration::from_millis(300);

/// The time by which its answers have begun so far: longer, since a busy machine lets some work take its time.
const BEFORE: Duration = Duration::from_millis(1_500);

/// The time of the attack in the full form.
const TIME: Duration = Duration::from_secs(20);

/// The way in which clients go away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Streams of one HTTP/2 connection are reset.
    Reset,
    /// HTTP/1 connections are closed.
    Close,
}

pub(crate) fn attack(program: &Path, plan: &Plan) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (bound, rules, settings) in [
        ("permits", PERMITS, String::new()),
        ("places", "domain: api\n", PLACES.to_owned()),
        (
            "places of what is finished",
            "domain: api\n",
            format!("{PLACES}{FINISH}"),
        ),
    ] {
        for (way, name) in [
            (Way::Reset, "streams that are reset"),
            (Way::Close, "connections that are closed"),
        ] {
            let name = format!("{name}, {bound}");
            rows.push(hang_up(program, plan, &name, (rules, &settings), way)?);
        }
    }
    Ok(rows)
}

/// The requests that an upstream works on.
#[derive(Default)]
struct Working {
    now: AtomicUsize,
    most: AtomicUsize,
    all: AtomicUsize,
}

impl Working {
    fn on(&self, asked: &Asked) {
        let work = match asked.head.starts_with("GET /slow") {
            true => WORK,
            false => BEFORE,
        };
        self.all.fetch_add(1, Ordering::Relaxed);
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        sleep(work);
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

fn hang_up(
    program: &Path,
    plan: &Plan,
    name: &str,
    (rules, settings): (&str, &str),
    way: Way,
) -> Result<Row> {
    let working = Arc::new(Working::default());
    let works = Arc::clone(&working);
    let upstream = Recorder::start(move |asked| {
        works.on(asked);
        ok("")
    });
    let gateway = Setup::gateway(program, &upstream.url()).start_with(rules, settings);
    let mut row = Row::new(format!("hang-ups, {name}"));
    row.bound(gateway.serves("/"), "no client is served");
    let end = Instant::now() + TIME / plan.divisor;
    let tried = match way {
        Way::Reset => reset(gateway.port, end),
        Way::Close => close(gateway.port, end),
    };
    let reached = working.all.load(Ordering::Relaxed) as u64 - 1;
    row.limited = (tried as u64).saturating_sub(reached);
    row.harmless = reached;
    let most = working.most.load(Ordering::Relaxed);
    if most > LIMIT {
        row.count(
            Fate::Passed,
            format!("the upstream had {most} requests at once, at a limit of {LIMIT}"),
        );
    }
    row.bound(reached > 0, "nothing reached the upstream");
    let series = r#"ratelimit_gateway_upstream_abandoned{upstream="upstream"} "#;
    eventually("nothing is held for clients that are gone", || {
        gateway.metric(series) == 0
    });
    row.bound(gateway.serves("/slow"), "something is lost");
    row.measure(&gateway.process);
    Ok(row)
}

/// Begins streams, and resets each after a moment. Returns how many.
fn reset(port: u16, end: Instant) -> usize {
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/slow"),
    ];
    let mut tried = 0;
    while Instant::now() < end {
        let mut client = connect(port);
        let bytes = opening(None);
        let mut is_open = client.write_all(&bytes).is_ok();
        let mut id = 1;
        while is_open && Instant::now() < end {
            let begun = frame(HEADERS, END_HEADERS | END_STREAM, id, &block(&fields));
            let over = frame(RST_STREAM, 0, id, &8_u32.to_be_bytes());
            is_open = client.write_all(&begun).is_ok();
            sleep(Duration::from_millis(10));
            is_open &= client.write_all(&over).is_ok();
            (id, tried) = (id + 2, tried + 1);
        }
    }
    tried
}

/// Begins requests, and closes the connection of each after a moment. Returns how many.
fn close(port: u16, end: Instant) -> usize {
    let mut tried = 0;
    while Instant::now() < end {
        let mut client = connect(port);
        let _ = client.write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        sleep(Duration::from_millis(20));
        tried += 1;
    }
    tried
}
