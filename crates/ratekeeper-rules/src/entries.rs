//! A descriptor as people type it: `key=value,key=value`.

/// The most entries a typed descriptor may have.
const ENTRIES_MAX: usize = 64;

/// The fault of a typed descriptor. Its message says how to write one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EntriesError {
    /// A part without a `=`.
    #[error("`{0}` is not an entry; write key=value,key=value")]
    NotAnEntry(Box<str>),
    /// A part that begins with the `=`.
    #[error("`{0}` has no key; write key=value,key=value")]
    NoKey(Box<str>),
    /// More than 64 parts.
    #[error("there are more than {ENTRIES_MAX} entries")]
    TooMany,
    /// A backslash before anything else.
    #[error("a backslash may only precede a comma or another backslash; write \\\\")]
    Backslash,
}

/// Reads `key=value,key=value`, at most 64 entries. In a value, `\,` is a comma and `\\` a backslash; an `=` after the first stands for
/// itself.
///
/// # Errors
/// [`EntriesError`], if the text is not a descriptor.
pub fn parse(text: &str) -> Result<Vec<(String, String)>, EntriesError> {
    let mut entries = Vec::new();
    for part in split(text)? {
        let Some((key, value)) = part.split_once('=') else {
            return Err(EntriesError::NotAnEntry(part.into()));
        };
        if key.is_empty() {
            return Err(EntriesError::NoKey(part.into()));
        }
        if entries.len() == ENTRIES_MAX {
            return Err(EntriesError::TooMany);
        }
        entries.push((key.to_owned(), value.to_owned()));
    }
    Ok(entries)
}

/// The parts between commas, without their backslashes.
fn split(text: &str) -> Result<Vec<String>, EntriesError> {
    let mut parts = vec![String::new()];
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let literal = match letter {
            ',' => {
                parts.push(String::new());
                continue;
            }
            '\\' => match letters.next() {
                Some(escaped @ (',' | '\\')) => escaped,
                _ => return Err(EntriesError::Backslash),
            },
            other => other,
        };
        if let Some(part) = parts.last_mut() {
            part.push(literal);
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn pairs(entries: &[(&str, &str)]) -> Vec<(String, String)> {
        entries
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn entries_are_split_at_commas_and_the_first_equals_sign() {
        assert_eq!(parse("a=1,b=x=y"), Ok(pairs(&[("a", "1"), ("b", "x=y")])));
        assert_eq!(
            parse("endpoint=POST /orders"),
            Ok(pairs(&[("endpoint", "POST /orders")]))
        );
        assert_eq!(parse("a="), Ok(pairs(&[("a", "")])));
    }

    #[test]
    fn commas_and_backslashes_can_be_escaped() {
        assert_eq!(
            parse(r"a=x\,y,b=\\"),
            Ok(pairs(&[("a", "x,y"), ("b", r"\")]))
        );
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        for bad in ["", "a", "a=1,", "=1", r"a=\n", r"a=\"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
