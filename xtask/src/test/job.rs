//! One thing to run: a test program, or the examples of the documentation.

use super::json;
use crate::steps::cargo;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The cost of a job, as measured on two cores.
#[derive(Clone, Copy)]
pub(super) struct JobCost {
    /// The job's name.
    name: &'static str,
    /// The time it takes. The longest jobs are started first.
    pub(super) seconds: u32,
    /// The processor time it takes, in percent of one core's.
    pub(super) load: u32,
    /// The number of its tests that run at once, where most of them wait most of the time; otherwise one for each core.
    threads: Option<usize>,
    /// True if it measures how long something takes: it has no neighbour of its kind, no compiler, and free cores.
    pub(super) is_measuring: bool,
}

/// The jobs that take longest or do not fit [`JobCost::SHORT`], with the times of a whole run, beside each other.
const KNOWN: [JobCost; 22] = [
    JobCost {
        threads: Some(4),
        ..JobCost::listed("ratekeeper-cli/cli", 400, 80)
    },
    JobCost {
        threads: Some(4),
        ..JobCost::listed("ratekeeper-store-redis/store", 300, 80)
    },
    JobCost::listed("ratekeeper-cli/attack", 250, 80),
    JobCost::listed("ratekeeper-cli/chaos", 180, 40),
    JobCost::listed("ratekeeper-cli/gateway", 180, 40),
    JobCost::listed("ratekeeper-store-redis/script", 150, 80),
    JobCost::listed("ratekeeper-server/server", 140, 100),
    JobCost::listed("ratekeeper-cli/proxies", 110, 30),
    JobCost::listed("ratekeeper-cli/regions", 85, 40),
    JobCost::listed("ratekeeper-quota/quota", 45, 60),
    JobCost {
        is_measuring: true,
        ..JobCost::listed("ratekeeper-cli/clients_live", 40, 120)
    },
    JobCost::listed("ratekeeper-cli/clients", 40, 100),
    JobCost {
        is_measuring: true,
        ..JobCost::listed("overload/overload", 35, 100)
    },
    JobCost::listed("ratekeeper-core/leases", 28, 100),
    JobCost::listed("ratekeeper-audit/export", 27, 40),
    JobCost::listed(DOCUMENTATION, 20, 100),
    JobCost::listed("ratekeeper-store/across", 20, 100),
    JobCost::listed("ratekeeper-client/client", 17, 60),
    JobCost::listed("ratekeeper-shed/overload", 15, 100),
    JobCost::listed("ratekeeper-quota/ratekeeper_quota", 13, 100),
    JobCost::listed("ratekeeper-store/memory", 13, 100),
    JobCost::listed("ratekeeper-testkit/ratekeeper_testkit", 11, 100),
];

/// Variables of jobs, unless they are set: a whole run plays fewer courses of overload than `cargo test`, which plays 300 of
/// each kind.
const VARIABLES: [(&str, &str, &str); 1] = [("ratekeeper-shed/overload", "SHED_SEEDS", "100")];

/// The name of [`Job::documentation`].
const DOCUMENTATION: &str = "documentation";

impl JobCost {
    /// A job that is not listed.
    const SHORT: JobCost = JobCost::listed("", 5, 100);

    const fn listed(name: &'static str, seconds: u32, load: u32) -> JobCost {
        JobCost {
            name,
            seconds,
            load,
            threads: None,
            is_measuring: false,
        }
    }

    #[cfg(test)]
    pub(super) const fn of_a_job(load: u32, is_measuring: bool) -> JobCost {
        JobCost {
            load,
            is_measuring,
            ..JobCost::SHORT
        }
    }

    fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        // With one alone, libtest prints a test's name before its result, and other output may come between.
        self.threads.unwrap_or_else(cores).max(2)
    }

    fn of(name: &str) -> JobCost {
        let known = KNOWN.into_iter().find(|needs| needs.name == name);
        known.unwrap_or(JobCost::SHORT)
    }
}

/// A test program, or the examples of the documentation.
pub(super) struct Job {
    /// The package's folder and the target: `ratekeeper-cli/gateway`.
    pub(super) name: String,
    pub(super) needs: JobCost,
    /// True if it starts programs of its package, which cargo may build after it.
    pub(super) is_starting: bool,
    what: What,
}

enum What {
    Program {
        executable: PathBuf,
        /// The folder of its package, in which it runs.
        package: PathBuf,
    },
    Documentation,
}

impl Job {
    /// The test program in a message of cargo's, if it tells of one.
    pub(super) fn in_message(line: &str) -> Option<Job> {
        let is_test = json::is_true(json::object(line, "profile")?, "test");
        let executable = PathBuf::from(json::text(line, "executable")?);
        if !is_test {
            return None;
        }
        let manifest = PathBuf::from(json::text(line, "manifest_path")?);
        let target = json::text(json::object(line, "target")?, "name")?;
        let package = manifest.parent()?;
        let is_starting = has_program(package);
        Some(Job {
            is_starting,
            ..Job::program(&target, &executable, package)
        })
    }

    /// A test program of the package in that folder.
    pub(super) fn program(target: &str, executable: &Path, package: &Path) -> Job {
        let folder = package.file_name().unwrap_or_default().to_string_lossy();
        let what = What::Program {
            executable: executable.to_owned(),
            package: package.to_owned(),
        };
        Job::new(format!("{folder}/{target}"), what)
    }

