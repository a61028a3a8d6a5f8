//! `cargo xtask mutants`: changes one operator, value or return at a time where a wrong decision is dear, and looks whether a
//! test fails.

use crate::need::{self, CARGO_MUTANTS};
use crate::steps::{Steps, cargo, target};
use anyhow::{Context, Result, bail};

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

/// Changes the given parts, or all; `--file PATH` narrows one part to a file. Fails if a change goes unnoticed.
pub(crate) fn mutants(args: &[String]) -> Result<()> {
    let (parts, file) = wanted(args)?;
    let mut steps = Steps::new();
    steps.step("tools", "cargo-mutants", || {
        need::cargo_tool(&CARGO_MUTANTS)
    })?;
    for part in parts {
        let out = target().join("mutants").join(part.name);
        std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
        let mut command = cargo(["mutants", "--no-shuffle", "--colors", "never"]);
        command.args(["--package", part.package]).arg("--output");
        command.arg(&out);
        for files in file.as_deref().map_or(part.files, |_| &[]) {
            command.args(["--file", files]);
        }
        if let Some(file) = &file {
            command.args(["--file", file]);
        }
        // Examples in documentation take long to compile, and test little.
        command.args(["--", "--lib", "--tests"]);
        steps.command(part.name, &mut command)?;
    }
    steps.finish("mutants");
    Ok(())
}

fn wanted(args: &[String]) -> Result<(Vec<&'static Part>, Option<String>)> {
    let (mut parts, mut file) = (Vec::new(), None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--file" {
            let path = args
                .next()
                .context("--file needs a path from the repository's root")?;
            file = Some(path.clone());
        } else if let Some(part) = PARTS.iter().find(|part| part.name == arg) {
            parts.push(part);
        } else {
            let names = PARTS.iter().map(|part| part.name).collect::<Vec<_>>();
            bail!("there is no part {arg:?}; there are {}", names.join(", "));
        }
    }
    match (parts.len(), &file) {
        (0, None) => Ok((PARTS.iter().collect(), None)),
        (0 | 2.., Some(_)) => bail!("name the one part that the file is in, such as `core`"),
        _ => Ok((parts, file)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::root;

    fn names(args: &[&str]) -> Result<(Vec<&'static str>, Option<String>)> {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        let (parts, file) = wanted(&args)?;
        Ok((parts.iter().map(|part| part.name).collect(), file))
    }

    #[test]
    fn parts_are_named_and_a_file_is_in_one() {
        let all = names(&[]).expect("no argument is needed").0;
        assert_eq!(all, ["core", "store", "limiter", "tenants", "spelling"]);
        let one = names(&["store", "--file", "a.rs"]).expect("one part and its file");
        assert_eq!(one, (vec!["store"], Some("a.rs".to_owned())));
        for (args, word) in [
            (&["cores"][..], "there are core, store"),
            (&["--file", "a.rs"], "name the one part"),
            (&["core", "--file"], "needs a path"),
        ] {
            let error = names(args).expect_err("bad arguments").to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn each_part_has_files() {
        for files in PARTS.iter().flat_map(|part| part.files) {
            let folder = files.split("/*").next().unwrap_or(files);
            assert!(root().join(folder).is_dir(), "{files}");
        }
    }
}
