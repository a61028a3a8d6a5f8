//! Bodies, paths and queries that are never sent on purpose: the admin API refuses them, and never fails.
//!
//! Good requests are changed at random: a value takes the place of another, a piece of the text is lost or doubled. The
//! same is asked with SQLite and with PostgreSQL, since a database has its own idea of what a text is.

use crate::fleet::{Fleet, on_each_database};
use ratekeeper_testkit::http1::{Answer, say};
use ratekeeper_testkit::random::Random;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The requests to each database.
const REQUESTS: u64 = 1_500;

/// The seed of the changes. A failure names it and the number of the request.
const SEED: u64 = 2_027;

/// Good requests: method, path, content type and body.
fn good() -> Vec<(&'static str, &'static str, &'static str, String)> {
    let own = json!({
        "descriptor": "endpoint:POST /orders", "requests_per_unit": 500, "unit": "day", "burst": 600,
        "algorithm": "token_bucket", "effective_at": "2027-01-01T00:00:00Z", "expires_at": "2028-01-01T00:00:00Z",
    });
    let whole = json!({ "descriptor": "default", "requests_per_unit": 20, "window": "10s" });
    let list = json!({ "descriptor": ["a:1", "b:2"], "requests_per_unit": 1, "unit": "hour" });
    let quotas = json!({
        "plan": "pro", "overrides": [own, whole, list], "effective_at": "2026-01-01T00:00:00+01:00",
        "expires_at": "2100-01-01T00:00:00Z",
    });
    let tiers = json!({ "plans": [
        { "plan": "pro", "expires_at": "2027-01-01T00:00:00Z" },
        { "plan": "enterprise", "effective_at": "2027-01-01T00:00:00Z" },
    ] });
    let line = json!({ "domain": "d", "tenant": "bob", "plan": "pro", "overrides": [{ "requests_per_unit": 5, "unit": "day" }] });
    let check = json!({ "domain": "d", "descriptors": [{ "entries": [{ "key": "customer", "value": "acme" }], "hits": 1 }] });
    let (json, lines, csv) = ("application/json", "application/x-ndjson", "text/csv");
    let table = "domain,tenant,plan,descriptor,requests_per_unit,unit,effective_at\n\
                 d,acme,pro,,,,2027-01-01T00:00:00Z\nd,acme,,endpoint:POST /orders,5,day,\n";
    let none = String::new;
    vec![
        ("PUT", "/admin/v1/quotas/acme", json, quotas.to_string()),
        (
            "PUT",
            "/admin/v1/quotas/acme?domain=d",
            json,
            tiers.to_string(),
        ),
        (
            "POST",
            "/admin/v1/import/quotas",
            lines,
            format!("{line}\n{line}\n"),
        ),
        (
            "POST",
            "/admin/v1/import/quotas?dry_run=true",
            csv,
            table.to_owned(),
        ),
        ("POST", "/admin/v1/import/quotas", csv, table.to_owned()),
        ("POST", "/admin/v1/explain", json, check.to_string()),
        (
            "PUT",
            "/admin/v1/denials/log/customer:acme",
            json,
            json!({ "minutes": 1 }).to_string(),
        ),
        ("POST", "/admin/v1/quotas/acme/reset", json, none()),
        ("POST", "/admin/v1/rules/d.customer/shadow", json, none()),
        ("GET", "/admin/v1/quotas/acme", json, none()),
        (
            "GET",
            "/admin/v1/quotas?domain=d&tier=pro&overrides=true&limit=5&cursor=00000000000000000000000000000000.d",
            json,
            none(),
        ),
        (
            "GET",
            "/admin/v1/export/quotas?format=csv&domain=d&limit=3&cursor=00000000000000000000000000000000.d",
            json,
            none(),
        ),
        (
            "GET",
            "/admin/v1/export/usage?from=2026-01-01T00:00:00Z&until=2100-01-01T00:00:00Z&tenant=acme&limit=3&cursor=5b372c2261222c2262222c2263222c2264225d",
            json,
            none(),
        ),
        (
            "GET",
            "/admin/v1/audit?tenant=acme&domain=d&cursor=7&limit=3",
            json,
            none(),
        ),
        (
            "GET",
            "/admin/v1/usage/acme?domain=d&descriptor=endpoint:POST%20/orders",
            json,
            none(),
        ),
        (
            "GET",
            "/admin/v1/explain?domain=d&entry=customer:acme",
            json,
            none(),
        ),
        ("DELETE", "/admin/v1/quotas/acme?domain=d", json, none()),
    ]
}

