//! The command `ratekeeper`: reads the command line, the environment and the settings file, connects the parts, and
//! prints their results. It makes no decisions itself.

mod background;
mod cli;
mod client;
mod commands;
mod home;
mod http_request;
mod limiter;
mod logging;
mod output;
mod quotas;
mod rules;
mod settings;
mod state;
mod store;
mod traces;

// For its functions in place of musl's.
#[cfg(all(target_arch = "x86_64", target_env = "musl"))]
use ratekeeper_memcpy as _;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};
use cli::Cli;
use std::io::ErrorKind;
use std::process::ExitCode;

/// Requests are made of small pieces that live for microseconds, which is what this one is good at.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit code of a bad command line.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and the version come this way too, to stdout and with success.
        Err(error) => return said_by_clap(&error),
    };
    match commands::run(cli) {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&format!("ratekeeper: {}", output::with_causes(&error)));
            match error.is::<cli::BadArgument>() {
                true => ExitCode::from(USAGE),
                false => ExitCode::FAILURE,
            }
        }
    }
}

fn said_by_clap(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print() {
            // A reader that has gone away cannot be told.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                output::complain(&format!("ratekeeper: {error}"));
                ExitCode::FAILURE
            }
            _ => ExitCode::SUCCESS,
        };
    }
    let hint = misplaced(error);
    if cli::asks_for_json(std::env::args()) {
        output::complain_in_json();
        output::complain(&format!("{error}{hint}"));
    } else {
        let _ = error.print();
        if !hint.is_empty() {
            output::complain(&hint);
        }
    }
    ExitCode::from(USAGE)
}

/// Names the command that has a flag which this one lacks; empty unless that is known.
fn misplaced(error: &clap::Error) -> String {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) if settings::is_gateways(flag) => {
            format!("\n`{flag}` is a flag of `ratekeeper gateway`; see `ratekeeper gateway --help`")
        }
        _ => String::new(),
    }
}
