//! The fields of JSON lines and their paths.

mod defaults;

use http::HeaderName;
use smallvec::SmallVec;

use crate::record::LogField;
use defaults::DEFAULTS;

/// The prefix of field names that stand for headers.
const HEADER: &str = "header:";

/// The use of a value of a JSON line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// The time of the request.
    Time,
    /// A complete request line, to be split.
    Request,
    /// A field that descriptors can name.
    Field(LogField),
}

/// The reason why a `--fields` mapping is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FieldsError {
    /// Not `name=path`.
    #[error("{0:?} is not name=path, as in time=ts or api_key=request.headers.X-Api-Key")]
    NotAMapping(String),
    /// A name that descriptors could not refer to.
    #[error(
        "{0:?} is not a field name: letters, digits, '_', '-' and '.', at most 64, or header:NAME"
    )]
    BadName(String),
    /// A path that is too long.
    #[error("the path of {0:?} is longer than 256 bytes or deeper than 8 levels")]
    BadPath(String),
    /// The same name twice.
    #[error("{0:?} is mapped twice")]
    Twice(String),
    /// More than [`Fields::EXTRA_MAX`] additional names.
    #[error("at most 32 fields can be named")]
    TooMany,
}

/// The paths of fields in JSON lines: common names by default, others by `--fields`.
///
/// The mapping is written `name=path,name=path`. A default field (`time`, `request`,
/// `remote_address`, `method`, `path`, `user_agent`, `status`, `host`, `user`, `referer`, `query`)
/// then has only this path; any other name becomes an additional field for descriptors, and
/// `header:NAME` is a header of the request. A dot descends into an object; of a list the first
/// value counts.
///
/// ```
/// use ratekeeper_replay::Fields;
///
/// let fields = Fields::parse("time=ts,api_key=request.headers.X-Api-Key")?;
/// assert!(fields.field("api_key").is_some());
/// assert!(fields.field("tenant").is_none());
/// # Ok::<(), ratekeeper_replay::FieldsError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fields {
    /// Paths by length: few share one, so a few comparisons find a name without hashing it.
    by_len: Vec<Vec<PathNode>>,
    extra: Vec<String>,
}

/// A path to a value, or a prefix of one.
#[derive(Clone, PartialEq, Eq, Debug)]
struct PathNode {
    path: Box<[u8]>,
    /// The uses of the value, each with its priority (0 is the highest).
    uses: SmallVec<[(Target, u8); 1]>,
    /// True if longer paths continue from here.
    leads_on: bool,
}

impl Default for Fields {
    fn default() -> Self {
        let mut fields = Self {
            by_len: Vec::new(),
            extra: Vec::new(),
        };
        fields.add_defaults(&[]);
        fields
    }
}

impl Fields {
    /// The most additional names of a mapping.
    pub const EXTRA_MAX: usize = 32;
    /// The deepest path.
    pub(crate) const DEPTH_MAX: usize = 8;
    const PATH_BYTES_MAX: usize = 256;
    const NAME_BYTES_MAX: usize = 64;

