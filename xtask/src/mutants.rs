//! `cargo xtask mutants`: changes one operator, value or return at a time where a wrong decision is dear, and looks whether a
//! test fails.

use crate::need::{self, CARGO_MUTANTS};
use crate::steps::{Steps, cargo, target};
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::process::Command;

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

/// Changes the given parts, or all; `--file PATH` narrows one part to a file, `--shard K/N` to one of N slices. Fails if a
/// change goes unnoticed that `.cargo/mutants.toml` does not leave out.
///
/// Unit tests come first, since they take seconds; only what they miss is put to all tests of the package.
pub(crate) fn mutants(args: &[String]) -> Result<()> {
    let wanted = wanted(args)?;
    let mut steps = Steps::new();
    steps.step("tools", "cargo-mutants", || {
        need::cargo_tool(&CARGO_MUTANTS)
    })?;
    for part in &wanted.parts {
        let out = target().join("mutants").join(part.name);
        let mut command = part.command(&out.join("unit"))?;
        let file = wanted.file.as_deref().into_iter();
        let all = part.files.iter().copied();
        for files in file.chain(all.filter(|_| wanted.file.is_none())) {
            command.args(["--file", files]);
        }
        if let Some(shard) = &wanted.shard {
            command.args(["--shard", shard]);
        }
        command.args(["--", "--lib"]);
        if steps.command(part.name, &mut command).is_ok() {
            continue;
        }
        let missed = out.join("unit/mutants.out/missed.txt");
        let missed = std::fs::read_to_string(&missed)
            .with_context(|| format!("{} tells no result", missed.display()))?;
        ensure!(
            !missed.is_empty(),
            "unit tests fail without a change, or take too long with one"
        );
        let mut command = part.command(&out.join("all"))?;
        for change in missed.lines() {
            command.args(["--re", &format!("^{}$", literal(change))]);
        }
        // Examples in documentation take long to compile, and test little.
        command.args(["--", "--lib", "--tests"]);
        steps.command("missed", &mut command)?;
    }
    steps.finish("mutants");
    Ok(())
}

impl Part {
    /// The command that changes this part, with a folder for its lists.
    fn command(&self, out: &Path) -> Result<Command> {
        std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
        let mut command = cargo(["mutants", "--no-shuffle", "--colors", "never"]);
        // A copy of the repository is changed, and built where the next run finds its dependencies.
        command.env("CARGO_TARGET_DIR", target().join("mutants/build"));
        command.args(["--package", self.package, "--output"]);
        command.arg(out);
        Ok(command)
    }
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
    use crate::steps::root;

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
    fn each_part_has_files() {
        for files in PARTS.iter().flat_map(|part| part.files) {
            let folder = files.split("/*").next().unwrap_or(files);
            assert!(root().join(folder).is_dir(), "{files}");
        }
    }
}
