//! The load of which an execution profile is recorded for the compiler: checks over each protocol, alone and in batches, allowed and
//! denied, with counters in memory and in Redis, and requests through the gateway.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use ratekeeper_bench::{Forwarded, HttpPath, Keys, Load, Over, Question, Service, run};
use ratekeeper_testkit::ratekeeper::{Ratekeeper, Setup};
use ratekeeper_testkit::redis::Server as Redis;

use crate::args::{Args, Words};
use crate::gateway::setup::RULES;
use crate::pinned::{BESIDE, upstream};

/// The time of each load.
const EACH: Duration = Duration::from_secs(3);

/// The spreads of keys of each load: one counter, many that are alike, and a few that have most of the requests.
const SPREADS: [Keys; 3] = [
    Keys::Hot,
    Keys::Uniform(100_000),
    Keys::Zipf {
        keys: 100_000,
        exponent: 1.0,
    },
];

/// A limit that allows everything, and one that denies most of what a few keys ask.
const LIMITS: [&str; 2] = [
    "unit: second, requests_per_unit: 490000",
    "unit: minute, requests_per_unit: 100",
];

/// The variable that names the file to which an instrumented binary writes its execution profile as it ends.
const PROFILE_FILE: &str = "LLVM_PROFILE_FILE";

pub(crate) fn main(words: Words) -> Result<()> {
    let args = Args::of(words, &["--profiles"], &[])?;
    let profiles = args.path("--profiles");
    let profiles = profiles.context("--profiles is missing: the folder for profiles")?;
    // Each process writes a file of its own.
    let file = profiles.join("%p.profraw").display().to_string();
    let serve = |limit: &str| {
        let setup = Setup::serve(&args.ratekeeper).rules(&rules(limit));
        setup.variable(PROFILE_FILE, &file)
    };
    for limit in LIMITS {
        let ours = serve(limit).start();
        ask_in_memory(&ours)?;
        end(ours)?;
    }
    ask_in_redis(serve(LIMITS[0]))?;
    ask_the_gateway(Setup::front(&args.ratekeeper).variable(PROFILE_FILE, &file))
}

/// Rules with one limit, for each API key at one endpoint.
fn rules(limit: &str) -> String {
    format!(
        "\
domain: bench
descriptors:
  - key: api_key
    descriptors:
      - key: endpoint
        value: POST /api/v1/orders
        rate_limit: {{ {limit} }}
"
    )
}

fn question() -> Question {
    Question::new(
        "bench",
        &[("api_key", "{key}"), ("endpoint", "POST /api/v1/orders")],
    )
}

/// Asks a node with counters in memory, in every way.
fn ask_in_memory(ours: &Ratekeeper) -> Result<()> {
    let batch = |over| Service::Batch {
        over,
        question: question(),
        size: 100,
    };
    for keys in SPREADS {
        put(ours.grpc, Service::Rls(question()), keys)?;
        put(ours.grpc, batch(Over::Grpc), keys)?;
        put(ours.port, batch(Over::Http), keys)?;
        put(ours.port, Service::Http(HttpPath::Check, question()), keys)?;
    }
    // The node sleeps more often then.
    let mut few = Load::new(target(ours.grpc), Service::Rls(question()));
    (few.streams, few.keys) = (1, Keys::Uniform(100_000));
    put_load(few)
}

/// Asks a node with counters in a Redis of its own.
fn ask_in_redis(setup: Setup) -> Result<()> {
    let redis = Redis::start();
    let store = format!("redis://127.0.0.1:{}", redis.port());
    let ours = setup.args(&["--store", &store]).start();
    for keys in SPREADS {
        put(ours.grpc, Service::Rls(question()), keys)?;
    }
    end(ours)
}

/// Sends requests through a gateway.
fn ask_the_gateway(setup: Setup) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (behind, _upstream) = upstream(folder.path(), BESIDE)?;
    let upstream = format!("http://127.0.0.1:{behind}");
    let setup = setup.rules(RULES).args(&["--upstream", &upstream]);
    let ours = setup.start();
    for keys in SPREADS {
        let forwarded = Forwarded {
            method: Method::GET,
            path: "/orders/{key}".to_owned(),
        };
        put(ours.port, Service::Gateway(forwarded), keys)?;
    }
    end(ours)
}

fn target(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

fn put(port: u16, service: Service, keys: Keys) -> Result<()> {
    let mut load = Load::new(target(port), service);
    load.keys = keys;
    put_load(load)
}

fn put_load(mut load: Load) -> Result<()> {
    load.duration = EACH;
    let report = run(&load, |_| {})?;
    println!("{report}");
    ensure!(report.decisions > 0, "nothing was decided");
    Ok(())
}

/// Ends a binary as operators do: only then does it write its profile.
fn end(ours: Ratekeeper) -> Result<()> {
    let status = ours.stop();
    ensure!(status.success(), "the binary ended with {status}");
    Ok(())
}