/// Values that are at an edge of what something takes.
fn odd(random: &mut Random) -> Value {
    let texts = [
        "",
        " ",
        "\0",
        "a\0b",
        "\u{feff}",
        "\u{202e}",
        "ﬀ",
        "null",
        "-1",
        "default",
        "[",
        "[\"a\"]",
        ":",
        "a:",
        ":a",
        "*",
        "custom",
        "1969-12-31T23:59:59Z",
        "2255-06-04T23:59:59Z",
        "2255-06-05T00:00:00Z",
        "9999-12-31T23:59:60Z",
        "-009999-01-01T00:00:00Z",
        "2027-02-30T00:00:00Z",
        "2027-01-01T00:00:00+25:00",
        "0s",
        "1ns",
        "99999999999999999d",
        "hash:",
        "sla:x",
        "../..",
        "%00",
        "'; DROP TABLE tenant; --",
        "=1+1",
    ];
    match random.below(12) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!([-1_i64, 0, 1][index(random, 3)]),
        3 => json!([u64::MAX, 1 << 53, (1 << 53) - 1, u64::from(u32::MAX) + 1][index(random, 4)]),
        4 => json!([1e300, -0.0, 1.5][index(random, 3)]),
        5 => json!([]),
        6 => json!({}),
        7 => Value::from("x".repeat(index(random, 70_000))),
        8 => Value::from("é\u{10ffff}".repeat(index(random, 600))),
        _ => Value::from(texts[index(random, texts.len())]),
    }
}

fn index(random: &mut Random, end: usize) -> usize {
    usize::try_from(random.below(end as u64)).unwrap_or(0)
}

/// Puts odd values into the place of some in `value`, and odd keys beside some.
fn change_values(value: &mut Value, random: &mut Random) {
    if random.happens(120) {
        *value = odd(random);
        return;
    }
    match value {
        Value::Array(list) => {
            list.iter_mut()
                .for_each(|value| change_values(value, random));
            if random.happens(60) && !list.is_empty() {
                let again = list[index(random, list.len())].clone();
                list.extend(std::iter::repeat_n(again, index(random, 300)));
            }
        }
        Value::Object(fields) => {
            fields
                .values_mut()
                .for_each(|value| change_values(value, random));
            if random.happens(60) {
                let key = odd(random).to_string();
                fields.insert(key.chars().take(100).collect(), odd(random));
            }
        }
        _ => {}
    }
}

/// Loses, doubles or replaces pieces of `bytes`.
fn change_bytes(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..random.within(1, 3) {
        let from = index(random, bytes.len() + 1);
        let until = (from + index(random, 12)).min(bytes.len());
        let piece = bytes[from..until].to_vec();
        match random.below(4) {
            0 => drop(bytes.drain(from..until)),
            1 => drop(bytes.splice(from..from, piece.repeat(3))),
            2 => bytes.truncate(from),
            _ => {
                let odd = [0, 0xff, b'"', b'{', b'\n', b',', b'\\', 0xc3, b'\''][index(random, 9)];
                bytes.insert(from, odd);
            }
        }
    }
}

/// The text as a part of a path or a query.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// Puts odd texts into the place of some parts of a path, and of some values of its query.
fn change_path(path: &str, random: &mut Random) -> String {
    let mut texts = || {
        let text = match odd(random) {
            Value::String(text) => text.chars().take(2_000).collect(),
            other => other.to_string(),
        };
        random.happens(250).then(|| escaped(&text))
    };
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let parts: Vec<_> = path
        .split('/')
        .enumerate()
        .map(|(at, part)| match at {
            ..4 => part.to_owned(),
            _ => texts().unwrap_or_else(|| part.to_owned()),
        })
        .collect();
    let pairs = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            format!("{name}={}", texts().unwrap_or_else(|| value.to_owned()))
        });
    let query: Vec<_> = pairs.collect();
    format!("{}?{}", parts.join("/"), query.join("&"))
}

/// A request that was good once.
fn request(random: &mut Random) -> Vec<u8> {
    let all = good();
    let (method, path, kind, body) = &all[index(random, all.len())];
    let path = change_path(path, random);
    let mut body = match serde_json::from_str::<Value>(body) {
        Ok(mut value) => {
            change_values(&mut value, random);
            value.to_string().into_bytes()
        }
        Err(_) => body.clone().into_bytes(),
    };
    if random.happens(300) {
        change_bytes(&mut body, random);
    }
    let condition = match random.below(10) {
        0 => "If-Match: \"18446744073709551615\"\r\n",
        1 => "If-Match: *\r\n",
        2 => "If-None-Match: *\r\n",
        3 => "If-None-Match: \"1\", W/\"2\"\r\n",
        _ => "",
    };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {kind}\r\n{condition}\
         X-Request-Id: {number}\r\nContent-Length: {length}\r\n\r\n",
        number = random.bits(),
        length = body.len(),
    );
    [head.into_bytes(), body].concat()
}

on_each_database!(changed_requests_never_fail);

fn changed_requests_never_fail(fleet: &Fleet) {
    let node = fleet.node("a");
    let mut random = Random::new(SEED);
    let mut statuses = BTreeMap::<u16, u64>::new();
    for number in 0..REQUESTS {
        let request = request(&mut random);
        let answer = Answer::read(&say(node.admin, &request));
        let shown = || String::from_utf8_lossy(&request[..request.len().min(3_000)]).into_owned();
        assert!(
            answer.status < 500,
            "request {number} of seed {SEED}: {answer:?} to {}",
            shown()
        );
        *statuses.entry(answer.status).or_default() += 1;
    }
    println!("{statuses:?}");
    assert!(
        statuses
            .get(&200)
            .is_some_and(|count| *count > REQUESTS / 20),
        "{statuses:?}"
    );
    assert!(!node.log().contains("panicked"), "{}", node.log());
    assert!(fleet.verified() > 0, "the trail is whole");
    assert!(node.stop().success());
}
