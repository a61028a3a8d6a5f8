//! Responses that tell their usage, in pieces: the same as in one, within bounds, and never a panic.

#![no_main]

use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use libfuzzer_sys::fuzz_target;
use ratekeeper_http::{BodyScanner, JsonPointer, Spent, UsageScanner, rpc_id};
use ratekeeper_rules::{TokenWeights, UsageRules};

fn spent(rules: &Arc<UsageRules>, is_events: bool, body: &[u8], size: usize) -> Spent {
    let kind = match is_events {
        true => "text/event-stream",
        false => "application/json",
    };
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
    let mut scanner = UsageScanner::new(Arc::clone(rules), &Method::POST, 0);
    scanner.head(StatusCode::OK, &headers);
    body.chunks(size.max(1))
        .for_each(|piece| scanner.feed(piece));
    scanner.spent(true)
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, body)) = data.split_first() else {
        return;
    };
    let rules = Arc::new(UsageRules::tokens(TokenWeights::default()));
    let is_events = first & 1 == 1;
    let whole = spent(&rules, is_events, body, body.len());
    assert_eq!(
        whole,
        spent(&rules, is_events, body, usize::from(first >> 1))
    );
    assert!(whole.hits < 1 << 53);
    let places: Vec<_> = ["/model", "/a/*/b"]
        .into_iter()
        .filter_map(|place| JsonPointer::parse(place).ok())
        .collect();
    let mut scanner = BodyScanner::new(places.into());
    body.chunks(7).for_each(|piece| scanner.feed(piece));
    let _ = (scanner.check(), scanner.values(), rpc_id(body));
});
