//! `ratekeeper-attack`: the program behind `cargo xtask attack`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Attacks the service and the gateway in every way there is, and prints a table.
#[derive(Parser)]
struct Args {
    /// The binary to attack.
    #[arg(long, value_name = "PATH")]
    ratekeeper: PathBuf,
    /// h2spec, where it is there.
    #[arg(long, value_name = "PATH")]
    h2spec: Option<PathBuf>,
    /// Smaller floods and fewer peers.
    #[arg(long)]
    quick: bool,
    /// Only families whose names contain one of these.
    #[arg(value_name = "FAMILY")]
    names: Vec<String>,
}

#[cfg(unix)]
fn main() -> ExitCode {
    use ratekeeper_attack::{Plan, run};

    let args = Args::parse();
    let plan = match args.quick {
        true => Plan::quick(),
        false => Plan::full(),
    };
    let plan = plan.with_h2spec(args.h2spec).with_names(args.names);
    match run(&args.ratekeeper, &plan) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("{failed} families failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("attack: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(unix))]
fn main() -> ExitCode {
    eprintln!("the campaign starts and measures processes as Unix does");
    ExitCode::FAILURE
}
