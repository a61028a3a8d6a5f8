//! `ratekeeper.yaml`: one `key: value` a line, but for the few values that are nested.
//!
//! The file is read as YAML events, not into a type, so that all that is wrong with it is said in one run and every
//! value keeps its place and the text that was written.

use super::layer::{Layers, Origin};
use super::nested::{self, NestedError};
use super::problem::{Problem, nearest};
use super::table::{all, find};
use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use std::collections::HashSet;
use std::path::Path;

/// The largest settings file that is read, in bytes.
pub(crate) const SIZE_MAX: u64 = 1 << 20;

/// Puts the values of a settings file over `layers`; what is wrong goes to `problems`.
pub(crate) fn put(text: &str, path: &Path, layers: &mut Layers, problems: &mut Vec<Problem>) {
    let mut reader = Reader {
        path,
        seen: HashSet::new(),
        problems,
    };
    if let Err((place, error)) = reader.document(text, layers) {
        reader.refuse(place, error.to_string());
    }
}

/// The fault at which reading a settings file ends.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error(transparent)]
    Nested(#[from] NestedError),
    #[error("expected `key: value` lines")]
    NoKeys,
    #[error("expected `key: value` lines, not a list")]
    List,
}

/// A line and a column, both from 1.
type Place = (usize, usize);

struct Reader<'a> {
    path: &'a Path,
    seen: HashSet<&'static str>,
    problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    /// Reads the first document; `Err` is where reading cannot go on.
    fn document(&mut self, text: &str, layers: &mut Layers) -> Result<(), (Place, FileError)> {
        let mut events = Parser::new_from_str(text);
        let mut depth = 0_usize;
        let mut key: Option<(String, Place)> = None;
        while let Some(event) = events.next_event() {
            let (event, span) = event.map_err(|error| {
                let mark = error.marker();
                let place = (mark.line(), mark.col() + 1);
                (place, NestedError::NotYaml(error).into())
            })?;
            let place = place(span);
            match event {
                Event::Scalar(text, style, ..) if depth == 1 => match key.take() {
                    None => key = Some((text.into_owned(), place)),
                    Some((name, at)) => self.entry(layers, &name, at, &text, style, place),
                },
                Event::Scalar(text, ..) if depth == 0 && !text.is_empty() => {
                    return Err((place, FileError::NoKeys));
                }
                Event::MappingStart(..) | Event::SequenceStart(..) if depth == 0 => {
                    if matches!(event, Event::SequenceStart(..)) {
                        return Err((place, FileError::List));
                    }
                    depth = 1;
                }
                Event::MappingStart(..) | Event::SequenceStart(..) => {
                    if depth == 1
                        && let Some((name, at)) = key.take()
                    {
                        if find(&name).is_some_and(|setting| setting.is_nested) {
                            let value = nested::read(&mut events, event, span)
                                .map_err(|(span, error)| (self::place(span), error.into()))?;
                            let text = value.to_string();
                            self.entry(layers, &name, at, &text, ScalarStyle::Literal, place);
                            continue;
                        }
                        self.nested(&name, at);
                    }
                    depth += 1;
                }
                Event::MappingEnd | Event::SequenceEnd => depth = depth.saturating_sub(1),
                Event::Alias(_) if depth == 1 => {
                    if key.take().is_none() {
                        return Err((place, NestedError::Alias.into()));
                    }
                    self.refuse(place, NestedError::Alias.to_string());
                }
                Event::DocumentEnd => break,
                _ => {}
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        layers: &mut Layers,
        name: &str,
        at: Place,
        text: &str,
        style: ScalarStyle,
        place: Place,
    ) {
        let Some(setting) = find(name) else {
            return self.unknown(name, at);
        };
        if !self.seen.insert(setting.key) {
            return self.refuse(at, format!("`{name}` is set twice: keep one of the two"));
        }
        // `key:` and `key: ~` say nothing: the default stays, so that a commented-out value does no harm.
        let nothing = style == ScalarStyle::Plain && matches!(text, "" | "~" | "null");
        if nothing {
            return;
        }
        let (line, column) = place;
        let origin = Origin::File {
            path: self.path.to_path_buf(),
            line,
            column,
        };
        layers.put(setting, text, origin);
    }

    fn nested(&mut self, name: &str, at: Place) {
        if find(name).is_some() {
            self.refuse(
                at,
                format!("`{name}` takes one value, not a list or a mapping"),
            );
        } else {
            self.unknown(name, at);
        }
    }

    fn unknown(&mut self, name: &str, at: Place) {
        let keys = || all().map(|setting| setting.key);
        let message = match nearest(name, keys()) {
            Some(known) => format!("there is no setting `{name}`; did you mean `{known}`?"),
            None => {
                let known: Vec<&str> = keys().collect();
                format!(
                    "there is no setting `{name}`; there are {}",
                    known.join(", ")
                )
            }
        };
        self.refuse(at, message);
    }

    fn refuse(&mut self, (line, column): Place, message: String) {
        let place = format!("{}:{line}:{column}", self.path.display());
        self.problems.push(Problem { place, message });
    }
}

/// The parser counts columns from 0.
fn place(span: Span) -> Place {
    (span.start.line(), span.start.col() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Layers, Vec<String>) {
        let mut layers = Layers::default();
        let mut problems = Vec::new();
        put(text, Path::new("r.yaml"), &mut layers, &mut problems);
        (layers, problems.iter().map(ToString::to_string).collect())
    }

    fn value(layers: &Layers, key: &str) -> (String, String) {
        layers.shown(key)
    }

    #[test]
    fn values_keep_their_text_and_place() {
        let (layers, problems) = read("# ours\nhttp: ':9000'\nmemory_limit:   64MiB\nstate:\n");
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(
            value(&layers, "http"),
            (":9000".into(), "r.yaml:2:7".into())
        );
        assert_eq!(
            value(&layers, "memory_limit"),
            ("64MiB".into(), "r.yaml:3:17".into())
        );
        assert_eq!(value(&layers, "state"), ("".into(), "default".into()));
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let (_, problems) = read("htpp: x\nhttp: a\nhttp: b\ngrpc: [a]\nbananas: 3\n");
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert_eq!(
            problems[0],
            "r.yaml:1:1: there is no setting `htpp`; did you mean `http`?"
        );
        assert_eq!(
            problems[1],
            "r.yaml:3:1: `http` is set twice: keep one of the two"
        );
        assert_eq!(
            problems[2],
            "r.yaml:4:1: `grpc` takes one value, not a list or a mapping"
        );
        assert!(
            problems[3].starts_with("r.yaml:5:1: there is no setting `bananas`; there are rules,")
        );
    }

    #[test]
    fn what_is_no_mapping_is_refused_and_an_empty_file_is_not() {
        assert!(
            read("- a\n").1[0].starts_with("r.yaml:1:1: expected `key: value` lines, not a list")
        );
        assert!(read("just words\n").1[0].starts_with("r.yaml:1:1: expected"));
        assert!(read("http: 'a\n").1[0].contains("this is not YAML"));
        let (_, problems) = read("http: &a :1\ngrpc: *a\nbananas: 3\n");
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].starts_with("r.yaml:2:7: aliases are not supported here"));
        assert!(read("").1.is_empty());
        assert!(read("# nothing\n").1.is_empty());
    }
}
