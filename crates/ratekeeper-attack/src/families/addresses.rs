//! Addresses: a client that is over the limit of its address claims to be another.

use std::path::Path;

use anyhow::Result;
use ratekeeper_testkit::http1::{Answer, say};

use super::spellings::STRANGERS;
use crate::plan::Plan;
use crate::row::{Fate, Row};
use crate::target::Setup;
use crate::upstreams::{App, Kind, Nginx};

const RULES: &str = "
domain: api
descriptors:
  - key: remote_address
    rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window }
";

const LIMIT: usize = 3;

/// No peer is trusted, and nothing is denied.
const UNLIMITED: &str = "auth: { domain: api }\ntrusted_proxies: 192.0.2.0/24\nlimits: off\n";

/// The address that a client claims.
const CLAIMED: &str = "203.0.113.7";

/// Headers that say, somewhere, for whom a request is sent.
const HEADERS: &str = "X-Forwarded-For X_Forwarded_For X-Forwarded_For X-Forwarded Forwarded-For Forwarded X-Real-IP \
    X_Real_IP X-Client-IP Client-IP True-Client-IP CF-Connecting-IP CF-Connecting-IPv6 Fastly-Client-IP \
    X-Cluster-Client-IP X-Original-Forwarded-For X-Originating-IP X-Remote-IP X-Remote-Addr \
    X-Azure-ClientIP X-Appengine-User-IP X-Envoy-External-Address X-ProxyUser-IP \
    X_Envoy_External_Address X-Azure-SocketIP X-Appengine-Remote-Addr X-Real-Client-IP \
    X-Forwarded-Client-IP X-NF-Client-Connection-IP X-Vercel-Forwarded-For X-Sucuri-ClientIP \
    CF-Pseudo-IPv4 CloudFront-Viewer-Address DO-Connecting-IP Fly-Client-IP Incap-Client-IP \
    Ali-CDN-Real-IP CDN-Src-IP Proxy-Client-IP WL-Proxy-Client-IP HTTP-Client-IP HTTP_X_FORWARDED_FOR \
    HTTP-Forwarded-For HTTP-Forwarded Remote-Addr";

/// Header by which a proxy says how a request came; it is never taken for the client's address.
const OTHER: &str = "Via";

/// Ways to write the claim; `@` stands for the address.
const VALUES: [&str; 12] = [
    "@",
    "@, 127.0.0.1",
    "127.0.0.1, @",
    "@:1234",
    "for=@",
    "for=\"@\"",
    "for=@;by=127.0.0.1",
    "[::ffff:@]",
    "unknown, @",
    " ,@, ",
    "@\t",
    "no address",
];

pub(crate) fn attack(program: &Path, _plan: &Plan) -> Result<Vec<Row>> {
    let app = App::start(Kind::Flask)?;
    let service = Setup::serve(program).start_with(RULES, "auth: { domain: api }\n");
    let nginx = Nginx::start(&app, service.port)?;
    let settings = format!("auth: {{ domain: api }}\n{STRANGERS}");
    let gateway = Setup::gateway(program, &app.url()).start_with(RULES, &settings);
    // No peer is trusted to speak for others, not even this host: the service counts who connects.
    let direct = Setup::serve(program).start_with(RULES, &settings);
    let mut rows = Vec::new();
    for (front, port, path, target) in [
        ("NGINX", nginx.port, "/", &service),
        ("gateway", gateway.port, "/", &gateway),
        ("/v1/auth without a proxy", direct.port, "/v1/auth", &direct),
    ] {
        let mut row = Row::new(format!("forged addresses, {front}"));
        forge(port, path, &mut row);
        row.measure(&target.process);
        rows.push(row);
    }
    rows.extend(reach(program)?);
    Ok(rows)
}

/// Every claim as a header, with underscores, and as a trailer, from a stranger whom nothing limits: the application tells which
/// headers and trailers reached it.
fn reach(program: &Path) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for kind in Kind::available() {
        let app = App::start(kind)?;
        let gateway = Setup::gateway(program, &app.url()).start_with(RULES, UNLIMITED);
        let mut row = Row::new(format!("claims that reach {} by the gateway", kind.name()));
        for header in HEADERS.split(' ') {
            let line = format!("{header}: {CLAIMED}");
            let folded = format!("{}: {CLAIMED}", header.replace('-', "_"));
            for (line, trailer) in [
                (line.as_str(), ""),
                (&folded, ""),
                ("X: 1", &line),
                ("X: 1", &folded),
            ] {
                let request = request("/", line, trailer);
                let answer = Answer::try_read(&say(gateway.port, request));
                let fate = match answer.filter(|answer| answer.status == 200) {
                    Some(answer) if answer.body.contains(CLAIMED) => Fate::Passed,
                    Some(_) => Fate::Harmless,
                    None => Fate::Refused,
                };
                row.count(fate, format!("{line} {trailer}"));
            }
        }
        row.bound(row.harmless > 0, "no request reached it");
        row.measure(&gateway.process);
        rows.push(row);
    }
    Ok(rows)
}

fn forge(port: u16, path: &str, row: &mut Row) {
    let within = (0..LIMIT).filter(|_| fate(port, path, "X: 1", "") == Fate::Passed);
    let within = within.count();
    row.is("requests that were let in", within, LIMIT);
    for header in HEADERS.split(' ').chain([OTHER]) {
        for value in VALUES {
            let line = format!("{header}: {}", value.replace('@', CLAIMED));
            row.count(fate(port, path, &line, ""), &line);
        }
        // The same where only trailers say so, and where the client says that the header is its proxy's business.
        let line = format!("{header}: {CLAIMED}");
        row.count(fate(port, path, "X: 1", &line), format!("trailer {line}"));
        let hidden = format!("Connection: {header}\r\n{line}");
        row.count(fate(port, path, &hidden, ""), &hidden);
    }
}

/// The fate of a request with that header line, or with that trailer.
fn fate(port: u16, path: &str, line: &str, trailer: &str) -> Fate {
    let request = request(path, line, trailer);
    match Answer::try_read(&say(port, request)).map(|answer| answer.status) {
        Some(200) => Fate::Passed,
        Some(429) => Fate::Limited,
        _ => Fate::Refused,
    }
}

fn request(path: &str, line: &str, trailer: &str) -> String {
    let body = match trailer {
        "" => "Content-Length: 0\r\n\r\n".to_owned(),
        trailer => {
            format!("Transfer-Encoding: chunked\r\nTE: trailers\r\n\r\n0\r\n{trailer}\r\n\r\n")
        }
    };
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{line}\r\nConnection: close\r\n{body}")
}
