//! Records answers of envoyproxy/ratelimit for a test that needs no Go.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, bail};
use fastrand::Rng;
use serde::Serialize;

use crate::answer::{Answer, Reply};
use crate::args::Args;
use crate::compare::{Outcome, compare};
use crate::json;
use crate::play::{Counters, clear_of_the_edge, now};
use crate::random::fork;
use crate::request::{Call, Via};
use crate::rules::Domain;
use crate::target::Environment;
use crate::world::World;

/// Requests for each domain.
const REQUESTS: usize = 25;

/// A domain and its requests, in order.
#[derive(Debug, Serialize)]
struct Line {
    rules: String,
    asked: Vec<Step>,
}

/// A request to `/json`, and the answer that we must give.
#[derive(Debug, Serialize)]
struct Step {
    body: String,
    status: u16,
    /// None if the request is refused. Times until a reset depend on the clock and are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<Answer>,
}

/// Records the answers of envoyproxy/ratelimit in `file`, changed as the list of differences says.
/// All units are a day or longer, so that no window ends during the replay.
///
/// # Errors
/// A program cannot be run, or our answer differs from the one to record.
pub(crate) async fn record(args: &Args, redis: SocketAddr, file: &Path) -> Result<()> {
    let world = World::to_keep(&mut fork(args.seed, &[u64::MAX, u64::MAX]));
    let dir = tempfile::tempdir()?;
    let at = Environment::new(dir.path(), world.environment());
    world.write(&at)?;
    let pair = at.pair(args, redis).await?;
    let mut text = String::new();
    for (index, domain) in (1_u64..).zip(&world.domains) {
        let mut rng = fork(args.seed, &[u64::MAX, index]);
        let mut counters = Counters::default();
        let mut asked = Vec::new();
        while asked.len() < REQUESTS {
            let one = one(&mut rng, domain);
            if counters.would_meet(&one) {
                continue;
            }
            clear_of_the_edge().await;
            let begin = now().as_secs();
            let (theirs, ours) = tokio::try_join!(pair.theirs.ask(&one), pair.ours.ask(&one))?;
            let seconds = now().as_secs();
            if begin != seconds {
                bail!("the machine is too slow just now: a second ended between two answers");
            }
            if counters.met(&one, &theirs, seconds) {
                break;
            }
            match compare(&one, world.modes, seconds, &theirs, &ours) {
                Outcome::Equal(_) => asked.push(step(&mut rng, one, ours)?),
                Outcome::Different(expected) => {
                    bail!("{one:?}: {expected:?}, not {ours:?}; compare first")
                }
            }
        }
        let rules = domain.texts().concat();
        writeln!(text, "{}", serde_json::to_string(&Line { rules, asked })?)?;
    }
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn one(rng: &mut Rng, domain: &Domain) -> Call {
    let mut call = Call::random(rng, domain);
    let views = call.request.descriptors.iter_mut();
    for limit in views.filter_map(|view| view.limit.as_mut()) {
        if (1..=3).contains(&limit.unit) {
            limit.unit = 4;
        }
    }
    if let Via::Json(_) = call.via {
        call.via = Via::Json(json::written(rng, &call.request));
    }
    call
}

fn step(rng: &mut Rng, call: Call, ours: Reply) -> Result<Step> {
    let body = match call.via {
        Via::Json(body) => body,
        Via::Grpc => json::written(rng, &call.request),
    };
    let (status, answer) = match ours {
        Reply::Decided { mut answer, .. } => {
            for status in &mut answer.statuses {
                status.duration_until_reset = None;
            }
            // The third header has the reset time.
            answer.response_headers_to_add.truncate(2);
            let status = match answer.overall_code.as_str() {
                "OK" => 200,
                _ => 429,
            };
            (status, Some(answer))
        }
        Reply::Failed { .. } | Reply::Refused { .. } => (400, None),
        Reply::Closed => bail!("we closed the connection"),
    };
    Ok(Step {
        body,
        status,
        answer,
    })
}
