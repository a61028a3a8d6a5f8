//! Sends the same random requests under the same random rules to envoyproxy/ratelimit and to
//! Ratekeeper with `--profile envoy`, and compares every field of every answer.
//!
//! `cargo xtask compat` installs envoyproxy/ratelimit, builds our binary and runs this.

mod answer;
mod burst;
mod clients;
mod compare;
mod differences;
mod json;
mod play;
mod probe;
mod process;
mod random;
mod record;
mod refusal;
mod request;
mod rules;
mod run;
mod target;
mod unit;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// The programs to compare, and the extent of the comparison.
#[derive(Debug, Parser)]
#[command(about = "Compares Ratekeeper with envoyproxy/ratelimit, live")]
struct Args {
    /// envoyproxy/ratelimit: its program service_cmd
    #[arg(long, value_name = "FILE")]
    envoyproxy_ratelimit: PathBuf,
    /// The rules checker of envoyproxy/ratelimit: its program config_check_cmd
    #[arg(long, value_name = "FILE")]
    checker: PathBuf,
    /// Ratekeeper
    #[arg(long, value_name = "FILE")]
    ratekeeper: PathBuf,
    /// The Redis for envoyproxy/ratelimit; a process of its own is started
    #[arg(long, value_name = "FILE", default_value = "redis-server")]
    redis: PathBuf,
    /// A gRPC client for the command line
    #[arg(long, value_name = "FILE")]
    grpcurl: PathBuf,
    /// A gRPC load generator
    #[arg(long, value_name = "FILE")]
    ghz: PathBuf,
    /// The seed of rules and requests; the same seed makes the same
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The least number of answers to compare
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    answers: u64,
    /// The number of rule sets, most of them broken, to have checked
    #[arg(long, value_name = "N", default_value_t = 500)]
    rules: u64,
    /// Write the answers of envoyproxy/ratelimit to this file, for the test that replays it, and
    /// compare nothing
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let done = runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run::run(&args)));
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("compat: {error:#}");
            ExitCode::FAILURE
        }
    }
}
