//! The short form of the fault campaign, which `cargo xtask chaos` lives through in full: for a moment each, all faults
//! but those in which servers have to miss one another first. Nothing is held to a time here; that every check is answered,
//! that no more passes than failure modes may let, and that all nodes count together again is.

#[path = "../../examples/chaos/campaign/mod.rs"]
mod campaign;

use std::process::ExitCode;

fn main() -> ExitCode {
    campaign::main(&campaign::SHORT)
}
