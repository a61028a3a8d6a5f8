//! The move from a running envoyproxy/ratelimit: `ratekeeper migrate` plans it from its variables and rules, Ratekeeper
//! starts with the settings of that plan, and `migrate --check` compares both while callers ask both.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ratekeeper_proto::WireEntry;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use ratekeeper_testkit::process::{Process, free_port};
use ratekeeper_testkit::ratekeeper::Setup;
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::answer::Reply;
use crate::args::Args;
use crate::request::{Call, Via};
use crate::target::{Pair, Program, Target};

const API: &str = "
domain: api
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1000000 }
    descriptors:
      - { key: path, value: /v1/*, rate_limit: { unit: year, requests_per_unit: 50 } }
      - { key: path, value: /login, rate_limit: { unit: year, requests_per_unit: 3, name: logins } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: tried, shadow_mode: true, rate_limit: { unit: month, requests_per_unit: 2 } }
";
const BATCH: &str = "
domain: batch
descriptors:
  - { key: job, value: nightly, rate_limit: { unit: year, requests_per_unit: 5 } }
  - { key: job, rate_limit: { unit: week, requests_per_unit: 7 } }
";
/// The rules that the two files have.
const LOOKS: u64 = 7;

/// The callers that ask both services all the time.
const CALLERS: usize = 4;
/// The pause between two looks at how far they are.
const POLL: Duration = Duration::from_millis(5);
/// The fewest requests of each caller before and after a comparison.
const REQUESTS: u64 = 200;

/// Plans and compares.
///
/// # Errors
/// A program cannot be run, or says something else than it should.
pub(crate) async fn migration(args: &Args, redis: SocketAddr) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let rules = dir.path().join("ratelimit/config");
    std::fs::create_dir_all(&rules)?;
    std::fs::write(rules.join("api.yaml"), API)?;
    std::fs::write(rules.join("batch.yaml"), BATCH)?;
    let ports = [free_port(), free_port(), free_port()];
    let variables = variables(dir.path(), redis, ports);
    let mut command = std::process::Command::new(&args.envoyproxy_ratelimit);
    command.env_clear().envs(variables.clone());
    let theirs = Program::Spawned(Process::spawn("envoyproxy-ratelimit", command));
    let theirs = Target::of(theirs, ports).await?;

    let lines = variables.map(|(name, value)| format!("{name}={value}\n"));
    std::fs::write(dir.path().join("theirs.env"), lines.concat())?;
    let settings = plan(args, dir.path()).await?;
    let ours = started(args, dir.path(), &settings).await?;
    let pair = Arc::new(Pair { theirs, ours });
    compare_under_load(args, dir.path(), &pair).await?;
    tell_a_difference(args, dir.path(), &pair, &settings).await?;
    println!("migrate plans from a running service, starts by the plan, and compares under load");
    Ok(())
}

/// The variables of envoyproxy/ratelimit, as people set them.
fn variables(
    dir: &Path,
    redis: SocketAddr,
    [grpc, http, admin]: [u16; 3],
) -> [(&'static str, String); 14] {
    let here = || "127.0.0.1".to_owned();
    [
        ("USE_STATSD", "false".to_owned()),
        ("LOG_LEVEL", "error".to_owned()),
        ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
        ("REDIS_URL", redis.to_string()),
        ("LOCAL_CACHE_SIZE_IN_BYTES", "1000000".to_owned()),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true".to_owned()),
        ("RUNTIME_ROOT", dir.display().to_string()),
        ("RUNTIME_SUBDIRECTORY", "ratelimit".to_owned()),
        ("HOST", here()),
        ("GRPC_HOST", here()),
        ("DEBUG_HOST", here()),
        ("GRPC_PORT", grpc.to_string()),
        ("PORT", http.to_string()),
        ("DEBUG_PORT", admin.to_string()),
    ]
}

/// Runs `migrate` on the variables and the rules; returns the settings that it prints.
async fn plan(args: &Args, dir: &Path) -> Result<String> {
    let output = ran(args, dir, &["theirs.env", "--rules", "ratelimit/config"]).await?;
    let text = told(&output);
    ensure!(output.status.success(), "migrate fails: {text}");
    for part in [
        "profile: envoy",
        "envoy_metrics: true",
        "# RUNTIME_ROOT",
        "# REDIS_URL",
        "response_headers: limits",
        "- `LOCAL_CACHE_SIZE_IN_BYTES`: this variable of envoyproxy/ratelimit changes nothing here",
        "api.user.path_/login",
        "| 1w | 1 | batch.job |",
        "--check http://OLD:8080 http://NEW:8080",
    ] {
        ensure!(text.contains(part), "{part} is not in the plan: {text}");
    }
    let settings = text.split_once("```yaml\n").map(|(_, rest)| rest);
    let settings = settings.and_then(|rest| rest.split_once("```"));
    let (settings, _) = settings.with_context(|| format!("there are no settings in {text}"))?;
    Ok(settings.to_owned())
}

/// Starts Ratekeeper by the settings of a plan, at addresses of its own.
async fn started(args: &Args, dir: &Path, settings: &str) -> Result<Target> {
    let setup = Setup::serve(&args.ratekeeper).in_folder(dir);
    let ours = setup
        .settings(settings)
        .args("--config ratekeeper.yaml")
        .start();
    let ports = [ours.grpc, ours.port, ours.admin];
    Target::of(Program::Ours(Box::new(ours)), ports).await
}

/// Callers ask both services all the time; the comparison finds no difference, and takes nothing from them.
async fn compare_under_load(args: &Args, dir: &Path, pair: &Arc<Pair>) -> Result<()> {
    let is_over = Arc::new(AtomicBool::new(false));
    let done: Arc<[AtomicU64]> = (0..CALLERS).map(|_| AtomicU64::new(0)).collect();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (pair, done, is_over) = (Arc::clone(pair), Arc::clone(&done), Arc::clone(&is_over));
        callers.spawn(async move {
            let (mine, user) = (&done[caller], format!("caller-{caller}"));
            while !is_over.load(Ordering::Acquire) {
                let call = asked("api", &[("user", &user)]);
                let (theirs, ours) =
                    tokio::try_join!(pair.theirs.ask(&call), pair.ours.ask(&call))?;
                let so_far = 1 + mine.fetch_add(1, Ordering::AcqRel);
                // Each caller's counter has what it asked for, and nothing else.
                for (who, reply) in [("theirs", theirs), ("ours", ours)] {
                    let left = remaining(&reply)?;
                    ensure!(
                        u64::from(left) + so_far == 1_000_000,
                        "{who}: {left} are left after {so_far} requests of {user}"
                    );
                }
            }
            anyhow::Ok(())
        });
    }
    let ready = |count: u64| done.iter().all(|it| it.load(Ordering::Acquire) >= count);
    wait_for(&mut callers, || ready(REQUESTS)).await?;
    let output = check(args, dir, pair).await?;
    let busy = done.iter().map(|it| it.load(Ordering::Acquire));
    let after = busy.max().unwrap_or_default() + REQUESTS;
    wait_for(&mut callers, || ready(after)).await?;
    is_over.store(true, Ordering::Release);
    while let Some(ended) = callers.join_next().await {
        ended??;
    }
    let text = told(&output);
    ensure!(output.status.success(), "both are the same, but: {text}");
    let expected = format!("{LOOKS} looks: {LOOKS} the same, 0 different\n");
    ensure!(text == expected, "{text:?} is not {expected:?}");
    Ok(())
}

/// Waits until it is so, or until one of the callers has failed.
async fn wait_for(callers: &mut JoinSet<Result<()>>, is_so: impl Fn() -> bool) -> Result<()> {
    while !is_so() {
        if let Some(ended) = callers.try_join_next() {
            ended??;
            bail!("a caller has ended early");
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// A limit that is exhausted there and not here, and one that was changed, are told.
async fn tell_a_difference(args: &Args, dir: &Path, pair: &Pair, settings: &str) -> Result<()> {
    let nightly = asked("batch", &[("job", "nightly")]);
    for _ in 0..6 {
        pair.theirs.ask(&nightly).await?;
    }
    let other = dir.join("other");
    std::fs::create_dir_all(&other)?;
    std::fs::write(other.join("api.yaml"), API.replace("50", "60"))?;
    std::fs::write(other.join("batch.yaml"), BATCH)?;
    let settings = settings
        .lines()
        .map(|line| match line.starts_with("rules:") {
            true => "rules: other\n".to_owned(),
            false => format!("{line}\n"),
        });
    let ours = started(args, dir, &settings.collect::<String>()).await?;
    let output = checked(args, dir, &pair.theirs, &ours).await?;
    let text = told(&output);
    ensure!(output.status.code() == Some(1), "they differ, but: {text}");
    for part in [
        "differs: api user=ratekeeper-migrate-look,path=/v1/ratekeeper-migrate-look: theirs 50 per year (OK), ours 60 per year (OK)\n",
        "differs: batch job=nightly: theirs 5 per year (OVER_LIMIT), ours 5 per year (OK)\n",
        "7 looks: 5 the same, 2 different\n",
    ] {
        ensure!(text.contains(part), "{part} is not in {text}");
    }
    Ok(())
}

async fn check(args: &Args, dir: &Path, pair: &Pair) -> Result<Output> {
    checked(args, dir, &pair.theirs, &pair.ours).await
}

async fn checked(args: &Args, dir: &Path, theirs: &Target, ours: &Target) -> Result<Output> {
    let [theirs, ours] = [theirs, ours].map(|target| format!("http://{}", target.http));
    let what = ["--rules", "ratelimit/config", "--check", &theirs, &ours];
    ran(args, dir, &what).await
}

async fn ran(args: &Args, dir: &Path, more: &[&str]) -> Result<Output> {
    let mut command = Command::new(&args.ratekeeper);
    command.arg("migrate").args(more).current_dir(dir);
    let output = command.env_clear().kill_on_drop(true).output().await;
    output.with_context(|| format!("cannot run {}", args.ratekeeper.display()))
}

fn told(output: &Output) -> String {
    let both = [&*output.stdout, &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

fn asked(domain: &str, pairs: &[(&str, &str)]) -> Call {
    let entry = |(key, value): &(&str, &str)| WireEntry {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    };
    let descriptor = RateLimitDescriptor {
        entries: pairs.iter().map(entry).collect(),
        ..Default::default()
    };
    Call {
        request: RateLimitRequest {
            domain: domain.to_owned(),
            descriptors: vec![descriptor],
            hits_addend: 1,
        },
        via: Via::Grpc,
    }
}

fn remaining(reply: &Reply) -> Result<u32> {
    let status = reply.answer().and_then(|answer| answer.statuses.first());
    let status = status.with_context(|| format!("{reply:?} is no decision"))?;
    Ok(status.limit_remaining)
}
