//! Rule ids: assigned once all files are read.

use std::fmt::Write as _;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use crate::Rule;
use crate::mark::Mark;

/// A limit of a file, for the diagnostics about its id and its names.
pub(crate) struct Draft {
    /// The file, and the position in it of the id, or else of the limit.
    pub(crate) file: usize,
    pub(crate) mark: Mark,
    pub(crate) name: RuleName,
    /// Positions of the names in `replaces:`, in their order.
    pub(crate) replaces: Vec<Mark>,
}

/// The parts from which a rule's id is made.
pub(crate) struct RuleName {
    /// The `id:` that it was given; with a suffix if the descriptor has a list of limits.
    pub(crate) explicit: Option<(Box<str>, Option<String>)>,
    pub(crate) domain: Arc<str>,
    /// The composite keys; secret values are replaced by fingerprints.
    pub(crate) path: Box<[Box<str>]>,
    /// The plan, if it is not the default one.
    pub(crate) plan: Option<Arc<str>>,
    pub(crate) suffix: Option<Box<str>>,
}

impl RuleName {
    /// `domain.key_value.key@plan#window`, as in the metrics of envoyproxy/ratelimit.
    fn joined(&self) -> String {
        let mut id = self.domain.to_string();
        for composite in &self.path {
            id.push('.');
            id.push_str(composite);
        }
        self.ended(id, self.suffix.as_deref())
    }

    /// As [`Self::joined`], with the separators escaped within the parts. Different rules never get
    /// the same text, apart from two secrets with equal fingerprints.
    fn escaped(&self) -> String {
        let mut id = escape(&self.domain);
        for composite in &self.path {
            id.push('.');
            id.push_str(&escape(composite));
        }
        self.ended(id, self.suffix.as_deref())
    }

    /// `id` with the plan and the suffix at its end.
    fn ended(&self, mut id: String, suffix: Option<&str>) -> String {
        // Writing to a string cannot fail.
        if let Some(plan) = &self.plan {
            let _ = write!(id, "@{plan}");
        }
        if let Some(suffix) = suffix {
            let _ = write!(id, "#{suffix}");
        }
        id
    }
}

fn escape(part: &str) -> String {
    let mut escaped = String::with_capacity(part.len());
    for character in part.chars() {
        if matches!(character, '.' | '#' | '@' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// Gives every rule its id. `names` belong to `rules`, in the same order. Returns the rules whose explicit id an earlier
/// one has, each with that one.
///
/// Generated ids that are equal (a dot in a value reads like a level, which envoyproxy/ratelimit accepts) all get the
/// escaped form, so that the order of the files does not matter.
pub(crate) fn assign(rules: &mut [Rule], names: &[&RuleName]) -> Vec<(usize, usize)> {
    let mut taken = HashSet::new();
    let mut explicit: HashMap<String, usize> = HashMap::new();
    let mut duplicates = Vec::new();
    for (at, (rule, name)) in rules.iter_mut().zip(names).enumerate() {
        let Some((id, suffix)) = &name.explicit else {
            continue;
        };
        let id = name.ended(id.to_string(), suffix.as_deref());
        rule.id = id.as_str().into();
        taken.insert(id.clone());
        duplicates.extend(explicit.insert(id, at).map(|earlier| (at, earlier)));
    }
    let joined: Vec<_> = names.iter().map(|name| name.joined()).collect();
    let mut uses: HashMap<&str, u32> = HashMap::new();
    for (id, _) in joined
        .iter()
        .zip(names)
        .filter(|(_, name)| name.explicit.is_none())
    {
        *uses.entry(id).or_default() += 1;
    }
    for ((rule, name), joined) in rules.iter_mut().zip(names).zip(&joined) {
        if name.explicit.is_some() {
            continue;
        }
        let alone = uses.get(joined.as_str()) == Some(&1) && !taken.contains(joined);
        let wanted = if alone {
            joined.clone()
        } else {
            name.escaped()
        };
        rule.id = free(wanted, &taken).as_str().into();
        taken.insert(rule.id.to_string());
    }
    duplicates
}

/// Returns `wanted`, with a number appended if it is taken even so: an explicit id may look like
/// it, or two secrets may share a fingerprint.
fn free(wanted: String, taken: &HashSet<String>) -> String {
    if !taken.contains(&wanted) {
        return wanted;
    }
    let mut number: u64 = 2;
    while taken.contains(&format!("{wanted}~{number}")) {
        number += 1;
    }
    format!("{wanted}~{number}")
}
