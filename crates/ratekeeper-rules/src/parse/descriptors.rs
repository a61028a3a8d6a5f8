//! Descriptors: their patterns, and the rules below them.

mod plan_regions;
mod rules;
mod siblings;

use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::draft::Field;
use crate::format::Descriptor as Keys;
use crate::format::fields::Fields;
use crate::format::mapping::{Keys as _, Mapping as _};
use crate::id::Draft;
use crate::mark::{At, Mark};
use crate::matching::Children;
use crate::policy::Policy;
use crate::report::Report;
use crate::yaml::Node as Tree;
use crate::{
    Evaluation, FailureMode, Node, NodeRegion, PathFolding, PathKeys, Profile, Rule, secret,
};
use siblings::{Sibling, Siblings};

/// The settings of a domain that its descriptors need.
pub(crate) struct DomainContext<'a> {
    pub(crate) domain: &'a Arc<str>,
    pub(crate) evaluation: Evaluation,
    /// True if an entry names the tenant, whose own limits may be where there is no rule.
    pub(crate) has_tenants: bool,
    pub(crate) policy: &'a Policy,
    pub(crate) plans: &'a [Box<str>],
    pub(crate) is_secret: &'a dyn Fn(&str) -> bool,
    pub(crate) profile: Profile,
    pub(crate) on_store_failure: FailureMode,
    pub(crate) region: &'a NodeRegion,
    pub(crate) path_folding: PathFolding,
    pub(crate) path_keys: &'a PathKeys,
    /// Index of the file, for checks that run once all files are read.
    pub(crate) file: usize,
}

/// The descriptors of one level: their composites as they are written and folded, each with its position.
#[derive(Default)]
pub(crate) struct Level {
    /// The length of the key, and the place, of each pattern.
    written: HashMap<Box<str>, (usize, String)>,
    folded: HashMap<Box<str>, String>,
    siblings: Vec<Sibling>,
}

impl Level {
    /// Warns of what only all descriptors of the level show together, of any file.
    pub(crate) fn check(
        &self,
        evaluation: Evaluation,
        has_tenants: bool,
        mut warn: impl FnMut(usize, Mark, String, String),
    ) {
        let siblings = Siblings::new(&self.siblings, evaluation, has_tenants);
        siblings.check(|sibling, slip| warn(sibling.file, sibling.mark, slip.message, slip.help));
    }
}

/// Compiles descriptors into nodes and rules.
pub(crate) struct Compiler<'c, 'a, 's> {
    pub(crate) around: &'c DomainContext<'a>,
    pub(crate) report: &'c mut Report<'s>,
    pub(crate) rules: &'c mut Vec<Rule>,
    pub(crate) drafts: &'c mut Vec<Draft>,
}

/// The composite keys from the domain down to a descriptor.
#[derive(Clone, Default)]
pub(crate) struct Path {
    composites: Vec<Box<str>>,
    /// The same with secret values replaced by fingerprints.
    shown: Vec<Box<str>>,
    /// True if a descriptor on it counts each value by itself.
    counts_each: bool,
}

impl Path {
    pub(super) fn to(&self, composite: Box<str>, shown: Box<str>) -> Self {
        let mut path = self.clone();
        path.composites.push(composite);
        path.shown.push(shown);
        path
    }

    /// The same path, with a counter for each caller.
    pub(super) fn counting_each(mut self) -> Self {
        self.counts_each = true;
        self
    }

    /// The last composite; a secret value is replaced by its fingerprint.
    fn last_shown(&self) -> &str {
        self.shown.last().map_or("", |shown| shown)
    }
}

/// The properties of a descriptor that all of its limits share.
pub(super) struct Owner<'p> {
    pub(super) path: &'p Path,
    pub(super) policy: Policy,
    pub(super) id: Option<At<Box<str>>>,
    pub(super) shadow: bool,
    pub(super) quota_mode: bool,
    pub(super) detailed_metric: bool,
    pub(super) value_to_metric: bool,
    pub(super) metadata: Option<Arc<serde_json::Map<String, serde_json::Value>>>,
    /// The plan whose limits are being compiled, if it is not the default one.
    pub(super) plan: Option<Arc<str>>,
}

