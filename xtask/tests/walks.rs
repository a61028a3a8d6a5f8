//! Checks that the walkthroughs of `ARCHITECTURE.md` lead to files that exist, and that the one of a new
//! algorithm passes by every place that has to know it.

mod repository;

use std::collections::{BTreeMap, BTreeSet};

use repository::{is_of_tests, read, root, texts};

/// The files that define the algorithms, each by a name of its own kind.
const DEFINITIONS: [(&str, &str); 4] = [
    ("crates/ratekeeper-core/src/spec.rs", "enum Algorithm {"),
    ("crates/ratekeeper-core/src/limit.rs", "enum Kind {"),
    (
        "crates/ratekeeper-core/src/arithmetic.rs",
        "enum Arithmetic {",
    ),
    (
        "crates/ratekeeper-store-redis/src/script/algorithm.rs",
        "script_algorithms! {",
    ),
];

/// The names under which they are used.
const ENUMS: [&str; 5] = ["Algorithm", "Kind", "Arithmetic", "ScriptAlgorithm", "A"];

const NEW_ALGORITHM: &str = "A new algorithm";

#[test]
fn walks_lead_to_files_that_exist() {
    let walks = walks();
    assert!(walks.contains_key(NEW_ALGORITHM), "{walks:?}");
    for (walk, files) in walks {
        let missing: Vec<&String> = files
            .iter()
            .filter(|file| !root().join(file).exists())
            .collect();
        assert!(missing.is_empty(), "{walk}: there is no {missing:?}");
    }
}

#[test]
fn a_new_algorithm_passes_by_every_match() {
    let walks = walks();
    let walk = &walks[NEW_ALGORITHM];
    let matches = matches_on_algorithms();
    // Models may leave open what they do not use, and then need not know of it.
    let closed = matches
        .iter()
        .filter(|found| !is_of_models(&found.file) || found.wildcard.is_none());
    let files: BTreeSet<&String> = closed.map(|found| &found.file).collect();
    let missed: Vec<&&String> = files.iter().filter(|file| !walk.contains(**file)).collect();
    assert!(
        missed.is_empty(),
        "`### {NEW_ALGORITHM}` in ARCHITECTURE.md does not name {missed:?}"
    );
}

/// Suites, schema and messages go over `ALL`: none of them would know of one that is not in it.
#[test]
fn all_algorithms_are_those_that_are_defined() {
    let [(file, opening), ..] = DEFINITIONS;
    let text = read(file);
    let (_, all) = text.split_once("pub const ALL: ").expect("a list");
    let (all, _) = all.split_once("];").expect("it ends");
    let all = all.lines().filter_map(|line| {
        let name = line.trim().strip_prefix("Self::")?;
        name.strip_suffix(',')
    });
    assert_eq!(all.collect::<Vec<_>>(), variants(&text, opening));
}

#[test]
fn a_match_on_algorithms_names_all_of_them() {
    let open: Vec<String> = matches_on_algorithms()
        .into_iter()
        .filter(|found| !is_of_models(&found.file))
        .filter_map(|found| {
            let wildcard = found.wildcard?;
            Some(format!("{}:{}: {wildcard}", found.file, found.line))
        })
        .collect();
    assert!(
        open.is_empty(),
        "a new algorithm would compile without a decision here:\n{}",
        open.join("\n")
    );
}

#[test]
fn nothing_compares_with_an_algorithm() {
    let sources = texts(&["crates/*/src/*.rs"]).into_iter();
    let sources = sources.filter(|(file, _)| !is_of_tests(file) && !is_of_models(file));
    let compared: Vec<String> = sources
        .flat_map(|(file, text)| {
            let code = text.split("#[cfg(test)]\nmod tests").next();
            let found = statements(code.unwrap_or_default()).into_iter();
            let found = found.filter(|(_, statement)| compares(statement));
            let found = found.map(|(line, statement)| format!("{file}:{line}: {statement}"));
            found.collect::<Vec<_>>()
        })
        .collect();
    assert!(
        compared.is_empty(),
        "a new algorithm would compile without a decision here; ask a method of Algorithm:\n{}",
        compared.join("\n")
    );
}