    /// The examples of the documentation of all packages, which rustdoc builds and runs.
    pub(super) fn documentation() -> Job {
        Job::new(DOCUMENTATION.to_owned(), What::Documentation)
    }

    fn new(name: String, what: What) -> Job {
        let needs = JobCost::of(&name);
        Job {
            name,
            needs,
            is_starting: false,
            what,
        }
    }

    /// The command that runs it as `cargo test` does, with arguments for libtest.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = match &self.what {
            What::Program {
                executable,
                package,
            } => program(executable, package),
            What::Documentation => cargo([
                "test",
                "--doc",
                "--workspace",
                "--locked",
                "--no-fail-fast",
                "--",
            ]),
        };
        if std::env::var_os(THREADS).is_none() {
            command.env(THREADS, self.needs.threads().to_string());
        }
        for (job, name, value) in VARIABLES {
            if job == self.name && std::env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
        command.args(args);
        command
    }

    /// The name of a file for its output.
    pub(super) fn file_name(&self) -> String {
        format!("{}.log", self.name.replace('/', "."))
    }
}

/// Returns true if the package in that folder has programs, in a place of cargo's or in one of its own.
fn has_program(package: &Path) -> bool {
    let manifest = std::fs::read_to_string(package.join("Cargo.toml")).unwrap_or_default();
    ["src/main.rs", "src/bin"]
        .iter()
        .any(|path| package.join(path).exists())
        || manifest.contains("[[bin]]")
}

/// The variable of libtest for [`JobCost::threads`].
const THREADS: &str = "RUST_TEST_THREADS";

/// A test program with the folder and the variables that cargo gives it. The paths of libraries are those of xtask
/// itself, which cargo runs.
fn program(executable: &Path, package: &Path) -> Command {
    let mut command = Command::new(executable);
    for (name, _) in std::env::vars_os() {
        let is_ours = name.to_string_lossy().starts_with("CARGO_PKG_");
        if is_ours {
            command.env_remove(&name);
        }
    }
    let own: [(&str, OsString); 3] = [
        ("CARGO_MANIFEST_DIR", package.into()),
        ("CARGO_MANIFEST_PATH", package.join("Cargo.toml").into()),
        (
            "CARGO_PKG_NAME",
            package.file_name().unwrap_or_default().into(),
        ),
    ];
    command.current_dir(package).envs(own);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::root;

    const BUILT: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/ratekeeper-cli#0.1.0","manifest_path":"/w/crates/ratekeeper-cli/Cargo.toml","target":{"kind":["test"],"crate_types":["bin"],"name":"gateway","src_path":"/w/crates/ratekeeper-cli/tests/gateway/main.rs","edition":"2024","doc":false,"doctest":false,"test":true},"profile":{"opt_level":"0","debuginfo":1,"debug_assertions":true,"overflow_checks":true,"test":true},"features":[],"filenames":["/w/target/debug/deps/gateway-1f"],"executable":"/w/target/debug/deps/gateway-1f","fresh":true}"#;

    #[test]
    fn a_built_test_program_is_a_job() {
        let job = Job::in_message(BUILT).expect("it is one");
        assert_eq!(job.name, "ratekeeper-cli/gateway");
        let command = job.command(&["--exact", "it::holds"]);
        assert_eq!(command.get_program(), "/w/target/debug/deps/gateway-1f");
        assert_eq!(
            command.get_current_dir(),
            Some(Path::new("/w/crates/ratekeeper-cli"))
        );
        assert!(command.get_args().eq(["--exact", "it::holds"]));
    }

    #[test]
    fn packages_with_programs_are_known() {
        let has = |package: &str| has_program(&root().join(package));
        assert!(has("crates/ratekeeper-cli") && has("examples/overload") && has("xtask"));
        assert!(!has("crates/ratekeeper-core") && !has("crates/ratekeeper-store-redis"));
    }

    #[test]
    fn every_listed_program_exists() {
        let names = KNOWN.iter().map(|needs| needs.name);
        for name in names.chain(VARIABLES.iter().map(|(job, ..)| *job)) {
            let Some((package, target)) = name.split_once('/') else {
                assert_eq!(name, DOCUMENTATION);
                continue;
            };
            let exists = ["crates", "examples"].iter().any(|folder| {
                let package_folder = root().join(folder).join(package);
                let tests = package_folder.join("tests");
                let is_library = package.replace('-', "_") == target;
                tests.join(format!("{target}.rs")).is_file()
                    || tests.join(target).join("main.rs").is_file()
                    || (is_library && package_folder.join("src/lib.rs").is_file())
            });
            assert!(exists, "{name} has moved");
        }
    }

    #[test]
    fn other_messages_are_not() {
        let binary = BUILT.replace(r#"true,"test":true}"#, r#"true,"test":false}"#);
        assert!(Job::in_message(&binary).is_none());
        let library = BUILT.replace(
            r#""executable":"/w/target/debug/deps/gateway-1f""#,
            r#""executable":null"#,
        );
        assert!(Job::in_message(&library).is_none());
        assert!(Job::in_message(r#"{"reason":"build-finished","success":true}"#).is_none());
    }
}
