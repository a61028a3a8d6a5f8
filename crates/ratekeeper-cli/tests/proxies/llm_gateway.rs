//! The gateway with examples/llm-gateway: no request passes outside of a budget.

use crate::support::{example, with_changes};
use ratekeeper_testkit::http1::{Answer, ask};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::ratekeeper::{Ratekeeper, Setup};
use ratekeeper_testkit::recorder::{Recorder, ok};
use tempfile::TempDir;

/// More tokens than an hour has, so that one answer exhausts the budget.
const ANSWER: &str =
    r#"{"usage":{"prompt_tokens":2,"completion_tokens":1000,"total_tokens":1002}}"#;
const ADA: &str = "Authorization: Bearer ada\r\n";
const USED: &str = r#"ratelimit_usage_hits_total{from="response"} "#;

struct LlmGateway {
    model: Recorder,
    gateway: Ratekeeper,
    _folder: TempDir,
}

impl LlmGateway {
    fn start() -> LlmGateway {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let model = Recorder::start(|_| ok(ANSWER));
        let changes = [
            ("http://127.0.0.1:9000", model.url()),
            (
                "rules: rules.yaml",
                format!("rules: {}", example("llm-gateway/rules.yaml").display()),
            ),
        ];
        let settings = with_changes("llm-gateway/ratekeeper.yaml", folder.path(), &changes);
        let setup = Setup::front(env!("CARGO_BIN_EXE_ratekeeper"));
        let gateway = setup
            .args(&["--config", &*settings.to_string_lossy()])
            .start();
        LlmGateway {
            model,
            gateway,
            _folder: folder,
        }
    }

    /// Asks for a model with further lines of the head.
    fn ask(&self, lines: &str, body: &str) -> Answer {
        let path = "/v1/chat/completions";
        ask(self.gateway.port, "POST", path, lines, body).expect("the gateway answers")
    }
}

#[test]
fn a_user_who_has_used_the_budget_of_a_model_is_denied() {
    let example = LlmGateway::start();
    assert_eq!(example.ask(ADA, r#"{"model":"small"}"#).status, 200);
    eventually("the tokens are charged", || {
        example.gateway.metric_or_zero(USED) == 1002
    });
    assert_eq!(example.ask(ADA, r#"{"model":"small"}"#).status, 429);
    assert_eq!(example.ask(ADA, r#"{"model":"large"}"#).status, 200);
}

#[test]
fn a_request_without_a_user_or_a_model_does_not_reach_a_model() {
    let example = LlmGateway::start();
    let basic = "Authorization: Basic YWRhOg==\r\n";
    for (lines, body) in [
        ("", r#"{"model":"small"}"#),
        (basic, r#"{"model":"small"}"#),
        (ADA, "{}"),
    ] {
        let answer = example.ask(lines, body);
        assert_eq!(answer.status, 429, "{lines:?} {body}: {answer:?}");
    }
    assert_eq!(example.model.asked().len(), 0);
}
