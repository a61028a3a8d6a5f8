//! Smuggling over HTTP/2: requests that HTTP/1, which upstreams speak, has no words for, or two meanings.

use std::net::Shutdown;
use std::path::Path;

use anyhow::Result;
use ratekeeper_testkit::http2::{Fields, Outcome, begin, outcome};
use ratekeeper_testkit::recorder::{Recorder, ok};

use crate::plan::Plan;
use crate::row::{Fate, Row};
use crate::target::{Setup, Target};

const PLAIN: [(&str, &str); 4] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/"),
    (":authority", "a"),
];

/// Fields that come behind those of a plain request.
const MORE: &[(&str, Fields<'static>)] = &[
    ("a connection header", &[("connection", "keep-alive")]),
    ("chunks", &[("transfer-encoding", "chunked")]),
    ("an upgrade", &[("upgrade", "h2c")]),
    ("keep-alive", &[("keep-alive", "timeout=5")]),
    ("proxy-connection", &[("proxy-connection", "keep-alive")]),
    ("a TE that is not trailers", &[("te", "gzip")]),
    ("another host", &[("host", "b")]),
    ("two hosts", &[("host", "a"), ("host", "a")]),
    ("a length that is too long", &[("content-length", "40")]),
    ("a length that is too short", &[("content-length", "1")]),
    ("a length of nothing", &[("content-length", "0")]),
    ("a signed length", &[("content-length", "+2")]),
    (
        "two lengths",
        &[("content-length", "2"), ("content-length", "40")],
    ),
    ("a list of lengths", &[("content-length", "2, 2")]),
    (
        "a value with a line in it",
        &[("x", "x\r\nTransfer-Encoding: chunked")],
    ),
    ("a value with a null byte", &[("x", "a\0b")]),
    ("a name with a line in it", &[("x\r\ny", "1")]),
    ("a name with a colon", &[("x: y", "1")]),
    ("a name with a capital", &[("Transfer-Encoding", "chunked")]),
    ("no name", &[("", "1")]),
    ("a late pseudo-header", &[("x", "1"), (":path", "/b")]),
    ("an unknown pseudo-header", &[(":x", "1")]),
];

/// Values that stand instead of those of a plain request: the attempt, the field and its value.
const INSTEAD: &[(&str, &str, &str)] = &[
    ("a line in the path", ":path", "/ HTTP/1.1\r\nX: 1"),
    ("a version in the path", ":path", "/ HTTP/1.1"),
    ("a space in the path", ":path", "/a b"),
    ("a tab in the path", ":path", "/a\tb"),
    ("a null byte in the path", ":path", "/a\0b"),
    ("no path", ":path", ""),
    ("a path without a slash", ":path", "a"),
    ("a path that names a host", ":path", "http://b/"),
    ("an asterisk", ":path", "*"),
    ("dots", ":path", "/a/../secret"),
    ("an encoded slash", ":path", "/a%2fb"),
    (
        "a line in the method",
        ":method",
        "GET /secret HTTP/1.1\r\nX: 1",
    ),
    ("a space in the method", ":method", "GET /secret"),
    ("no method", ":method", ""),
    ("CONNECT", ":method", "CONNECT"),
    ("a line in the host", ":authority", "a\r\nX: 1"),
    ("a path in the host", ":authority", "a/b"),
    ("a user in the host", ":authority", "u@a"),
    ("a space in the host", ":authority", "a b"),
    ("no host", ":authority", ""),
    ("two hosts", ":authority", "a, b"),
    ("a port that is none", ":authority", "a:b"),
    ("a path in the scheme", ":scheme", "http://b/x?"),
    ("a line in the scheme", ":scheme", "http\r\nX: 1"),
];

pub(crate) fn attack(program: &Path, _plan: &Plan) -> Result<Vec<Row>> {
    let upstream = Recorder::start(|_| ok("public"));
    let setup = Setup::gateway(program, &upstream.url());
    let gateway = setup.rules("domain: api\n").start();
    let mut row = Row::new("HTTP/2 smuggling, gateway");
    let plain = fate(&gateway, &PLAIN);
    row.is("a plain request", plain, Fate::Passed);
    let served = upstream.asked().len();
    for (what, more) in MORE {
        let fields = [&PLAIN, *more].concat();
        row.count(fate(&gateway, &fields), (*what).to_owned());
    }
    for (what, name, value) in INSTEAD {
        let fields =
            PLAIN.map(|(other, usual)| (other, if other == *name { *value } else { usual }));
        row.count(fate(&gateway, &fields), (*what).to_owned());
    }
    for (name, _) in PLAIN {
        // A scheme is of no use here: how the client comes is known.
        if name != ":scheme" {
            let others = PLAIN.iter().filter(|(other, _)| *other != name);
            let fields: Vec<_> = others.copied().collect();
            row.count(fate(&gateway, &fields), format!("without {name}"));
        }
    }
    let asked = upstream.asked().len() - served;
    row.bound(asked == 0, format!("the upstream was asked {asked} times"));
    row.measure(&gateway.process);
    Ok(vec![row])
}

/// The fate of a request with these fields and the body `hi`.
fn fate(gateway: &Target, fields: Fields<'_>) -> Fate {
    let mut stream = begin(gateway.port, fields, Some("hi"));
    let outcome = outcome(&mut stream);
    let _ = stream.shutdown(Shutdown::Both);
    match outcome {
        Outcome::Status(200) => Fate::Passed,
        Outcome::Status(_) | Outcome::Refused => Fate::Refused,
    }
}
