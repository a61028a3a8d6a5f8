//! Responses that tell their usage: those of models' APIs as vectors, cut anywhere, and hostile ones.

use std::sync::Arc;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use proptest::prelude::*;
use ratekeeper_core::MAX_COUNT;
use ratekeeper_http::{Spent, SpentFrom, UsageScanner};
use ratekeeper_rules::{JsonPointer, TokenWeights, UsageEstimate, UsageRules};

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream; charset=utf-8";

/// A response of an API, its media type, and the tokens of prompt, cache and answer that it tells.
struct Vector {
    name: &'static str,
    media_type: &'static str,
    body: &'static str,
    told: (Option<u64>, Option<u64>, Option<u64>),
}

macro_rules! vectors {
    ($($file:literal $media_type:ident $told:expr;)*) => {
        [$(Vector {
            name: $file,
            media_type: $media_type,
            body: include_str!(concat!("usage_vectors/", $file)),
            told: $told,
        }),*]
    };
}

const VECTORS: [Vector; 11] = vectors! {
    "openai_chat.json" JSON (Some(2_006), Some(1_920), Some(300));
    "openai_chat.sse" EVENTS (Some(19), Some(8), Some(10));
    "openai_responses.json" JSON (Some(36), Some(16), Some(87));
    "openai_responses.sse" EVENTS (Some(37), None, Some(11));
    "litellm.json" JSON (Some(2_006), Some(1_920), Some(300));
    "anthropic.json" JSON (Some(2_095 + 2_051 + 500), Some(500), Some(503));
    "anthropic.sse" EVENTS (Some(25 + 4 + 100), Some(100), Some(15));
    "gemini.json" JSON (Some(8), Some(2), Some(20 + 970));
    "gemini.sse" EVENTS (Some(8), None, Some(12));
    "gemini_list.json" JSON (Some(8), None, Some(12));
    "embeddings.json" JSON (Some(8), None, None);
};

fn rules_of(weights: TokenWeights) -> Arc<UsageRules> {
    UsageRules::tokens(weights).into()
}

fn tokens() -> Arc<UsageRules> {
    rules_of(TokenWeights::default())
}

fn headers(media_type: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(media_type))])
}

/// A scanner at the begin of the response to a POST of 40 bytes.
fn scanner(rules: &Arc<UsageRules>, media_type: &'static str) -> UsageScanner {
    let mut scanner = UsageScanner::new(Arc::clone(rules), &Method::POST, 40);
    scanner.head(StatusCode::OK, &headers(media_type));
    scanner
}

fn spent(rules: &Arc<UsageRules>, media_type: &'static str, pieces: &[&[u8]]) -> Spent {
    let mut scanner = scanner(rules, media_type);
    pieces.iter().for_each(|piece| scanner.feed(piece));
    scanner.spent(true)
}

fn json(rules: &Arc<UsageRules>, body: &str) -> Spent {
    spent(rules, JSON, &[body.as_bytes()])
}

#[test]
fn apis_of_models_are_read_wherever_they_are_cut() {
    for Vector {
        name,
        media_type,
        body,
        told,
    } in &VECTORS
    {
        let (input, cached_input, output) = *told;
        let expected = Spent {
            hits: input.unwrap_or(0) + output.unwrap_or(0),
            from: SpentFrom::Response,
            input,
            cached_input,
            output,
        };
        let body = body.as_bytes();
        assert_eq!(spent(&tokens(), media_type, &[body]), expected, "{name}");
        for at in 0..=body.len() {
            let (one, other) = body.split_at(at);
            assert_eq!(
                spent(&tokens(), media_type, &[one, other]),
                expected,
                "{name} cut at {at}"
            );
        }
        let bytes: Vec<&[u8]> = body.chunks(1).collect();
        assert_eq!(
            spent(&tokens(), media_type, &bytes),
            expected,
            "{name} byte by byte"
        );
        // Line ends of all kinds are the same to event streams.
        let text = String::from_utf8_lossy(body);
        for end in ["\r\n", "\r"] {
            let other = text.replace('\n', end);
            let bytes: Vec<&[u8]> = other.as_bytes().chunks(1).collect();
            assert_eq!(
                spent(&tokens(), media_type, &bytes),
                expected,
                "{name} with {end:?}"
            );
        }
    }
}

