//! Lines as real servers write them.

use super::*;
use crate::record::LogField;

#[track_caller]
fn record(line: &str) -> Record<'_> {
    let mut parser = LineParser::new(None, Fields::default());
    parser
        .parse(line.as_bytes())
        .expect("a line that can be read")
}

#[track_caller]
fn malformed(line: &[u8]) -> MalformedLine {
    LineParser::new(None, Fields::default())
        .parse(line)
        .expect_err("a line that cannot be read")
}

const MAY_17: u64 = 1_431_857_103_000_000;

/// Checks the fields that all examples below have in common.
#[track_caller]
fn assert_is(record: &Record<'_>, address: &str, method: &str, path: &str, agent: Option<&str>) {
    assert_eq!(record.remote_address, address);
    assert_eq!(record.method.as_deref(), Some(method));
    assert_eq!(record.path.as_deref(), Some(path));
    assert_eq!(record.user_agent.as_deref(), agent);
}

#[test]
fn common_log_format() {
    let record = record(
        r#"192.0.2.7 - frank [17/May/2015:06:05:03 -0400] "GET /a.gif?x=1 HTTP/1.0" 200 2326"#,
    );
    assert_is(&record, "192.0.2.7", "GET", "/a.gif", None);
    assert_eq!(record.time.as_micros(), MAY_17);
    assert_eq!(record.get(LogField::User), Some("frank"));
    assert_eq!(record.get(LogField::Status), Some("200"));
    assert_eq!(record.get(LogField::Referer), None);
}

#[test]
fn combined_with_a_missing_quote_and_with_more_fields() {
    let cut = r#"192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /b HTTP/1.1" 200 - "-" "Mozilla/5.0 (bot"#;
    assert_is(
        &record(cut),
        "192.0.2.7",
        "GET",
        "/b",
        Some("Mozilla/5.0 (bot"),
    );
    let more = r#"2001:db8::7 - - [17/May/2015:10:05:03 +0000] "POST /b HTTP/2.0" 499 0 "https://example.com/" "curl/8" "10.0.0.1" rt=0.003"#;
    let more = record(more);
    assert_is(&more, "2001:db8::7", "POST", "/b", Some("curl/8"));
    assert_eq!(more.get(LogField::Referer), Some("https://example.com/"));
}

#[test]
fn common_and_combined_are_told_apart_and_read_alike() {
    let common = br#"192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /b HTTP/1.1" 200 -"#;
    let combined =
        br#"192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /b HTTP/1.1" 200 - "-" "curl""#;
    let mut parser = LineParser::new(None, Fields::default());
    assert_eq!(parser.parse(common).expect("a good line").user_agent, None);
    assert_eq!(parser.format(), Some(Format::Common));
    let agent = parser.parse(combined).expect("a good line").user_agent;
    assert_eq!(agent.as_deref(), Some("curl"));
    let mut parser = LineParser::new(None, Fields::default());
    assert!(parser.parse(combined).is_ok());
    assert_eq!(parser.format(), Some(Format::Combined));
}

#[test]
fn escapes_in_combined_lines_are_undone() {
    let line = r#"192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /q\x22a HTTP/1.1" 200 5 "-" "a \"quoted\" agent" "x""#;
    assert_is(
        &record(line),
        "192.0.2.7",
        "GET",
        "/q\"a",
        Some("a \"quoted\" agent"),
    );
}

