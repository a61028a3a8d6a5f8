//! Path patterns with placeholders.

use std::cmp::Ordering;

use crate::{PathFolding, PathForm};

/// A path pattern with placeholders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathPattern {
    text: Box<str>,
    segments: Vec<Segment>,
}

/// One segment of a [`PathPattern`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Segment {
    /// Exactly this text, in the spelling of a decoded path.
    Literal(Box<str>),
    /// `*`: any single segment.
    Any,
    /// `**`: any number of segments, also none. Only as the last one.
    Rest,
    /// `{name}`: any single segment, with a name; not part of the counter's key.
    Variable(Box<str>),
}

/// The fault of a path pattern. Its text is a sentence that explains it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathPatternError {
    /// It does not start with a slash.
    #[error("the path '{0}' does not start with `/`")]
    Relative(Box<str>),
    /// It is too long.
    #[error("the path is longer than {PATTERN_BYTES_MAX} bytes")]
    TooLong,
    /// It has too many segments.
    #[error("the path has more than {SEGMENTS_MAX} segments")]
    TooManySegments,
    /// Something follows `**`.
    #[error("`**` is the rest of a path: nothing can follow it")]
    AfterRest,
    /// Two variables have one name.
    #[error("the variable {0} is there twice")]
    VariableTwice(Box<str>),
    /// A segment is empty.
    #[error("the path has an empty segment")]
    EmptySegment,
    /// A variable cannot have this name.
    #[error("'{0}' is not a name for a variable: use letters, digits and _")]
    VariableName(Box<str>),
    /// `*` is a part of a segment.
    #[error("in '{0}' the `*` is not a whole segment")]
    PartialStar(Box<str>),
    /// `.` or `..`.
    #[error("'{0}' is followed before paths are matched")]
    Dots(Box<str>),
    /// A character is percent-encoded that a decoded path has as itself.
    #[error(
        "in '{0}' a character is percent-encoded: paths are matched decoded, so write the character itself"
    )]
    Encoded(Box<str>),
    /// A segment has parameters.
    #[error("in '{0}' there is a `;`: what follows it in a path is not matched")]
    Parameters(Box<str>),
    /// No segment of a path looks like this.
    #[error("'{0}' is not a segment of a path")]
    NotASegment(Box<str>),
}

impl PathPattern {
    /// The pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The segments from the left.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }
}

/// The longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 4_096;
/// The most segments of a pattern: matching recurses as deep.
const SEGMENTS_MAX: usize = 64;

/// The segments of a request's path as patterns see them. Parameters after a `;` are cut (servlet
/// containers route without them, so they would lead past a limit), and empty segments are dropped,
/// so that a slash at the end changes nothing.
pub(super) fn segments_of(path: &str) -> impl Iterator<Item = &str> + Clone {
    let parts = path.split('/');
    let parts = parts.map(|part| part.split_once(';').map_or(part, |(name, _)| name));
    parts.filter(|part| !part.is_empty())
}

impl PathPattern {
    /// Reads `/product/*`, `/files/**`, `/orgs/{org}/users`.
    ///
    /// # Errors
    /// [`PathPatternError`]
    pub fn parse(text: &str) -> Result<Self, PathPatternError> {
        let Some(path) = text.strip_prefix('/') else {
            return Err(PathPatternError::Relative(text.into()));
        };
        if text.len() > PATTERN_BYTES_MAX {
            return Err(PathPatternError::TooLong);
        }
        let mut segments: Vec<Segment> = Vec::new();
        for part in path.split('/').filter(|_| !path.is_empty()) {
            if segments.last() == Some(&Segment::Rest) {
                return Err(PathPatternError::AfterRest);
            }
            let segment = Segment::parse(part)?;
            if matches!(segment, Segment::Variable(_)) && segments.contains(&segment) {
                return Err(PathPatternError::VariableTwice(part.into()));
            }
            segments.push(segment);
        }
        if segments.len() > SEGMENTS_MAX {
            return Err(PathPatternError::TooManySegments);
        }
        Ok(Self {
            text: text.into(),
            segments,
        })
    }

    /// Returns true if it ends in `**`.
    #[must_use]
    pub fn has_rest(&self) -> bool {
        self.segments.last() == Some(&Segment::Rest)
    }

    /// Returns this pattern below `base`, which does not end in `**`.
    ///
    /// # Errors
    /// The two do not fit together.
    pub(crate) fn below(&self, base: &Self) -> Result<Self, PathPatternError> {
        if self.segments.is_empty() {
            return Ok(base.clone());
        }
        Self::parse(&format!("{}{}", base.text.trim_end_matches('/'), self.text))
    }

