//! Holds the English of doc comments to the house style.

mod repository;

use std::collections::BTreeMap;

use repository::texts;

/// The folders with Rust code of ours.
const FOLDERS: [&str; 5] = ["crates", "examples", "fuzz", "mutants", "xtask"];

/// Words that make a first sentence circle its item instead of naming it: "Whether the rule is on"
/// says less directly what "Returns true if the rule is on" says.
const QUESTION_WORDS: &str =
    "How What Whatever When Where Whether Which Whichever Who Whoever Whom Whose Why Wherever";

#[test]
fn doc_comments_open_with_the_item_not_with_a_question_word() {
    let mut wrong = Vec::new();
    for folder in FOLDERS {
        for (file, text) in sources(folder) {
            for (number, line) in openings(&text, comment_mark(&file)) {
                let word = line.split(|c: char| !c.is_alphanumeric()).next();
                if word.is_some_and(|word| QUESTION_WORDS.split(' ').any(|it| it == word)) {
                    wrong.push(format!("{file}:{number}: {line}"));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} doc comments open with a question word; name the item or what it returns:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn the_rewritten_crates_have_sources() {
    for folder in FOLDERS {
        let found = sources(folder);
        assert!(!found.is_empty(), "{folder} has no sources: it has moved");
    }
}

#[test]
fn an_opening_is_the_first_line_of_a_comment() {
    let text = [
        "//! Reads files.",
        "//! Where it says more, this line is no opening.",
        "",
        "/// Returns true if",
        "/// what follows fits.",
        "fn fits() {}",
        "    // Why: no doc comment.",
        "    /// Whether it is so.",
    ]
    .join("\n");
    let found: Vec<_> = openings(&text, "//").collect();
    assert_eq!(
        found,
        [
            (1, "Reads files."),
            (4, "Returns true if"),
            (8, "Whether it is so.")
        ]
    );
}

/// The Rust and protobuf sources below `folder`.
fn sources(folder: &str) -> BTreeMap<String, String> {
    texts(&[&format!("{folder}/*.rs"), &format!("{folder}/*.proto")])
}

/// The mark of doc comments: protobuf has no special one.
fn comment_mark(file: &str) -> &'static str {
    match file.ends_with(".proto") {
        true => "// ",
        false => "//",
    }
}

/// The first line of each doc comment in `text`, with its number.
fn openings<'t>(text: &'t str, mark: &'t str) -> impl Iterator<Item = (usize, &'t str)> {
    let doc = move |line: &'t str| {
        let rest = line.trim_start().strip_prefix(mark)?;
        match mark {
            "//" => rest.strip_prefix("/ ").or_else(|| rest.strip_prefix("! ")),
            _ => Some(rest),
        }
    };
    let before = std::iter::once("").chain(text.lines());
    let lines = (1..).zip(text.lines()).zip(before);
    lines.filter_map(move |((number, line), before)| {
        let first = doc(before).is_none();
        doc(line).filter(|_| first).map(|line| (number, line))
    })
}
