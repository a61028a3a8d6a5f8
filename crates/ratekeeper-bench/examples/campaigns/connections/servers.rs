//! The servers that speak HTTP/2 without TLS, each on the first processor.

use std::path::Path;

use anyhow::Result;
use ratekeeper_bench::{Load, Question, Service};
use ratekeeper_testkit::ratekeeper::Setup;

use crate::pinned::{EnvoyTerms, Subject};

const RULES: &str = "
domain: bench
descriptors:
  - key: api_key
    rate_limit: { window: 1s, limit: 490000 }
";

/// The service, whose gRPC port is meant.
pub(crate) fn ratekeeper(binary: &Path) -> Subject {
    Subject::ours(Setup::serve(binary).rules(RULES), |ours| ours.grpc)
}

/// NGINX with one worker.
pub(crate) fn nginx(folder: &Path) -> Result<Subject> {
    Subject::nginx(folder, "idle", |port| {
        format!(
            "server {{ listen 127.0.0.1:{port} http2; keepalive_timeout 1h; location / {{ return 200 x; }} }}"
        )
    })
}

/// Envoy with one worker.
pub(crate) fn envoy(folder: &Path) -> Result<Subject> {
    let terms = EnvoyTerms {
        settings: "codec_type: HTTP2",
        route: "direct_response: { status: 200 }",
        ..EnvoyTerms::default()
    };
    Subject::envoy(folder, &terms)
}

/// Checks over gRPC.
pub(crate) fn load(server: &Subject) -> Load {
    let question = Question::new("bench", &[("api_key", "{key}")]);
    let target = format!("127.0.0.1:{}", server.port);
    let mut load = Load::new(target, Service::Rls(question));
    load.pid = Some(server.id);
    load
}
