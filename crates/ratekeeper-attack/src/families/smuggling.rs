//! Smuggling over HTTP/1: requests that two readers could take for two different ones.
//!
//! Behind every attempt stands a request for `/secret`. The attempt has passed if the upstream gets that request although the
//! gateway did not know of it, or if it gets a head that can be read in two ways.

mod list;

use std::path::Path;

use anyhow::{Context, Result};
use ratekeeper_testkit::http1::say;
use ratekeeper_testkit::recorder::{Asked, Recorder, ok};

use crate::plan::Plan;
use crate::row::{Fate, Row};
use crate::target::{Setup, Target};
use crate::upstreams::{App, Kind};

/// The request that is to stay hidden in the body of the one before it, or behind it.
const SMUGGLED: &str = "GET /secret HTTP/1.1\r\nHost: a\r\n\r\n";

/// The last request, after which the gateway closes the connection.
const LAST: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

pub(crate) fn attack(program: &Path, _plan: &Plan) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let recorder = Recorder::start(|asked| match is_secret(asked) {
        true => ok("route=secret"),
        false => ok("public"),
    });
    let gateway = front(program, &recorder.url());
    let mut row = Row::new("HTTP/1 smuggling, gateway");
    // A gateway that refuses everybody would pass.
    send(&gateway, "");
    let asked = recorder.asked();
    let is_seen = asked.len() == 2 && asked.iter().filter(|asked| is_secret(asked)).count() == 1;
    row.bound(is_seen, format!("plain requests arrive as {asked:?}"));
    for request in list::requests() {
        row.count(
            recorded(&gateway, &recorder, &request),
            format!("{request:?}"),
        );
    }
    row.measure(&gateway.process);
    rows.push(row);
    for kind in [Kind::Flask, Kind::Django, Kind::Express] {
        let app = App::start(kind)?;
        let gateway = front(program, &app.url());
        let mut row = Row::new(format!("HTTP/1 smuggling, gateway and {}", kind.name()));
        let before = secrets(&app)?;
        say(app.port, format!("{SMUGGLED}{LAST}"));
        let mut seen = secrets(&app)?;
        row.is("plain requests for the secret", seen - before, 1);
        for request in list::requests() {
            let said = send(&gateway, &request);
            let now = secrets(&app)?;
            let asked = now - std::mem::replace(&mut seen, now);
            row.count(fate(&said, asked), format!("{request:?}"));
        }
        row.measure(&gateway.process);
        rows.push(row);
    }
    Ok(rows)
}

fn front(program: &Path, upstream: &str) -> Target {
    let setup = Setup::gateway(program, upstream);
    setup.rules("domain: api\n").start()
}

fn send(gateway: &Target, request: &str) -> String {
    say(gateway.port, format!("{request}{SMUGGLED}{LAST}"))
}

/// The fate of a request in front of an upstream that writes everything down.
fn recorded(gateway: &Target, recorder: &Recorder, request: &str) -> Fate {
    let before = recorder.asked().len();
    let said = send(gateway, request);
    let asked = recorder.asked().split_off(before);
    match asked.iter().all(is_plain) {
        true => fate(&said, asked.iter().filter(|asked| is_secret(asked)).count()),
        false => Fate::Passed,
    }
}

fn is_secret(asked: &Asked) -> bool {
    asked.head.starts_with("GET /secret ")
}

/// The gateway's answers beside the requests for `/secret` that the upstream got: one that the gateway knew of, it has
/// answered.
fn fate(said: &str, asked: usize) -> Fate {
    let mut statuses = said
        .split("HTTP/1.")
        .skip(1)
        .filter_map(|answer| answer.get(2..3));
    if asked > said.matches("route=secret").count() {
        Fate::Passed
    } else if said.is_empty() || statuses.any(|class| matches!(class, "4" | "5")) {
        Fate::Refused
    } else {
        Fate::Harmless
    }
}

/// True if a head says once, and in one way, whose request it is and where its body ends.
fn is_plain(asked: &Asked) -> bool {
    let lines = |wanted: &[&str]| {
        let is_wanted = |line: &&str| {
            let name = line.split_once(':').map_or("", |(name, _)| name);
            wanted
                .iter()
                .any(|wanted| wanted.eq_ignore_ascii_case(name))
        };
        asked.head.lines().filter(is_wanted).count()
    };
    let has_plain_lines = asked.head.lines().skip(1).all(|line| {
        let name = line.split_once(':').map_or("", |(name, _)| name);
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !name.is_empty() && name.bytes().all(is_token)
    });
    let length = asked.header("content-length").unwrap_or("0");
    let coding = asked.header("transfer-encoding").unwrap_or("chunked");
    has_plain_lines
        && lines(&["host"]) == 1
        && lines(&["content-length", "transfer-encoding"]) <= 1
        && length
            .parse()
            .is_ok_and(|number: u64| number.to_string() == length)
        && coding == "chunked"
}

/// The number of requests for `/secret` that the application has had.
///
/// # Errors
/// It does not tell: then nothing would be seen to pass.
fn secrets(app: &App) -> Result<usize> {
    let told = say(
        app.port,
        "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    );
    let count = told.lines().find_map(|line| line.strip_prefix("secrets="));
    let count = count.and_then(|count| count.trim().parse().ok());
    count.with_context(|| format!("the application does not tell how often it was asked: {told}"))
}