/// The line keeps its time and address, whatever a scanner sent as a request.
#[test]
fn garbage_for_a_request_is_still_a_request() {
    for request in [
        "",
        "-",
        r"\x16\x03\x01\x02\x00\x01\x00\x01\xFC\x03\x03",
        "\u{16}\u{3}\u{1}",
        r#"\" 200 5 \""#,
        r#"GET"#,
        r"SSTP_DUPLEX_POST\\",
        "\\",
        "[17/May/2015] \"\" \"",
        "t3 12.1.2",
    ] {
        let line = format!(
            r#"192.0.2.7 - - [17/May/2015:10:05:03 +0000] "{request}" 400 150 "-" "scanner""#
        );
        let record = record(&line);
        assert_eq!(record.remote_address, "192.0.2.7", "{line}");
        assert_eq!(record.time.as_micros(), MAY_17, "{line}");
        assert_eq!(record.get(LogField::Path), None, "{line}");
        assert_eq!(record.get(LogField::Status), Some("400"), "{line}");
        assert_eq!(record.get(LogField::UserAgent), Some("scanner"), "{line}");
    }
    record(r#"192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1"#);
    record("192.0.2.7 - - [17/May/2015:10:05:03 +0000]");
}

#[test]
fn raw_quotes_and_bytes_of_servers_that_do_not_escape() {
    let line = r#"host.example - - [01/Aug/1995:02:00:00 -0400] "GET /a"b HTTP/1.0" 404 -"#;
    assert_is(&record(line), "host.example", "GET", "/a\"b", None);
    let line =
        b"192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"GET /\xff HTTP/1.1\" 200 5 \"-\" \"\xc3\"";
    let mut parser = LineParser::new(None, Fields::default());
    let record = parser.parse(line).expect("a line that can be read");
    assert_is(&record, "192.0.2.7", "GET", "/\u{fffd}", Some("\u{fffd}"));
}

#[test]
fn users_may_hold_spaces_and_brackets() {
    let line = r#"192.0.2.7 - a [b] c [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5"#;
    assert_eq!(record(line).get(LogField::User), Some("a [b] c"));
}

/// A client chooses the user name: a time in it is none, and brackets in it do not hide the time.
#[test]
fn a_time_in_the_name_of_the_user_is_not_the_time_of_the_line() {
    for user in [
        "x [31/Dec/2254:00:00:00 +0000]",
        r"[31/Dec/2254:00:00:00 +0000] \x22",
        r#"[31/Dec/2254:00:00:00 +0000] \""#,
        "[1] [2] [3] [4] [5] [6] [7] [8] [9]",
    ] {
        let line = format!(
            r#"192.0.2.7 - {user} [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5 "-" "[01/Jan/2016:00:00:00 +0000] ""#
        );
        let record = record(&line);
        assert_eq!(record.time.as_micros(), MAY_17, "{line}");
        assert_eq!(record.get(LogField::Path), Some("/a"), "{line}");
    }
    let line = r#"192.0.2.7 - x [31/Dec/2254:00:00:00 +0000] [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5"#;
    let user = record(line).user.map(|user| user.into_owned());
    assert_eq!(user.as_deref(), Some("x [31/Dec/2254:00:00:00 +0000]"));
}

#[test]
fn other_times_in_the_brackets() {
    for time in ["2015-05-17T10:05:03+00:00", "1431857103.000", "1431857103"] {
        let line = format!(r#"192.0.2.7 - - [{time}] "GET / HTTP/1.1" 200 5"#);
        assert_eq!(record(&line).time.as_micros(), MAY_17);
    }
}

#[test]
fn nginx_json() {
    // log_format main escape=json '{"time":"$time_iso8601", ...}'
    let line = r#"{"time":"2015-05-17T10:05:03+00:00","remote_addr":"192.0.2.7","remote_user":"","request":"GET /a?b=c HTTP/1.1","status":"200","body_bytes_sent":"612","request_time":"0.003","http_referrer":"","http_user_agent":"Mozilla/5.0 \"x\""}"#;
    assert_is(
        &record(line),
        "192.0.2.7",
        "GET",
        "/a",
        Some("Mozilla/5.0 \"x\""),
    );
    let line = r#"{"msec": "1431857103.000", "remote_addr": "192.0.2.7", "request_method": "POST", "request_uri": "/a?b", "status": 200, "http_user_agent": "curl"}"#;
    assert_is(&record(line), "192.0.2.7", "POST", "/a", Some("curl"));
    let line = r#"{"time_local":"17/May/2015:10:05:03 +0000","remote_addr":"192.0.2.7","request":"\u0016\u0003\u0001","status":"400","http_user_agent":"-"}"#;
    let scanned = record(line);
    assert_eq!(
        (
            scanned.get(LogField::Path),
            scanned.get(LogField::UserAgent)
        ),
        (None, None)
    );
    // Without escape=json, NGINX writes invalid JSON.
    let line = r#"{"time_local":"17/May/2015:10:05:03 +0000","remote_addr":"192.0.2.7","request":"GET /\x22 HTTP/1.1","status":"400"}"#;
    assert_is(&record(line), "192.0.2.7", "GET", "/\"", None);
}

#[test]
fn caddy_json() {
    let line = r#"{"level":"info","ts":1431857103.0,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"198.51.100.1","remote_port":"41342","client_ip":"192.0.2.7","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/a?b=c","headers":{"User-Agent":["curl/7.82.0"],"Accept":["*/*"],"X-Nested":[["]",{"}":1}]]},"tls":{"resumed":false,"version":772}},"bytes_read":0,"user_id":"","duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"]}}"#;
    let record = record(line);
    assert_is(&record, "192.0.2.7", "GET", "/a", Some("curl/7.82.0"));
    assert_eq!(record.time.as_micros(), MAY_17);
    assert_eq!(record.get(LogField::Status), Some("200"));
    assert_eq!(record.get(LogField::Host), Some("localhost"));
}

#[test]
fn envoy_json() {
    let line = r#"{"start_time":"2015-05-17T10:05:03.000Z","method":"GET","path":"/a?b","protocol":"HTTP/1.1","response_code":200,"response_flags":"-","x_forwarded_for":null,"user_agent":"grpc-go","authority":"api.example.com","upstream_host":"10.0.0.9:8080","downstream_remote_address":"192.0.2.7:58412","downstream_local_address":"10.0.0.1:443"}"#;
    let record = record(line);
    assert_is(&record, "192.0.2.7", "GET", "/a", Some("grpc-go"));
    assert_eq!(record.get(LogField::Host), Some("api.example.com"));
    // A connection that never became a request.
    let line = r#"{"start_time":"2015-05-17T10:05:03.000Z","method":null,"path":null,"response_code":0,"user_agent":null,"downstream_remote_address":"[2001:db8::7]:58412"}"#;
    let empty = super::LineParser::new(None, Fields::default())
        .parse(line.as_bytes())
        .expect("good")
        .clone();
    assert_eq!(
        (empty.remote_address.as_ref(), empty.method, empty.path),
        ("2001:db8::7", None, None)
    );
}

#[test]
fn traefik_and_literal_dots() {
    let line = r#"{"ClientHost":"192.0.2.7","DownstreamStatus":200,"RequestMethod":"GET","RequestPath":"/a","StartUTC":"2015-05-17T10:05:03Z","request_User-Agent":"curl","time":"2015-05-17T10:05:03Z"}"#;
    assert_is(&record(line), "192.0.2.7", "GET", "/a", Some("curl"));
    let line = r#"{"@timestamp":"2015-05-17T10:05:03Z","source.ip":"192.0.2.7","http.request.method":"GET","url.path":"/a","user_agent":{"original":"curl"}}"#;
    assert_is(&record(line), "192.0.2.7", "GET", "/a", Some("curl"));
}

#[test]
fn mapped_fields() {
    let fields = Fields::parse("time=a.t,remote_address=a.who,api_key=request.headers.X-Api-Key");
    let mut parser = LineParser::new(Some(Format::Json), fields.expect("a good mapping"));
    let line = br#"{"a":{"t":1431857103,"who":"192.0.2.7"},"time":5,"request":{"headers":{"X-Api-Key":["k1","k2"]}}}"#;
    let record = parser.parse(line).expect("a good line");
    assert_eq!(record.time.as_micros(), MAY_17);
    assert_eq!(record.get(LogField::Extra(0)), Some("k1"));
    assert_eq!(record.get(LogField::Extra(1)), None);
}

#[test]
fn a_list_of_proxies_and_a_virtual_host_before_the_address() {
    let rest = r#"- frank [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5"#;
    for (first, address, host) in [
        ("203.0.113.1, 10.0.0.1", "203.0.113.1, 10.0.0.1", None),
        ("203.0.113.1,10.0.0.1", "203.0.113.1,10.0.0.1", None),
        (
            "shop.example:443 203.0.113.1",
            "203.0.113.1",
            Some("shop.example"),
        ),
        (
            "shop.example 2001:db8::7",
            "2001:db8::7",
            Some("shop.example"),
        ),
        ("shop.example", "shop.example", None),
        ("203.0.113.1 192.0.2.1", "203.0.113.1", None),
    ] {
        let line = format!("{first} {rest}");
        let record = record(&line);
        assert_eq!(record.remote_address, address);
        assert_eq!(record.get(LogField::Host), host, "{first}");
        let user = record.get(LogField::User).expect("one");
        assert!(
            user.ends_with("frank") && !user.starts_with("203"),
            "{user}"
        );
    }
}

/// Two writers, or a lost line end.
#[test]
fn an_object_that_something_follows_is_no_line() {
    let one = r#"{"ts":1431857103,"remote_ip":"192.0.2.7"}"#;
    for more in [one, "garbage", "}", ","] {
        let line = format!("{one}{more}");
        assert_eq!(malformed(line.as_bytes()), MalformedLine::NotJson, "{more}");
    }
    assert_eq!(record(&format!(" {one} \t")).time.as_micros(), MAY_17);
}

#[test]
fn the_text_null_is_a_value_and_null_is_none() {
    let line = r#"{"ts":1431857103,"remote_ip":"192.0.2.7","user":"null","user_agent":null,"request":["null"]}"#;
    let record = record(line);
    assert_eq!(record.get(LogField::User), Some("null"));
    assert_eq!(record.get(LogField::UserAgent), None);
}

/// Some logs tell under `time` how long a request took.
#[test]
fn a_duration_is_no_time_where_another_name_has_one() {
    for duration in ["0.003", "\"12.345678901\"", "17"] {
        for line in [
            format!(
                r#"{{"time":{duration},"remote_ip":"192.0.2.7","timestamp":"2015-05-17T10:05:03Z"}}"#
            ),
            format!(r#"{{"timestamp":1431857103.0,"time":{duration},"remote_ip":"192.0.2.7"}}"#),
        ] {
            assert_eq!(record(&line).time.as_micros(), MAY_17, "{line}");
        }
    }
    let only = record(r#"{"time":17,"remote_ip":"192.0.2.7"}"#).time;
    assert_eq!(only.as_micros(), 17_000_000);
}

#[test]
fn malformed_lines() {
    assert_eq!(malformed(b"hello"), MalformedLine::NoTime);
    assert_eq!(malformed(b"hello world"), MalformedLine::NoTime);
    assert_eq!(
        malformed(b"- - - [17/May/2015:10:05:03 +0000]"),
        MalformedLine::NoAddress
    );
    assert_eq!(
        malformed(b"192.0.2.7 - - [yesterday] x"),
        MalformedLine::BadTime
    );
    assert_eq!(malformed(br#"{"ts":1}"#), MalformedLine::NoAddress);
    assert_eq!(
        malformed(br#"{"remote_ip":"192.0.2.7"}"#),
        MalformedLine::NoTime
    );
    assert_eq!(
        malformed(br#"{"remote_ip":"192.0.2.7","ts":"soon"}"#),
        MalformedLine::BadTime
    );
    for cut in [
        &br#"{"#[..],
        br#"{"ts":1"#,
        br#"{"ts":1,"remote_ip":"192.0.2.7"#,
        br#"{"a":[{"b":1}"#,
        b"{\"a\\",
    ] {
        assert_eq!(malformed(cut), MalformedLine::NotJson);
    }
    assert_eq!(malformed(&[b'['; 100_000]), MalformedLine::NoTime);
    let mut deep = br#"{"request":"#.repeat(100_000);
    assert_eq!(malformed(&deep), MalformedLine::NotJson);
    deep.splice(0..0, br#"{"x":"#.iter().copied());
    assert_eq!(malformed(&deep), MalformedLine::NotJson);
}

#[test]
fn the_first_good_line_decides_the_format() {
    let mut parser = LineParser::new(None, Fields::default());
    assert!(parser.parse(b"starting up").is_err());
    assert!(parser.parse(b"{broken").is_err());
    assert_eq!(parser.format(), None);
    assert!(parser.parse(br#"{"ts":1,"remote_ip":"192.0.2.7"}"#).is_ok());
    assert_eq!(parser.format(), Some(Format::Json));
    let combined = br#"192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5"#;
    assert_eq!(parser.parse(combined), Err(MalformedLine::NotJson));
}
