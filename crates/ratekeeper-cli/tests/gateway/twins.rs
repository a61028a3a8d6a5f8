//! A gateway that asks a service answers as one that has the rules itself.

use std::fs;

use ratekeeper_testkit::process::{eventually, free_port};

use crate::support::{Act, Gateway, Upstream, ok, serve};

/// Windows that no test sees end, and buckets that no test sees drain: by the year, with bounds that seconds do not
/// change.
const RULES: &str = "
domain: api
evaluation: path
descriptors:
  - key: api_key
    rate_limit: { name: per_key, unit: year, requests_per_unit: 5, algorithm: fixed_window }
    descriptors:
      - key: method
        value: POST
        rate_limit:
          - { unit: year, requests_per_unit: 2, algorithm: fixed_window }
          - { window: 17520h, limit: 100, algorithm: fixed_window }
  - key: path
    value: /watched
    shadow_mode: true
    rate_limit: { unit: year, requests_per_unit: 1, algorithm: fixed_window }
  - key: path
    value: /free
    rate_limit: { unlimited: true }
  - key: path
    value: /never
    rate_limit: { unit: year, requests_per_unit: 0, algorithm: fixed_window }
  - key: path
    value: \"/names \\\"q\\\" ö\"
    rate_limit: { unit: year, requests_per_unit: 7, algorithm: fixed_window }
  - key: path
    value: /queue
    rate_limit: { window: 8760h, limit: 3, burst: 2, algorithm: leaky_bucket }
  - key: path
    value: /slow
    concurrency: { limit: 1, timeout: 1h }
  - key: path
    value: /jobs
    concurrency: { limit: 7, timeout: 1h }
";

/// The requests, in order: method, path, key.
const REQUESTS: [(&str, &str, &str); 22] = [
    ("GET", "/", "ada"),
    ("POST", "/", "ada"),
    ("POST", "/", "ada"),
    ("POST", "/", "ada"),
    ("GET", "/", "ada"),
    ("GET", "/", "ada"),
    ("GET", "/", "ada"),
    ("GET", "/watched", "bob"),
    ("GET", "/watched", "bob"),
    ("GET", "/free", "bob"),
    ("GET", "/free", ""),
    ("GET", "/never", "bob"),
    ("GET", "/never", ""),
    ("GET", "/names%20%22q%22%20%C3%B6", ""),
    ("GET", "/queue", ""),
    ("GET", "/queue", ""),
    ("GET", "/queue", ""),
    ("GET", "/slow", ""),
    ("GET", "/jobs", ""),
    ("GET", "/other", ""),
    ("POST", "/other", "eve"),
    ("POST", "/slow", "eve"),
];

const DESCRIPTORS: &str = "auth: { domain: api, descriptors: [ \
    [ { key: api_key, from: 'header:x-api-key' } ], \
    [ { key: api_key, from: 'header:x-api-key' }, { key: method, from: method } ], \
    [ { key: path, from: path } ] ] }";

fn answers(gateway: &Gateway, settings: &str) -> Vec<String> {
    let ask = |(method, path, key): (&str, &str, &str)| {
        let key = match key {
            "" => String::new(),
            key => format!("X-Api-Key: {key}\r\n"),
        };
        let answer = gateway.say(&format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n{key}Connection: close\r\n\r\n"
        ));
        assert!(
            answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.1 429"),
            "{settings}: {method} {path}: {answer}"
        );
        // The date of the answer itself, and of a turn in a queue or the end of a permit, which is so long after another.
        let of_now = |line: &&str| {
            line.starts_with("date:")
                || ["/queue", "/slow"].contains(&path) && line.ends_with("GMT\r\n")
        };
        let lines = answer.split_inclusive("\r\n").filter(|line| !of_now(line));
        without_fingerprints(&lines.collect::<String>())
    };
    REQUESTS.map(ask).to_vec()
}

/// The text with every fingerprint cut to its mark: a gateway without shared counters keys them with a random key of its
/// own.
fn without_fingerprints(text: &str) -> String {
    let mut parts = text.split('~');
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        assert_eq!(digits, 16, "no fingerprint: ~{part}");
        kept.push('~');
        kept.push_str(&part[digits..]);
    }
    kept
}

/// Returns true if two answers are the same; numbers above 1000 may differ by less than 300, as they are times in
/// seconds and the answers were not given in the same one.
fn are_the_same(one: &str, other: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    let is_far = |seconds: &u64| *seconds > 1_000;
    let pairs = || pieces(one).zip(pieces(other));
    let is_same = |(one, other): (&str, &str)| {
        let far = number(one).zip(number(other));
        let far = far.filter(|(one, other)| is_far(one) && is_far(other));
        one == other || far.is_some_and(|(one, other)| one.abs_diff(other) < 300)
    };
    pieces(one).count() == pieces(other).count() && pairs().all(is_same)
}

/// Splits a text into its numbers and the text between them.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let is_digit = |c: &char| c.is_ascii_digit();
    let mut rest = text;
    std::iter::from_fn(move || {
        let kind = is_digit(&rest.chars().next()?);
        let end = rest.find(|c: char| is_digit(&c) != kind);
        let (piece, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        Some(piece)
    })
}

#[test]
fn answers_are_the_same_through_a_service() {
    for headers in [
        "draft,x-ratelimit,retry-after,rule",
        "draft,github,retry-after-date,rule",
        "x-ratelimit-epoch",
    ] {
        for body in ["json", "problem"] {
            let folder = tempfile::tempdir().expect("a folder can be made");
            fs::write(folder.path().join("rules.yaml"), RULES).expect("a file can be written");
            let port = free_port();
            let _service = serve(folder.path(), port, &[]);
            let upstream = Upstream::start(|asked| match asked.head.starts_with("GET /slow ") {
                true => Act::Hang,
                false => ok("hello"),
            });
            let (url, upstream_url) = (format!("grpc://127.0.0.1:{port}"), upstream.url());
            let settings = format!("{DESCRIPTORS}\nheaders: \"{headers}\"\ndenial_body: {body}\n");
            let common = ["--upstream", &upstream_url, "--wait-max", "1s"];
            // The slow requests are under way until the end.
            let common = [&common[..], &["--upstream-timeout", "1h"]].concat();
            let asking = ["--service", &url, "--service-permits"];
            let patient = ["--service-deadline", "10s"];
            let args = [common.as_slice(), &asking, &patient].concat();
            let embedded = Gateway::start_with(RULES, &settings, &common);
            let asking = Gateway::asking(&settings, &args);
            let slow = "GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n";
            let _slow = [&embedded, &asking].map(|gateway| gateway.open(slow));
            eventually("the slow requests are under way", || {
                upstream.asked().len() == 2
            });
            let (expected, told) = (answers(&embedded, &settings), answers(&asking, &settings));
            for ((expected, told), request) in expected.iter().zip(&told).zip(REQUESTS) {
                assert!(
                    are_the_same(told, expected),
                    "{settings}: {request:?}\n{told}\n{expected}"
                );
            }
            assert!(expected.iter().any(|answer| answer.contains(" 429 ")));
        }
    }
}
