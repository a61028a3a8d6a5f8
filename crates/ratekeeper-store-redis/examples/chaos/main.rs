//! The fault campaign: real servers that fail in every way there is, under load from two processes.
//!
//! `cargo xtask chaos [FAULT]` prints a table, a row for each fault, or for those whose names contain FAULT.

mod campaign;

use std::process::ExitCode;

fn main() -> ExitCode {
    campaign::main(&campaign::FULL)
}
