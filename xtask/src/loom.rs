//! `cargo xtask loom`: the word of a lease, in every order in which its threads can meet.

use crate::steps::{Steps, cargo, target};
use anyhow::Result;

/// Builds the model with loom's atomics, in a target folder of its own, and runs it.
pub(crate) fn loom() -> Result<()> {
    let mut steps = Steps::new();
    let mut command = cargo([
        "test",
        "--package",
        "ratekeeper-core",
        "--test",
        "slot_model",
    ]);
    command
        .env("RUSTFLAGS", "--cfg ratekeeper_loom")
        .env("CARGO_TARGET_DIR", target().join("loom"));
    steps.command("model", &mut command)?;
    steps.finish("loom");
    Ok(())
}
