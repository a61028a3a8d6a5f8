//! The target of a request: a normalized path, and a query.

use std::borrow::Cow;

use http::HeaderName;

use crate::Malformed;
use crate::malformed::excerpt;
use crate::spelling::{Ambiguities, Ambiguity, NormalizedPath, path};

/// A request's target.
///
/// The path is normalized, so that callers cannot get a fresh counter by spelling it differently:
///
/// - percent-encoded characters are decoded, except `/`, `%` and control characters, which stay encoded, in
///   uppercase: `/%6Frders` is `/orders`, and `/a%2fb` stays two segments fewer than `/a/b`;
/// - bytes that are no UTF-8 are percent-encoded, and a `%` that begins no escape is `%25`;
/// - `.` and `..` are followed, and never lead above the root; several slashes are one;
/// - upper and lower case stay apart, and so do paths with and without a slash at their end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target<'a> {
    /// The path, normalized; `*` for OPTIONS of a whole server.
    pub path: Cow<'a, str>,
    /// The query without the question mark, as it was sent; empty if there is none.
    pub query: &'a [u8],
    pub(crate) ambiguities: Ambiguities,
}

impl<'a> Target<'a> {
    /// Parses a target as it stands in a request line: a path and a query, a whole URI, or `*`. A
    /// fragment is dropped.
    ///
    /// # Errors
    /// It is none of these. `name` is the header that it came from.
    pub fn parse(name: &HeaderName, bytes: &'a [u8]) -> Result<Self, Malformed> {
        let target = bytes.split(|byte| *byte == b'#').next().unwrap_or_default();
        let is_cut = target.len() < bytes.len();
        if target == b"*" {
            return Ok(Self {
                path: Cow::Borrowed("*"),
                query: b"",
                ambiguities: Ambiguities::default(),
            });
        }
        let target = origin_form(target).ok_or_else(|| {
            let message = format!("{} is not a path; it begins with a slash", excerpt(bytes));
            Malformed::header(name, message)
        })?;
        let (raw, query) = split(target, b'?');
        let mut normalized = path(raw);
        if is_cut {
            let other = normalized.ambiguities.other.unwrap_or(Ambiguity::Fragment);
            normalized.ambiguities.other = Some(other);
        }
        Ok(Self {
            path: normalized.path,
            query,
            ambiguities: normalized.ambiguities,
        })
    }

    /// The target of a received request; None if it has no path, as for CONNECT.
    #[must_use]
    pub fn of(uri: &'a http::Uri) -> Option<Self> {
        let (raw, query) = match uri.path_and_query()?.as_str().split_once('?') {
            Some((raw, query)) => (raw, query),
            None => (uri.path(), ""),
        };
        let normalized = match raw {
            "*" => NormalizedPath {
                path: Cow::Borrowed(raw),
                ambiguities: Ambiguities::default(),
            },
            raw => path(raw.as_bytes()),
        };
        Some(Self {
            path: normalized.path,
            query: query.as_bytes(),
            ambiguities: normalized.ambiguities,
        })
    }

    /// Returns true if services read the path in different ways.
    pub(crate) const fn is_ambiguous(&self) -> bool {
        self.ambiguities.slash || self.ambiguities.other.is_some()
    }

    /// Refuses segments that some services read as `.` or `..` and others as a name:
    /// `/orders/..;x/admin`.
    pub(crate) fn check_segments(&self) -> Result<(), Malformed> {
        let name = |segment: &str| matches!(segment.split_once(';'), Some(("." | "..", _)));
        match self.path.contains(";") && self.path.split('/').any(name) {
            false => Ok(()),
            true => Err(Malformed {
                place: "path".to_owned(),
                message: format!(
                    "{} has a dot segment with parameters, which services read in different ways",
                    excerpt(self.path.as_bytes())
                ),
            }),
        }
    }

    /// The segment with that number, counted from 1: of `/orders/7/items`, `orders` is 1. None
    /// beyond the last.
    #[must_use]
    pub fn segment(&self, number: u16) -> Option<&str> {
        let mut segments = self.path.split('/').skip(1).filter(|part| !part.is_empty());
        segments.nth(usize::from(number).checked_sub(1)?)
    }
}

