//! `ratekeeper-regions`: what `cargo xtask regions` runs.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Runs three regions that share limits, with oceans between them, and prints a table.
#[derive(Parser)]
struct Args {
    /// The binary to run.
    #[arg(long, value_name = "PATH")]
    ratekeeper: PathBuf,
    /// Half a minute a scenario instead of two.
    #[arg(long)]
    short: bool,
    /// The folder for `windows.csv` and `rows.json`.
    #[arg(long, value_name = "FOLDER")]
    figures: Option<PathBuf>,
    /// The folder for the plots of the manual.
    #[arg(long, value_name = "FOLDER")]
    plots: Option<PathBuf>,
    /// Only scenarios whose names contain one of these.
    #[arg(value_name = "SCENARIO")]
    names: Vec<String>,
}

#[cfg(unix)]
fn main() -> ExitCode {
    use ratekeeper_chaos::{RegionFiles, RegionPlan, run_regions};

    let args = Args::parse();
    let plan = match args.short {
        true => RegionPlan::SHORT,
        false => RegionPlan::FULL,
    };
    let files = RegionFiles {
        figures: args.figures.as_deref(),
        plots: args.plots.as_deref(),
    };
    match run_regions(&args.ratekeeper, &plan, &args.names, files) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("{failed} scenarios failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("regions: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(unix))]
fn main() -> ExitCode {
    eprintln!("the campaign kills processes as Unix does");
    ExitCode::FAILURE
}
