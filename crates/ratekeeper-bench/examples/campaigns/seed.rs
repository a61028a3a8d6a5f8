//! The performance test from the article on coordinated rate limiting that introduced service
//! levels: three gateways, 25 tenants, 1,000 calls a second to one endpoint, one Redis.
//!
//! `cargo xtask bench seed` builds the parts and runs it. The load has the second processor and
//! everything else the first. Runs with limits on and off alternate, and the results are medians.
//! Then the gateways with synced limits get the same load, and the increments in Redis are counted.
//! Then the same rate of the method with the lower threshold exceeds it four times, and the
//! admitted calls are compared with it, window by window.

mod increments;
mod redis;
mod results;
mod runs;
mod setup;
mod synced;

use std::path::PathBuf;
use std::time::Duration;

use crate::args::{Args, Words};
use anyhow::Result;
use ratekeeper_testkit::paired::Patience;

/// The durations of the runs.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The Ratekeeper binary.
    pub(crate) ratekeeper: PathBuf,
    /// The measured time of each run, with limits on or off, after a warm-up.
    pub(crate) run: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) pairs: usize,
    /// The least number of whole windows in which to count admissions.
    pub(crate) windows: u32,
}

pub(crate) fn main(words: Words) -> Result<()> {
    let args = Args::of(words, &[], &[])?;
    let results = runs::all(&plan(&args))?;
    println!("{results}");
    if let Some(out) = &args.out {
        results.write(out)?;
    }
    results.verdict()
}

fn plan(args: &Args) -> Plan {
    let (seconds, pairs, windows) = match args.is_quick {
        true => (2, 5, 1),
        false => (5, Patience::default().pairs_min, 3),
    };
    Plan {
        ratekeeper: args.ratekeeper.clone(),
        run: Duration::from_secs(seconds),
        warm_up: Duration::from_millis(500),
        pairs,
        windows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Args> {
        Args::of(args.iter().map(|arg| (*arg).to_owned()), &["--docs"], &[])
    }

    #[test]
    fn arguments_are_read_or_named() {
        let binary = std::env::current_exe().expect("a test knows where it lies");
        let binary = binary.to_string_lossy();
        let full = parse(&["--ratekeeper", &binary]).expect("it is a file");
        let quick = parse(&["--ratekeeper", &binary, "--quick", "--out", "there"]);
        let quick = quick.expect("good arguments");
        assert_eq!(quick.out, Some("there".into()));
        let (full, quick) = (plan(&full), plan(&quick));
        assert!(quick.run < full.run && quick.pairs < full.pairs && quick.windows > 0);
        let page = parse(&["--ratekeeper", &binary, "--docs", "here"]).expect("good arguments");
        assert_eq!(page.path("--docs"), Some("here".as_ref()));
        for (args, word) in [
            (&["--slow"][..], "--quick"),
            (&["--out"], "needs a value"),
            (&["--ratekeeper", "/nowhere"], "no binary"),
            (&[], "no binary"),
        ] {
            let error = parse(args).expect_err("bad arguments").to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
