//! `cargo xtask mutants`: changes one operator, value or return at a time where a wrong decision is dear, and looks whether a
//! test fails.

use crate::need::{self, CARGO_MUTANTS};
use crate::steps::{Steps, cargo, root, target};
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::path::Path;
use std::process::Command;

/// A name that each change has once in the list of those that were chosen.
const GENRE: &str = "\"genre\":";

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
///
/// Unit tests come first, since they take seconds; only what they miss is put to all tests of the package.
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
    println!(
        "\n| part | tried | caught | hang | do not compile | missed |\n|---|---:|---:|---:|---:|---:|"
    );
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
#[derive(Default)]
struct Tally {
    caught: usize,
    /// Changes with which tests do not end: they notice.
    hung: usize,
    /// Changes that do not compile.
    unviable: usize,
    missed: Vec<String>,
}

impl Tally {
    /// Reads the lists in a folder of cargo-mutants.
    fn read(folder: &Path) -> Result<Tally> {
        let list = |name: &str| {
            let text = std::fs::read_to_string(folder.join(name).with_extension("txt"))?;
            Ok::<Vec<_>, anyhow::Error>(text.lines().map(str::to_owned).collect())
        };
        let tally = Tally {
            caught: list("caught")?.len(),
            hung: list("timeout")?.len(),
            unviable: list("unviable")?.len(),
            missed: list("missed")?,
        };
        let chosen = std::fs::read_to_string(folder.join("mutants.json"))?;
        let (tried, chosen) = (tally.tried(), chosen.matches(GENRE).count());
        ensure!(
            tried == chosen,
            "only {tried} of {chosen} changes were tried"
        );
        Ok(tally)
    }

    fn tried(&self) -> usize {
        self.caught + self.hung + self.unviable + self.missed.len()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            caught,
            hung,
            unviable,
            missed,
        } = self;
        let (tried, missed) = (self.tried(), missed.len());
        write!(f, "{tried} | {caught} | {hung} | {unviable} | {missed}")
    }
}

impl Part {
    /// Makes the changes, and looks which of them tests notice.
    fn tally(&self, steps: &mut Steps, wanted: &Wanted) -> Result<Tally> {
        let out = target().join("mutants").join(self.name);
        let mut command = self.command(&out.join("unit"))?;
        let files = match &wanted.file {
            Some(file) => vec![file.as_str()],
            None => self.files.to_vec(),
        };
        command.args(files.into_iter().flat_map(|files| ["--file", files]));
        if let Some(shard) = &wanted.shard {
            command.args(["--sharding", "round-robin", "--shard", shard]);
        }
        command.args(["--", "--lib"]);
        let mut tally = tried(steps, self.name, &mut command, &out.join("unit"))?;
        if tally.missed.is_empty() {
            return Ok(tally);
        }
        let mut command = self.command(&out.join("all"))?;
        // Deletions of fields ignore `--re`, so that a diff has to leave out the others.
        let diff = out.join("missed.diff");
        std::fs::write(&diff, diff_of(&tally.missed)?)?;
        command.arg("--in-diff").arg(&diff);
        for change in &tally.missed {
            command.args(["--re", &format!("^{}$", literal(change))]);
        }
        // Random histories take long without it.
        command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
        // Examples in documentation take long to compile, and test little.
        command.args(["--", "--lib", "--tests"]);
        let more = tried(steps, "missed", &mut command, &out.join("all"))?;
        let missed = std::mem::take(&mut tally.missed);
        let (again, of) = (more.tried(), missed.len());
        ensure!(
            again >= of,
            "only {again} of {of} missed changes were tried with all tests"
        );
        tally.caught += missed.len();
        tally.missed = missed
            .into_iter()
            .filter(|it| more.missed.contains(it))
            .collect();
        tally.caught -= tally.missed.len();
        Ok(tally)
    }

    /// The command that changes this part, with a folder for its lists.
    fn command(&self, out: &Path) -> Result<Command> {
        std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
        let mut command = cargo(["mutants", "--no-shuffle", "--colors", "never"]);
        // A copy of the repository is changed, and built where the next run finds its dependencies.
        command.env("CARGO_TARGET_DIR", target().join("mutants/build"));
        // Each change is a build of its own, of which names of lines are a good part.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
        command.env("CARGO_INCREMENTAL", "1");
        command.args(["--package", self.package, "--output"]);
        command.arg(out);
        Ok(command)
    }
}

