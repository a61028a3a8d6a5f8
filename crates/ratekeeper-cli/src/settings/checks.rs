//! Values beside each other: what one means may depend on another.

use super::layer::RawValue;
use super::problem::{Problem, Problems};
use super::table::Values;

/// Judges values by each other, and collects what is wrong.
pub(super) struct Checks<'a> {
    pub(super) values: &'a Values,
    problems: Vec<Problem>,
}

impl<'a> Checks<'a> {
    /// Goes on from the `problems` of the values themselves.
    pub(super) fn new(values: &'a Values, problems: Vec<Problem>) -> Self {
        Self { values, problems }
    }

    /// # Errors
    /// All problems, if there are any.
    pub(super) fn finish(self) -> Result<(), Problems> {
        match self.problems.is_empty() {
            true => Ok(()),
            false => Err(Problems(self.problems)),
        }
    }

    /// Reports a value, whatever it is.
    pub(super) fn refuse(&mut self, said: &RawValue, message: impl Into<String>) {
        self.problems.push(said.problem(message.into()));
    }

    /// Reports a value that is set, and means nothing without the `other`.
    pub(super) fn lacks<T>(&mut self, said: &RawValue, other: &RawValue) -> Option<T> {
        let other = other.setting.key;
        self.refuse(
            said,
            format!("it means nothing without `{other}`; set both"),
        );
        None
    }
}
