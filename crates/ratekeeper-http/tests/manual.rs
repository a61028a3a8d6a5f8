//! Holds the examples of docs/headers.md to the program's answers.

use std::path::Path;

use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_http::answer::{
    BodyForm, Bound, Denial, Form, Headers, Quota, Refusal, RequestStatus,
};
use ratekeeper_limiter::LimitStatus;
use serde_json::Value;

fn manual() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/headers.md");
    std::fs::read_to_string(path).expect("the manual is there")
}

/// The code blocks, with their languages.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut parts = text.split("```");
    while let (Some(_), Some(block)) = (parts.next(), parts.next()) {
        let (language, code) = block.split_once('\n').expect("a language and lines");
        blocks.push((language.to_owned(), code.to_owned()));
    }
    blocks
}

/// 42 of 100 left in this minute, or none.
fn limits(allowed: bool) -> RequestStatus<'static> {
    let minute = Quota {
        window: Some(Micros::from_secs(60)),
        ..Quota::named("per-minute", 100)
    };
    let in_flight = Quota {
        is_concurrency: true,
        ..Quota::named("in-flight", 20)
    };
    let reset_after = Micros::from_secs(18);
    RequestStatus {
        allowed,
        degraded: false,
        at: Timestamp::from_secs(1_767_225_600),
        quotas: [minute.clone(), in_flight].into_iter().collect(),
        binding: Some(Bound {
            quota: minute,
            status: LimitStatus {
                rule: Some("shop.api_key".into()),
                limit: 100,
                remaining: if allowed { 42 } else { 0 },
                reset_after,
                full_after: reset_after,
                retry_after: (!allowed).then_some(reset_after),
                is_over: !allowed,
                debt: 0,
            },
        }),
        scope: (!allowed).then(|| "api_key:~1f0c83aa5b92d07e…1815".to_owned()),
    }
}

#[test]
fn headers_are_as_the_manual_shows_them() {
    let text = manual();
    let mut headers = None;
    let mut shown = 0;
    for (language, code) in blocks(&text) {
        match &*language {
            "yaml" => {
                let list = code.trim().strip_prefix("headers: ").expect("the setting");
                headers = Some(list.parse::<Headers>().expect("a list of headers"));
            }
            "http" => {
                let (status, lines) = code.split_once('\n').expect("a status and headers");
                let headers = headers.expect("a list comes first");
                let told = headers.lines(&limits(status == "HTTP/1.1 200 OK"));
                let told = told.iter().map(|(name, value)| {
                    format!("{name}: {}\n", value.to_str().expect("it is text"))
                });
                assert_eq!(told.collect::<String>(), lines, "{headers:?}");
                shown += 1;
            }
            _ => {}
        }
    }
    assert_eq!(shown, 4);
}

#[test]
fn bodies_are_as_the_manual_shows_them() {
    let denial = Denial::new(limits(false), "shop");
    let refusal = Refusal::Denied(Box::new(denial));
    let answered = [BodyForm::Json, BodyForm::Problem].map(|form| {
        let response = refusal.response(&Form::Http(form), Vec::new());
        serde_json::from_slice::<Value>(response.body()).expect("it is JSON")
    });
    let text = manual();
    let shown = blocks(&text)
        .into_iter()
        .filter(|(language, _)| language == "json");
    let shown: Vec<Value> = shown
        .map(|(_, code)| serde_json::from_str(&code).expect("it is JSON"))
        .collect();
    assert_eq!(shown, answered);
}

#[test]
fn every_word_is_in_the_manual() {
    let refused = "nothing"
        .parse::<Headers>()
        .expect_err("no such word")
        .to_string();
    let (_, words) = refused
        .split_once("none of ")
        .expect("it says which there are");
    let text = manual();
    for word in words.replace(" and ", ", ").split(", ") {
        assert!(text.contains(&format!("| `{word}` |")), "{word}");
    }
}
