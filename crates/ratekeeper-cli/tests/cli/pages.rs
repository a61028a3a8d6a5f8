//! The settings and rules that the manual's pages show are accepted as they are written.

use std::path::Path;

use crate::support::{Said, repository, run, write};
use tempfile::tempdir;

/// Lines that only files of other programs have, whose limits a page translates or alerts on.
const OTHER_PROGRAMS: [&str; 4] = ["plugins:", "http:\n", "groups:", "provider:"];

/// Lines that begin rules or service levels, and part of a file of tenants.
const RULES: [&str; 5] = ["domain:", "descriptors:", "slas:", "shed:", "- "];

/// Fewest blocks of settings: fewer mean that this test no longer finds them.
const BLOCKS_MIN: usize = 14;

#[test]
fn settings_on_pages_are_accepted() {
    let folder = tempdir().expect("a folder can be made");
    let mut seen = 0;
    let mut refused = Vec::new();
    for (place, block) in blocks() {
        if begins(&block, &OTHER_PROGRAMS) || begins(&block, &RULES) {
            continue;
        }
        seen += 1;
        write(folder.path(), "ratekeeper.yaml", &block);
        let said = run(folder.path(), &["config", "show"]);
        if !(said.code == Some(0) || names_a_file_of_the_reader(&said)) {
            refused.push(format!("{place}: {}", said.err));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(seen >= BLOCKS_MIN, "only {seen} blocks of settings found");
}

/// Returns true if nothing is wrong but that a file is missing: keys and address databases are read
/// when settings are.
fn names_a_file_of_the_reader(said: &Said) -> bool {
    let lines: Vec<&str> = said.err.lines().filter(|line| !line.is_empty()).collect();
    matches!(lines[..], [line] if line.contains("cannot be read: No such file"))
}

/// Returns true if a line of `block` begins with one of `keys`, without indentation.
fn begins(block: &str, keys: &[&str]) -> bool {
    let lines = block.split_inclusive('\n');
    lines
        .into_iter()
        .any(|line| keys.iter().any(|key| line.starts_with(key)))
}

/// The blocks of YAML on all pages, and where they stand.
fn blocks() -> Vec<(String, String)> {
    let docs = repository().join("docs");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(docs).expect("there is a manual") {
        let path = entry.expect("it can be listed").path();
        if path.extension().is_some_and(|it| it == "md") {
            found.extend(blocks_of(&path));
        }
    }
    found
}

fn blocks_of(path: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(path).expect("pages are text");
    let mut found = Vec::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("```yaml\n") {
        let Some((block, tail)) = after.split_once("```") else {
            break;
        };
        let line = text.len() - rest.len() + before.len();
        let line = text[..line].lines().count() + 2;
        found.push((format!("{}:{line}", path.display()), block.to_owned()));
        rest = tail;
    }
    found
}