    /// Parses a mapping; an empty one gives the defaults.
    ///
    /// # Errors
    /// [`FieldsError`] names the faulty part.
    pub fn parse(mapping: &str) -> Result<Self, FieldsError> {
        let mut fields = Self {
            by_len: Vec::new(),
            extra: Vec::new(),
        };
        let mut mapped: Vec<Target> = Vec::new();
        for part in mapping
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let not_a_mapping = || FieldsError::NotAMapping(part.to_owned());
            let (name, path) = part.split_once('=').ok_or_else(not_a_mapping)?;
            let (name, path) = (name.trim(), path.trim());
            if path.is_empty() {
                return Err(not_a_mapping());
            }
            let target = fields.target(name)?;
            if mapped.contains(&target) {
                return Err(FieldsError::Twice(name.to_owned()));
            }
            let depth = path.bytes().filter(|&byte| byte == b'.').count() + 1;
            if path.len() > Self::PATH_BYTES_MAX || depth > Self::DEPTH_MAX {
                return Err(FieldsError::BadPath(name.to_owned()));
            }
            mapped.push(target);
            fields.add(path.as_bytes(), target, 0);
        }
        fields.add_defaults(&mapped);
        Ok(fields)
    }

    /// The field with that name, as descriptors refer to it.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<LogField> {
        LogField::from_name(name).or_else(|| self.extra_field(name))
    }

    /// The additional names, in the order of [`LogField::Extra`].
    #[must_use]
    pub fn extra(&self) -> &[String] {
        &self.extra
    }

    /// The uses of the value at `path`; true if longer paths continue from there.
    pub(crate) fn look_up(&self, path: &[u8]) -> (&[(Target, u8)], bool) {
        let nodes = self.by_len.get(path.len()).map_or(&[][..], Vec::as_slice);
        match nodes.iter().find(|node| *node.path == *path) {
            Some(node) => (&node.uses, node.leads_on),
            None => (&[], false),
        }
    }

    fn extra_field(&self, name: &str) -> Option<LogField> {
        let index = self.extra.iter().position(|extra| extra == name)?;
        u8::try_from(index).ok().map(LogField::Extra)
    }

    /// The target with that name; a new name becomes an additional field.
    fn target(&mut self, name: &str) -> Result<Target, FieldsError> {
        match name {
            "time" => return Ok(Target::Time),
            "request" => return Ok(Target::Request),
            _ => {}
        }
        if let Some(field) = self.field(name) {
            return Ok(Target::Field(field));
        }
        if let Some(header) = name.strip_prefix(HEADER) {
            let parsed = header.parse::<HeaderName>();
            let header = parsed.map_err(|_| FieldsError::BadName(name.to_owned()))?;
            if self.extra.len() >= Self::EXTRA_MAX {
                return Err(FieldsError::TooMany);
            }
            let field = self.header_field(&header);
            return field.map(Target::Field).ok_or(FieldsError::TooMany);
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if name.is_empty() || name.len() > Self::NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            return Err(FieldsError::BadName(name.to_owned()));
        }
        if self.extra.len() >= Self::EXTRA_MAX {
            return Err(FieldsError::TooMany);
        }
        self.extra.push(name.to_owned());
        self.extra_field(name)
            .map(Target::Field)
            .ok_or(FieldsError::TooMany)
    }

    /// The field of a header. Without an explicit path it is looked up under the names that servers
    /// commonly log it by. None if there are too many fields.
    pub(crate) fn look_for_header(&mut self, name: &HeaderName) -> Option<LogField> {
        let known = self.extra.len();
        let field = self.header_field(name)?;
        if self.extra.len() > known {
            let canonical = canonical(name.as_str());
            let variable = name.as_str().replace('-', "_");
            let paths = [
                format!("request.headers.{canonical}"),
                format!("request.headers.{name}"),
                format!("headers.{canonical}"),
                format!("headers.{name}"),
                format!("http_{variable}"),
                format!("request_{canonical}"),
                name.to_string(),
                variable,
            ];
            for (rank, path) in (0_u8..).zip(paths) {
                self.add(path.as_bytes(), Target::Field(field), rank);
            }
        }
        Some(field)
    }

    /// The field of a header, added if it is new.
    fn header_field(&mut self, name: &HeaderName) -> Option<LogField> {
        let named = format!("{HEADER}{name}");
        if let Some(field) = self.extra_field(&named) {
            return Some(field);
        }
        self.extra.push(named);
        let field = u8::try_from(self.extra.len() - 1).ok().map(LogField::Extra);
        if field.is_none() {
            self.extra.pop();
        }
        field
    }

    fn add_defaults(&mut self, mapped: &[Target]) {
        for (target, paths) in DEFAULTS {
            if mapped.contains(&target) {
                continue;
            }
            for (rank, path) in (0_u8..).zip(paths) {
                self.add(path.as_bytes(), target, rank);
            }
        }
    }

    fn add(&mut self, path: &[u8], target: Target, rank: u8) {
        for dot in memchr::memchr_iter(b'.', path) {
            self.node(&path[..dot]).leads_on = true;
        }
        self.node(path).uses.push((target, rank));
    }

    fn node(&mut self, path: &[u8]) -> &mut PathNode {
        if self.by_len.len() <= path.len() {
            self.by_len.resize_with(path.len() + 1, Vec::new);
        }
        let nodes = &mut self.by_len[path.len()];
        let index = nodes
            .iter()
            .position(|node| *node.path == *path)
            .unwrap_or_else(|| {
                nodes.push(PathNode {
                    path: path.into(),
                    uses: SmallVec::new(),
                    leads_on: false,
                });
                nodes.len() - 1
            });
        &mut nodes[index]
    }
}

