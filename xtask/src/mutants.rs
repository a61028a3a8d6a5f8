//! `cargo xtask mutants`: changes one operator, value or return at a time where a wrong decision is dear, and looks whether a
//! test fails.

use crate::need::{self, CARGO_MUTANTS};
use crate::steps::{Steps, cargo, root, target};
use anyhow::{Context, Result, bail, ensure};
use std::fmt;
use std::path::Path;

/// The program that makes the changes and tries them, a workspace of its own.
const TOOL: &str = "mutants/Cargo.toml";

/// Code to change, and the package whose tests have to notice.
struct Part {
    name: &'static str,
    package: &'static str,
    files: &'static [&'static str],
}

const PARTS: [Part; 5] = [
    Part {
        name: "core",
        package: "ratekeeper-core",
        files: &["crates/ratekeeper-core/src/**/*.rs"],
    },
    Part {
        name: "store",
        package: "ratekeeper-store",
        files: &["crates/ratekeeper-store/src/**/*.rs"],
    },
    Part {
        name: "limiter",
        package: "ratekeeper-limiter",
        files: &["crates/ratekeeper-limiter/src/**/*.rs"],
    },
    Part {
        name: "tenants",
        package: "ratekeeper-rules",
        files: &[
            "crates/ratekeeper-rules/src/tenants/**/*.rs",
            "crates/ratekeeper-rules/src/domain/*.rs",
            "crates/ratekeeper-rules/src/ruleset/*.rs",
        ],
    },
    Part {
        name: "spelling",
        package: "ratekeeper-http",
        files: &["crates/ratekeeper-http/src/spelling/**/*.rs"],
    },
];

/// The files to change.
struct Wanted {
    parts: Vec<&'static Part>,
    /// The one file of the one part, if not all of it is meant.
    file: Option<String>,
    /// The slice of all changes: `0/8` is the first of eight.
    shard: Option<String>,
}

/// Changes the given parts, or all; `--file PATH` narrows one part to a file, `--shard K/N` to one of N slices, each spread
/// over all files. Fails if a change goes unnoticed that `.cargo/mutants.toml` does not leave out.
pub(crate) fn mutants(args: &[String]) -> Result<()> {
    let wanted = wanted(args)?;
    let mut steps = Steps::new();
    steps.step("tools", "cargo-mutants", || {
        need::cargo_tool(&CARGO_MUTANTS)
    })?;
    let tallies = wanted
        .parts
        .iter()
        .map(|part| part.tally(&mut steps, &wanted));
    let tallies = tallies.collect::<Result<Vec<_>>>()?;
    println!("\n| part | tried | caught | hang | do not compile | no switch | missed |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for (part, tally) in wanted.parts.iter().zip(&tallies) {
        println!("| {} | {tally} |", part.name);
    }
    let missed: Vec<_> = tallies.iter().flat_map(|it| it.missed.clone()).collect();
    ensure!(
        missed.is_empty(),
        "no test notices:\n  {}",
        missed.join("\n  ")
    );
    steps.finish("mutants");
    Ok(())
}

/// The outcome of changes.
struct Tally {
    caught: usize,
    /// Changes with which tests do not end: they notice.
    hung: usize,
    /// Changes that do not compile.
    uncompilable: usize,
    /// Changes where no switch can stand, such as those of constants. They are not tried.
    untried: usize,
    missed: Vec<String>,
}

impl Tally {
    /// Reads the lists in a folder.
    fn read(folder: &Path) -> Result<Tally> {
        let list = |name: &str| {
            let path = folder.join(name).with_extension("txt");
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            Ok::<Vec<_>, anyhow::Error>(text.lines().map(str::to_owned).collect())
        };
        Ok(Tally {
            caught: list("caught")?.len(),
            hung: list("hung")?.len(),
            uncompilable: list("uncompilable")?.len(),
            untried: list("untried")?.len(),
            missed: list("missed")?,
        })
    }

    fn tried(&self) -> usize {
        self.caught + self.hung + self.uncompilable + self.missed.len()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tried, missed) = (self.tried(), self.missed.len());
        let Self {
            caught,
            hung,
            uncompilable,
            untried,
            ..
        } = self;
        write!(
            f,
            "{tried} | {caught} | {hung} | {uncompilable} | {untried} | {missed}"
        )
    }
}