impl Compiler<'_, '_, '_> {
    /// Compiles one `descriptors:` list.
    pub(crate) fn nodes(
        &mut self,
        items: &[Rc<Tree>],
        path: &Path,
        level: &mut Level,
    ) -> Vec<Node> {
        let mut nodes = Vec::with_capacity(items.len());
        for item in items {
            nodes.extend(self.node(item, path, level));
        }
        nodes
    }

    fn node(&mut self, item: &Tree, path: &Path, level: &mut Level) -> Option<Node> {
        let fields = Fields::item(item, &Keys::SHAPE, self.report)?;
        let mut keys = Box::new(Keys::read(&fields, self.report));
        self.check_null(&fields);
        let (key, value) = (
            std::mem::take(&mut keys.key),
            std::mem::take(&mut keys.value),
        );
        let key = self.key(&key, fields.mark);
        let value = value.text();
        self.check_no_blank("key", key);
        if let Some(value) = value {
            self.check_no_blank("value", value);
            self.check_no_regex(key.value, value);
        }
        let pattern = composite(key.value, value.map(|at| at.value));
        let mut path = path.to(
            pattern.clone(),
            self.shown(key.value, value.map(|at| at.value), &pattern),
        );
        let is_unique = self.check_unique(&pattern, &path, key, level);
        let share_threshold = self.share_threshold(&keys, &pattern, path.last_shown());
        path.counts_each |= value.is_none() || (pattern.contains('*') && !share_threshold);
        let rules = self.limits(&mut keys, fields.mark, &path);
        let children = self.children(&keys, &path);
        // The duplicate has been reported. Kept in the tree, each of many would be compared with all others.
        if !is_unique {
            return None;
        }
        let may_limit = keys.has_limit() || keys.descriptors.is_set();
        level.siblings.push(Sibling {
            file: self.around.file,
            mark: key.mark,
            place: self.report.place(key.mark),
            key: key.value.into(),
            pattern: pattern.clone(),
            shown: path.last_shown().into(),
            is_secret: (self.around.is_secret)(key.value),
            is_idle: !may_limit,
        });
        Some(Node {
            pattern,
            key: key.value.into(),
            rules: rules.default,
            by_plan: rules.by_plan.into(),
            permits: rules.permits,
            share_threshold,
            value_to_metric: keys.value_to_metric.copied().unwrap_or_default(),
            children,
        })
    }

    /// Compiles the descriptors below one.
    fn children(&mut self, keys: &Keys, path: &Path) -> Children {
        let items = keys.descriptors.get().map_or(&[][..], Vec::as_slice);
        let mut level = Level::default();
        let nodes = self.nodes(items, path, &mut level);
        let DomainContext {
            evaluation,
            has_tenants,
            ..
        } = *self.around;
        level.check(evaluation, has_tenants, |_, mark, message, help| {
            self.report.warn(mark, message, help);
        });
        Children::new(nodes, evaluation)
    }

    /// Reads the key. A wrong one is reported and stands in for a right one, so that the rest is
    /// checked.
    fn key<'k>(&mut self, key: &'k Field<Box<str>>, start: Mark) -> At<&'k str> {
        if let Some(key) = key.text() {
            return key;
        }
        let mark = key.mark().unwrap_or(start);
        if !key.is_set() || key.get().is_some() {
            self.report
                .error(mark, "descriptor has empty key", "write `key: some_name`");
        }
        At { value: "", mark }
    }

    /// Warns of blanks that are hard to see, and that are compared.
    fn check_no_blank(&mut self, name: &str, text: At<&str>) {
        if text.value.trim() != text.value {
            let message = format!("`{name}` begins or ends with a blank, which counts");
            self.report.warn(text.mark, message, "leave the blank out");
        }
    }

    /// Warns of a value that looks like a regular expression: it is compared literally.
    fn check_no_regex(&mut self, key: &str, value: At<&str>) {
        let text = value.value;
        let looks_like_one = text.starts_with('^')
            || text.ends_with('$')
            || [".*", ".+", "\\d", "\\w", "(?"]
                .iter()
                .any(|part| text.contains(part));
        if !looks_like_one {
            return;
        }
        let pattern = text.trim_start_matches('^').trim_end_matches('$');
        let pattern = pattern.replace(".*", "*").replace(".+", "*");
        let is_plain = !pattern.contains(['\\', '(', '[', '+', '?', '|', '"']);
        let help = match is_plain && !(self.around.is_secret)(key) {
            true => format!("write `value: \"{pattern}\"`"),
            false => "write the text itself, with `*` for any characters".to_owned(),
        };
        self.report.warn(
            value.mark,
            "this looks like a regular expression, and is compared as text in which only `*` stands for other characters",
            help,
        );
    }

    fn shown(&self, key: &str, value: Option<&str>, pattern: &str) -> Box<str> {
        match value {
            // A pattern is not a secret, though its beginning might be part of one.
            Some(value) if !value.contains('*') && (self.around.is_secret)(key) => {
                composite(key, Some(&secret::fingerprint(value)))
            }
            _ => pattern.into(),
        }
    }

    /// Reports a pattern that its level already has; returns false in that case.
    fn check_unique(
        &mut self,
        pattern: &str,
        path: &Path,
        key: At<&str>,
        level: &mut Level,
    ) -> bool {
        if pattern.is_empty() {
            return true;
        }
        let (mark, length) = (key.mark, key.value.len());
        let place = self.report.place(mark).to_string();
        if let Some((earlier_length, earlier)) = level.written.get(pattern) {
            let shown = format!("{}.{}", self.around.domain, path.shown.join("."));
            let message = format!("duplicate descriptor composite key '{shown}'");
            let is_apart = self.around.evaluation == Evaluation::Path && *earlier_length != length;
            let help = match is_apart {
                // Ids and counters go by the composite, though no request finds both.
                true => format!(
                    "it is at {earlier} already, with a key of another length: rename one of the two keys, as rules and \
                     counters are named by key and value joined with `_`"
                ),
                false => format!("it is at {earlier} already: put both into one descriptor"),
            };
            self.report.error(mark, message, help);
            return false;
        }
        if !pattern.contains('*') {
            self.warn_of_one_path(pattern, path, (mark, &place), level);
        }
        level.written.insert(pattern.into(), (length, place));
        true
    }

    /// Warns of a second descriptor for a path that differs only in what does not count.
    fn warn_of_one_path(
        &mut self,
        pattern: &str,
        path: &Path,
        (mark, place): (Mark, &str),
        level: &mut Level,
    ) {
        let around = self.around;
        let folded = around.path_folding.aliases(pattern, around.path_keys);
        let folded = folded.first().map_or(pattern, |folded| folded);
        let Some(earlier) = level.folded.insert(folded.into(), place.to_owned()) else {
            return;
        };
        let shown = path.last_shown();
        let message = format!(
            "'{shown}' is the same path as that at {earlier}: an HTTP request finds only one of the two"
        );
        let help = "keep one; or set `ignore_path_case: false` or `ignore_trailing_slash: false` if your service \
                    tells such paths apart";
        self.report.warn(mark, message, help);
    }

    fn share_threshold(&mut self, keys: &Keys, pattern: &str, shown: &str) -> bool {
        let Some(flag) = keys.share_threshold.at().filter(|at| *at.value) else {
            return false;
        };
        if !pattern.contains('*') {
            let message = format!(
                "share_threshold can only be used with wildcard values (containing '*'), but found key '{shown}'"
            );
            self.report.error(
                flag.mark,
                message,
                "write a `*` in `value:`, or leave share_threshold out",
            );
        }
        true
    }
}

/// `key`, or `key_value`.
fn composite(key: &str, value: Option<&str>) -> Box<str> {
    match value {
        Some(value) => format!("{key}_{value}").into(),
        None => key.into(),
    }
}
