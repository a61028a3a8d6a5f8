//! Files that are not written by accident: bounded in time and memory, and never a panic.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use ratekeeper_rules::{Diagnostics, Entry, Loaded, Options, Source, load};

fn read(text: &str) -> Result<Loaded, Diagnostics> {
    load(
        &[Source {
            name: "f".to_owned(),
            text: text.to_owned(),
        }],
        &Options::default(),
    )
}

fn refused(text: &str) -> String {
    read(text)
        .err()
        .map(|errors| errors.errors()[0].message.clone())
        .expect("it is refused")
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in [("[", "]"), ("{a: ", "}"), ("- ", ""), ("? ", "")] {
        let text = format!("{}{}", open.repeat(100_000), close.repeat(100_000));
        refused(&text);
    }
    let mut descriptors = String::new();
    for level in 0..1_000 {
        let indent = "  ".repeat(level);
        descriptors.push_str(&format!("{indent}descriptors:\n{indent}- key: a\n"));
    }
    assert!(refused(&format!("domain: d\n{descriptors}")).contains("nested more than"));
}

#[test]
fn a_billion_laughs_are_refused() {
    let mut text = String::from("domain: d\nmetadata:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("  a{level}: &a{level} [{aliases}]\n"));
    }
    assert!(refused(&text).contains("counting each alias as a copy"));
    assert!(
        refused("domain: d\ndescriptors: &a\n  - key: b\n    descriptors: *a\n")
            .contains("recursive alias")
    );
}

/// Each repetition is merged with all before it, which would take quadratic time.
#[test]
fn a_mapping_that_is_given_again_and_again_is_refused() {
    let again: String = (0..20_000)
        .map(|number| format!("  a: {{ k{number}: x }}\n"))
        .collect();
    assert!(
        refused(&format!("domain: d\nmetadata:\n{again}"))
            .contains("counting each alias as a copy")
    );
    let merged: String = (0..20_000)
        .map(|number| format!("  - a: {{ k{number}: x }}\n"))
        .collect();
    let text = format!("domain: d\nmetadata:\n  <<:\n{merged}");
    assert!(refused(&text).contains("counting each alias as a copy"));
}

#[test]
fn a_few_aliases_are_fine() {
    let text = "domain: d\ndescriptors:\n  - key: a\n    rate_limit: &r { unit: day, requests_per_unit: 5 }\n  - key: b\n    rate_limit: *r\n";
    assert_eq!(read(text).expect("it is accepted").rules.rules().len(), 2);
}

#[test]
fn many_errors_are_told_once_each_and_counted() {
    let text: String = (0..10_000)
        .map(|number| format!("bogus{number}: x\n"))
        .collect();
    let errors = read(&format!("domain: d\n{text}")).expect_err("none of the keys is known");
    assert_eq!(errors.errors().len(), 200);
    assert!(errors.to_string().ends_with("and 9800 more like these"));
}

#[test]
fn many_errors_on_one_long_line_end_in_time() {
    let items: Vec<_> = (0..5_000)
        .map(|number| format!("{{ key: k{number}, bogus: 1.5 }}"))
        .collect();
    let errors = read(&format!("domain: d\ndescriptors: [{}]\n", items.join(", ")))
        .expect_err("no such key");
    assert_eq!(errors.errors().len(), 200);
}

#[test]
fn control_characters_and_other_texts_are_refused() {
    for text in [
        "domain: d\0\n",
        "\0",
        "domain: \"d\u{7}\"\n",
        "\u{fffe}",
        "domain: d\u{feff}\n",
    ] {
        assert!(
            refused(text).contains("control characters are not allowed"),
            "{text:?}"
        );
    }
    for text in [
        "\u{feff}", "\r\n\r\n", "   ", "#", "---", "...", "%", "%YAML", "&", "*", "!", "!!", "|",
        ">", "'", "\"", "?", ":", "-",
    ] {
        refused(text);
    }
}

