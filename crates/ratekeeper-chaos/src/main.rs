//! `ratekeeper-chaos`: what `cargo xtask chaos` runs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Runs nodes of the service under load while their Redis fails in every way there is, and prints a table.
#[derive(Parser)]
struct Args {
    /// The binary to run.
    #[arg(long, value_name = "PATH")]
    ratekeeper: PathBuf,
    /// A newer binary: nodes are replaced by it one by one, and back, and no fault is gone through.
    #[arg(long, value_name = "PATH", conflicts_with = "names")]
    upgrade_to: Option<PathBuf>,
    /// Shorter faults, and none of those that need a minute.
    #[arg(long)]
    quick: bool,
    /// The deadline of a decision in milliseconds, for machines that are busy with something else.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 10)]
    deadline: u64,
    /// Only rows whose names contain one of these; all rows of the second table begin with `windows`.
    #[arg(value_name = "FAULT")]
    names: Vec<String>,
}

#[cfg(unix)]
fn main() -> ExitCode {
    use ratekeeper_chaos::{Plan, run, upgrade};

    let Args {
        ratekeeper,
        upgrade_to,
        quick,
        deadline,
        names,
    } = Args::parse();
    let plan = match quick {
        true => Plan::QUICK,
        false => Plan::FULL,
    };
    let plan = plan.with_deadline(std::time::Duration::from_millis(deadline));
    let outcome = match upgrade_to {
        Some(newer) => upgrade(&ratekeeper, &newer, &plan),
        None => run(&ratekeeper, &plan, &names),
    };
    match outcome {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("{failed} rows failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("chaos: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(unix))]
fn main() -> ExitCode {
    eprintln!("the campaign pauses and kills processes as Unix does");
    ExitCode::FAILURE
}
