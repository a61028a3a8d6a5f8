//! Loads every example of the manual and compares the outcome with its text.

use std::path::Path;

use ratekeeper_rules::{NodeRegion, Options, Source, TestFile, load};

/// The fenced blocks of a page: the info string, the number of the first line, and the text.
fn examples(page: &str) -> Vec<(String, usize, String)> {
    let mut examples = Vec::new();
    let mut open: Option<(String, usize, String)> = None;
    for (number, line) in (1..).zip(page.lines()) {
        match (line.strip_prefix("```"), open.take()) {
            (Some(kind), None) => open = Some((kind.to_owned(), number + 1, String::new())),
            (Some(_), Some(example)) => examples.push(example),
            (None, Some((kind, first, text))) => open = Some((kind, first, text + line + "\n")),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a fence is not closed");
    examples
}

/// Returns true for a file of tenants, which belongs to the rules before it on the page.
fn lists_only_tenants(text: &str) -> bool {
    let is_key = |line: &&str| line.starts_with(|first: char| first.is_ascii_lowercase());
    let mut keys: Vec<&str> = text.lines().filter(is_key).collect();
    keys.retain(|line| !line.starts_with("domain:"));
    keys == ["tenants:"]
}

/// Rules on pages other than the format's own: those for users of other rate limiters, say.
#[test]
fn rules_on_every_page_are_accepted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::fs::read_dir(root.join("docs")).expect("there is a manual");
    let pages = folder.map(|entry| entry.expect("it can be read").path());
    let (mut checked, mut tests) = (0, 0);
    for page in pages.chain([root.join("README.md")]) {
        if page.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = std::fs::read_to_string(&page).expect("a page is text");
        let mut sources = Vec::new();
        for (kind, line, text) in examples(&text) {
            let mut lines = text.lines();
            let is_rules = lines.any(|line| line.starts_with("domain:") || line == "slas:");
            if kind != "yaml" || !is_rules {
                continue;
            }
            let name = format!("{}, the example from line {line} on", page.display());
            if text.lines().any(|line| line == "tests:") {
                TestFile::parse(&Source { name, text }).unwrap_or_else(|errors| panic!("{errors}"));
                tests += 1;
                continue;
            }
            if !lists_only_tenants(&text) {
                sources.clear();
            }
            sources.push(Source { name, text });
            let mut options = Options::default();
            options.region = NodeRegion::Unknown;
            if let Err(errors) = load(&sources, &options) {
                panic!("{errors}");
            }
            checked += 1;
        }
    }
    assert!(
        checked >= 20 && tests >= 1,
        "{checked} and {tests} examples"
    );
}

#[test]
fn every_example_is_accepted_or_refused_as_it_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules.md");
    let page = std::fs::read_to_string(path).expect("the manual is there");
    let (mut accepted, mut refused) = (0, 0);
    for (kind, line, text) in examples(&page) {
        let name = format!("docs/rules.md, the example from line {line} on");
        let result = load(
            &[Source {
                name: name.clone(),
                text,
            }],
            &Options::default(),
        );
        match (kind.as_str(), result) {
            ("yaml", Ok(_)) => accepted += 1,
            ("yaml,refused", Err(errors)) => {
                assert_eq!(errors.errors().len(), 1, "{errors}");
                refused += 1;
            }
            ("yaml", Err(errors)) => panic!("{errors}"),
            ("yaml,refused", Ok(_)) => panic!("{name} is accepted"),
            (other, _) => panic!("{name} is `{other}`"),
        }
    }
    assert!(
        accepted >= 15 && refused >= 10,
        "{accepted} and {refused} examples"
    );
}