#[test]
fn many_tabs_after_colons_end_in_time() {
    let lines = |line: &str| -> String {
        (0..2_000)
            .map(|number| line.replace('N', &number.to_string()))
            .collect()
    };
    let plain = lines("  - key:\tkN\n    value:\t\tx\n");
    assert_eq!(
        read(&format!("domain:\td\ndescriptors:\n{plain}"))
            .expect("it is accepted")
            .rules
            .rules()
            .len(),
        0
    );
    // A separating tab beside one that is text.
    let quoted = "domain:\td # it's\ndescriptors:\n  - key:\ta\n    value: \"x:\ty\"\n    rate_limit: { unit: day, limit: 1 }\n";
    let rules = read(quoted).expect("it is accepted").rules;
    assert_eq!(&*rules.rules()[0].path[0], "a_x:\ty");
    // So many tabs in odd places that reading gives up.
    drop(read(&format!(
        "domain: d # it's\ndescriptors:\n{}",
        lines("  - key:\tkN # it's\n")
    )));
}

#[test]
fn numbers_at_and_beyond_every_edge_are_told() {
    for number in [
        "-1",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551616",
        "1e400",
        "-0",
    ] {
        // Accepted or not, nothing may overflow.
        let _ = read(&format!(
            "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {{ unit: day, requests_per_unit: {number} }}\n"
        ));
        let _ = read(&format!(
            "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {{ window: {number}s, limit: {number}, burst: {number}, algorithm: gcra }}\n"
        ));
        let _ = read(&format!(
            "slas:\n  - {{ id: a, pathPattern: /, tiers: [ {{ period: {number}, threshold: {number} }} ] }}\n"
        ));
    }
}

/// Fragments of rules, valid and broken.
const PIECES: [&str; 52] = [
    "domain: d\n",
    "descriptors:\n",
    "  - key: a\n",
    "    value: x*\n",
    "    rate_limit:\n",
    "      unit: day\n",
    "      requests_per_unit: 5\n",
    "      window: 10s\n",
    "      limit: 7\n",
    "      calendar: UTC\n",
    "    descriptors:\n",
    "      - key: b\n",
    "    plans: { pro: { unit: day } }\n",
    "plans: [free, pro]\n",
    "    concurrency: { limit: 1 }\n",
    "    metadata: { a: [1, { b: 2 }] }\n",
    "    enforce: 10%\n",
    "slas:\n",
    "  - id: a\n",
    "    tiers: [ { period: 1, threshold: 1 } ]\n",
    "    pathPattern: /a/*\n",
    "    match: {}\n",
    "&a ",
    "*a",
    "<<: *a\n",
    "- ",
    ": ",
    "? ",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\"",
    "'",
    "|\n",
    ">\n",
    "# c\n",
    "\n",
    "  ",
    "\t",
    "!!int ",
    "! ",
    "%YAML 1.1\n",
    "---\n",
    "...\n",
    "\u{feff}",
    "é",
    "1.5",
    "~",
    "\r",
    "\u{2028}",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_mixture_of_pieces_panics(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..40)) {
        let text = pieces.concat();
        match read(&text) {
            Ok(loaded) => drop(loaded.rules.rlconfig()),
            Err(errors) => {
                prop_assert!(!errors.errors().is_empty());
                drop(errors.to_string());
            }
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,60}") {
        drop(read(&text));
        drop(read(&format!("domain: d\ndescriptors:\n  - key: a\n    rate_limit: {text}\n")));
    }
}

/// A naive search starts again at each place and takes the product of both lengths: minutes, here.
#[test]
fn a_long_value_is_matched_with_long_patterns_in_time() {
    let needle = "a".repeat(5_000);
    let nodes: String = (0..20)
        .map(|number| format!("  - {{ key: p, value: '*{needle}b{number}*' }}\n"))
        .collect();
    let rules = read(&format!("domain: d\ndescriptors:\n{nodes}"))
        .expect("good rules")
        .rules;
    let value = "a".repeat(1_000_000);
    let entry = Entry {
        key: "p",
        value: &value,
    };
    let begun = Instant::now();
    assert!(
        rules
            .domain("d")
            .expect("it is there")
            .walk(&[entry])
            .is_empty()
    );
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}");
}
