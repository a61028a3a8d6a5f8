//! Measurements with whole programs: `connections`, `dashboard`, `gateway`, `overload`, `seed` and `tenants`.
//!
//! `cargo xtask bench NAME` builds this, and runs one of them with the arguments that it needs. `pgo` measures nothing:
//! `cargo xtask pgo` runs it to record an execution profile for the compiler.

#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of measurements, and of tests, are rounded on purpose"
)]

mod args;
mod connections;
mod dashboard;
#[path = "../shared/files.rs"]
mod files;
mod gateway;
#[path = "../shared/machine.rs"]
mod machine;
mod node;
mod overload;
mod pgo;
mod pinned;
mod seed;
mod tenants;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    match words.next().unwrap_or_default().as_str() {
        "connections" => connections::main(words),
        "dashboard" => dashboard::main(words),
        "gateway" => gateway::main(words),
        "overload" => overload::main(words),
        "pgo" => pgo::main(words),
        "seed" => seed::main(words),
        "tenants" => tenants::main(words),
        other => bail!("there is no campaign {other:?}"),
    }
}
