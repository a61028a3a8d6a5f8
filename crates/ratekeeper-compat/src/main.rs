//! Plays the same random rules and requests to envoyproxy/ratelimit itself and to Ratekeeper under
//! `--profile envoy`, and compares every field of every answer.
//!
//! `cargo xtask compat` installs the incumbent, builds our binary and runs this.

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

/// What is compared with what, and for how long.
#[derive(Debug, Parser)]
#[command(about = "Compares Ratekeeper with envoyproxy/ratelimit, live")]
struct Args {
    /// The incumbent: its program service_cmd
    #[arg(long, value_name = "FILE")]
    incumbent: PathBuf,
    /// The incumbent's checker of rules: its program config_check_cmd
    #[arg(long, value_name = "FILE")]
    checker: PathBuf,
    /// Ours
    #[arg(long, value_name = "FILE")]
    ratekeeper: PathBuf,
    /// The Redis that the incumbent counts in; a process of its own is started
    #[arg(long, value_name = "FILE", default_value = "redis-server")]
    redis: PathBuf,
    /// A gRPC client for the command line
    #[arg(long, value_name = "FILE")]
    grpcurl: PathBuf,
    /// A load tool for gRPC
    #[arg(long, value_name = "FILE")]
    ghz: PathBuf,
    /// What rules and requests are made from; the same seed makes the same
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many answers to compare at least
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    answers: u64,
    /// How many sets of rules, most of them broken, to have checked
    #[arg(long, value_name = "N", default_value_t = 500)]
    rules: u64,
    /// Compare nothing: write what the incumbent answers to this file, for the test that replays it
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
