//! Descriptors for log lines.

use std::borrow::Cow;
use std::convert::Infallible;

use ratekeeper_http::Described;

use crate::fields::Fields;
use crate::record::{LogField, Record};

/// The reason why a `--descriptors` text is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DescriptorsError {
    /// Nothing between two separators.
    #[error("there is an empty descriptor or entry in {0:?}")]
    Empty(String),
    /// A name that is no field of the log.
    #[error("{name:?} is not a field of the log; there are {known}, and those of --fields")]
    UnknownField {
        /// The name as written.
        name: String,
        /// The known names.
        known: String,
    },
    /// A quote or a brace that is not closed, or text behind a closing quote.
    #[error("{0:?} is not key, key=field, key=\"text\" or key=\"text with {{field}}\"")]
    BadEntry(String),
    /// More than [`Descriptors::MOST`] descriptors, or as many entries in one.
    #[error("at most 32 descriptors of at most 32 entries each")]
    TooMany,
}

/// The descriptors to make from each line.
///
/// Written as `descriptor;descriptor`, a descriptor as `entry,entry`, and an entry as
///
/// | entry | is |
/// |---|---|
/// | `method` | the log's `method`, under that key |
/// | `api_key=remote_address` | the log's `remote_address`, under the key `api_key` |
/// | `env="production"` | a constant |
/// | `endpoint="{method} {path}"` | text with fields in it; `{{` and `}}` are braces |
///
/// A descriptor that names a field which a line does not have is left out for that line.
///
/// ```
/// use ratekeeper_replay::{Descriptors, Fields};
///
/// let text = "remote_address; api_key=remote_address, endpoint='{method} {path}'";
/// assert_eq!(Descriptors::parse(text, &Fields::default())?.len(), 2);
/// # Ok::<(), ratekeeper_replay::DescriptorsError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Descriptors {
    all: Vec<Vec<EntryTemplate>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct EntryTemplate {
    key: Box<str>,
    value: Vec<Piece>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Field(LogField),
    Text(Box<str>),
}

impl Descriptors {
    /// The most descriptors, and the most entries of one.
    pub const MOST: usize = 32;

    /// Parses the text; `fields` has the names that `--fields` added.
    ///
    /// # Errors
    /// [`DescriptorsError`] names the faulty part.
    pub fn parse(text: &str, fields: &Fields) -> Result<Self, DescriptorsError> {
        let mut all = Vec::new();
        for descriptor in split(text, ';') {
            let entries: Result<Vec<EntryTemplate>, DescriptorsError> = split(descriptor, ',')
                .map(|entry| EntryTemplate::parse(entry, fields))
                .collect();
            all.push(entries?);
        }
        if all.len() > Self::MOST || all.iter().any(|entries| entries.len() > Self::MOST) {
            return Err(DescriptorsError::TooMany);
        }
        Ok(Self { all })
    }

    /// The number of descriptors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns true if there is no descriptor.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Drops the descriptors whose first key no rule can match, according to `matches`, so that
    /// they need not be filled for each line.
    pub(crate) fn retain_first_keys(&mut self, matches: impl Fn(&str) -> bool) {
        self.all
            .retain(|entries| entries.first().is_some_and(|entry| matches(&entry.key)));
    }

    /// The descriptors of one line.
    pub(crate) fn of<'a>(&'a self, record: &'a Record<'_>) -> Described<'a> {
        let mut described = Described::default();
        for descriptor in &self.all {
            let entry = |entry: &'a EntryTemplate| (&*entry.key, Ok(entry.value_of(record)));
            let Ok(()) = described.push_if_whole::<Infallible>(descriptor.iter().map(entry));
        }
        described
    }
}

impl EntryTemplate {
    fn parse(entry: &str, fields: &Fields) -> Result<Self, DescriptorsError> {
        let bad = || DescriptorsError::BadEntry(entry.to_owned());
        if entry.is_empty() {
            return Err(DescriptorsError::Empty(entry.to_owned()));
        }
        let Some((key, value)) = entry.split_once('=') else {
            return Ok(Self {
                key: entry.into(),
                value: vec![Piece::Field(field(entry, fields)?)],
            });
        };
        let (key, value) = (key.trim_end(), value.trim_start());
        if key.is_empty() || key.contains(['"', '\'']) {
            return Err(bad());
        }
        let quote = value
            .chars()
            .next()
            .filter(|&first| first == '"' || first == '\'');
        let value = match quote {
            None => vec![Piece::Field(field(value, fields)?)],
            Some(quote) => {
                let inside = value
                    .strip_prefix(quote)
                    .and_then(|rest| rest.strip_suffix(quote));
                let inside = inside
                    .filter(|inside| !inside.contains(quote))
                    .ok_or_else(bad)?;
                pieces(inside, fields)?.ok_or_else(bad)?
            }
        };
        Ok(Self {
            key: key.into(),
            value,
        })
    }

