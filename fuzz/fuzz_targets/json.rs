//! Bodies of `/json` and of everything under `/v1`: refused, or a question that the limiter answers.
#![no_main]

use json_body::read_json;
use libfuzzer_sys::fuzz_target;
use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{Limiter, LimiterOptions};
use ratekeeper_rules::{Options, Source, load};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use request::{
    AcquireRequest, BatchRequest, CancelRequest, CheckRequest, CommitRequest, PermitRequest,
    RefundRequest, ReserveRequest,
};
use std::sync::LazyLock;
use subject::Subject;

// The server shows its edges over the network only; these files of it need nothing but how refusals are made.
#[path = "../../crates/ratekeeper-server/src/http/json_body.rs"]
mod json_body;
#[path = "../../crates/ratekeeper-server/src/protocol/v1/request.rs"]
#[allow(
    dead_code,
    reason = "not all that the server reads of a request is read here"
)]
mod request;
#[path = "../../crates/ratekeeper-server/src/protocol/v1/subject.rs"]
#[allow(
    dead_code,
    reason = "not all that the server asks of a request is asked here"
)]
mod subject;

/// A stand-in for the server's bounds.
mod config {
    pub(crate) const DESCRIPTORS_MAX: usize = 100;
    pub(crate) const ENTRIES_MAX: usize = 32;
}

mod error {
    pub(crate) use crate::Refusal as ApiError;
}

mod refusal {
    pub(crate) use crate::Refusal;
}

/// A stand-in for the server's errors: what is wrong, and where in the body.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) field: String,
    message: String,
}

impl Refusal {
    pub(crate) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        let (field, message) = (field.into(), message.into());
        let refusal = Refusal { field, message };
        assert!(
            !refusal.message.is_empty(),
            "{} is refused without a reason",
            refusal.field
        );
        refusal
    }

    pub(crate) fn out_of_bounds(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::invalid(field, message)
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
    if let Ok(check) = read_json::<CheckRequest<'_>>(body) {
        decide(Subject::from(&check));
    }
    if let Ok(BatchRequest { checks }) = read_json(body) {
        checks
            .iter()
            .for_each(|check| decide(Subject::from(&check.0)));
    }
    if let Ok(AcquireRequest {
        domain,
        descriptors,
        wait_ms_max,
        ..
    }) = read_json(body)
    {
        decide(Subject::new(&domain, &descriptors, wait_ms_max));
    }
    if let Ok(RefundRequest {
        domain,
        descriptors,
        ..
    }) = read_json(body)
    {
        decide(Subject::new(&domain, &descriptors, None));
    }
    if let Ok(ReserveRequest {
        domain,
        descriptors,
        wait_ms_max,
        ..
    }) = read_json(body)
    {
        decide(Subject::new(&domain, &descriptors, wait_ms_max));
    }
    let _ = read_json::<PermitRequest<'_>>(body);
    let _ = read_json::<CommitRequest<'_>>(body);
    let _ = read_json::<CancelRequest<'_>>(body);
});

fn decide(subject: Subject<'_>) {
    if subject.validate(format_args!("")).is_err() {
        return;
    }
    let check = subject.check(1);
    let decision = LIMITER.check_at(&check, Timestamp::from_secs(1_000));
    assert_eq!(decision.answers().len(), check.descriptors().len());
}
