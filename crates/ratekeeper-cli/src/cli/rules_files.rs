//! The commands that take rules in files, and no service: `rules test`, `rules diff`.

use super::reading::ReadingBySettings;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

pub(super) const TEST_HELP: &str = "\
A file of tests ends in .test.yaml or .test.yml and may lie among the rules: a folder of rules is read without it. Each test has fresh counters and a clock of its own, so nothing waits and no service runs.

  rules: api.yaml                 # beside this file
  domain: api
  tests:
    - name: a key has five orders a second
      steps:
        - entries: { api_key: abc, path: /orders }
          times: 6
          expect: { allowed: 5, rule: api.api_key.path_/orders, retry_after: 1s }
        - at: 1s
          entries: { api_key: abc, path: /orders }
          expect: allowed

Exit codes: 0 all passed, 1 one failed, or rules or tests are refused, 2 invalid command line.

Examples:
  ratekeeper rules test rules/
  ratekeeper rules test api.test.yaml --rules new.yaml
  ratekeeper rules test rules/ --json | jq '.tests[] | select(.ok | not)'";

pub(super) const DIFF_HELP: &str = "\
A reload of NEW in place of OLD does what is printed: a limit that changes keeps its usage, one whose algorithm or window changes starts afresh. It warns of what is limited no more.

Exit codes, as those of diff: 0 no difference, 1 differences, 2 invalid command line, or rules are refused. With --fail-on warnings, 1 is for warnings alone.

Examples:
  ratekeeper rules diff rules.yaml new.yaml
  ratekeeper rules diff <(git show main:rules.yaml) rules.yaml
  ratekeeper rules diff old/ new/ --fail-on warnings
  ratekeeper rules diff old/ new/ --json | jq -r '.warnings[]'";

#[derive(Debug, Args)]
pub(crate) struct RulesTest {
    /// Files of tests, or folders of *.test.yaml and *.test.yml
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Rules to test, in place of those that the files name [default: the `rules` setting]
    #[arg(long, value_name = "PATH")]
    pub(crate) rules: Option<PathBuf>,
    /// Run only the tests whose names have this text in them
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// Settings file, for `auth` and `identity` [default: as for `serve`]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: ReadingBySettings,
    /// Write the results to this file as well, as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Print only failures
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RulesDiff {
    /// Rules before: a file, or a folder of *.yaml and *.yml
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,
    /// Rules after
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
    /// Tenants before, to compare them with those of --tenants; without it, tenants are left out
    #[arg(long, value_name = "PATH")]
    pub(crate) old_tenants: Option<PathBuf>,
    /// Exit with 1 if there is this
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = FailOn::Difference)]
    pub(crate) fail_on: FailOn,
    /// Settings file that `serve` reads the rules by [default: as for `serve`]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: ReadingBySettings,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Differences that end `rules diff` with 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum FailOn {
    /// Any difference
    Difference,
    /// A limit that is lifted, or holds for less
    Warnings,
}
