//! Compares both rules checkers on random files, most of them broken somewhere.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use fastrand::Rng;
use tokio::process::Command;

use crate::differences::Difference;
use crate::random::{chance, fork, pick};
use crate::rules::Domain;

/// Values, some of which are special in some places.
const SHORT: [&str; 35] = [
    "1.5", "010", "0x10", "0b11", "1_000", "~", "null", "yes", "on", "n", "\"\"", "''", "-1",
    "[a]", "[]", "{}", "{ a: b }", "x", "1e3", ".inf", ".nan", "!!str 5", "&a x", "*a", "|", ">-",
    "UNKNOWN", "week", "Second", "true", "'true'", "False", "404", "x*", "- a",
];
const LONG: [&str; 9] = [
    "4294967296",
    "18446744073709551615",
    "9223372036854775808",
    "{ key: a }",
    "[{ key: a }]",
    "2001-01-01",
    "!!int '5'",
    "fortnight",
    "\"\\x41\"",
];
const LINES: [&str; 20] = [
    "unit: day",
    "domain: other",
    "---",
    "...",
    "%YAML 1.1",
    "\tkey: a",
    "# remark",
    "",
    "key: a",
    "404: x",
    "on: x",
    "1.5: x",
    "~: x",
    "Key: a",
    "descriptors:",
    "- key: a",
    "<<: { key: a }",
    "? key\n: a",
    "shadow_mode: 1",
    "rate_limit: {}",
];
const KEYS: [&str; 12] = [
    "keys",
    "Key",
    "unit",
    "name",
    "value",
    "descriptors",
    "domain",
    "rate_limit",
    "requests_per_unit",
    "on",
    "shadow_mode",
    "replaces",
];

/// Rules that only one checker refuses.
#[derive(Debug)]
pub(crate) struct Disagreement {
    pub(crate) files: Vec<String>,
    pub(crate) merge: bool,
    /// The error of each; `None` if it accepts the rules.
    pub(crate) theirs: Option<String>,
    pub(crate) ours: Option<String>,
}

/// The results of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    pub(crate) asked: u64,
    pub(crate) refused: u64,
    /// Disagreements that are listed.
    pub(crate) listed: BTreeMap<Difference, u64>,
    pub(crate) disagreements: Vec<Disagreement>,
}

/// Compares `count` random sets of files.
///
/// # Errors
/// A checker cannot be run.
pub(crate) async fn refusals(
    checker: &Path,
    ratekeeper: &Path,
    seed: u64,
    count: u64,
) -> Result<Refusals> {
    let mut found = Refusals::default();
    for number in 0..count {
        let mut rng = fork(seed, &[u64::MAX, number]);
        let merge = chance(&mut rng, 50);
        let files = files(&mut rng, merge);
        let dir = tempfile::tempdir()?;
        for (index, text) in files.iter().enumerate() {
            std::fs::write(dir.path().join(format!("{index}.yaml")), text)?;
        }
        let mut theirs = Command::new(checker);
        theirs
            .arg("-config_dir")
            .arg(dir.path())
            .arg(format!("-merge_domain_configs={merge}"));
        theirs.env("USE_STATSD", "false");
        let mut ours = Command::new(ratekeeper);
        ours.args(["rules", "check", "--quiet", "--profile", "envoy"])
            .arg(dir.path());
        if merge {
            ours.arg("--merge-domains");
        }
        let (theirs, ours) = tokio::try_join!(refused(theirs), refused(ours))?;
        found.asked += 1;
        found.refused += u64::from(theirs.is_some());
        if theirs.is_some() == ours.is_some() {
            continue;
        }
        if let Some(difference) = listed(&files, theirs.as_deref(), ours.as_deref()) {
            *found.listed.entry(difference).or_default() += 1;
        } else {
            found.disagreements.push(Disagreement {
                files,
                merge,
                theirs,
                ours,
            });
        }
    }
    Ok(found)
}

