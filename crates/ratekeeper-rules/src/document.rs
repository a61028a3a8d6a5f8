//! YAML of other files than rules, by the reader of rules.
//!
//! Settings are texts: a scalar keeps the characters that were written, and aliases are refused.

use std::rc::Rc;

use serde_json::{Map, Value};

use crate::mark::Mark;
use crate::yaml::{self, Built, Kind, Node, Resolved, Scalar};

/// The first document of a text.
#[derive(Debug)]
pub struct YamlDocument {
    root: Option<Rc<Node>>,
    /// The repeated keys, and the first alias.
    pub faults: Vec<YamlFault>,
    /// True if another document follows.
    pub is_followed: bool,
}

/// A value of a [`YamlDocument`].
#[derive(Clone, Copy, Debug)]
pub struct YamlValue<'a>(&'a Node);

/// A fault of a YAML document, and its place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{error}")]
pub struct YamlFault {
    /// Line number, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// The fault.
    pub error: YamlError,
}

/// The fault of a YAML document.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum YamlError {
    /// The text is not YAML, or too large.
    #[error("this is not YAML: {0}")]
    NotYaml(Box<str>),
    /// A key that is a list, a mapping or nothing.
    #[error("expected a key")]
    NotAKey,
    /// A key that stands twice in a mapping.
    #[error("`{0}` is set twice: keep one of the two")]
    Duplicate(Box<str>),
    /// An alias.
    #[error("aliases are not supported here: write the value out")]
    Alias,
}

impl YamlError {
    fn at(self, mark: Mark) -> YamlFault {
        YamlFault {
            line: mark.line,
            column: mark.column,
            error: self,
        }
    }
}

impl YamlDocument {
    /// Reads the first document of `text`.
    ///
    /// # Errors
    /// [`YamlError::NotYaml`]
    pub fn parse(text: &str) -> Result<Self, YamlFault> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let Built {
            root,
            error,
            repeated,
            covered,
            more,
            alias,
        } = yaml::build(text);
        if let Some((mark, message)) = yaml::forbidden(text).or(error) {
            return Err(YamlError::NotYaml(message.into()).at(mark));
        }
        let repeated = repeated.into_iter().chain(covered);
        let repeated = repeated.map(|(mark, key)| YamlError::Duplicate(key).at(mark));
        let alias = alias.map(|mark| YamlError::Alias.at(mark));
        Ok(Self {
            root,
            faults: repeated.chain(alias).collect(),
            is_followed: more.is_some(),
        })
    }

    /// The value of the document; [`None`] if it is empty.
    #[must_use]
    pub fn root(&self) -> Option<YamlValue<'_>> {
        let root = self.root.as_deref().map(YamlValue);
        root.filter(|root| root.text() != Some(""))
    }
}

impl<'a> YamlValue<'a> {
    /// Line and column, both from 1.
    #[must_use]
    pub const fn place(self) -> (u32, u32) {
        (self.0.mark.line, self.0.mark.column)
    }

    /// The characters of a scalar, without quotes.
    #[must_use]
    pub fn text(self) -> Option<&'a str> {
        match &self.0.kind {
            Kind::Scalar(scalar) => Some(&scalar.text),
            Kind::List(_) | Kind::Map(_) => None,
        }
    }

    /// Returns true for nothing: `key:`, `key: ~`.
    #[must_use]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Keys and values of a mapping.
    pub fn entries(self) -> Option<impl Iterator<Item = (Self, Self)>> {
        let pairs = self.0.as_map()?;
        Some(pairs.iter().map(|it| (Self(&it.key), Self(&it.value))))
    }

    /// The value as JSON. Of plain scalars only nothing, `true`, `false` and whole numbers are more than text, and only
    /// as JSON spells them: `007`, `1.5` and `yes` are texts.
    ///
    /// # Errors
    /// [`YamlError::NotAKey`] and [`YamlError::Duplicate`]
    pub fn to_json(self) -> Result<Value, YamlFault> {
        match &self.0.kind {
            Kind::Scalar(scalar) => Ok(json_of(scalar)),
            Kind::List(items) => items.iter().map(|item| Self(item).to_json()).collect(),
            Kind::Map(pairs) => {
                let mut map = Map::new();
                for pair in pairs {
                    let key = Self(&pair.key);
                    let text = key.text().ok_or(YamlError::NotAKey.at(key.0.mark))?;
                    // The reader finds repeated keys, but for `1:` and such, which are no texts in YAML.
                    if map
                        .insert(text.to_owned(), Self(&pair.value).to_json()?)
                        .is_some()
                    {
                        return Err(YamlError::Duplicate(text.into()).at(key.0.mark));
                    }
                }
                Ok(Value::Object(map))
            }
        }
    }
}

fn json_of(scalar: &Scalar) -> Value {
    match (scalar.resolved, &*scalar.text) {
        (Resolved::Null, _) => Value::Null,
        (Resolved::Bool(value), "true" | "false") => value.into(),
        (Resolved::Int(number), text) if number.to_string() == text => number.into(),
        (_, text) => text.into(),
    }
}

/// The path of the value at a place of a text, in the form `descriptors[0].rate_limit.unit`; empty at the top. [`None`] if
/// the text is not YAML, or nothing begins there.
#[must_use]
pub fn path_at(text: &str, line: u32, column: u32) -> Option<String> {
    let root = yaml::build(text).root?;
    let is_there = |node: &Node| (node.mark.line, node.mark.column) == (line, column);
    let mut path = String::new();
    find(&root, &is_there, &mut path).then_some(path)
}

/// Adds the way from `node` to the value that `is_there`, or whose key is; adds nothing if there is none.
fn find(node: &Node, is_there: &impl Fn(&Node) -> bool, path: &mut String) -> bool {
    if is_there(node) {
        return true;
    }
    let begun = path.len();
    match &node.kind {
        Kind::Scalar(_) => {}
        Kind::List(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                if find(item, is_there, path) {
                    return true;
                }
                path.truncate(begun);
            }
        }
        Kind::Map(pairs) => {
            for pair in pairs {
                if begun > 0 {
                    path.push('.');
                }
                path.push_str(YamlValue(&pair.key).text().unwrap_or("?"));
                if is_there(&pair.key) || find(&pair.value, is_there, path) {
                    return true;
                }
                path.truncate(begun);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::path_at;

    #[test]
    fn places_have_paths() {
        let text = "{\n  \"a\": [\n    {\n      \"b\": 1,\n      \"c\": {\"d\": []}\n    }\n  ]\n}";
        let at = |line, column| path_at(text, line, column);
        assert_eq!(at(1, 1).as_deref(), Some(""));
        assert_eq!(at(2, 3).as_deref(), Some("a"));
        assert_eq!(at(3, 5).as_deref(), Some("a[0]"));
        assert_eq!(at(4, 12).as_deref(), Some("a[0].b"));
        assert_eq!(at(5, 18).as_deref(), Some("a[0].c.d"));
        assert_eq!(at(9, 9), None);
        assert_eq!(path_at("{", 1, 1), None);
    }
}