impl Part {
    /// Makes the changes, and looks which of them tests notice.
    fn tally(&self, steps: &mut Steps, wanted: &Wanted) -> Result<Tally> {
        let work = target().join("mutants");
        let out = work.join(self.name);
        if out.exists() {
            std::fs::remove_dir_all(&out)
                .with_context(|| format!("cannot remove {}", out.display()))?;
        }
        let mut command = cargo(["run", "--quiet", "--locked", "--manifest-path", TOOL]);
        command.arg("--target-dir").arg(target());
        command.arg("--").arg("--root").arg(root());
        command.arg("--work").arg(&work).arg("--out").arg(&out);
        command.args(["--package", self.package, "--"]);
        let files = match &wanted.file {
            Some(file) => vec![file.as_str()],
            None => self.files.to_vec(),
        };
        command.args(files.into_iter().flat_map(|files| ["--file", files]));
        if let Some(shard) = &wanted.shard {
            command.args(["--sharding", "round-robin", "--shard", shard]);
        }
        steps.command(self.name, &mut command)?;
        Tally::read(&out)
    }
}

fn wanted(args: &[String]) -> Result<Wanted> {
    let mut wanted = Wanted {
        parts: Vec::new(),
        file: None,
        shard: None,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--file" {
            let path = args.next();
            let path = path.context("--file needs a path from the repository's root")?;
            wanted.file = Some(path.clone());
        } else if arg == "--shard" {
            let shard = args.next().context("--shard needs K/N, such as 0/8")?;
            wanted.shard = Some(shard.clone());
        } else if let Some(part) = PARTS.iter().find(|part| part.name == arg) {
            wanted.parts.push(part);
        } else {
            let names = PARTS.iter().map(|part| part.name).collect::<Vec<_>>();
            bail!("there is no part {arg:?}; there are {}", names.join(", "));
        }
    }
    match (wanted.parts.len(), &wanted.file) {
        (0 | 2.., Some(_)) => bail!("name the one part that the file is in, such as `core`"),
        (0, None) => wanted.parts = PARTS.iter().collect(),
        _ => {}
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Named = (Vec<&'static str>, Option<String>, Option<String>);

    fn names(args: &[&str]) -> Result<Named> {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        let wanted = wanted(&args)?;
        let parts = wanted.parts.iter().map(|part| part.name).collect();
        Ok((parts, wanted.file, wanted.shard))
    }

    #[test]
    fn parts_are_named_and_a_file_is_in_one() {
        let all = names(&[]).expect("no argument is needed").0;
        assert_eq!(all, ["core", "store", "limiter", "tenants", "spelling"]);
        let one = names(&["store", "--file", "a.rs", "--shard", "0/8"]).expect("one part");
        let [file, shard] = ["a.rs", "0/8"].map(|it| Some(it.to_owned()));
        assert_eq!(one, (vec!["store"], file, shard));
        for (args, word) in [
            (&["cores"][..], "there are core, store"),
            (&["--file", "a.rs"], "name the one part"),
            (&["core", "--file"], "needs a path"),
            (&["core", "--shard"], "needs K/N"),
        ] {
            let error = names(args).expect_err("bad arguments").to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn lists_are_counted() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let folder = folder.path();
        for (name, text) in [
            ("caught", "a\nb\n"),
            ("hung", ""),
            ("uncompilable", "c\n"),
            ("untried", "d\ne\nf\n"),
        ] {
            std::fs::write(folder.join(name).with_extension("txt"), text).expect("it is written");
        }
        let error = Tally::read(folder).err().expect("a list is not there");
        assert!(error.to_string().contains("missed.txt"), "{error}");
        std::fs::write(folder.join("missed.txt"), "g\n").expect("it is written");
        let tally = Tally::read(folder).expect("all lists are there");
        assert_eq!(tally.to_string(), "4 | 2 | 0 | 1 | 3 | 1");
        assert_eq!(tally.missed, ["g"]);
    }

    #[test]
    fn each_part_has_files() {
        assert!(root().join(TOOL).is_file());
        for files in PARTS.iter().flat_map(|part| part.files) {
            let folder = files.split("/*").next().unwrap_or(files);
            assert!(root().join(folder).is_dir(), "{files}");
        }
    }
}
