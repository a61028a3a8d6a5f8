//! The verbs of this repository: `cargo xtask build | run | test | check | bench | fuzz | help`.
//!
//! Two profiles and no more are ever built: `check`, `test` and `fuzz --check` use the dev profile, `build`,
//! `run` and `bench` the release profile. Each step is printed with the command it runs and the time it took, so
//! that whoever reads a failed run can repeat just that step by hand.

mod bench;
mod check;
mod fuzz;
mod need;
mod run;
mod steps;
mod test;

use std::io::Write as _;
use std::process::ExitCode;

const HELP: &str = "\
The verbs of this repository.

  cargo xtask run [ARGS]          build the release binary and run it; bare, it serves config/
  cargo xtask test [ARGS]         install what the tests need, then run all of them; ARGS go to cargo test
  cargo xtask check               formatting, clippy, rustdoc, cargo deny; warnings are errors
  cargo xtask build               the release binary: target/release/ratekeeper
  cargo xtask bench core          speed and size of a decision in process, beside governor
  cargo xtask fuzz [--seconds N] [TARGET]
                                  each parser against libFuzzer for N seconds (60), or one of them
  cargo xtask help                this text

`test` uses the dev profile, `run`, `build` and `bench` the release profile. What a verb needs beyond Rust it
installs where it may (as root on Debian or Ubuntu, and with cargo install), and says so; elsewhere it names the
packages and stops.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (verb, rest) = match args.split_first() {
        Some((verb, rest)) => (verb.as_str(), rest),
        None => ("help", &[][..]),
    };
    let done = match verb {
        "build" => run::build(),
        "run" => run::run(rest),
        "test" => test::test(rest),
        "check" => check::check(),
        "bench" => bench::bench(rest),
        "fuzz" => fuzz::fuzz(rest),
        "help" | "--help" | "-h" => {
            // `cargo xtask help | head` closes the pipe early, which is no fault.
            let _ = writeln!(std::io::stdout(), "{HELP}");
            Ok(())
        }
        other => {
            eprintln!("xtask: there is no verb {other:?}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask {verb}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
