//! Puts changes of one operator, value or return to tests. `cargo xtask mutants` runs it.
//!
//! `cargo mutants --list` names the changes. All of them are compiled at once into a copy of the repository, each behind a
//! switch that an environment variable turns on. Each test runs alone, twice, and tells which switches it comes by; then
//! each change runs with the tests that come by its switch, and no others.
//!
//! A change that does not compile is found by the compiler's errors, and left out. One where no switch can stand, such as
//! in the value of a constant, is listed as untried.

mod changes;
mod compile;
mod lists;
mod parallel;
mod place;
mod program;
mod reach;
mod render;
mod switch;
mod tree;
mod trial;
mod weed;

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;

/// The arguments.
struct Args {
    /// The root of the repository.
    root: PathBuf,
    /// The folder for the copy of the repository, and what is built of it.
    work: PathBuf,
    /// The folder for the lists.
    out: PathBuf,
    /// The package to change, whose tests have to notice.
    package: String,
    /// Further arguments for `cargo mutants --list`.
    choice: Vec<String>,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match Args::parse(&args).and_then(|args| run(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ratekeeper-mutants: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Args {
    /// Reads `--root PATH --work PATH --out PATH --package NAME [-- CHOICE...]`.
    fn parse(args: &[String]) -> Result<Args> {
        let end = args.iter().position(|arg| arg == "--");
        let (own, choice) = args.split_at(end.unwrap_or(args.len()));
        let value = |name: &str| {
            let at = own.iter().position(|arg| arg == name);
            at.and_then(|at| own.get(at + 1).cloned())
                .with_context(|| format!("{name} and its value are missing"))
        };
        Ok(Args {
            root: value("--root")?.into(),
            work: value("--work")?.into(),
            out: value("--out")?.into(),
            package: value("--package")?,
            choice: choice.iter().skip(1).cloned().collect(),
        })
    }
}

fn run(args: &Args) -> Result<()> {
    let changes = changes::list(&args.root, &args.package, &args.choice)?;
    if changes.is_empty() {
        return lists::write(&args.out, &changes, &[]);
    }
    let tree = args.work.join("tree");
    tree::copy(&args.root, &tree)?;
    let compiled = weed::weed(args, &tree, &changes)?;
    let (live, of) = (compiled.live.len(), changes.len());
    eprintln!("{live} of {of} changes are compiled");
    let tests = reach::record(&compiled.programs, &args.work.join("reached"))?;
    if tests.is_empty() && live > 0 {
        bail!("no test passes without a change");
    }
    let outcomes = trial::all(&changes, &compiled, &tests)?;
    lists::write(&args.out, &changes, &outcomes)
}
