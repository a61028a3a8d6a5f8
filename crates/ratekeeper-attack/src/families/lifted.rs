//! Limits lifted: hits given back and limits brought along by callers without a permission.
//!
//! The listener can be reached from other hosts. Every limit is used up first; an attempt passes if a request over its limit
//! is then allowed.

use std::path::Path;

use anyhow::{Context, Result};
use ratekeeper_testkit::certificates::{Authority, Identity, Validity};
use ratekeeper_testkit::http1::{ask, connect};
use ratekeeper_testkit::http2::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PREFACE, RST_STREAM, SETTINGS, block, frame,
    read_flagged,
};
use ratekeeper_testkit::process::system;
use std::io::Write;

use crate::plan::Plan;
use crate::row::{Fate, Row};
use crate::target::{JSON, Setup, Target, check};

const LIMIT: usize = 3;

const RULES: &str = "
domain: api
descriptors:
  - key: user
    rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window }
";

/// One caller with every permission, whose token is not used here.
const CALLERS: &str = "callers:
- { name: envoy, token_sha256: \"2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\", may: [override, refund] }
";

/// The name of the one caller whose certificate has a permission.
const NAME: &str = "gateway.internal";

pub(crate) fn attack(program: &Path, _plan: &Plan) -> Result<Vec<Row>> {
    Ok(vec![json(program)?, grpc(program)?, names(program)?])
}

/// A check of a user, with something more beside the entries.
fn body(more: &str) -> String {
    check("user", "ada", more)
}

const REFUND: &str = r#","isNegativeHits":true,"hitsAddend":"3""#;
const OVERRIDE: &str = r#","limit":{"requestsPerUnit":1000,"unit":"YEAR"}"#;

/// Posts to `/json`; 200 is allowed, 429 over a limit.
fn post(port: u16, lines: &str, body: &str) -> Option<u16> {
    ask(port, "POST", "/json", lines, body).map(|answer| answer.status)
}

/// Uses the user's limit up, and says if it held.
fn use_up(port: u16) -> bool {
    let statuses: Vec<_> = (0..=LIMIT).map(|_| post(port, JSON, &body(""))).collect();
    let (within, over) = statuses.split_at(LIMIT);
    within.iter().all(|status| *status == Some(200)) && over == [Some(429)]
}

/// The fate of an attempt that got `status`, if nothing else is allowed after it.
fn fate(port: u16, status: Option<u16>) -> Fate {
    let is_lifted = status == Some(200) || post(port, JSON, &body("")) != Some(429);
    match status {
        _ if is_lifted => Fate::Passed,
        Some(429) => Fate::Limited,
        _ => Fate::Refused,
    }
}

/// Attempts of a web page, a form or a stranger over `/json`.
fn json(program: &Path) -> Result<Row> {
    let target = Setup::serve(program)
        .for_all_hosts()
        .start_with(RULES, CALLERS);
    let mut row = Row::new("refunds and limits of strangers and web pages, /json");
    row.bound(use_up(target.port), "the limit does not hold");
    let headers = [
        JSON,
        "Content-Type: text/plain\r\n",
        "Content-Type: text/plain\r\nOrigin: https://evil.example\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n",
        "Content-Type: multipart/form-data; boundary=x\r\n",
        "",
        "Content-Type: text/plain; application/json\r\n",
        "Content-Type: text/plain\r\nContent-Type: application/json\r\n",
        "Content-Type: application/json\r\nOrigin: https://evil.example\r\n",
        "Content-Type: application/json\r\nOrigin: null\r\n",
        "Content-Type: application/json\r\nOrigin: http://localhost\r\n",
        "Content-Type: application/json\r\nHost: evil.example\r\n",
        "Content-Type: application/json\r\nX-Forwarded-For: 127.0.0.1\r\n",
        "Content-Type: application/json\r\nForwarded: for=127.0.0.1\r\n",
        "Content-Type: application/json\r\nAuthorization: Bearer guess\r\n",
        "Content-Type: application/json\r\nAuthorization: Bearer\r\n",
        "Content-Type: application/json\r\nAuthorization: Bearer \
         2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\r\n",
    ];
    for lines in headers {
        for more in [REFUND, OVERRIDE] {
            let status = post(target.port, lines, &body(more));
            row.count(fate(target.port, status), format!("{lines:?} {more}"));
        }
    }
    // Other spellings of the fields, which a decoder may fold.
    for more in [
        r#","is_negative_hits":true,"hits_addend":{"value":3}"#,
        r#","isNegativeHits":true,"isNegativeHits":false"#,
        r#","hitsAddend":"-3""#,
        r#","limit":{"requests_per_unit":1000,"unit":4}"#,
        r#","limit":null,"limit":{"requestsPerUnit":1000,"unit":"DAY"}"#,
    ] {
        let status = post(target.port, JSON, &body(more));
        row.count(fate(target.port, status), more);
    }
    row.measure(&target.process);
    Ok(row)
}

/// A field of a message, by its number: a varint, or bytes.
fn varint(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

pub(super) fn bytes(number: u8, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(value.len()).unwrap_or(0x7f);
    [&[number << 3 | 2, length][..], value].concat()
}

/// `envoy.service.ratelimit.v3.RateLimitRequest` for the user, with more fields in the descriptor.
pub(super) fn message(more: &[u8]) -> Vec<u8> {
    let entry = [bytes(1, b"user"), bytes(2, b"ada")].concat();
    let descriptor = [bytes(1, &entry), more.to_vec()].concat();
    [bytes(1, b"api"), bytes(2, &descriptor)].concat()
}

/// A message of gRPC with its prefix.
pub(super) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(0).to_be_bytes();
    [&[0][..], &length, message].concat()
}

/// True if Envoy's service answers the request over gRPC that it is within its limit; None if it refuses it.
fn call(port: u16, message: &[u8], more: &[(&str, &str)]) -> Option<bool> {
    let mut fields = vec![
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "a"),
        (
            ":path",
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        ),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    fields.extend(more);
    let mut stream = connect(port);
    let opening = [
        PREFACE.to_vec(),
        frame(SETTINGS, 0, 0, &[]),
        frame(HEADERS, END_HEADERS, 1, &block(&fields)),
        frame(DATA, END_STREAM, 1, &framed(message)),
    ];
    stream.write_all(&opening.concat()).ok()?;
    loop {
        match read_flagged(&mut stream)? {
            // The prefix of a message, and its first field: `overall_code`, of which 1 is OK.
            (DATA, _, data) => return Some(data.get(5..7) == Some(&[8, 1])),
            // A head without a message is a refusal.
            (HEADERS, flags, _) if flags & END_STREAM != 0 => return None,
            (RST_STREAM | GOAWAY, ..) => return None,
            _ => {}
        }
    }
}

/// The same over Envoy's own protocol.
fn grpc(program: &Path) -> Result<Row> {
    let target = Setup::serve(program)
        .for_all_hosts()
        .start_with(RULES, CALLERS);
    let port = target.grpc;
    let mut row = Row::new("refunds and limits of strangers, gRPC");
    row.bound(use_up(target.port), "the limit does not hold");
    let plain = call(port, &message(&[]), &[]);
    row.is("a plain request over gRPC passed", plain, Some(false));
    let limit = bytes(2, &[varint(1, 100), varint(2, 4)].concat());
    let refund = [bytes(3, &varint(1, 3)), varint(4, 1)].concat();
    let tokens: [&[(&str, &str)]; 6] = [
        &[],
        &[("authorization", "Bearer guess")],
        &[("authorization", "Bearer")],
        &[("authorization", "Basic ZW52b3k6c2VjcmV0")],
        &[("origin", "https://evil.example")],
        &[("x-forwarded-for", "127.0.0.1")],
    ];
    for more in [&limit, &refund] {
        for token in tokens {
            let said = call(port, &message(more), token);
            let status = said.map(|is_within| if is_within { 200 } else { 429 });
            row.count(fate(target.port, status), format!("{more:x?} {token:?}"));
        }
    }
    row.measure(&target.process);
    Ok(row)
}

/// Certificates whose names are like that of the caller with a permission, or of another authority.
fn names(program: &Path) -> Result<Row> {
    let (own, other) = (Authority::new(), Authority::new());
    let server = own.issue("localhost", Validity::Valid);
    let settings = format!(
        "callers: [ {{ name: envoy, tls_name: {NAME}, may: [override, refund] }} ]\nhttp_tls_cert: tls.crt\n\
         http_tls_key: tls.key\nhttp_tls_client_ca: ca.crt\n"
    );
    let authority = own.pem();
    let setup = Setup::serve(program).rules(RULES).settings(&settings);
    let files = setup.file("tls.crt", &server.certificate);
    let files = files.file("tls.key", &server.key);
    let target = files.file("ca.crt", &authority).for_all_hosts().start();
    let mut row = Row::new("limits of callers with other certificates, mTLS");
    let good = own.issue(NAME, Validity::Valid);
    let status = curl(&target, Some(&good))?;
    row.is("the caller itself got", status, Some(200));
    let mut attempts = vec![("no certificate".to_owned(), None)];
    for name in [
        "gateway.internal.evil.example",
        "evil.gateway.internal",
        "xgateway.internal",
        "gateway.interna",
        "*.internal",
        "*",
        "gateway.internal.",
        "gateway.internal\0.evil.example",
        " gateway.internal",
        "gateway-internal",
        "spiffe://mesh/gateway.internal",
        "https://gateway.internal",
    ] {
        let issued = own.issue(name, Validity::Valid);
        attempts.push((format!("a certificate for {name:?}"), Some(issued)));
    }
    let beside = own.issue_as(NAME, "evil.example");
    let expired = own.issue(NAME, Validity::Expired);
    let foreign = other.issue(NAME, Validity::Valid);
    for (what, identity) in [
        ("the right common name beside another name", beside),
        ("the right name, expired", expired),
        ("the right name of another authority", foreign),
        (
            "the right name, signed by itself",
            Identity::self_signed(NAME),
        ),
    ] {
        attempts.push((what.to_owned(), Some(identity)));
    }
    for (what, identity) in attempts {
        let status = curl(&target, identity.as_ref())?;
        row.count(
            Fate::Refused.unless(status == Some(200)),
            format!("{what}: {status:?}"),
        );
    }
    row.measure(&target.process);
    Ok(row)
}

/// The status that curl gets for a limit of its own, with this certificate; None without a connection.
fn curl(target: &Target, identity: Option<&Identity>) -> Result<Option<u16>> {
    let folder = tempfile::tempdir()?;
    let mut command = system("curl");
    command.current_dir(folder.path());
    command.args(["-s", "-o", "/dev/null", "-w", "%{http_code}"]);
    command.args(["--max-time", "30", "--cacert"]);
    command.arg(target.folder().join("ca.crt"));
    if let Some(identity) = identity {
        identity.write(folder.path());
        command.args(["--cert", "tls.crt", "--key", "tls.key"]);
    }
    let data = body(OVERRIDE);
    command.args(["-H", "Content-Type: application/json", "--data", &data]);
    command.args(["--resolve", &format!("localhost:{}:127.0.0.1", target.port)]);
    command.arg(format!("https://localhost:{}/json", target.port));
    let output = command.output().context("curl cannot be run")?;
    let status = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
    Ok(status.filter(|status| *status != 0))
}
