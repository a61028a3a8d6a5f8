//! Paths with ambiguous slashes.

use std::str::FromStr;

use ratekeeper_rules::{LevelMatch, PathFolding, PathPattern, RuleSet, Segment};

use crate::malformed::excerpt;
use crate::spelling::Ambiguity;
use crate::{Malformed, NeitherWord, Target};

/// The treatment of a path with an encoded slash (`%2F`) or a backslash in a segment.
///
/// Some services take `/product%2F7` for one segment. Others decode it before routing, and serve
/// `/product/7`: a limit by path could be evaded. A path that a service level's pattern spells out,
/// `%2F` included, is always accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EncodedSlashes {
    /// Refuses it if a rule depends on the path, and if another service level or tenant would apply
    /// with a slash in its place.
    #[default]
    RefuseWhereItCounts,
    /// Refuses it always.
    Refuse,
    /// Takes it as part of its segment, for services that read it so too.
    Keep,
}

/// The sets of spellings that services may take for a slash.
const READINGS: [&[&str]; 3] = [&["%2F"], &["\\"], &["%2F", "\\"]];

impl EncodedSlashes {
    /// Refuses a request with an ambiguous path; `path` is normalized, and `counts` is true if a
    /// rule of a descriptor may depend on it.
    pub(crate) fn check(
        self,
        method: &str,
        path: &str,
        rules: &RuleSet,
        counts: bool,
    ) -> Result<(), Malformed> {
        if self == Self::Keep || !has_any(path) {
            return Ok(());
        }
        let is_strict = self == Self::Refuse || counts;
        if !is_strict && rules.service_levels().is_empty() {
            return Ok(());
        }
        let level = rules.service_level(method, path);
        if level.is_some_and(|found| is_spelt_out(&found.level.pattern, path, rules.path_folding()))
        {
            return Ok(());
        }
        let is_same = |slashes: &&[&str]| {
            let reading = slashes
                .iter()
                .fold(path.to_owned(), |path, slash| path.replace(slash, "/"));
            !has_dot_segments(&reading)
                && what_counts(rules.service_level(method, &reading)) == what_counts(level)
        };
        if !is_strict && READINGS.iter().all(is_same) {
            return Ok(());
        }
        Err(Malformed {
            place: "path".to_owned(),
            message: format!(
                "{} has an encoded slash or a backslash, which services read in different ways",
                excerpt(path.as_bytes())
            ),
        })
    }
}

/// The treatment of a path that services read in different ways for reasons other than slashes: see
/// [`Ambiguity`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AmbiguousPaths {
    /// Refuses it if a rule or a service level depends on the path.
    #[default]
    Refuse,
    /// Uses the normalized path, whatever the upstream makes of it.
    Accept,
}

impl AmbiguousPaths {
    /// Refuses a path because of its ambiguities; `counts` is true if a rule of a descriptor may
    /// depend on it.
    pub(crate) fn check(
        self,
        target: &Target<'_>,
        rules: &RuleSet,
        counts: bool,
    ) -> Result<(), Malformed> {
        let Some(ambiguity) = target.ambiguities.other.filter(|_| self == Self::Refuse) else {
            return Ok(());
        };
        // Patterns of service levels match with parameters and without.
        let is_for_levels =
            !rules.service_levels().is_empty() && ambiguity != Ambiguity::Parameters;
        if !counts && !is_for_levels {
            return Ok(());
        }
        Err(Malformed {
            place: "path".to_owned(),
            // The path is shown as it is read here, which may have nothing of it any more.
            message: format!(
                "it has {ambiguity}, which services read in different ways; one reading is {}",
                excerpt(target.path.as_bytes())
            ),
        })
    }
}

impl FromStr for AmbiguousPaths {
    type Err = NeitherWord;

    fn from_str(text: &str) -> Result<Self, NeitherWord> {
        match text {
            "refuse" => Ok(Self::Refuse),
            "accept" => Ok(Self::Accept),
            _ => Err(NeitherWord::new(text, &["refuse", "accept"])),
        }
    }
}

impl FromStr for EncodedSlashes {
    type Err = NeitherWord;

