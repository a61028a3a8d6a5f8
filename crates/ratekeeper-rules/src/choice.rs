//! Values that are one of a few words.

use ratekeeper_core::Algorithm;

use crate::nearest::nearest;

/// A value that files name by a word.
pub(crate) trait Choice: Copy + 'static {
    const CHOICES: &'static [Self];

    fn word(self) -> &'static str;
}

impl Choice for Algorithm {
    const CHOICES: &'static [Self] = &Self::ALL;

    fn word(self) -> &'static str {
        self.name()
    }
}

/// The value that `written` names, or a message and its help.
pub(crate) fn choose<T: Choice>(key: &str, written: &str) -> Result<T, (String, String)> {
    let mut choices = T::CHOICES.iter().copied();
    if let Some(value) = choices.find(|choice| choice.word() == written) {
        return Ok(value);
    }
    let names: Vec<_> = T::CHOICES.iter().map(|choice| choice.word()).collect();
    let help = match nearest(written, names.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("write one of {}", names.join(", ")),
    };
    Err((format!("`{key}` cannot be '{written}'"), help))
}