/// The listed difference that explains a disagreement, if any.
fn listed(files: &[String], theirs: Option<&str>, ours: Option<&str>) -> Option<Difference> {
    if let Some(ours) = ours {
        let directive = ours.contains("missing explicit document end marker before directive");
        return directive.then_some(Difference::YamlDirective);
    }
    let theirs = theirs?;
    let first = |text: &String| {
        let mut lines = text.lines().map(str::trim);
        lines.find(|line| !line.is_empty() && !line.starts_with('#')) == Some("...")
    };
    if theirs.contains("did not find expected node content") && files.iter().any(first) {
        return Some(Difference::YamlEndFirst);
    }
    // It checks one file after the other, and reports all type errors of the first bad one.
    let (_, name) = theirs.split_once("panic: ")?;
    let index = name.split_once(".yaml")?.0.rsplit('/').next()?;
    let text = files.get(index.parse::<usize>().ok()?)?;
    let mut wrong = theirs
        .lines()
        .filter(|line| line.contains(": cannot unmarshal "));
    let twice = |line: &str| {
        let number = line.trim().strip_prefix("line ")?.split_once(':')?.0;
        // It reports the line of a mapping, which may begin on the line after its key.
        let number: usize = number.parse().ok()?;
        let again = [number, number - 1].map(|line| is_there_again(text, line));
        again.contains(&true).then_some(())
    };
    let all = theirs.contains(": cannot unmarshal ") && wrong.all(|line| twice(line).is_some());
    all.then_some(Difference::YamlTwice)
}

/// Returns true if the key on that line is repeated further down in the same mapping.
fn is_there_again(text: &str, number: usize) -> bool {
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '-']).len();
    let mut lines = text.lines().skip(number.saturating_sub(1));
    let Some(line) = lines.next() else {
        return false;
    };
    let (own, key) = (indent(line), line.trim_start_matches([' ', '-']));
    let key = key.split_once(':').map_or(key, |(key, _)| key);
    lines
        .take_while(|line| {
            indent(line) > own || (indent(line) == own && !line.trim_start().starts_with('-'))
        })
        .any(|line| {
            indent(line) == own
                && line
                    .trim()
                    .split_once(':')
                    .is_some_and(|(other, _)| other == key)
        })
}

async fn refused(mut command: Command) -> Result<Option<String>> {
    let output = command
        .output()
        .await
        .with_context(|| format!("cannot run {command:?}"))?;
    if output.status.success() {
        return Ok(None);
    }
    let said = [output.stdout, output.stderr].concat();
    Ok(Some(String::from_utf8_lossy(&said).into_owned()))
}

fn files(rng: &mut Rng, merge: bool) -> Vec<String> {
    let mut files = Domain::random(rng, "d".to_owned(), merge).texts();
    if chance(rng, 20) {
        let name = if chance(rng, 50) { "d" } else { "e" };
        files.extend(Domain::random(rng, name.to_owned(), false).texts());
    }
    if chance(rng, 85) {
        let index = rng.usize(0..files.len());
        for _ in 0..rng.usize(1..=2) {
            files[index] = broken(rng, &files[index]);
        }
    }
    files
}

/// `text` with one random change.
fn broken(rng: &mut Rng, text: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let at = rng.usize(0..lines.len());
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '-']).len();
    let (start, rest) = lines[at].split_at(indent(&lines[at]));
    let (key, value) = rest.split_once(':').unwrap_or((rest, ""));
    let pad = " ".repeat(start.len());
    match rng.u32(0..9) {
        0 => {
            lines.remove(at);
        }
        1 => {
            let line = lines[at].clone();
            lines.insert(at, line);
        }
        2 => lines[at] = format!("  {}", lines[at]),
        3 => lines[at] = lines[at].replacen("  ", "", 1),
        4 => lines[at] = format!("{start}{}:{value}", pick(rng, &KEYS)),
        5 => lines.insert(at, format!("{pad}{}", pick(rng, &LINES))),
        _ => lines[at] = format!("{start}{key}: {}", pick(rng, &[&SHORT[..], &LONG].concat())),
    }
    lines.join("\n") + "\n"
}
