//! Demonstrates every listed difference: one request each, with the answers that both must give.

use std::path::Path;

use anyhow::{Result, ensure};
use ratekeeper_proto::WireEntry;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use ratekeeper_testkit::process::eventually;
use tokio::process::Command;

use crate::answer::Reply;
use crate::args::Args;
use crate::differences::Difference;
use crate::request::{Call, Via};
use crate::target::{Environment, Pair, Target};

const RULES: &str = "
domain: p
descriptors:
  - { key: quota, quota_mode: true, rate_limit: { unit: year, requests_per_unit: 0 } }
  - { key: path, value: '/v1/*/tail', rate_limit: { unit: year, requests_per_unit: 3 } }
  - { key: given, rate_limit: { unit: year, requests_per_unit: 3 } }
  - { key: a, rate_limit: { unit: year, requests_per_unit: 3 } }
  - { key: a_b, rate_limit: { unit: year, requests_per_unit: 3 } }
";
/// The one of the two checkers that accepts a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Them,
    Us,
}

/// A difference, and a file that only one of the two checkers accepts.
type FileProbe = (Difference, By, &'static str);

const METADATA: &str = "
domain: p
descriptors:
  - { key: a, metadata: { team: red }, rate_limit: { unit: year, requests_per_unit: 3 } }
";

const FILES: [FileProbe; 4] = [
    (Difference::MetadataKey, By::Us, METADATA),
    (Difference::YamlEndFirst, By::Us, "...\ndomain: p\n"),
    (Difference::YamlTwice, By::Us, "domain: [p]\ndomain: p\n"),
    (
        Difference::YamlDirective,
        By::Them,
        "domain: p\n%YAML 1.1\n---\ndomain: q\n",
    ),
];

/// Demonstrates every difference.
///
/// # Errors
/// The first difference that is not as listed, with both answers.
pub(crate) async fn probes(args: &Args, redis: std::net::SocketAddr) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let at = Environment::new(
        dir.path(),
        vec![("RESPONSE_DYNAMIC_METADATA", "true".to_owned())],
    );
    at.write("p.yaml", RULES)?;
    let pair = at.pair(args, redis).await?;
    for probe in probes_in_order() {
        for call in &probe.before {
            tokio::try_join!(pair.theirs.ask(call), pair.ours.ask(call))?;
        }
        let (theirs, ours) =
            tokio::try_join!(pair.theirs.ask(&probe.call), pair.ours.ask(&probe.call))?;
        let name = probe.difference.name();
        ensure!(
            (probe.theirs)(&theirs),
            "{name}: envoyproxy/ratelimit does not differ as listed any more: {theirs:?}"
        );
        ensure!(
            (probe.ours)(&ours),
            "{name}: we do not differ as listed: {ours:?}"
        );
    }
    the_process_ends(pair).await?;
    for file in FILES {
        checkers_differ(args, file).await?;
    }
    refused_at_start(args, redis).await
}

/// A difference, and a request that shows it.
struct Probe {
    difference: Difference,
    /// Requests to send first, whose answers do not matter.
    before: Vec<Call>,
    call: Call,
    theirs: fn(&Reply) -> bool,
    ours: fn(&Reply) -> bool,
}

fn probes_in_order() -> Vec<Probe> {
    let given = |negative| changed(&[("given", "x")], |view| view.is_negative_hits = negative);
    let many = vec![view(&[("a", "x")]); 101];
    vec![
        probe(
            Difference::GrpcCode,
            grpc(vec![]),
            |reply| failed(reply, "Unknown"),
            |reply| failed(reply, "InvalidArgument"),
        ),
        probe(
            Difference::JsonMessage,
            Call {
                via: Via::Json("{}".to_owned()),
                ..grpc(vec![])
            },
            |reply| matches!(reply, Reply::Refused { body, .. } if body == "Bad Request\n"),
            |reply| matches!(reply, Reply::Refused { body, .. } if body.contains("domain")),
        ),
        probe(
            Difference::QuotaMode,
            grpc(vec![view(&[("quota", "x")])]),
            |reply| said(reply, "OK", "OK", None) && !has_reset(reply),
            |reply| said(reply, "OVER_LIMIT", "OVER_LIMIT", None) && has_reset(reply),
        ),
        probe(
            Difference::QuotaMetadata,
            grpc(vec![view(&[("quota", "x")])]),
            has_quota_metadata,
            |reply| !has_quota_metadata(reply),
        ),
        probe(
            Difference::StarInside,
            grpc(vec![view(&[("path", "/v1/x/tail")])]),
            |reply| said(reply, "OK", "OK", Some(0)),
            |reply| said(reply, "OK", "OK", Some(2)),
        ),
        Probe {
            before: vec![given(false)],
            ..probe(
                Difference::NegativeHits,
                given(true),
                |reply| said(reply, "OK", "OK", Some(1)),
                |reply| said(reply, "OK", "OK", Some(3)),
            )
        },
        probe(
            Difference::HitsMax,
            changed(&[("given", "y")], |view| view.hits_addend = Some(1 << 53)),
            |reply| said(reply, "OVER_LIMIT", "OVER_LIMIT", None) && has_reset(reply),
            |reply| said(reply, "OVER_LIMIT", "OVER_LIMIT", None) && !has_reset(reply),
        ),
        Probe {
            before: vec![grpc(vec![view(&[("a", "b_c")])])],
            ..probe(
                Difference::JoinedKeys,
                grpc(vec![view(&[("a_b", "c")])]),
                |reply| said(reply, "OK", "OK", Some(1)),
                |reply| said(reply, "OK", "OK", Some(2)),
            )
        },
        probe(
            Difference::Bounds,
            grpc(many),
            |reply| said(reply, "OVER_LIMIT", "OK", None),
            |reply| said(reply, "OVER_LIMIT", "OVER_LIMIT", None),
        ),
    ]
}

