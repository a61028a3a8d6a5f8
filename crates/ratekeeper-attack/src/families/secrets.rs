//! Secrets: planted wherever one can come in, and searched for wherever something comes out.

use std::fs;
use std::path::Path;

use anyhow::Result;
use ratekeeper_testkit::http1::say;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::ratekeeper::command;
use ratekeeper_testkit::recorder::{Recorder, ok};

use super::spellings::STRANGERS;
use crate::plan::Plan;
use crate::row::{Fate, Row};
use crate::target::{Setup, Target};
use crate::token;

/// A secret, and the way by which it comes in.
const SECRETS: [(&str, &str); 9] = [
    ("kePlantedHeader1", "an API key"),
    ("kePlantedCookie2", "a cookie, under a key of its own"),
    ("kePlantedBearer3", "a bearer token, under a key of its own"),
    ("kePlantedQuery4", "a parameter of the query"),
    ("kePlantedKnown5", "identity.known"),
    ("kePlantedRule6", "an API key in the rules"),
    ("kePlantedStore7", "the store's password"),
    ("kePlantedCaller8", "an unknown caller's token"),
    ("kePlantedBasic9", "Authorization: Basic"),
];

/// The rules' own secret has a limit of its own; all that is asked for is over its limit at once.
const RULES: &str = "
domain: api
descriptors:
  - key: api_key
    value: kePlantedRule6
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
  - key: api_key
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
    detailed_metric: true
  - key: visitor
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
    detailed_metric: true
  - key: token
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
    value_to_metric: true
  - key: search
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
";

const MAPPING: &str = "
auth:
  domain: api
  descriptors:
    - - { key: api_key, from: header:x-api-key }
    - - { key: visitor, from: cookie:session }
    - - { key: token, from: bearer }
    - - { key: api_key, from: query:key }
identity:
  from: [ header:x-api-key, remote_address ]
  known: [ kePlantedKnown5 ]
  default: stranger
access_log: access.log
log_level: debug
headers: draft, x-ratelimit, retry-after, rule
";

/// Requests as lines, each with one of the secrets in it.
const REQUESTS: &[(&str, &[&str])] = &[
    ("GET /", &["X-Api-Key: kePlantedHeader1"]),
    ("GET /", &["X-Api-Key: kePlantedKnown5"]),
    ("GET /", &["X-Api-Key: kePlantedRule6"]),
    ("GET /", &["Cookie: session=kePlantedCookie2"]),
    ("GET /", &["Authorization: Bearer kePlantedBearer3"]),
    ("GET /", &["Authorization: Basic kePlantedBasic9"]),
    ("GET /?key=kePlantedQuery4", &[]),
    ("GET /?key=kePlantedQuery4&key=x", &[]),
    ("GET /", &["X-Api-Key: kePlantedHeader1", "X-Api-Key: x"]),
    ("GET /", &["X_Api_Key: kePlantedHeader1"]),
    ("GET /", &["Cookie: session=\"\\141kePlantedCookie2\""]),
    ("GET /", &["Authorization: Bearer\tkePlantedBearer3"]),
    ("GET /", &["Authorization: Bearer kePlantedCaller8 x"]),
    (
        "POST /v1/check",
        &["Authorization: Bearer kePlantedCaller8"],
    ),
    ("POST /json", &["Authorization: Bearer kePlantedCaller8"]),
];

