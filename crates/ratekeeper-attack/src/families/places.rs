//! Places: made-up keys that take the places of those who wait for a leaky bucket.

use std::net::TcpStream;
use std::path::Path;

use anyhow::Result;
use ratekeeper_testkit::http1::{Answer, connect, say};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::recorder::{Recorder, ok};
use std::io::Write;

use crate::plan::Plan;
use crate::row::{Fate, Row};
use crate::target::{Setup, Target};

/// A turn comes every ten minutes, and one request waits for it.
const RULES: &str = "
domain: api
descriptors:
  - key: api_key
    rate_limit: { window: 100m, limit: 10, burst: 2, algorithm: leaky_bucket }
";

const SETTINGS: &str = "wait_max: 1h\nwaiting_max: 160\n";

/// The places that one address may take.
const SHARE: u64 = 160 / 8;

/// Made-up keys of one address: more than there are places.
const KEYS: u64 = 200;

/// Honest clients that come then, each from an address of its own.
const HONEST: u64 = 40;

pub(crate) fn attack(program: &Path, _plan: &Plan) -> Result<Vec<Row>> {
    let upstream = Recorder::start(|_| ok(""));
    let gateway = Target::gateway(&Setup::new(program, RULES, SETTINGS), &upstream.url())?;
    let mut row = Row::new("made-up keys that wait for leaky buckets");
    let mut waiting = Vec::new();
    for number in 0..KEYS {
        let fate = match take(&gateway, "198.51.100.9", &format!("made-up-{number}")) {
            Some(stream) => {
                waiting.push(stream);
                Fate::Harmless
            }
            None => Fate::Limited,
        };
        row.count(fate, || format!("made-up-{number}"));
    }
    let taken = waiting.len() as u64;
    row.bound(taken <= SHARE, || {
        format!("one address has {taken} places, not {SHARE} at most")
    });
    row.bound(taken > 0, || "nobody waits".to_owned());
    for number in 0..HONEST {
        let place = take(
            &gateway,
            &format!("203.0.113.{number}"),
            &format!("honest-{number}"),
        );
        let fate = match place {
            Some(stream) => {
                waiting.push(stream);
                Fate::Harmless
            }
            None => Fate::Passed,
        };
        row.count(fate, || format!("honest client {number} found no place"));
    }
    row.measure(&gateway.process);
    Ok(vec![row])
}

/// Takes the turn of a key, and then a place behind it; None if there is no place.
fn take(gateway: &Target, address: &str, key: &str) -> Option<TcpStream> {
    let request = |connection: &str| {
        format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {address}\r\nX-Api-Key: {key}\r\nConnection: {connection}\r\n\r\n"
        )
    };
    let first = Answer::try_read(&say(gateway.port, request("close")));
    if first.is_none_or(|first| first.status != 200) {
        return None;
    }
    let decided =
        |what: &str| gateway.metric(&format!("ratelimit_gateway_held_total{{what=\"{what}\"}} "));
    let (waited, denied) = (decided("waited"), decided("denied"));
    let mut stream = connect(gateway.port);
    stream.write_all(request("keep-alive").as_bytes()).ok()?;
    let mut has_place = false;
    eventually("the request waits or is denied", || {
        has_place = decided("waited") > waited;
        has_place || decided("denied") > denied
    });
    has_place.then_some(stream)
}