fn probe(
    difference: Difference,
    call: Call,
    theirs: fn(&Reply) -> bool,
    ours: fn(&Reply) -> bool,
) -> Probe {
    Probe {
        difference,
        before: Vec::new(),
        call,
        theirs,
        ours,
    }
}

fn view(pairs: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| WireEntry {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    };
    RateLimitDescriptor {
        entries: pairs.iter().map(entry).collect(),
        ..Default::default()
    }
}

fn grpc(descriptors: Vec<RateLimitDescriptor>) -> Call {
    Call {
        request: RateLimitRequest {
            domain: "p".to_owned(),
            descriptors,
            hits_addend: 0,
        },
        via: Via::Grpc,
    }
}

fn changed(pairs: &[(&str, &str)], change: impl FnOnce(&mut RateLimitDescriptor)) -> Call {
    let mut view = view(pairs);
    change(&mut view);
    grpc(vec![view])
}

fn failed(reply: &Reply, code: &str) -> bool {
    matches!(reply, Reply::Failed { code: said, .. } if said == code)
}

/// Returns true if the answer has this overall code, this code for the first descriptor, and this
/// many remaining hits.
fn said(reply: &Reply, overall: &str, first: &str, remaining: Option<u32>) -> bool {
    reply.answer().is_some_and(|answer| {
        let status = answer.statuses.first().filter(|it| it.code == first);
        let left = status.map(|status| status.limit_remaining);
        answer.overall_code == overall
            && left.is_some()
            && (remaining.is_none() || left == remaining)
    })
}

fn has_reset(reply: &Reply) -> bool {
    let status = reply.answer().and_then(|answer| answer.statuses.first());
    status.is_some_and(|status| status.duration_until_reset.is_some())
}

fn has_quota_metadata(reply: &Reply) -> bool {
    let metadata = reply.answer().and_then(|it| it.dynamic_metadata.as_ref());
    metadata.is_some_and(|metadata| metadata.contains_key("quotaModeEnabled"))
}

/// An invalid unit over gRPC ends the process of envoyproxy/ratelimit.
async fn the_process_ends(pair: Pair) -> Result<()> {
    let call = changed(&[("a", "z")], |view| {
        view.limit = Some(RateLimitOverride {
            requests_per_unit: 1,
            unit: 0,
        });
    });
    let ours = pair.ours.ask(&call).await?;
    ensure!(
        failed(&ours, "InvalidArgument"),
        "override-unit: we say {ours:?}"
    );
    let theirs = pair.theirs.ask(&call).await?;
    let no_answer = matches!(theirs, Reply::Failed { .. });
    ensure!(
        no_answer,
        "override-unit: envoyproxy/ratelimit says {theirs:?}"
    );
    let mut theirs = pair.theirs;
    eventually("envoyproxy/ratelimit ends", || {
        theirs.program.process().ended().is_some()
    });
    Ok(())
}

/// Rules that one checker accepts and the other refuses.
async fn checkers_differ(args: &Args, (difference, accepted, rules): FileProbe) -> Result<()> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("r.yaml"), rules)?;
    let theirs = Command::new(&args.checker)
        .arg("-config_dir")
        .arg(dir.path())
        .output()
        .await?;
    let ours = Command::new(&args.ratekeeper)
        .args(["rules", "check", "--profile", "envoy"])
        .arg(dir.path())
        .output()
        .await?;
    let name = difference.name();
    ensure!(
        theirs.status.success() == (accepted == By::Them),
        "{name}: envoyproxy/ratelimit does not differ as listed any more:\n{rules}"
    );
    ensure!(
        ours.status.success() == (accepted == By::Us),
        "{name}: we do not differ as listed:\n{rules}"
    );
    Ok(())
}

/// Invalid rules at startup: it serves errors, we report the reason and exit.
async fn refused_at_start(args: &Args, redis: std::net::SocketAddr) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let at = Environment::new(dir.path(), Vec::new());
    at.write(
        "p.yaml",
        "domain: p\ndescriptors:\n  - key: a\n    rate_limit: { unit: fortnight }\n",
    )?;
    let theirs = Target::envoyproxy_ratelimit(&args.envoyproxy_ratelimit, redis, &at).await?;
    let reply = theirs.ask(&grpc(vec![view(&[("a", "x")])])).await?;
    let name = Difference::RefusedAtStart.name();
    let unloaded = matches!(&reply, Reply::Failed { message, .. } if message == "no rate limit configuration loaded");
    ensure!(unloaded, "{name}: envoyproxy/ratelimit says {reply:?}");
    drop(theirs);
    let ended = at.ratekeeper_fails(Path::new(&args.ratekeeper)).await?;
    ensure!(ended.contains("fortnight"), "{name}: we said {ended}");
    Ok(())
}