pub(crate) fn attack(program: &Path, _plan: &Plan) -> Result<Vec<Row>> {
    let mut row = Row::new("planted secrets");
    let mut places = printed_by_commands(program)?;
    let upstream = Recorder::start(|_| ok("here"));
    let settings = format!("{MAPPING}{STRANGERS}");
    let gateway = Setup::gateway(program, &upstream.url()).start_with(RULES, &settings);
    // The access log is the gateway's alone.
    let service = MAPPING.replace("access_log: access.log\n", "");
    let auth = "callers: [ { name: known, token_sha256: 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b, may: [ override ] } ]\n";
    let service = Setup::serve(program).start_with(RULES, &format!("{service}{auth}"));
    for (name, target, prefix) in [("gateway", &gateway, ""), ("service", &service, "/v1/auth")] {
        for (request, lines) in REQUESTS {
            // Twice, so that the second is over the limit and is told why.
            for _ in 0..2 {
                let text = ask(target, request, lines, prefix);
                places.push((format!("{name}, answer to {request}"), text));
            }
        }
        for path in ["/metrics", "/readyz", "/rlconfig", "/admin/v1/top", "/"] {
            let told = target.told(path).map(|answer| answer.head + &answer.body);
            places.push((format!("{name}, admin {path}"), told.unwrap_or_default()));
        }
        places.push((format!("{name}, log"), target.process.output()));
    }
    let log = gateway.folder().join("access.log");
    let read = || fs::read_to_string(&log).unwrap_or_default();
    eventually("the access log is written", || {
        read().lines().count() >= REQUESTS.len()
    });
    places.push(("gateway, access log".to_owned(), read()));
    // Of a secret that is searched for, a place has at most its end: the access log has that of the keys that are known.
    row.bound(read().contains("der1"), "the access log names no caller");
    for (place, text) in &places {
        row.bound(!text.is_empty(), format!("nothing is in: {place}"));
        // The rules are shown whole to operators, whose file they are.
        let is_shown = |secret: &str| place.ends_with("/rlconfig") && secret == "kePlantedRule6";
        for (secret, what) in SECRETS {
            let is_found = text.contains(secret) && !is_shown(secret);
            row.count(
                Fate::Refused.unless(is_found),
                format!("{what} is in: {place}"),
            );
        }
    }
    row.measure(&gateway.process);
    row.measure(&service.process);
    Ok(vec![row])
}

fn ask(target: &Target, request: &str, lines: &[&str], prefix: &str) -> String {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let (method, path) = request.split_once(' ').unwrap_or(("GET", "/"));
    let body = match method {
        "POST" => {
            "{\"domain\":\"api\",\"descriptors\":[{\"entries\":[{\"key\":\"api_key\",\"value\":\"kePlantedHeader1\"}]}]}"
        }
        _ => "",
    };
    let length = body.len();
    let (path, original) = match (prefix, method) {
        ("", _) | (_, "POST") => (path, String::new()),
        (prefix, _) => (
            prefix,
            format!("X-Original-Method: GET\r\nX-Original-URI: {path}\r\n"),
        ),
    };
    let json = "Content-Type: application/json\r\n";
    say(
        target.port,
        format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{original}{lines}{json}Content-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        ),
    )
}

/// All that commands print about settings and rules with secrets in them.
fn printed_by_commands(program: &Path) -> Result<Vec<(String, String)>> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("rules.yaml"), RULES)?;
    fs::write(folder.path().join("secret"), token::SECRET)?;
    let settings = format!("{MAPPING}store: redis://user:kePlantedStore7@127.0.0.1:1/0\n");
    fs::write(folder.path().join("good.yaml"), settings)?;
    let urls = [
        "redis://user:kePlantedStore7@127.0.0.1:nonsense/0",
        "redsi://user:kePlantedStore7@127.0.0.1/0",
        "redis://user:kePlantedStore7@127.0.0.1/0?%70ass=kePlantedStore7",
        "redis://user:kePlantedStore7@@/0",
        "kePlantedStore7@127.0.0.1",
    ];
    let mut commands: Vec<Vec<&str>> = vec![
        vec!["config", "show", "--config", "good.yaml"],
        vec!["rules", "check", "rules.yaml"],
    ];
    for url in urls {
        commands.push(vec!["config", "show", "--store", url]);
        commands.push(vec!["serve", "--rules", "nowhere.yaml", "--store", url]);
    }
    let mut places = Vec::new();
    for args in commands {
        let output = command(program, folder.path(), &args).output()?;
        let text = [output.stdout, output.stderr].concat();
        let shown = format!("ratekeeper {}", args.join(" "));
        places.push((shown, String::from_utf8_lossy(&text).into_owned()));
    }
    Ok(places)
}
