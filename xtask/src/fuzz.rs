//! `cargo xtask fuzz`: runs libFuzzer on each parser.

use crate::need;
use crate::steps::{Steps, cargo, root};
use anyhow::{Context, Result, bail};

/// The names of the fuzz targets.
const TARGETS: [&str; 7] = [
    "rules",
    "descriptors",
    "access_log",
    "json",
    "tokens",
    "forwarding",
    "usage",
];

/// Runs every target, or the given one, for 60 seconds each or the time given as `--seconds`.
pub(crate) fn fuzz(args: &[String]) -> Result<()> {
    let Plan { seconds, targets } = Plan::from_args(args)?;
    let mut steps = Steps::new();
    steps.step("tools", "c++, cargo-fuzz", || {
        need::packages(&[need::CXX])?;
        need::cargo_tool(&need::CARGO_FUZZ)
    })?;
    for target in targets {
        let corpus = root().join("fuzz/corpus").join(target);
        std::fs::create_dir_all(&corpus)
            .with_context(|| format!("cannot make {}", corpus.display()))?;
        let seeds = format!("fuzz/seeds/{target}");
        // `-s none`: sanitizers need a nightly compiler. Stable finds panics, overflows and hangs,
        // by debug assertions and libFuzzer's own limits.
        let mut command = cargo(["fuzz", "run", "-s", "none", target]);
        command
            .arg(format!("fuzz/corpus/{target}"))
            .arg(seeds)
            .arg("--")
            .args([
                format!("-max_total_time={seconds}"),
                "-max_len=4096".into(),
                "-timeout=10".into(),
                "-rss_limit_mb=2048".into(),
                "-print_final_stats=1".into(),
            ]);
        steps.command(target, &mut command)?;
    }
    steps.finish("fuzz");
    Ok(())
}

struct Plan {
    seconds: u64,
    targets: Vec<&'static str>,
}

impl Plan {
    fn from_args(args: &[String]) -> Result<Plan> {
        let mut seconds = 60;
        let mut targets = Vec::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if arg == "--seconds" {
                let value = args
                    .next()
                    .context("--seconds needs a number: --seconds 60")?;
                seconds = value
                    .parse()
                    .with_context(|| format!("--seconds {value}: not a whole number"))?;
            } else if let Some(target) = TARGETS.iter().find(|target| **target == arg.as_str()) {
                targets.push(*target);
            } else {
                bail!(
                    "there is no fuzz target {arg:?}; there are {}",
                    TARGETS.join(", ")
                );
            }
        }
        if targets.is_empty() {
            targets = TARGETS.to_vec();
        }
        Ok(Plan { seconds, targets })
    }
}

#[cfg(test)]
mod tests {
    use super::{Plan, TARGETS};

    fn plan(args: &[&str]) -> anyhow::Result<Plan> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        Plan::from_args(&args)
    }

    #[test]
    fn all_targets_for_a_minute_unless_somebody_says_otherwise() -> anyhow::Result<()> {
        let all = plan(&[])?;
        assert_eq!((all.seconds, all.targets), (60, TARGETS.to_vec()));
        let one = plan(&["--seconds", "5", "json"])?;
        assert_eq!((one.seconds, one.targets), (5, vec!["json"]));
        assert!(plan(&["--seconds"]).is_err());
        assert!(plan(&["--seconds", "soon"]).is_err());
        assert!(plan(&["bananas"]).is_err());
        Ok(())
    }

    #[test]
    fn every_target_has_a_program_and_seeds() {
        let fuzz = crate::steps::root().join("fuzz");
        for target in TARGETS {
            assert!(
                fuzz.join(format!("fuzz_targets/{target}.rs")).is_file(),
                "{target}"
            );
            assert!(fuzz.join("seeds").join(target).is_dir(), "{target}");
        }
    }
}
