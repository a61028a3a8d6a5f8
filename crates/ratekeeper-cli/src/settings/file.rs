//! `ratekeeper.yaml`: one `key: value` a line, but for the few values that are nested.
//!
//! The file is read as a tree of YAML, not into a type, so that all that is wrong with it is said in one run and every
//! value keeps its place and the text that was written.

use super::layer::{Layers, Origin};
use super::problem::{Problem, nearest};
use super::table::{all, find};
use ratekeeper_rules::{YamlDocument, YamlFault, YamlValue};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// The largest settings file that is read, in bytes.
pub(crate) const SIZE_MAX: u64 = 1 << 20;

/// Of the bytes of a file, by which this process tells whether they change.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Puts the values of a settings file over `layers`; what is wrong goes to `problems`.
pub(crate) fn put(text: &str, path: &Path, layers: &mut Layers, problems: &mut Vec<Problem>) {
    let mut faults = Vec::new();
    match YamlDocument::parse(text) {
        Ok(document) => put_document(&document, path, layers, &mut faults),
        Err(fault) => faults.push(fault.into()),
    }
    faults.sort_by_key(|fault| fault.place);
    problems.extend(faults.into_iter().map(|fault| {
        let (line, column) = fault.place;
        Problem {
            place: format!("{}:{line}:{column}", path.display()),
            message: fault.message,
        }
    }));
}

struct Fault {
    /// Line and column, both from 1.
    place: (u32, u32),
    message: String,
}

impl Fault {
    fn at(value: YamlValue<'_>, message: impl Into<String>) -> Self {
        Self {
            place: value.place(),
            message: message.into(),
        }
    }
}

impl From<YamlFault> for Fault {
    fn from(fault: YamlFault) -> Self {
        Self {
            place: (fault.line, fault.column),
            message: fault.to_string(),
        }
    }
}

fn put_document(
    document: &YamlDocument,
    path: &Path,
    layers: &mut Layers,
    faults: &mut Vec<Fault>,
) {
    faults.extend(document.faults.iter().cloned().map(Fault::from));
    let Some(root) = document.root() else {
        return;
    };
    let Some(entries) = root.entries() else {
        let message = match root.text() {
            Some(_) => "expected `key: value` lines",
            None => "expected `key: value` lines, not a list",
        };
        faults.push(Fault::at(root, message));
        return;
    };
    for (key, value) in entries {
        let name = key.text().unwrap_or_default();
        let Some(setting) = find(name) else {
            faults.push(Fault::at(key, unknown(name)));
            continue;
        };
        let text = match value.text() {
            // `key:` and `key: ~` say nothing: the default stays, so that a commented-out value does no harm.
            Some(_) if value.is_null() => continue,
            Some(text) => text.to_owned(),
            None if setting.is_nested => match value.to_json() {
                Ok(json) => json.to_string(),
                Err(fault) => {
                    faults.push(fault.into());
                    continue;
                }
            },
            None => {
                let message = format!("`{name}` takes one value, not a list or a mapping");
                faults.push(Fault::at(key, message));
                continue;
            }
        };
        let (line, column) = value.place();
        let origin = Origin::File {
            path: path.to_path_buf(),
            line,
            column,
        };
        layers.put(setting, text, origin);
    }
}

fn unknown(name: &str) -> String {
    let keys = || all().map(|setting| setting.key);
    match nearest(name, keys()) {
        Some(known) => format!("there is no setting `{name}`; did you mean `{known}`?"),
        None => {
            let known: Vec<&str> = keys().collect();
            format!(
                "there is no setting `{name}`; there are {}",
                known.join(", ")
            )
        }
    }
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
            "r.yaml:2:1: `http` is set twice: keep one of the two"
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