/// The part of a target from the path's slash on.
fn origin_form(target: &[u8]) -> Option<&[u8]> {
    if target.first() == Some(&b'/') {
        return Some(target);
    }
    let text = target.to_ascii_lowercase();
    let scheme = [&b"http://"[..], b"https://"]
        .into_iter()
        .find(|scheme| text.starts_with(scheme))?;
    let rest = target.get(scheme.len()..)?;
    let path = rest.iter().position(|byte| matches!(byte, b'/' | b'?'));
    match path.and_then(|at| rest.get(at..)) {
        Some(path) if path.starts_with(b"/") => Some(path),
        // No path means the root; a query without a path is dropped.
        _ => Some(b"/"),
    }
}

/// Splits at the first `at`.
pub(crate) fn split(bytes: &[u8], at: u8) -> (&[u8], &[u8]) {
    match bytes.iter().position(|byte| *byte == at) {
        Some(found) => (
            bytes.get(..found).unwrap_or_default(),
            bytes.get(found + 1..).unwrap_or_default(),
        ),
        None => (bytes, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::HOST;
    use proptest::prelude::*;

    fn path(target: &str) -> String {
        let target = Target::parse(&HOST, target.as_bytes()).expect("a target");
        target.path.into_owned()
    }

    #[test]
    fn every_spelling_of_a_path_is_one() {
        for same in [
            "/orders/7",
            "/%6frders/%37",
            "/%6Frders/7",
            "//orders///7",
            "/./orders/./7",
            "/x/../orders/7",
            "/../../orders/7",
            "/%2e%2E/orders/%2e/7",
            "/orders/7?page=1",
            "/orders/7#top",
            "HTTP://shop.example/orders/7?x",
        ] {
            assert_eq!(path(same), "/orders/7", "{same}");
        }
    }

    #[test]
    fn different_paths_stay_different() {
        assert_eq!(path("/orders/"), "/orders/");
        assert_eq!(path("/Orders"), "/Orders");
        assert_eq!(path("/a%2fb"), "/a%2Fb");
        assert_eq!(path("/a%252fb"), "/a%252fb");
        assert_eq!(path("/100%"), "/100%25");
        assert_eq!(path("/%zz"), "/%25zz");
        assert_eq!(path("/a%00b%0a"), "/a%00b%0A");
        assert_eq!(path("/caf%c3%a9"), "/café");
        assert_eq!(path("/caf%e9"), "/caf%E9");
        assert_eq!(path("/a%3Fb"), "/a?b");
        assert_eq!(path("/a/.."), "/");
        assert_eq!(path("/a/."), "/a/");
        assert_eq!(path("/a/b/.."), "/a/");
        assert_eq!(path("/.well-known"), "/.well-known");
        assert_eq!(path("/..."), "/...");
        assert_eq!(path("*"), "*");
        assert_eq!(path("https://shop.example"), "/");
        assert_eq!(path("https://shop.example?a=/b"), "/");
    }

    #[test]
    fn invalid_targets_are_refused() {
        for bad in ["", "orders", "?a=1", "ftp://a/b", "http:/a", "#"] {
            let malformed = Target::parse(&HOST, bad.as_bytes()).expect_err(bad);
            assert!(
                malformed.message.contains("it begins with a slash"),
                "{malformed}"
            );
        }
        let long = Target::parse(&HOST, &[b'x'; 100]).expect_err("no slash");
        assert!(long.message.len() < 120, "{long}");
    }

    #[test]
    fn segments_count_from_one() {
        let target = Target::parse(&HOST, b"/orders/a%2Fb/").expect("a target");
        assert_eq!(target.segment(1), Some("orders"));
        assert_eq!(target.segment(2), Some("a%2Fb"));
        assert_eq!(target.segment(3), None);
        assert_eq!(target.segment(0), None);
        let root = Target::parse(&HOST, b"/").expect("a target");
        assert_eq!(root.segment(1), None);
    }

    proptest! {
        /// Normalizing is idempotent, once literals are encoded again.
        #[test]
        fn one_spelling_is_its_own(target in "/[ -~é]{0,40}") {
            let once = path(&target);
            prop_assert!(once.starts_with('/'));
            let encoded = once.replace('?', "%3F").replace('#', "%23");
            // `%` stands only where an escape begins, so reading it again changes nothing.
            prop_assert_eq!(path(&encoded), once);
        }
    }
}
