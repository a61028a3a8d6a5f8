//! YAML as a tree that keeps each scalar's text, style and position.

mod build;
mod merge;
mod scalar;
mod tabs;

use std::rc::Rc;

use crate::mark::{At, Mark};

pub(crate) use build::{Built, build};
pub(crate) use scalar::Resolved;

/// A value of the file. Aliases share the node that they name.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) mark: Mark,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Scalar(Scalar),
    List(Vec<Rc<Node>>),
    Map(Vec<Pair>),
}

#[derive(Debug)]
pub(crate) struct Scalar {
    /// The literal text, without quotes and with escapes resolved.
    pub(crate) text: Box<str>,
    pub(crate) resolved: Resolved,
    /// True if the scalar is neither quoted nor tagged.
    pub(crate) plain: bool,
}

/// A key and its value. A map has each text key once: the last one counts.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) key: Rc<Node>,
    pub(crate) value: Rc<Node>,
    /// True if it comes from an earlier mapping of the same key: envoyproxy/ratelimit takes its
    /// values, but does not check its keys.
    pub(crate) stale: bool,
}

impl Node {
    /// `value` at the position of this node.
    pub(crate) fn at<T>(&self, value: T) -> At<T> {
        let mark = self.mark;
        At { value, mark }
    }

    /// The kind of value, with its article, for messages.
    pub(crate) fn kind_name(&self) -> &'static str {
        match &self.kind {
            Kind::Scalar(scalar) => scalar.resolved.kind(),
            Kind::List(_) => "a list",
            Kind::Map(_) => "a mapping",
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar(scalar) if scalar.resolved == Resolved::Null)
    }

    pub(crate) fn as_map(&self) -> Option<&[Pair]> {
        match &self.kind {
            Kind::Map(pairs) => Some(pairs),
            _ => None,
        }
    }

    pub(crate) fn as_list(&self) -> Option<&[Rc<Self>]> {
        match &self.kind {
            Kind::List(items) => Some(items),
            _ => None,
        }
    }
}

/// Finds the first directive (`%…` before the document) that envoyproxy/ratelimit refuses.
pub(crate) fn wrong_directive(text: &str) -> Option<(Mark, String)> {
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_end();
        let mark = Mark {
            line: number,
            column: 1,
            length: u32::try_from(line.chars().count()).unwrap_or(1),
        };
        match line.strip_prefix('%') {
            Some(directive) => {
                let mut words = directive.split_ascii_whitespace();
                match (words.next(), words.next()) {
                    (Some("YAML"), Some("1.1")) | (Some("TAG"), _) => {}
                    (Some("YAML"), _) => {
                        return Some((mark, "found incompatible YAML document".to_owned()));
                    }
                    _ => return Some((mark, "found unknown directive name".to_owned())),
                }
            }
            None if line.is_empty() || line.starts_with('#') => {}
            None => return None,
        }
    }
    None
}

/// Finds the first character that YAML forbids; returns its position and a message.
pub(crate) fn forbidden(text: &str) -> Option<(Mark, String)> {
    let mut mark = Mark::START;
    for character in text.chars() {
        let allowed = matches!(
            character,
            '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..
        );
        if !allowed || character == '\u{feff}' {
            let message = format!(
                "control characters are not allowed: U+{:04X}",
                u32::from(character)
            );
            return Some((mark, message));
        }
        if character == '\n' {
            mark.line += 1;
            mark.column = 1;
        } else {
            mark.column += 1;
        }
    }
    None
}
