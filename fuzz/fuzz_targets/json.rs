//! Bodies of `/json` and of everything under `/v1`: refused, or a question that the limiter answers.
#![no_main]

use bodies::{OfPermit, ToAcquire, ToCancel, ToCommit, ToRefund, ToReserve};
use libfuzzer_sys::fuzz_target;
use question::{Question, Questions};
use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{Limiter, LimiterOptions};
use ratekeeper_rules::{Options, Source, load};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use std::sync::LazyLock;

// The server shows its edges over the network only; these files of it need nothing but how refusals are made.
#[path = "../../crates/ratekeeper-server/src/http/check/bodies.rs"]
#[allow(
    dead_code,
    reason = "not all that the server reads of a body is read here"
)]
mod bodies;
#[path = "../../crates/ratekeeper-server/src/http/malformed.rs"]
mod malformed;
#[path = "../../crates/ratekeeper-server/src/http/check/object.rs"]
mod object;
#[path = "../../crates/ratekeeper-server/src/http/check/question.rs"]
#[allow(
    dead_code,
    reason = "not all that the server asks of a question is asked here"
)]
mod question;

/// A stand-in for the server's bounds.
mod config {
    pub(crate) const DESCRIPTORS_MAX: usize = 100;
    pub(crate) const ENTRIES_MAX: usize = 32;
}

mod v1 {
    use crate::http::ApiError;
    use ratekeeper_core::Micros;
    use ratekeeper_limiter::Waiting;

    /// A stand-in for the server's function: the number of checks a batch may have.
    pub(crate) fn check_count(count: usize) -> Result<(), ApiError> {
        if (1..=1_000).contains(&count) {
            return Ok(());
        }
        Err(ApiError)
    }

    /// A stand-in for the server's function: the time a caller can wait.
    pub(crate) fn waiting(ms_max: Option<u64>) -> Waiting {
        ms_max.map_or(Waiting::Can, |ms| Waiting::Within(Micros::from_millis(ms)))
    }
}

mod http {
    pub(crate) use crate::malformed;

    /// A stand-in for the server's error: what is wrong, and where in the body.
    #[derive(Debug)]
    pub(crate) struct ApiError;

    impl ApiError {
        pub(crate) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
            let (_, message) = (field.into(), message.into());
            assert!(!message.is_empty(), "refused without a reason");
            ApiError
        }
    }
}

const RULES: &str = "
domain: d
evaluation: path
descriptors:
  - key: a
    rate_limit: { window: 1m, limit: 5 }
    descriptors:
      - { key: b, value: x*, rate_limit: [{ window: 1s, limit: 3, algorithm: token_bucket }, { window: 1h, limit: 9 }] }
";

static LIMITER: LazyLock<Limiter<MemoryStore>> = LazyLock::new(|| {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: RULES.to_owned(),
    };
    let rules = load(&[source], &Options::default())
        .expect("the rules above are good")
        .rules;
    let config = MemoryConfig {
        memory_limit: MemoryConfig::LEAST,
        ..MemoryConfig::default()
    };
    let store = MemoryStore::new(config).expect("a MiB can be had");
    Limiter::new(rules, store, LimiterOptions::default())
});

fuzz_target!(|body: &[u8]| {
    let _ = ratekeeper_proto::json::read_request(body);
    if let Ok(question) = question::parse::<Question<'_>>(body) {
        ask(&question);
    }
    if let Ok(questions) = question::parse::<Questions<'_>>(body)
        && questions.validate().is_ok()
    {
        questions.checks.iter().for_each(|question| ask(question));
    }
    if let Ok(wanted) = question::parse::<ToAcquire<'_>>(body) {
        ask(&wanted.split().0);
    }
    if let Ok(given) = question::parse::<ToRefund<'_>>(body) {
        ask(&given.split().0);
    }
    if let Ok(wanted) = question::parse::<ToReserve<'_>>(body) {
        ask(&wanted.split().0);
    }
    let _ = question::parse::<OfPermit<'_>>(body);
    let _ = question::parse::<ToCommit<'_>>(body);
    let _ = question::parse::<ToCancel<'_>>(body);
});

fn ask(question: &Question<'_>) {
    if question.validate(format_args!("")).is_err() {
        return;
    }
    let entries = question.entries();
    let descriptors = question.descriptors(&entries, 1);
    let decision = LIMITER.check_at(&question.check(&descriptors), Timestamp::from_secs(1_000));
    assert_eq!(decision.statuses().len(), descriptors.len());
}
