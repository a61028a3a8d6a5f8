//! Values in the bodies of requests: those that all readers find, and those that they may disagree on.

use ratekeeper_http::{BodyScanner, Malformed};
use ratekeeper_rules::JsonPointer;

/// The value at `place` of a body that comes in pieces of so many bytes.
fn read(place: &str, body: &str, length: usize) -> Result<Option<String>, Malformed> {
    let place = JsonPointer::parse(place).expect("a pointer");
    let mut scanner = BodyScanner::new([place.clone()].into());
    for piece in body.as_bytes().chunks(length) {
        scanner.feed(piece);
    }
    scanner.check()?;
    Ok(scanner.values().get(&place).map(str::to_owned))
}

#[test]
fn a_value_that_readers_disagree_on_is_ambiguous() {
    for (place, body) in [
        ("/model", r#"{"model":"small","model":"large"}"#),
        // Most take the last, which is the same as none.
        ("/model", r#"{"model":"small","model":null}"#),
        ("/model", r#"{"model":null,"model":"small"}"#),
        ("/model", r#"{"model":"small","model":{}}"#),
        // Some take keys for the same whatever their case is.
        ("/model", r#"{"model":"small","Model":"large"}"#),
        ("/model", r#"{"MODEL":"small","model":"small"}"#),
        ("/model", r#"{"Model":"large"}"#),
        ("/model", r#"{"model":"small","mod\u0045l":"large"}"#),
        ("/meta/task", r#"{"Meta":{"task":"a"}}"#),
        ("/meta/task", r#"{"meta":{"ta\u017fk":"a"}}"#),
        // Of two objects most take the last.
        ("/meta/task", r#"{"meta":{"task":"a"},"meta":{}}"#),
        ("/meta/task", r#"{"meta":{"task":"a"},"meta":null}"#),
        ("/meta/task", r#"{"meta":5,"meta":{"task":"a"}}"#),
    ] {
        for length in [1, body.len()] {
            assert!(read(place, body, length).is_err(), "{body} by {length}");
        }
    }
}

#[test]
fn a_value_that_readers_agree_on_is_read() {
    for (place, body, value) in [
        ("/model", r#"{"model":"small"}"#, Some("small")),
        (
            "/model",
            r#"{"model":"small","model":"small"}"#,
            Some("small"),
        ),
        ("/model", r#"{"model":null}"#, None),
        (
            "/model",
            r#"{"models":["Model"],"x":{"Model":"large"}}"#,
            None,
        ),
        (
            "/model",
            r#"{"model":"a","tools":[{"Model":1}]}"#,
            Some("a"),
        ),
        ("/a/b", r#"{"a":{"c":{"B":1},"b":"x"},"b":null}"#, Some("x")),
        (
            "/a/0/b",
            r#"{"a":[{"b":"x"},{"b":"y"},{"B":1}]}"#,
            Some("x"),
        ),
    ] {
        for length in [1, body.len()] {
            let read = read(place, body, length);
            let read = read.unwrap_or_else(|fault| panic!("{body}: {fault:?}"));
            assert_eq!(read.as_deref(), value, "{body} by {length}");
        }
    }
}