/// The lines of a text with their numbers. One that opens a `matches!` has those up to its end.
fn statements(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_closed = |text: &str| text.matches('(').count() <= text.matches(')').count();
    let whole = |(at, line): (usize, &&str)| {
        let mut statement = (*line).to_owned();
        let mut rest = lines[at + 1..].iter();
        while line.contains("matches!(")
            && !is_closed(&statement)
            && let Some(next) = rest.next()
        {
            statement = format!("{statement} {next}");
        }
        (at + 1, statement)
    };
    lines.iter().enumerate().map(whole).collect()
}

/// Returns true if a line tells one algorithm from all others.
fn compares(line: &str) -> bool {
    let Some((before, after)) = line.split_once("Algorithm::") else {
        return false;
    };
    let is_variant = after.starts_with(|c: char| c.is_ascii_uppercase());
    let is_whole = !before.ends_with(char::is_alphanumeric);
    let before = before.strip_suffix("Some(").unwrap_or(before);
    let compares = ["== ", "!= ", "let "]
        .iter()
        .any(|word| before.ends_with(word));
    is_whole && is_variant && (compares || before.contains("matches!("))
}

#[test]
fn a_comparison_is_found_in_each_form() {
    for line in [
        "if limit.algorithm() == Algorithm::Gcra {",
        "a != Algorithm::Gcra || b",
        "if algorithm == Some(Algorithm::Gcra) {",
        "matches!(algorithm, Algorithm::Gcra)",
        "if let Algorithm::Gcra = algorithm {",
    ] {
        assert!(compares(line), "{line}");
    }
    for line in [
        "Algorithm::Gcra => 1,",
        "let all = Algorithm::ALL;",
        "limit.algorithm() == other",
        "(a, Algorithm::Gcra) => 2,",
    ] {
        assert!(!compares(line), "{line}");
    }
    let text = "let counts = !matches!(\n    limit.algorithm(),\n    Algorithm::Concurrency | Algorithm::LeakyBucket\n);\n";
    let found = statements(text).into_iter();
    let found: Vec<_> = found.filter(|(_, it)| compares(it)).collect();
    assert!(matches!(&found[..], [(1, _)]), "{found:?}");
}

#[test]
fn a_match_is_read_as_rustfmt_writes_it() {
    let names = BTreeSet::from(["Gcra".to_owned(), "Concurrency".to_owned()]);
    let found = |text: &str| matches_of("a.rs", text, &names);
    let all = "    match self {\n        Kind::Gcra(rate)\n        | Kind::Concurrency => { match x {\n            _ => 1,\n        }\n        }\n        Other => 2,\n    }\n";
    let [only] = &found(all)[..] else {
        panic!("{:?}", found(all))
    };
    assert_eq!((only.line, only.wildcard.as_deref()), (1, None));
    for wildcard in ["_", "other", "(_, Words(_))", "(true, ..)"] {
        let text =
            format!("match (a, b) {{\n    (Kind::Gcra(_), _) => 1,\n    {wildcard} => 2,\n}}\n");
        assert_eq!(found(&text)[0].wildcard.as_deref(), Some(wildcard));
    }
    assert_eq!(
        found("match a {\n    Other::Gcra => 1,\n    _ => 2,\n}\n").len(),
        0
    );
}

/// A `match` of which an arm names an algorithm.
#[derive(Debug)]
struct Match {
    file: String,
    line: usize,
    /// The arm that takes algorithms without naming them.
    wildcard: Option<String>,
}

fn is_of_models(file: &str) -> bool {
    file.starts_with("crates/ratekeeper-testkit/")
}

