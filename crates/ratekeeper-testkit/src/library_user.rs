//! A user of the library: a project outside of the repository that depends on the crates as they are published.
//!
//! ```no_run
//! use ratekeeper_testkit::library_user::LibraryUser;
//!
//! let user = LibraryUser::new("example", "ratekeeper = \"0.1\"");
//! user.write("src/main.rs", "fn main() { println!(\"{}\", ratekeeper::Limit::per_minute(5)) }");
//! user.run();
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::output_of;
use crate::repository;

/// Variables of the cargo that runs the test. They would reach the one that builds the project, and change what it builds.
const OF_THE_OUTER_CARGO: [&str; 4] = [
    "CARGO_RESOLVER_FEATURE_UNIFICATION",
    "CARGO_TARGET_DIR",
    "RUSTDOCFLAGS",
    "RUSTFLAGS",
];

/// An empty project outside of the repository. Its crates of ours are unpacked from what `cargo package` makes of them, its
/// other crates are those of the repository's lock file, so that nothing is fetched.
#[derive(Debug)]
pub struct LibraryUser {
    project: TempDir,
    /// Kept from run to run, so that crates of others are built once.
    build: PathBuf,
}

impl LibraryUser {
    /// Packages the published crates, and makes a project with these lines of `[dependencies]`.
    ///
    /// No two tests may have the same `name`: it is that of a folder in the target folder.
    ///
    /// # Panics
    /// If the crates cannot be packaged.
    #[must_use]
    pub fn new(name: &str, dependencies: &str) -> LibraryUser {
        let folder = target().join("library-users").join(name);
        let crates = unpacked_crates(&folder);
        let project = TempDir::with_prefix("library-user-").expect("a folder for the project");
        let mut manifest = format!(
            "[package]\nname = \"{name}\"\nedition = \"2024\"\n\n[dependencies]\n{dependencies}\n\n\
             [profile.dev]\ndebug = false\nstrip = true\n\n[patch.crates-io]\n"
        );
        for (name, path) in crates {
            manifest.push_str(&format!("{name} = {{ path = {path:?} }}\n"));
        }
        let user = LibraryUser {
            project,
            build: folder.join("build"),
        };
        user.write("Cargo.toml", &manifest);
        let lock = fs::read_to_string(repository().join("Cargo.lock")).expect("a lock file");
        user.write("Cargo.lock", &lock);
        user
    }

    /// Writes a file of the project.
    ///
    /// # Panics
    /// If that is not possible.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.project.path().join(path);
        let folder = path.parent().expect("a file is in a folder");
        fs::create_dir_all(folder).expect("a folder of the project");
        fs::write(path, text).expect("a file of the project");
    }

    /// Builds the program, runs it, and returns what it prints.
    ///
    /// # Panics
    /// If it cannot be built, or fails.
    #[must_use]
    pub fn run(&self) -> String {
        self.cargo(&["run", "--quiet"])
    }

    /// The path of a program of the project that was built.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.build.join("debug").join(name)
    }

    /// Runs cargo in the project, without a network, and returns what it prints.
    ///
    /// # Panics
    /// If it fails.
    #[must_use]
    pub fn cargo(&self, args: &[&str]) -> String {
        let mut command = cargo(self.project.path());
        command.arg(args[0]).arg("--offline");
        command.arg("--target-dir").arg(&self.build);
        output_of(command.args(&args[1..]))
    }
}

/// Packages the published crates and unpacks them below `folder`; returns their names and folders.
fn unpacked_crates(folder: &Path) -> Vec<(String, PathBuf)> {
    let published = published();
    let packaging = folder.join("packaging");
    let mut package = cargo(&repository());
    package.args(["package", "--quiet", "--offline", "--no-verify"]);
    package.args(["--allow-dirty", "--target-dir"]);
    package.arg(&packaging);
    for (name, _) in &published {
        package.args(["--package", name]);
    }
    output_of(&mut package);
    let crates = folder.join("crates");
    if crates.exists() {
        fs::remove_dir_all(&crates).expect("the crates of the last run can go");
    }
    fs::create_dir_all(&crates).expect("a folder for the crates");
    let unpack = |(name, version): (String, String)| {
        let file = packaging.join(format!("package/{name}-{version}.crate"));
        let mut tar = Command::new("tar");
        // Cargo gives all files one time of change, and would not build what changed since the last run.
        tar.args(["--touch", "--extract", "--gzip", "--file"]);
        output_of(tar.arg(file).arg("--directory").arg(&crates));
        let path = crates.join(format!("{name}-{version}"));
        (name, path)
    };
    published.into_iter().map(unpack).collect()
}

/// The names and versions of the crates that are published.
///
/// # Panics
/// If cargo cannot tell.
#[must_use]
pub fn published() -> Vec<(String, String)> {
    let mut command = cargo(&repository());
    command.args([
        "metadata",
        "--offline",
        "--no-deps",
        "--format-version",
        "1",
    ]);
    let metadata: Value =
        serde_json::from_str(&output_of(&mut command)).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("the packages");
    // `publish = false` is told as an empty list of registries.
    let public = packages.iter().filter(|it| it["publish"].is_null());
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    public
        .map(|it| (text(&it["name"]), text(&it["version"])))
        .collect()
}

fn cargo(folder: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for name in OF_THE_OUTER_CARGO {
        command.env_remove(name);
    }
    command.current_dir(folder);
    command
}

/// The target folder that the test was built in.
fn target() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it lies");
    // target/debug/deps/test
    let folder = test.ancestors().nth(3);
    folder.expect("a test lies in the target folder").to_owned()
}
