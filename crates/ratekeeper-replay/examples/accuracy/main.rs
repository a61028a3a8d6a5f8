//! Prints the accuracy of the algorithms, and fails if one exceeds the error bound that it
//! promises.
//!
//! ```text
//! cargo run --release -p ratekeeper-replay --example accuracy -- [--quick] LOG...
//! ```
//! Callers of many kinds and a searching adversary try to pass more than the limit in a window;
//! requests from real and generated logs are decided beside an exact log. The same build prints the
//! same figures.

mod logs;
#[allow(dead_code, reason = "each example uses a part of it")]
#[path = "../traffic/mod.rs"]
mod traffic;
mod worst;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use ratekeeper_core::Micros;

/// The window of all synthetic limits.
const WINDOW: Micros = Micros::from_secs(60);

/// The extent of the measurement.
#[derive(Clone, Copy)]
struct Effort {
    /// Windows for which each kind of caller stays.
    windows: u64,
    /// Schedules that the adversary tries for each limit.
    tries: u32,
    /// Adversarial searches, each from its own seed.
    searches: u64,
    /// Requests of each generated log.
    requests: usize,
}

const QUICK: Effort = Effort {
    windows: 8,
    tries: 500,
    searches: 1,
    requests: 40_000,
};

const FULL: Effort = Effort {
    windows: 40,
    tries: 4_000,
    searches: 3,
    requests: 400_000,
};

/// Broken promises, a sentence for each.
#[derive(Default)]
struct Broken(Vec<String>);

impl Broken {
    fn unless(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(what());
        }
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut effort = FULL;
    let mut paths: Vec<PathBuf> = Vec::new();
    for argument in std::env::args_os().skip(1) {
        if argument == "--quick" {
            effort = QUICK;
        } else {
            paths.push(argument.into());
        }
    }
    let mut broken = Broken::default();
    worst::print(effort, &mut broken);
    logs::print(effort, &paths, &mut broken)?;
    if broken.0.is_empty() {
        println!("All promised bounds hold.");
        return Ok(ExitCode::SUCCESS);
    }
    println!("{} promised bounds are broken:\n", broken.0.len());
    for what in &broken.0 {
        println!("- {what}");
    }
    Ok(ExitCode::FAILURE)
}
