//! Sends the same random requests under the same random rules to envoyproxy/ratelimit and to
//! Ratekeeper with `--profile envoy`, and compares every field of every answer.
//!
//! `cargo xtask compat` installs envoyproxy/ratelimit, builds our binary and runs this.

mod answer;
mod args;
mod burst;
mod clients;
mod compare;
mod differences;
mod json;
mod migration;
mod play;
mod probe;
mod random;
mod record;
mod refusal;
mod request;
mod rules;
mod run;
mod target;
mod unit;
mod world;

use std::process::ExitCode;

use args::Args;
use clap::Parser;

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