    fn from_str(text: &str) -> Result<Self, NeitherWord> {
        match text {
            "refuse" => Ok(Self::Refuse),
            "keep" => Ok(Self::Keep),
            _ => Err(NeitherWord::new(text, &["refuse", "keep"])),
        }
    }
}

fn has_any(text: &str) -> bool {
    text.contains("%2F") || text.contains('\\')
}

fn has_dot_segments(path: &str) -> bool {
    let name = |segment: &str| {
        let name = segment.split(';').next();
        matches!(name, Some("." | ".."))
    };
    path.split('/').any(name)
}

/// The parts of a service level that determine the counter.
fn what_counts<'a>(found: Option<LevelMatch<'a>>) -> Option<(&'a str, Option<&'a str>)> {
    found.map(|found| (&*found.level.id, found.tenant))
}

/// Returns true if every ambiguous segment of `path` is a literal of `pattern`, which matches it.
fn is_spelt_out(pattern: &PathPattern, path: &str, folding: PathFolding) -> bool {
    let mut own = pattern.segments().iter();
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    segments.all(|segment| {
        // Patterns ignore parameters, and segments with nothing but parameters.
        let own = match segment.starts_with(';') {
            true => None,
            false => own.next(),
        };
        !has_any(segment)
            || matches!(own, Some(Segment::Literal(own)) if folding.is_same(own, segment))
    })
}

#[cfg(test)]
mod tests {
    use ratekeeper_rules::{Options, Source, load};

    use super::EncodedSlashes::{self, Keep, Refuse, RefuseWhereItCounts};
    use crate::Target;

    const LEVELS: &str = "slas:
  - { id: product, methods: [GET], pathPattern: '/v1/{tenant}/product/*', tiers: [ { period: 10, threshold: 9 } ] }
  - { id: files, pathPattern: '/files/**', tiers: [ { period: 10, threshold: 9 } ] }
  - { id: secret, pathPattern: '/files/secret/*', tiers: [ { period: 10, threshold: 9 } ] }
  - { id: spelt, pathPattern: '/projects/a%2Fb/*', tiers: [ { period: 10, threshold: 9 } ] }
";

    fn is_let_in(slashes: EncodedSlashes, path: &str) -> bool {
        let (name, text) = ("slas.yaml".to_owned(), LEVELS.to_owned());
        let rules = load(&[Source { name, text }], &Options::default());
        let rules = rules.expect("good rules").rules;
        let target = Target::parse(&http::header::HOST, path.as_bytes()).expect("a path");
        slashes.check("GET", &target.path, &rules, false).is_ok()
    }

    #[test]
    fn an_encoded_slash_gets_no_one_past_a_service_level() {
        for path in [
            "/v1/a/product%2F7",
            "/v1/a%2fproduct/7",
            "/v1/a/product%5C7",
            "/v1/a/product\\7",
            "/v1/a/product%2F7%5Cx",
            "/v1/a/product/7%2F8",
            "/files%2Fa",
            "/files/secret%2Fa",
            "/files/x%2F..%2F..%2Fv1",
            "/x%2f..%2ffiles/a",
            "/x;%2F..%2Ffiles",
            "/files/..%5c..%5cetc",
            "/projects/a%2Fb/c%2Fd",
            "/projects/a%2Fb/;%2F..",
        ] {
            assert!(!is_let_in(RefuseWhereItCounts, path), "{path}");
            assert!(!is_let_in(Refuse, path), "{path}");
            assert!(is_let_in(Keep, path), "{path}");
        }
    }

    #[test]
    fn a_path_that_is_counted_the_same_either_way_is_let_in() {
        for path in ["/files/a%2Fb", "/users/a%2Fb", "/users/a\\b"] {
            assert!(is_let_in(RefuseWhereItCounts, path), "{path}");
            assert!(!is_let_in(Refuse, path), "{path}");
        }
        for path in ["/projects/a%2fb/7", "/v1/a/product/7", "/files/100%25"] {
            assert!(is_let_in(RefuseWhereItCounts, path), "{path}");
            assert!(is_let_in(Refuse, path), "{path}");
        }
    }
}