    /// The names of the variables, from the left.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Variable(name) => Some(&**name),
            _ => None,
        })
    }

    /// The segment of `path` at the first variable; None if the path does not match or the pattern
    /// has no variable.
    #[must_use]
    pub fn capture<'p>(&self, path: &'p str, folding: PathFolding) -> Option<&'p str> {
        let is_variable = |segment: &Segment| matches!(segment, Segment::Variable(_));
        let at = self.segments.iter().position(is_variable)?;
        segments_of(path)
            .nth(at)
            .filter(|_| self.matches(path, folding))
    }

    /// Returns true if a request's path, normalized, matches.
    pub fn matches(&self, path: &str, folding: PathFolding) -> bool {
        let mut rest = segments_of(path);
        for segment in &self.segments {
            let is_met = match (segment, rest.next()) {
                (Segment::Rest, _) => return true,
                (Segment::Literal(literal), Some(part)) => folding.is_same(literal, part),
                (Segment::Any | Segment::Variable(_), Some(_)) => true,
                (_, None) => false,
            };
            if !is_met {
                return false;
            }
        }
        rest.next().is_none()
    }

    /// The index of the segment for the variable with this name.
    pub(super) fn variable(&self, name: &str) -> Option<usize> {
        let is_it = |segment: &Segment| matches!(segment, Segment::Variable(own) if **own == *name);
        self.segments.iter().position(is_it)
    }

    /// A text that is equal for patterns that match the same paths: variables lose their names.
    pub(super) fn shape(&self, folding: PathFolding) -> String {
        let part = |segment: &Segment| match segment {
            Segment::Literal(literal) => {
                format!("/{}", folding.fold(PathForm::Segment, literal))
            }
            Segment::Any | Segment::Variable(_) => "/*".to_owned(),
            Segment::Rest => "/**".to_owned(),
        };
        self.segments.iter().map(part).collect()
    }

    /// Orders two patterns that match one path: the more specific comes first. They are compared
    /// from the left; at the first difference a literal comes before a placeholder, a placeholder
    /// before the end of the pattern, and the end before `**`.
    pub(super) fn by_specificity(&self, other: &Self) -> Ordering {
        self.ranks().cmp(other.ranks())
    }

    fn ranks(&self) -> impl Iterator<Item = u8> {
        let rank = |segment: &Segment| match segment {
            Segment::Literal(_) => 0,
            Segment::Any | Segment::Variable(_) => 1,
            Segment::Rest => 3,
        };
        self.segments.iter().map(rank).chain([2])
    }
}

impl Segment {
    fn parse(part: &str) -> Result<Self, PathPatternError> {
        let variable = part
            .strip_prefix('{')
            .and_then(|part| part.strip_suffix('}'));
        match (part, variable) {
            ("", _) => Err(PathPatternError::EmptySegment),
            ("*", _) => Ok(Self::Any),
            ("**", _) => Ok(Self::Rest),
            (_, Some(name)) if is_name(name) => Ok(Self::Variable(name.into())),
            (_, Some(name)) => Err(PathPatternError::VariableName(name.into())),
            _ if part.contains('*') => Err(PathPatternError::PartialStar(part.into())),
            (".", _) | ("..", _) => Err(PathPatternError::Dots(part.into())),
            _ if part.contains('%') && !is_spelt_so(part) => {
                Err(PathPatternError::Encoded(part.into()))
            }
            _ if part.contains(';') => Err(PathPatternError::Parameters(part.into())),
            _ if part.contains(['{', '}', '?', '#']) => {
                Err(PathPatternError::NotASegment(part.into()))
            }
            _ => Ok(Self::Literal(part.into())),
        }
    }
}

/// Returns true if every `%` starts an escape that stays in a decoded path: a slash within a
/// segment, or the percent sign itself.
fn is_spelt_so(part: &str) -> bool {
    let mut escapes = part.split('%').skip(1);
    escapes.all(|escape| escape.starts_with("2F") || escape.starts_with("25"))
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::{PathPattern, Segment};

    #[test]
    fn patterns_have_literals_stars_and_variables() {
        let pattern = PathPattern::parse("/v1/orgs/{org}/*/**").expect("a good pattern");
        let expected = [
            Segment::Literal("v1".into()),
            Segment::Literal("orgs".into()),
            Segment::Variable("org".into()),
            Segment::Any,
            Segment::Rest,
        ];
        assert_eq!(pattern.segments(), expected);
        assert!(pattern.has_rest());
        assert!(PathPattern::parse("/").is_ok_and(|root| root.segments().is_empty()));
        for wrong in [
            "",
            "product",
            "/a//b",
            "/a/",
            "/a*",
            "/**/a",
            "/{}",
            "/{a}/{a}",
            "/{a-b}",
            "/a?b=c",
            "/.",
            "/a/../b",
            "/caf%C3%A9",
            "/a;b",
        ] {
            assert!(PathPattern::parse(wrong).is_err(), "{wrong}");
        }
        assert!(PathPattern::parse(&"/a".repeat(65)).is_err());
        assert!(PathPattern::parse("/a%2Fb/100%25").is_ok());
    }

    #[test]
    fn a_path_has_neither_parameters_nor_empty_segments() {
        let segments = |path| super::segments_of(path).collect::<Vec<_>>();
        assert_eq!(segments("/a;v=1/b;/;x/c/"), ["a", "b", "c"]);
        assert!(segments("/").is_empty());
    }

    #[test]
    fn a_base_comes_before() {
        let parse = |text| PathPattern::parse(text).expect("a good pattern");
        let below = |text, base| {
            parse(text)
                .below(&parse(base))
                .map(|both| both.as_str().to_owned())
        };
        assert_eq!(
            below("/p/*", "/v1/{tenant}"),
            Ok("/v1/{tenant}/p/*".to_owned())
        );
        assert_eq!(below("/", "/v1"), Ok("/v1".to_owned()));
        assert_eq!(below("/p", "/"), Ok("/p".to_owned()));
        assert!(below("/{tenant}", "/v1/{tenant}").is_err());
    }
}
