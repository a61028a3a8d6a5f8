//! The tree of one file.

use std::rc::Rc;

use crate::Source;
use crate::report::Report;
use crate::yaml::{self, Node as Tree};

/// Parses a file into a tree; [`None`] if its YAML is broken, which has been reported.
pub(crate) fn open(source: &Source, report: &mut Report<'_>) -> Option<Option<Rc<Tree>>> {
    let text = source.text.strip_prefix('\u{feff}').unwrap_or(&source.text);
    if let Some((mark, message)) = yaml::forbidden(text) {
        report.error(
            mark,
            format!("error loading config file: {message}"),
            "remove it, or write it escaped in double quotes",
        );
        return None;
    }
    if let Some((mark, message)) = yaml::wrong_directive(text) {
        report.error(
            mark,
            format!("error loading config file: {message}"),
            "remove the line, or write `%YAML 1.1`",
        );
        return None;
    }
    let built = yaml::build(text);
    for (mark, key) in built.repeated {
        report.warn(
            mark,
            format!("`{key}` is written again below: the last one counts"),
            "leave one of them out",
        );
    }
    for (mark, key) in built.covered {
        report.warn(
            mark,
            format!(
                "what `<<` merges below has `{key}` as well, which counts in place of this one"
            ),
            "put `<<` first: keys behind it count",
        );
    }
    if let Some(mark) = built.more {
        report.warn(
            mark,
            "a second document begins here, and nothing in it is in force: only the first one of a file is read",
            "put it into a file of its own",
        );
    }
    if let Some((mark, message)) = built.error {
        let help = layout_help(&message);
        report.error(mark, format!("error loading config file: {message}"), help);
        return None;
    }
    Some(built.root)
}

/// Suggests a fix for text whose layout is wrong, from the parser's message.
fn layout_help(message: &str) -> Option<String> {
    let indentation = [
        "expected '-' indicator",
        "did not find expected key",
        "mapping values are not allowed",
        "simple key expected",
    ];
    let help = if message.contains("tab") {
        "use spaces in place of tabs: YAML does not take tabs for indentation"
    } else if indentation.iter().any(|part| message.contains(part)) {
        "check the indentation: the keys of one item begin in the same column, two right of its `-`"
    } else {
        return None;
    };
    Some(help.to_owned())
}