    /// The value for `record`; borrowed if it is a single piece.
    fn value_of<'a>(&'a self, record: &'a Record<'_>) -> Option<Cow<'a, str>> {
        if let [only] = &self.value[..] {
            return only.text(record).map(Cow::Borrowed);
        }
        let mut text = String::new();
        for piece in &self.value {
            text.push_str(piece.text(record)?);
        }
        Some(Cow::Owned(text))
    }
}

impl Piece {
    fn text<'a>(&'a self, record: &'a Record<'_>) -> Option<&'a str> {
        match self {
            Self::Field(field) => record.get(*field),
            Self::Text(text) => Some(text),
        }
    }
}

fn field(name: &str, fields: &Fields) -> Result<LogField, DescriptorsError> {
    fields
        .field(name)
        .ok_or_else(|| DescriptorsError::UnknownField {
            name: name.to_owned(),
            known: LogField::NAMED.map(|(known, _)| known).join(", "),
        })
}

/// Splits `text with {field}` into pieces; none if a brace is unbalanced.
fn pieces(mut text: &str, fields: &Fields) -> Result<Option<Vec<Piece>>, DescriptorsError> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    while let Some(at) = text.find(['{', '}']) {
        plain.push_str(&text[..at]);
        let rest = &text[at..];
        if rest.starts_with("{{") || rest.starts_with("}}") {
            plain.push_str(&rest[..1]);
            text = &rest[2..];
            continue;
        }
        let Some((name, after)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'))
        else {
            return Ok(None);
        };
        if !plain.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut plain).into()));
        }
        pieces.push(Piece::Field(field(name.trim(), fields)?));
        text = after;
    }
    plain.push_str(text);
    if !plain.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Text(plain.into()));
    }
    Ok(Some(pieces))
}

/// The parts between separators outside quotes, trimmed.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quote = None;
    text.split(move |character| {
        match quote {
            Some(open) if open == character => quote = None,
            Some(_) => {}
            None if character == '"' || character == '\'' => quote = Some(character),
            None => return character == separator,
        }
        false
    })
    .map(str::trim)
}

#[cfg(test)]
mod tests {
    use ratekeeper_limiter::{Check, Descriptor};
    use ratekeeper_rules::Entry;

    use super::*;
    use crate::parse::LineParser;

    /// The descriptors of one line, as `key=value,key=value`.
    fn filled(text: &str, line: &str) -> Vec<String> {
        let fields = Fields::parse("tenant=headers.tenant").expect("a good mapping");
        let descriptors = Descriptors::parse(text, &fields).expect(text);
        let mut parser = LineParser::new(None, fields);
        let record = parser.parse(line.as_bytes()).expect("a good line");
        let described = descriptors.of(&record);
        let mut check = Check::new("d");
        described.add_to(&mut check);
        let text = |entry: &Entry<'_>| format!("{}={}", entry.key, entry.value);
        let join = |descriptor: Descriptor<'_>| {
            let texts: Vec<_> = descriptor.entries.iter().map(text).collect();
            texts.join(",")
        };
        check.descriptors().map(join).collect()
    }

    const LINE: &str = r#"{"ts":1,"remote_ip":"192.0.2.7","request":"GET /a?b HTTP/1.1","headers":{"tenant":"t1"}}"#;

    #[test]
    fn every_form_of_an_entry() {
        let text = r#"remote_address ; api_key=tenant, endpoint="{method} {path}";e='a;b,c',f="{{x}}",g="""#;
        assert_eq!(
            filled(text, LINE),
            [
                "remote_address=192.0.2.7",
                "api_key=t1,endpoint=GET /a",
                "e=a;b,c,f={x},g="
            ]
        );
    }

    #[test]
    fn a_descriptor_without_its_field_is_left_out() {
        assert_eq!(
            filled("remote_address,user_agent;path,user='x';referer", LINE),
            ["path=/a,user=x"]
        );
    }

    #[test]
    fn invalid_texts_are_refused() {
        let refused = |text: &str| Descriptors::parse(text, &Fields::default()).expect_err(text);
        assert!(matches!(refused(""), DescriptorsError::Empty(_)));
        assert!(matches!(refused("method;"), DescriptorsError::Empty(_)));
        assert!(matches!(
            refused("method,,path"),
            DescriptorsError::Empty(_)
        ));
        assert!(matches!(
            refused("tenant"),
            DescriptorsError::UnknownField { .. }
        ));
        assert!(matches!(
            refused("a=tenant"),
            DescriptorsError::UnknownField { .. }
        ));
        assert!(matches!(
            refused("a='{tenant}'"),
            DescriptorsError::UnknownField { .. }
        ));
        for text in [
            "a='x",
            "a='x'y",
            "a='{method'",
            "a='}'",
            "=method",
            "'a'=method",
        ] {
            assert!(
                matches!(refused(text), DescriptorsError::BadEntry(_)),
                "{text}"
            );
        }
        assert_eq!(
            refused(&["method"; 33].join(";")),
            DescriptorsError::TooMany
        );
        assert_eq!(
            refused(&["method"; 33].join(",")),
            DescriptorsError::TooMany
        );
    }
}
