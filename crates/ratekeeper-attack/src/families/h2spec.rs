//! h2spec: the conformance tests of HTTP/2, against the gateway and the gRPC listener.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use ratekeeper_testkit::recorder::{Recorder, ok};

use crate::plan::Plan;
use crate::row::{Fate, Row};
use crate::target::{Setup, Target};

/// The gateway's port speaks HTTP/1.1, too: bytes that do not begin HTTP/2 get 400 in HTTP/1.1, which h2spec does not read, and then
/// the connection is closed, as it asks for.
const NOT_HTTP2: &[&str] = &["2: Sends invalid connection preface"];

/// The gRPC port answers what it has no method for at once. These tests need a stream that stays open, or its error, and find one
/// that has ended, whose frames are ignored (RFC 9113, section 5.1).
const ANSWERED_AT_ONCE: &[&str] = &[
    "2: Sends a WINDOW_UPDATE frame on half-closed (remote) stream",
    "3: Sends a PRIORITY frame on half-closed (remote) stream",
    "1: Sends HEADERS frames that causes their advertised concurrent stream limit to be exceeded",
    "3: Sends multiple WINDOW_UPDATE frames increasing the flow control window to above 2^31-1 on a stream",
    "3: Sends a HEADERS frame that contains a pseudo-header field as trailers",
];

pub(crate) fn attack(program: &Path, plan: &Plan) -> Result<Vec<Row>> {
    let Some(h2spec) = &plan.h2spec else {
        println!("h2spec is left out: it was not given, since Go is needed to build it");
        return Ok(Vec::new());
    };
    let rules = "domain: api\n";
    let upstream = Recorder::start(|_| ok("here"));
    let gateway = Setup::gateway(program, &upstream.url())
        .rules(rules)
        .start();
    let service = Setup::serve(program).rules(rules).for_all_hosts().start();
    let grpc = service.grpc;
    Ok(vec![
        conformance(
            h2spec,
            "h2spec, gateway",
            (&gateway, gateway.port),
            NOT_HTTP2,
        )?,
        conformance(h2spec, "h2spec, gRPC", (&service, grpc), ANSWERED_AT_ONCE)?,
    ])
}

/// Runs all tests against a port of `target`; those that are `expected` to fail do no harm.
fn conformance(
    h2spec: &Path,
    name: &str,
    (target, port): (&Target, u16),
    expected: &[&str],
) -> Result<Row> {
    let mut command = Command::new(h2spec);
    command.args(["--host", "127.0.0.1", "--timeout", "10"]);
    command.args(["--port", &port.to_string()]);
    let output = command.output().context("h2spec cannot be started")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let mut row = Row::new(name);
    let totals = said.lines().rev().find_map(totals);
    let (tests, passed, skipped) =
        totals.with_context(|| format!("h2spec says no totals: {said}"))?;
    row.refused = passed;
    let failures = said
        .lines()
        .map(str::trim)
        .filter_map(|line| line.strip_prefix("× "));
    for failure in failures {
        row.count(Fate::Harmless.unless(!expected.contains(&failure)), failure);
    }
    let told = row.refused + row.harmless + row.passed + skipped;
    row.is("tests that ended in some way", told, tests);
    row.measure(&target.process);
    Ok(row)
}

/// The tests, those that passed and those that were skipped, of `145 tests, 143 passed, 1 skipped, 1 failed`.
fn totals(line: &str) -> Option<(u64, u64, u64)> {
    let (tests, rest) = line.split_once(" tests, ")?;
    let (passed, rest) = rest.split_once(" passed, ")?;
    let (skipped, _) = rest.split_once(" skipped")?;
    Some((
        tests.parse().ok()?,
        passed.parse().ok()?,
        skipped.parse().ok()?,
    ))
}
