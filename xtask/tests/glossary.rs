//! Holds the names of public types to one meaning each, and ARCHITECTURE.md's glossary to the code.

mod repository;

use std::collections::{BTreeMap, BTreeSet};

use repository::{is_of_tests, read, texts};

/// Crates that test or measure the product. Nothing is built on them, so their names may repeat.
const TOOLS: [&str; 5] = [
    "ratekeeper-attack",
    "ratekeeper-bench",
    "ratekeeper-chaos",
    "ratekeeper-compat",
    "ratekeeper-testkit",
];

/// Names that say what an item is to its crate: readers expect each crate to have its own.
const OF_EACH_CRATE: [&str; 3] = ["Builder", "Config", "Error"];

/// Names with two definitions, and why both have the right name.
const DEFINED_AGAIN: &[(&str, &str)] = &[
    (
        "Acquired",
        "the client's is the limiter's, as a service answered it",
    ),
    (
        "Clock",
        "the limiter's reads the time; the script's says whose time counts",
    ),
    (
        "Limit",
        "the library's is a limit as a program writes it, core's the same with what steps need",
    ),
    (
        "Permit",
        "one held permit: its id in a store, and its guard in the layer and the client",
    ),
    (
        "Reservation",
        "the client's is the limiter's, as a service answered it",
    ),
    (
        "Reserved",
        "the client's is the limiter's, as a service answered it",
    ),
    (
        "Settled",
        "the client's is the limiter's, as a service answered it",
    ),
];

/// The words that open the definition of a type.
const DEFINITIONS: [&str; 5] = ["struct ", "enum ", "trait ", "type ", "union "];

#[test]
fn a_public_type_has_a_name_of_its_own() {
    let known: BTreeMap<_, _> = DEFINED_AGAIN.iter().copied().collect();
    assert_eq!(known.len(), DEFINED_AGAIN.len(), "a name is listed twice");
    let again: BTreeMap<String, BTreeSet<String>> = public_types()
        .into_iter()
        .filter(|(name, _)| !OF_EACH_CRATE.contains(&name.as_str()))
        .filter(|(_, files)| files.len() > 1)
        .collect();
    let new: Vec<_> = again
        .iter()
        .filter(|(name, _)| !known.contains_key(name.as_str()))
        .collect();
    assert!(
        new.is_empty(),
        "these names mean two things; find a better word for one of them: {new:#?}"
    );
    let gone: Vec<_> = known
        .keys()
        .filter(|name| !again.contains_key(**name))
        .collect();
    assert!(gone.is_empty(), "these are defined once now: {gone:?}");
}

#[test]
fn the_glossary_names_types_that_exist() {
    let types = public_types();
    let text = read("ARCHITECTURE.md");
    let glossary = text
        .split_once("\n## Glossary\n")
        .expect("the page has a glossary")
        .1;
    let glossary = glossary.split("\n## ").next().unwrap_or_default();
    let rows: Vec<_> = glossary
        .lines()
        .filter_map(|line| line.strip_prefix("| *"))
        .collect();
    assert!(rows.len() >= 20, "the glossary has {} words", rows.len());
    let mut words = BTreeSet::new();
    for row in rows {
        let cells: Vec<_> = row.split(" | ").collect();
        let [word, meaning, names] = cells[..] else {
            panic!("expected a word, a meaning and a type: {row}");
        };
        assert!(words.insert(word.to_owned()), "{word} is explained twice");
        assert!(!meaning.trim().is_empty(), "{word} has no meaning");
        // Every other piece stands between backticks.
        for name in names.split('`').skip(1).step_by(2) {
            assert!(types.contains_key(name), "{word}: there is no type {name}");
        }
    }
}

#[test]
fn definitions_are_found() {
    let text = "
        /// A `pub struct Quoted;`
        pub struct Plain { field: u8 }
            pub enum Inner<T> {}
        pub(crate) struct Internal;
        pub type Alias = Plain;
        struct Private;
        pub unsafe trait Odd {}
        pub fn function() -> Plain {}
        #[cfg(test)]
        mod tests {
            pub struct OfTests;
        }
    ";
    let found: Vec<_> = definitions(text).collect();
    assert_eq!(found, ["Plain", "Inner", "Alias", "Odd"]);
}

/// Every public type of the product, with the files that define it.
fn public_types() -> BTreeMap<String, BTreeSet<String>> {
    let mut types: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, text) in texts(&["crates/*.rs"]) {
        let name = file.split('/').nth(1).unwrap_or_default();
        let is_ours = file.contains("/src/") && !file.contains("/generated/");
        if !is_ours || is_of_tests(&file) || TOOLS.contains(&name) {
            continue;
        }
        for name in definitions(&text) {
            types
                .entry(name.to_owned())
                .or_default()
                .insert(file.clone());
        }
    }
    assert!(types.len() > 200, "{} types were found", types.len());
    types
}

/// The names of the public types that `text` defines outside its tests, which come last in a file.
fn definitions(text: &str) -> impl Iterator<Item = &str> {
    let product = text.lines().take_while(|line| line.trim() != "mod tests {");
    product.filter_map(|line| {
        let line = line.trim_start().strip_prefix("pub ")?;
        let line = line.strip_prefix("unsafe ").unwrap_or(line);
        let name = DEFINITIONS
            .iter()
            .find_map(|word| line.strip_prefix(word))?;
        name.split(|c: char| !c.is_alphanumeric() && c != '_')
            .next()
    })
}
