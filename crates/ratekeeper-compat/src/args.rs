//! The arguments.

use std::path::PathBuf;

use clap::Parser;

/// The programs to compare, and the extent of the comparison.
#[derive(Debug, Parser)]
#[command(about = "Compares Ratekeeper with envoyproxy/ratelimit, live")]
pub(crate) struct Args {
    /// envoyproxy/ratelimit: its program service_cmd
    #[arg(long, value_name = "FILE")]
    pub(crate) envoyproxy_ratelimit: PathBuf,
    /// The rules checker of envoyproxy/ratelimit: its program config_check_cmd
    #[arg(long, value_name = "FILE")]
    pub(crate) checker: PathBuf,
    /// Ratekeeper
    #[arg(long, value_name = "FILE")]
    pub(crate) ratekeeper: PathBuf,
    /// A gRPC client for the command line
    #[arg(long, value_name = "FILE")]
    pub(crate) grpcurl: PathBuf,
    /// A gRPC load generator
    #[arg(long, value_name = "FILE")]
    pub(crate) ghz: PathBuf,
    /// The seed of rules and requests; the same seed makes the same
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The least number of answers to compare
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) answers: u64,
    /// The number of rule sets, most of them broken, to have checked
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) rules: u64,
    /// Only try the move from a running envoyproxy/ratelimit: `ratekeeper migrate`, and its `--check` under load
    #[arg(long)]
    pub(crate) only_migration: bool,
    /// Write the answers of envoyproxy/ratelimit to this file, for the test that replays it, and
    /// compare nothing
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
}