#[test]
fn weights_count_each_token_once() {
    let weights = TokenWeights {
        input: 1_000_000,
        cached_input: 100_000,
        output: 4_000_000,
    };
    let of = |name: &str| {
        let vector = VECTORS.iter().find(|vector| vector.name == name);
        let vector = vector.expect("there is such a vector");
        spent(
            &rules_of(weights),
            vector.media_type,
            &[vector.body.as_bytes()],
        )
        .hits
    };
    // Within the prompt: 86 new ones, 1,920 from the cache.
    assert_eq!(of("openai_chat.json"), 86 + 192 + 4 * 300);
    assert_eq!(of("litellm.json"), 86 + 192 + 4 * 300);
    // Beside it.
    assert_eq!(of("anthropic.json"), 2_095 + 2_051 + 50 + 4 * 503);
    assert_eq!(of("anthropic.sse"), 25 + 4 + 10 + 4 * 15);
    // Tenths are added up exactly, and rounded up once.
    assert_eq!(of("gemini.json"), 6 + 1 + 4 * 990);
    assert_eq!(of("openai_chat.sse"), 11 + 1 + 4 * 10);
}

#[test]
fn places_are_read_as_they_are_written() {
    let at = |pointer: &str| {
        let pointer = JsonPointer::parse(pointer).expect("a pointer");
        Arc::new(UsageRules::json(pointer))
    };
    for (pointer, body, hits) in [
        ("/tokens", r#"{"tokens":5}"#, 5),
        (
            "/tokens",
            r#" { "a" : { "tokens" : 4 } , "tokens" : 5 } "#,
            5,
        ),
        ("/tokens", r#"{"\u0074ok\u0065ns":5}"#, 5),
        ("/a~1b", r#"{"a\/b":6}"#, 6),
        ("/ä/€", r#"{"\u00e4":{"\u20AC":7}}"#, 7),
        ("/a/1/b", r#"{"a":[{"b":1},{"b":8},{"b":3}]}"#, 8),
        ("/a/*/b", r#"{"a":[{"b":1},{"b":2},{"b":9}]}"#, 9),
        ("/1/0", r#"[[4,5],[10,11]]"#, 10),
        ("/cost", r#"{"cost":1.000001}"#, 2),
        ("/cost", r#"{"cost":12.5e1}"#, 125),
        // The last one counts: of keys, and of lines.
        ("/n", r#"{"n":5,"n":7}"#, 7),
        ("/n", "{\"n\":5}\n{\"n\":6}\n{\"done\":true,\"n\":11}\n", 11),
        ("/n", "{\"n\":5}{\"n\":12}", 12),
        ("/n", "{\"n\":0}", 0),
        // Null is as good as nothing.
        ("/n", "{\"n\":5,\"n\":null}", 5),
    ] {
        let spent = json(&at(pointer), body);
        assert_eq!(
            (spent.hits, spent.from),
            (hits, SpentFrom::Response),
            "{pointer} in {body}"
        );
    }
}

#[test]
fn what_is_no_usage_is_estimated_and_told_apart() {
    for body in [
        r#"{"usage":{"prompt_tokens":-5}}"#,
        r#"{"usage":{"prompt_tokens":"5"}}"#,
        r#"{"usage":{"prompt_tokens":1e300}}"#,
        r#"{"usage":{"prompt_tokens":99999999999999999999999999}}"#,
        r#"{"usage":{"prompt_tokens":1000000000000000000000000000000000000000000000000000000000000000000000000000000}}"#,
        r#"{"usage":{"prompt_tokens":[5]}}"#,
        r#"{"usage":{"prompt_tokens":{"value":5}}}"#,
        r#"{"usage":{"prompt_tokens":true}}"#,
        r#"{"usage":{"prompt_tokens":0x10}}"#,
    ] {
        let spent = json(&tokens(), body);
        let estimate = 10 + body.len().div_ceil(4) as u64;
        let expected = (estimate, SpentFrom::Unreadable, None);
        assert_eq!((spent.hits, spent.from, spent.input), expected, "{body}");
    }
    for body in [
        "",
        "{",
        "null",
        "[DONE]",
        r#"{"usage":null}"#,
        r#"{"usage":[{"prompt_tokens":5}]}"#,
        r#"[[{"usage":{"prompt_tokens":5}}]]"#,
        r#"{"usage":"prompt_tokens"}"#,
        r#""usage":{"prompt_tokens":5}"#,
        r#"{"usage" {"prompt_tokens":5}}"#,
        r#"{usage:{"prompt_tokens":5}}"#,
        r#"{"usage":{"prompt_tokens":5"#,
        r#"{"\ud83d\ude00usage":{"prompt_tokens":5}}"#,
        "\u{feff}{}",
    ] {
        let spent = json(&tokens(), body);
        let estimate = 10 + body.len().div_ceil(4) as u64;
        assert_eq!(
            (spent.hits, spent.from),
            (estimate, SpentFrom::Estimate),
            "{body}"
        );
    }
    // One good number, and one that is none: what was told of the one, and the estimate of the other.
    let body = r#"{"usage":{"prompt_tokens":4000,"completion_tokens":-1}}"#;
    let spent = json(&tokens(), body);
    let answer = body.len().div_ceil(4) as u64;
    assert_eq!(spent.hits, 4_000 + answer);
    assert_eq!(spent.from, SpentFrom::Unreadable);
}

#[test]
fn estimates_go_by_bytes_by_events_or_are_fixed() {
    let events =
        "data: {\"a\":1}\n\n: a comment\n\nevent: x\ndata: {\"b\":\ndata: 2}\n\nid: 7\n\ndata: cut";
    let of = |rules: UsageRules, media_type, body: &str| {
        let spent = spent(&rules.into(), media_type, &[body.as_bytes()]);
        assert_eq!(spent.from, SpentFrom::Estimate);
        spent.hits
    };
    let tokens = || UsageRules::tokens(TokenWeights::default());
    // Ten for the request, three events.
    assert_eq!(of(tokens(), EVENTS, events), 10 + 3);
    assert_eq!(of(tokens(), JSON, "{\"a\":123}"), 10 + 3);
    let hundred = UsageEstimate::Hits(100);
    assert_eq!(of(tokens().estimate(hundred), JSON, "{}"), 100);
    let weighted = UsageRules::tokens(TokenWeights {
        input: 500_000,
        cached_input: 0,
        output: 2_000_000,
    });
    assert_eq!(of(weighted, EVENTS, events), 5 + 6);
}

#[test]
fn failures_redirects_and_safe_requests_cost_what_they_tell() {
    let body = br#"{"error":{"message":"overloaded"}}"#;
    let pointer = JsonPointer::parse("/usage/input_tokens").expect("a pointer");
    let json = Arc::new(UsageRules::json(pointer));
    let by = |rules: &Arc<UsageRules>, method: Method, status: u16, body: &[u8]| {
        let mut scanner = UsageScanner::new(Arc::clone(rules), &method, 40);
        let status = StatusCode::from_u16(status).expect("a status");
        scanner.head(status, &headers(JSON));
        scanner.feed(body);
        let spent = scanner.spent(true);
        (spent.hits, spent.from)
    };
    let tokens = tokens();
    let of = |method, status, body| by(&tokens, method, status, body);
    let nothing = (0, SpentFrom::Nothing);
    assert_eq!(of(Method::POST, 529, body), nothing);
    assert_eq!(of(Method::POST, 400, body), nothing);
    assert_eq!(of(Method::POST, 307, b""), nothing);
    assert_eq!(of(Method::POST, 201, b"").0, 10);
    assert_eq!(of(Method::GET, 200, br#"{"data":[{"id":"gpt"}]}"#), nothing);
    let told = br#"{"usage":{"input_tokens":5}}"#;
    assert_eq!(of(Method::POST, 500, told), (5, SpentFrom::Response));
    // A stored answer tells the tokens of the call that made it, however often it is asked for.
    for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
        assert_eq!(of(method.clone(), 200, told), nothing, "{method}");
        assert_eq!(by(&json, method, 200, told), (5, SpentFrom::Response));
    }
}

#[test]
fn upgraded_connections_cost_a_fixed_estimate() {
    let of = |rules: UsageRules, status| {
        let mut scanner = UsageScanner::new(rules.into(), &Method::GET, 0);
        scanner.head(status, &HeaderMap::new());
        let spent = scanner.spent(true);
        (spent.hits, spent.from)
    };
    let tokens = || UsageRules::tokens(TokenWeights::default());
    let fixed = || tokens().estimate(UsageEstimate::Hits(500));
    let upgrade = StatusCode::SWITCHING_PROTOCOLS;
    assert_eq!(of(fixed(), upgrade), (500, SpentFrom::Estimate));
    assert_eq!(of(fixed(), StatusCode::OK), (0, SpentFrom::Nothing));
    assert_eq!(of(tokens(), upgrade), (0, SpentFrom::Nothing));
}

#[test]
fn who_leaves_early_is_charged_for_what_was_streamed() {
    let body = include_str!("usage_vectors/anthropic.sse");
    let events: Vec<_> = body.split_inclusive("\n\n").collect();
    let after = |count: usize| {
        let mut scanner = scanner(&tokens(), EVENTS);
        events[..count]
            .iter()
            .for_each(|event| scanner.feed(event.as_bytes()));
        let spent = scanner.spent(false);
        (spent.hits, spent.from)
    };
    // Nothing has come but the head: the prompt is estimated.
    assert_eq!(after(0), (10, SpentFrom::Partial));
    // The first event tells the prompt, and one token of the answer.
    assert_eq!(after(1), (130, SpentFrom::Response));
    assert_eq!(after(6), (129 + 6, SpentFrom::Partial));
    // Clients leave when they have seen the last event.
    assert_eq!(after(7), (144, SpentFrom::Response));
    assert_eq!(after(8), (144, SpentFrom::Response));
    // Where nothing is told, events count.
    let mut many = scanner(&tokens(), EVENTS);
    (0..500).for_each(|_| many.feed(b"data: {\"choices\":[]}\n\n"));
    assert_eq!(many.spent(false).hits, 510);
}

#[test]
fn who_leaves_early_pays_the_prompt_that_was_told_whatever_the_size_of_the_request() {
    let start =
        br#"data: {"message":{"usage":{"input_tokens":1600,"output_tokens":1}}}"#.as_slice();
    let left = |rules: &Arc<UsageRules>, request_bytes, start: &[u8], deltas| {
        let mut scanner = UsageScanner::new(Arc::clone(rules), &Method::POST, request_bytes);
        scanner.head(StatusCode::OK, &headers(EVENTS));
        scanner.feed(start);
        scanner.feed(b"\n\n");
        (0..deltas).for_each(|_| scanner.feed(b"data: {\"delta\":{}}\n\n"));
        let spent = scanner.spent(false);
        assert_eq!(spent.from, SpentFrom::Partial);
        spent.hits
    };
    // A request with a picture in it, and one whose prompt is with the model already.
    for request_bytes in [4_000_000, 9] {
        assert_eq!(left(&tokens(), request_bytes, start, 700), 1_600 + 701);
    }
    let weighted = rules_of(TokenWeights {
        input: 500_000,
        cached_input: 100_000,
        output: 2_000_000,
    });
    assert_eq!(left(&weighted, 9, start, 700), 800 + 2 * 701);
    // An answer that was told to be longer than its events are many.
    let long = br#"data: {"usage":{"prompt_tokens":100,"completion_tokens":50}}"#;
    assert_eq!(left(&tokens(), 4_000, long, 5), 150);
    // Of a prompt that is told in part, the whole is estimated.
    let cached = br#"data: {"usage":{"prompt_tokens_details":{"cached_tokens":30}}}"#;
    assert_eq!(left(&weighted, 4_000, cached, 5), 500 + 2 * 6);
    // A number of hits is the least.
    let fixed = |hits| -> Arc<UsageRules> {
        let rules = UsageRules::tokens(TokenWeights::default());
        rules.estimate(UsageEstimate::Hits(hits)).into()
    };
    assert_eq!(left(&fixed(5_000), 9, start, 700), 5_000);
    assert_eq!(left(&fixed(5), 9, start, 700), 1_601);
}

#[test]
fn compressed_bodies_are_not_opened() {
    for (encoding, from) in [
        ("gzip", SpentFrom::Estimate),
        ("identity", SpentFrom::Response),
    ] {
        let mut scanner = UsageScanner::new(tokens(), &Method::POST, 40);
        let mut headers = headers(JSON);
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
        scanner.head(StatusCode::OK, &headers);
        scanner.feed(br#"{"usage":{"prompt_tokens":5000}}"#);
        assert_eq!(scanner.spent(true).from, from, "{encoding}");
    }
}

#[test]
fn headers_and_trailers_tell_it_too() {
    let of = |head: &[&'static str], trailers: &[&'static str]| {
        let fields = |values: &[&'static str]| -> HeaderMap {
            let mut map = HeaderMap::new();
            for value in values {
                map.append("x-tokens", HeaderValue::from_static(value));
            }
            map
        };
        let rules = UsageRules::header("X-Tokens").estimate(UsageEstimate::Hits(77));
        let mut scanner = UsageScanner::new(rules.into(), &Method::POST, 0);
        scanner.head(StatusCode::OK, &fields(head));
        scanner.feed(b"body");
        scanner.fields(&fields(trailers));
        let spent = scanner.spent(true);
        (spent.hits, spent.from)
    };
    assert_eq!(of(&["12"], &[]), (12, SpentFrom::Response));
    assert_eq!(of(&[], &["13"]), (13, SpentFrom::Response));
    assert_eq!(of(&["12"], &["13"]), (13, SpentFrom::Response));
    assert_eq!(of(&["12", "14"], &[]), (14, SpentFrom::Response));
    assert_eq!(of(&["0.5"], &[]), (1, SpentFrom::Response));
    assert_eq!(of(&[], &[]), (77, SpentFrom::Estimate));
    for bad in ["-1", "1e300", "12,13", "many", ""] {
        assert_eq!(of(&[bad], &[]), (77, SpentFrom::Unreadable), "{bad}");
    }
}

#[test]
fn no_body_makes_it_grow_or_stop() {
    let size = std::mem::size_of::<UsageScanner>();
    assert!(size < 1_500, "{size} bytes, and nothing on the heap");
    let piece = |byte: u8| vec![byte; 1 << 20];
    for (begin, byte) in [
        ("", b'['),
        ("", b'{'),
        ("{\"usage\":", b'['),
        ("{\"", b'k'),
        ("{\"usage\":{\"prompt_tokens\":", b'1'),
        ("{\"a\":\"", b'x'),
        ("{\"a\":\"", b'\\'),
        ("", b' '),
        ("", b'\n'),
        ("data", b':'),
        ("data: [", b'['),
        ("data", b'a'),
    ] {
        for media_type in [JSON, EVENTS] {
            let mut scanner = scanner(&tokens(), media_type);
            scanner.feed(begin.as_bytes());
            let piece = piece(byte);
            (0..3).for_each(|_| scanner.feed(&piece));
            let spent = scanner.spent(true);
            let byte = char::from(byte);
            assert_ne!(
                spent.from,
                SpentFrom::Response,
                "{begin}{byte}… as {media_type}"
            );
        }
    }
}

proptest! {
    /// A body tells the same in one piece and in many, and no more than a counter holds.
    #[test]
    fn pieces_make_no_difference(
        parts in prop::collection::vec(
            prop_oneof![
                Just("{"), Just("}"), Just("["), Just("]"), Just(":"), Just(","), Just("\""), Just("\\"), Just("\\u0075"),
                Just("usage"), Just("\"usage\":{"), Just("\"prompt_tokens\":"), Just("12"), Just("-"), Just("."), Just("e9"),
                Just("null"), Just("true"), Just("data: "), Just("\n"), Just("\r"), Just("\n\n"), Just(" "),
                Just("{\"usage\":{\"completion_tokens\":3}}"), Just("usageMetadata"), Just("é"),
            ],
            0..60,
        ),
        is_events in any::<bool>(),
        size in 1_usize..9,
    ) {
        let body = parts.concat();
        let media_type = if is_events { EVENTS } else { JSON };
        let whole = spent(&tokens(), media_type, &[body.as_bytes()]);
        let pieces: Vec<&[u8]> = body.as_bytes().chunks(size).collect();
        prop_assert_eq!(spent(&tokens(), media_type, &pieces), whole);
        prop_assert!(whole.hits <= MAX_COUNT);
    }

    /// A body that serde_json reads tells what serde_json finds at the pointer.
    #[test]
    fn json_is_read_as_others_read_it(value in value(3), keys in prop::collection::vec("[ab]", 1..4)) {
        let pointer = format!("/{}", keys.join("/"));
        let rules = Arc::new(UsageRules::json(JsonPointer::parse(&pointer).expect("a pointer")));
        let found = value.pointer(&pointer);
        let spent = json(&rules, &value.to_string());
        match found {
            None | Some(serde_json::Value::Null) => prop_assert_eq!(spent.from, SpentFrom::Estimate),
            Some(found) => match found.as_u64() {
                Some(number) => prop_assert_eq!((spent.hits, spent.from), (number, SpentFrom::Response)),
                None => prop_assert_eq!(spent.from, SpentFrom::Unreadable),
            },
        }
    }
}

/// A value of JSON, with keys that pointers may have.
fn value(depth: u32) -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        (0_u64..100_000).prop_map(Into::into),
        (-50_i64..-1).prop_map(Into::into),
        "[ab\"\\\\/{}\\[\\]é]{0,4}".prop_map(Into::into),
    ];
    leaf.prop_recursive(depth, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::hash_map("[ab\"\\\\é]{1,2}", inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}
