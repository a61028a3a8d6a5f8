//! A layer around a service, and requests to it.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Builder;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use ratekeeper_limiter::{Limiter, LimiterOptions};
use ratekeeper_rules::{Options, Source, load};
use ratekeeper_store::{MemoryConfig, MemoryStore, Store};
use ratekeeper_tower::RulesLayer;

pub(crate) type Memory = Arc<Limiter<MemoryStore>>;

pub(crate) fn layer(rules: &str) -> RulesLayer<Memory> {
    let store = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
    RulesLayer::new(limiter_with(rules, store), "d")
}

pub(crate) fn limiter_with<S: Store>(rules: &str, store: S) -> Arc<Limiter<S>> {
    limiter_of(&[rules.to_owned()], store)
}

/// A limiter with the rules of several files.
pub(crate) fn limiter_of<S: Store>(files: &[String], store: S) -> Arc<Limiter<S>> {
    let sources = (0..)
        .zip(files)
        .map(|(number, text): (usize, &String)| Source {
            name: format!("rules{number}.yaml"),
            text: text.clone(),
        });
    let sources: Vec<Source> = sources.collect();
    let rules = load(&sources, &Options::default()).expect("the rules are good");
    Arc::new(Limiter::new(rules.rules, store, LimiterOptions::default()))
}

pub(crate) fn get(key: &str) -> Builder {
    Request::get("/orders").header("x-api-key", key)
}

pub(crate) fn of(key: &str) -> Request<()> {
    get(key).body(()).expect("a request")
}

pub(crate) fn full(text: &'static str) -> Response<Full<Bytes>> {
    Response::new(Full::new(Bytes::from_static(text.as_bytes())))
}

pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    let value = headers
        .get(name)
        .unwrap_or_else(|| panic!("no {name} in {headers:?}"));
    value.to_str().expect("it is text")
}