/// Runs cargo-mutants, and reads its lists. It fails if something was missed or hangs, which whole lists tell, and if tests
/// fail without a change. It writes none if there is nothing to change.
fn tried(
    steps: &mut Steps,
    name: &'static str,
    command: &mut Command,
    out: &Path,
) -> Result<Tally> {
    let lists = out.join("mutants.out");
    if lists.exists() {
        std::fs::remove_dir_all(&lists)?;
    }
    let ended = steps.command(name, command);
    match Tally::read(&lists) {
        Ok(tally) if tally.hung > 0 || !tally.missed.is_empty() => Ok(tally),
        tally => ended.map(|()| tally.unwrap_or_default()),
    }
}

/// A diff that touches the lines of these changes, each of which begins with `PATH:LINE:`, and no others.
fn diff_of(changes: &[String]) -> Result<String> {
    let mut lines: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for change in changes {
        let mut parts = change.split(':');
        let (path, line) = parts
            .next()
            .zip(parts.next())
            .context("a change has a line")?;
        lines.entry(path).or_default().insert(line.parse()?);
    }
    let mut diff = String::new();
    for (path, lines) in lines {
        let text = std::fs::read_to_string(root().join(path))?;
        write!(diff, "--- a/{path}\n+++ b/{path}\n")?;
        for line in lines {
            let content = text
                .lines()
                .nth(line - 1)
                .context("a change is in the file")?;
            write!(diff, "@@ -{},0 +{line},1 @@\n+{content}\n", line - 1)?;
        }
    }
    Ok(diff)
}

/// The regular expression of a text.
fn literal(text: &str) -> String {
    let mut literal = String::new();
    for char in text.chars() {
        if r"\.+*?()|[]{}^$".contains(char) {
            literal.push('\\');
        }
        literal.push(char);
    }
    literal
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
    fn a_change_is_named_as_it_stands() {
        let change = "a.rs:7:9: replace + with * in Rate::of -> Option<u64>";
        let expected = r"a\.rs:7:9: replace \+ with \* in Rate::of -> Option<u64>";
        assert_eq!(literal(change), expected);
    }

    #[test]
    fn a_diff_touches_what_was_missed_alone() {
        let changes = ["a", "b"].map(|what| format!("xtask/src/mutants.rs:1:5: {what}"));
        let diff = diff_of(&changes).expect("the file is there");
        let start =
            "--- a/xtask/src/mutants.rs\n+++ b/xtask/src/mutants.rs\n@@ -0,0 +1,1 @@\n+//! `cargo";
        assert!(diff.starts_with(start), "{diff}");
        assert_eq!(diff.lines().count(), 4, "{diff}");
        assert!(diff_of(&["a change".to_owned()]).is_err());
    }

    #[test]
    fn lists_are_counted() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let folder = folder.path();
        for (name, text) in [
            ("caught", "a\nb\n"),
            ("timeout", ""),
            ("unviable", "c\n"),
            ("missed", "d\n"),
        ] {
            std::fs::write(folder.join(name).with_extension("txt"), text).expect("it is written");
        }
        assert!(Tally::read(folder).is_err(), "what was chosen is not told");
        let chosen = |json: &str| {
            std::fs::write(folder.join("mutants.json"), json).expect("it is written");
            Tally::read(folder)
        };
        let tally = chosen(&GENRE.repeat(4)).expect("all were tried");
        assert_eq!(tally.to_string(), "4 | 2 | 0 | 1 | 1");
        let error = chosen(&GENRE.repeat(5)).err().expect("one was not");
        assert_eq!(error.to_string(), "only 4 of 5 changes were tried");
    }

    #[test]
    fn each_part_has_files() {
        for files in PARTS.iter().flat_map(|part| part.files) {
            let folder = files.split("/*").next().unwrap_or(files);
            assert!(root().join(folder).is_dir(), "{files}");
        }
    }
}
