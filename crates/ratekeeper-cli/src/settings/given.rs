//! Values as they are given: parsed, with the place where each was set.

use super::layer::{Layers, RawValue};
use super::problem::Problem;
use super::setting::Setting;
use std::fmt;
use std::ops::Deref;

/// The value of a setting, beside the text that it was parsed from.
pub(crate) struct Given<T> {
    value: T,
    pub(crate) said: RawValue,
}

impl<T> Deref for Given<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Only the place: a value may be a secret.
impl<T> fmt::Debug for Given<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.said.setting.key, self.said.origin)
    }
}

/// Parses the values of layers, and collects the errors.
pub(super) struct Reader<'a> {
    layers: &'a Layers,
    pub(super) problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(layers: &'a Layers) -> Self {
        Self {
            layers,
            problems: Vec::new(),
        }
    }

    /// Returns the value of `setting` as `parse` reads it. One that it cannot read is a problem, and the
    /// default stands in for it until all problems are known.
    pub(super) fn read<T, E: ToString>(
        &mut self,
        setting: &'static Setting,
        parse: impl Fn(&RawValue) -> Result<T, E>,
    ) -> Given<T> {
        let said = self.layers.get(setting);
        let value = parse(&said).unwrap_or_else(|error| {
            self.problems.push(said.problem(error.to_string()));
            let default = parse(&RawValue::unsaid(setting));
            default.ok().expect("a default in the table has a meaning")
        });
        Given { value, said }
    }
}
