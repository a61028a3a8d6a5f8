//! Measures the layer's cost per request, and the spacing of requests from a leaky bucket.
//!
//! `cargo bench -p ratekeeper-tower -- [cost] [shaping]`

#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of measurements, and of tests, are rounded on purpose"
)]

mod cost;
mod shaping;

use std::sync::Arc;

use ratekeeper_limiter::{Limiter, LimiterOptions};
use ratekeeper_rules::{Options, Source, load};
use ratekeeper_store::{MemoryConfig, MemoryStore};
use ratekeeper_tower::RulesLayer;

/// A layer over counters in this process, with the rules of domain `d`.
fn layer(rules: &str) -> RulesLayer<Arc<Limiter<MemoryStore>>> {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: rules.to_owned(),
    };
    let rules = load(&[source], &Options::default()).expect("the rules are good");
    let store = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
    let limiter = Limiter::new(rules.rules, store, LimiterOptions::default());
    RulesLayer::new(Arc::new(limiter), "d")
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --all-targets` runs this too, without measuring.
    if !arguments.iter().any(|argument| argument == "--bench") {
        println!("measures only under cargo bench, or with --bench");
        return;
    }
    let mut chosen = arguments
        .iter()
        .filter(|argument| !argument.starts_with('-'))
        .peekable();
    let all = chosen.peek().is_none();
    let chosen: Vec<&String> = chosen.collect();
    let wants = |part: &str| all || chosen.iter().any(|chosen| *chosen == part);
    if wants("cost") {
        cost::beside_the_service_alone();
    }
    if wants("shaping") {
        shaping::at_twice_the_rate();
    }
}
