//! Tests with third-party clients: grpcurl and ghz.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::process::Command;

use crate::args::Args;
use crate::target::{Environment, Target};

const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
const RULES: &str = "
domain: c
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 1000 } }
";
const REQUEST: &str =
    r#"{"domain": "c", "descriptors": [{"entries": [{"key": "user", "value": "7"}]}]}"#;
/// Calls of the load generator: more than the limit.
const CALLS: u64 = 3_000;

/// Lists the services, checks a request and the health, and runs a short load.
///
/// # Errors
/// A client cannot be run, or gets a wrong answer.
pub(crate) async fn clients(args: &Args) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let at = Environment::new(dir.path(), Vec::new());
    at.write("c.yaml", RULES)?;
    let ours = Target::ratekeeper(&args.ratekeeper, &at).await?;
    let address = ours.grpc.to_string();

    let list = printed(&args.grpcurl, &["-plaintext", &address, "list"]).await?;
    for service in [SERVICE, "grpc.health.v1.Health"] {
        ensure!(
            list.lines().any(|line| line == service),
            "grpcurl does not list {service}:\n{list}"
        );
    }
    let method = format!("{SERVICE}/ShouldRateLimit");
    let check = ["-plaintext", "-d", REQUEST, &address, &method];
    let answer = printed(&args.grpcurl, &check).await?;
    let answer: Value = serde_json::from_str(&answer)?;
    ensure!(
        answer["overallCode"] == "OK" && answer["statuses"][0]["limitRemaining"] == 999,
        "grpcurl was answered {answer}"
    );
    let service = r#"{"service": "ratelimit"}"#;
    let method = "grpc.health.v1.Health/Check";
    let health = ["-plaintext", "-d", service, &address, method];
    let health = printed(&args.grpcurl, &health).await?;
    ensure!(
        health.contains("\"SERVING\""),
        "grpcurl was answered {health}"
    );

    let (call, calls) = (format!("{SERVICE}.ShouldRateLimit"), CALLS.to_string());
    let what = ["--insecure", "--call", &call, "-d", REQUEST];
    let load = ["-n", &calls, "-c", "20", "--format", "json", &address];
    let report = printed(&args.ghz, &[&what[..], &load].concat()).await?;
    let report: Value = serde_json::from_str(&report)?;
    let codes = &report["statusCodeDistribution"];
    ensure!(
        codes["OK"] == CALLS && codes.as_object().is_some_and(|codes| codes.len() == 1),
        "ghz was answered {codes}, {}",
        report["errorDistribution"]
    );
    let rate = report["rps"].as_f64().unwrap_or_default();
    println!(
        "grpcurl lists, asks and checks health; ghz had {CALLS} answers and no error ({rate:.0}/s)"
    );
    Ok(())
}

async fn printed(program: &Path, args: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    let output = command.args(args).kill_on_drop(true).output().await;
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} {args:?} fails: {said}",
        program.display()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