fn matches_on_algorithms() -> Vec<Match> {
    let names = names_of_algorithms();
    let sources = texts(&["crates/*/src/*.rs"]).into_iter();
    let sources = sources.filter(|(file, _)| !is_of_tests(file));
    sources
        .flat_map(|(file, text)| matches_of(&file, &text, &names))
        .collect()
}

/// The variants of the enums in [`DEFINITIONS`].
fn names_of_algorithms() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (file, opening) in DEFINITIONS {
        let text = read(file);
        let before = names.len();
        names.extend(variants(&text, opening).into_iter().map(str::to_owned));
        assert!(before > 0 || names.len() >= 7, "{file} defines algorithms");
    }
    names
}

/// The variants of the enum that begins with `opening`.
fn variants<'t>(text: &'t str, opening: &str) -> Vec<&'t str> {
    let (_, body) = text.split_once(opening).expect(opening);
    let (body, _) = body.split_once("\n}").expect("it ends");
    let names = body.lines().filter_map(|line| {
        let name = line.trim_start().split([',', '(', ' ']).next()?;
        name.starts_with(|c: char| c.is_ascii_uppercase())
            .then_some(name)
    });
    names.collect()
}

/// Reads matches by their indentation: an arm lies one step deeper than the line of its `match`.
fn matches_of(file: &str, text: &str, names: &BTreeSet<String>) -> Vec<Match> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let is_match = line.split_whitespace().any(|word| word == "match") && line.ends_with('{');
        if !is_match || line.trim_start().starts_with("//") {
            continue;
        }
        let body = &lines[at + 1..];
        let end = body
            .iter()
            .position(|it| !it.is_empty() && depth(it) <= depth(line));
        let arms = arms(&body[..end.unwrap_or(body.len())], depth(line) + 4);
        if arms.iter().any(|arm| names_one(arm, names)) {
            let wildcard = arms
                .into_iter()
                .find(|arm| !names_one(arm, names) && is_wildcard(arm));
            found.push(Match {
                file: file.to_owned(),
                line: at + 1,
                wildcard,
            });
        }
    }
    found
}

/// The patterns of the arms at that depth.
fn arms(body: &[&str], at: usize) -> Vec<String> {
    let mut arms = Vec::new();
    let mut pattern = String::new();
    for line in body.iter().filter(|line| depth(line) == at) {
        let line = line.trim();
        if line.starts_with(['}', ')', ']']) || line.starts_with("//") {
            continue;
        }
        match line.split_once("=>") {
            Some((end, _)) => arms.push(std::mem::take(&mut pattern) + end.trim()),
            None => pattern.push_str(line),
        }
    }
    arms
}

/// Returns true if a pattern names one of `names`, as of an enum of algorithms.
fn names_one(arm: &str, names: &BTreeSet<String>) -> bool {
    let words: Vec<&str> = arm.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    // The two colons have nothing between them.
    words.windows(3).any(|words| match words {
        [kind, "", name] => ENUMS.contains(kind) && names.contains(*name),
        _ => false,
    })
}

/// Returns true if a pattern is a name for anything, or leaves a part open.
fn is_wildcard(arm: &str) -> bool {
    let is_name = arm.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let mut parts = arm.split(['(', ')', ',', ' ']);
    is_name || parts.any(|part| matches!(part, "_" | ".."))
}

fn depth(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The files of each walkthrough, by its heading.
fn walks() -> BTreeMap<String, BTreeSet<String>> {
    let text = read("ARCHITECTURE.md");
    let (_, walks) = text.split_once("\n## Walkthroughs\n").expect("a heading");
    let walks = walks.split("\n## ").next().unwrap_or_default();
    let headed = walks.split("\n### ").skip(1);
    let walk = |text: &str| {
        let (heading, body) = text.split_once('\n').expect("a walk has steps");
        let targets = body
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        let files = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
        let files = files.map(|file| file.split('#').next().unwrap_or_default().to_owned());
        (heading.to_owned(), files.collect())
    };
    headed.map(walk).collect()
}
