//! From text to types: parses every setting, and collects the errors.

use super::layer::{Layers, Origin, Said};
use super::problem::{Problem, Problems};
use super::table::find;
use std::path::PathBuf;

/// Parses values and collects their errors.
pub(super) struct Typed<'a> {
    pub(super) layers: &'a Layers,
    problems: Vec<Problem>,
}

impl<'a> Typed<'a> {
    pub(super) fn new(layers: &'a Layers) -> Typed<'a> {
        Typed {
            layers,
            problems: Vec::new(),
        }
    }

    /// Returns what was made of the values, unless some of them are invalid.
    pub(super) fn finish<T>(self, made: T) -> Result<T, Problems> {
        if self.problems.is_empty() {
            Ok(made)
        } else {
            Err(Problems(self.problems))
        }
    }

    /// Returns the value of `key` as `parse` reads it. One that it cannot read is a problem, and the
    /// default stands in for it until all problems are known.
    pub(super) fn get<T, E: ToString>(
        &mut self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> T {
        let Said { text, origin } = self.layers.said(key);
        parse(&text).unwrap_or_else(|error| {
            self.problem(key, &origin, error.to_string());
            let default = find(key).and_then(|setting| parse(setting.default).ok());
            default.expect("a default in the table has a meaning")
        })
    }

    /// Reports the value of `key`, whatever it is.
    pub(super) fn refuse(&mut self, key: &str, message: impl Into<String>) {
        let origin = self.layers.said(key).origin;
        self.problem(key, &origin, message.into());
    }

    fn problem(&mut self, key: &str, origin: &Origin, message: String) {
        let place = match origin {
            Origin::File { .. } => format!("{origin}: {key}"),
            _ => origin.to_string(),
        };
        self.problems.push(Problem { place, message });
    }

    /// A path; `None` where it is off. One in a settings file counts from that file's folder.
    pub(super) fn path(&mut self, key: &str) -> Option<PathBuf> {
        let Said { text, origin } = self.layers.said(key);
        (!text.is_empty()).then(|| origin.path(&text))
    }

    /// As [`Self::path`], from the root, so that a message says which file is meant.
    pub(super) fn full_path(&mut self, key: &str) -> Option<PathBuf> {
        let path = self.path(key)?;
        Some(std::path::absolute(&path).unwrap_or(path))
    }

    /// `key` is set, and means nothing without `other`.
    pub(super) fn lacks<T>(&mut self, key: &str, other: &str) -> Option<T> {
        self.refuse(key, format!("it means nothing without `{other}`; set both"));
        None
    }
}