/// Spells `x-api-key` as Caddy and Traefik do: `X-Api-Key`.
fn canonical(name: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + rest
    };
    name.split('-').map(word).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_field_has_its_path_alone() {
        let fields = Fields::parse("time=when, method = http.verb").expect("a good mapping");
        assert_eq!(fields.look_up(b"when"), (&[(Target::Time, 0)][..], false));
        assert_eq!(fields.look_up(b"ts"), (&[][..], false));
        let method = (Target::Field(LogField::Method), 0);
        assert_eq!(fields.look_up(b"http.verb"), (&[method][..], false));
        assert_eq!(fields.look_up(b"http"), (&[][..], true));
        assert!(!fields.look_up(b"remote_addr").0.is_empty());
    }

    #[test]
    fn one_place_may_hold_a_value_or_lead_on() {
        let fields = Fields::default();
        assert_eq!(
            fields.look_up(b"request"),
            (&[(Target::Request, 0)][..], true)
        );
    }

    #[test]
    fn one_value_may_serve_two_fields() {
        let fields = Fields::parse("api_key=remote_addr").expect("a good mapping");
        let (uses, _) = fields.look_up(b"remote_addr");
        assert_eq!(uses.first(), Some(&(Target::Field(LogField::Extra(0)), 0)));
        assert_eq!(
            uses.get(1).map(|used| used.0),
            Some(Target::Field(LogField::RemoteAddress))
        );
    }

    #[test]
    fn the_manual_lists_every_name() {
        let manual = include_str!("../../../docs/replay.md");
        for (target, paths) in DEFAULTS {
            let named = LogField::NAMED
                .into_iter()
                .find(|(_, field)| target == Target::Field(*field));
            let name = match target {
                Target::Time => "time",
                Target::Request => "request",
                Target::Field(_) => named.expect("a default field has a name").0,
            };
            let row = format!("| {name} | `{}` |", paths.join("` `"));
            assert!(manual.contains(&row), "{row}");
        }
    }

    #[test]
    fn headers_are_found_where_servers_log_them() {
        let mut fields = Fields::parse("header:X-Org=org").expect("a good mapping");
        let org = fields.look_for_header(&HeaderName::from_static("x-org"));
        assert_eq!(org, fields.field("header:x-org"));
        assert_eq!(fields.look_up(b"http_x_org"), (&[][..], false));
        let key = fields.look_for_header(&HeaderName::from_static("x-api-key"));
        let key = Target::Field(key.expect("there is room"));
        for path in [
            "request.headers.X-Api-Key",
            "http_x_api_key",
            "request_X-Api-Key",
        ] {
            let (uses, _) = fields.look_up(path.as_bytes());
            assert_eq!(uses.first().map(|used| used.0), Some(key), "{path}");
        }
    }

    #[test]
    fn invalid_texts_are_refused() {
        let refused = |mapping: &str| Fields::parse(mapping).expect_err(mapping);
        assert_eq!(refused("time"), FieldsError::NotAMapping("time".into()));
        assert_eq!(refused("time="), FieldsError::NotAMapping("time=".into()));
        assert_eq!(refused("=ts"), FieldsError::BadName(String::new()));
        assert_eq!(refused("a b=ts"), FieldsError::BadName("a b".into()));
        assert_eq!(
            refused("header:a b=ts"),
            FieldsError::BadName("header:a b".into())
        );
        assert_eq!(refused("x=a,x=b"), FieldsError::Twice("x".into()));
        assert_eq!(
            refused("x=a.b.c.d.e.f.g.h.i"),
            FieldsError::BadPath("x".into())
        );
        let many: Vec<String> = (0..33).map(|n| format!("f{n}=g{n}")).collect();
        assert_eq!(refused(&many.join(",")), FieldsError::TooMany);
    }
}
