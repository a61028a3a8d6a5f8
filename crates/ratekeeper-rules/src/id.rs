//! Rule ids: assigned once all files are read.

use std::fmt::Write as _;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use crate::Rule;
use crate::report::Report;
use crate::yaml::Mark;

/// The parts from which a rule's id is made.
pub(crate) struct Draft {
    /// The file, and the position in it of the id, or else of the limit.
    pub(crate) file: usize,
    pub(crate) mark: Mark,
    /// The `id:` from the file; with a suffix if the descriptor has a list of limits.
    pub(crate) explicit: Option<(Box<str>, Option<String>)>,
    pub(crate) domain: Arc<str>,
    /// The composite keys; secret values are replaced by fingerprints.
    pub(crate) path: Box<[Box<str>]>,
    /// The plan, if it is not the default one.
    pub(crate) plan: Option<Arc<str>>,
    pub(crate) suffix: Option<Box<str>>,
    /// Positions of the names in `replaces:`, in their order.
    pub(crate) replaces: Vec<Mark>,
}

impl Draft {
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

/// Gives every rule its id. `drafts` belong to `rules`, in the same order.
///
/// Equal explicit ids are an error. Where generated ids are equal (a dot in a value reads like a
/// level, which envoyproxy/ratelimit accepts), all of them get the escaped form, so that the order
/// of the files does not matter.
pub(crate) fn assign(rules: &mut [Rule], drafts: &[Draft], reports: &mut [Report<'_>]) {
    let mut taken = HashSet::new();
    let mut explicit: HashMap<String, String> = HashMap::new();
    for (rule, draft) in rules.iter_mut().zip(drafts) {
        let Some((id, suffix)) = &draft.explicit else {
            continue;
        };
        let id = draft.ended(id.to_string(), suffix.as_deref());
        let Some(report) = reports.get_mut(draft.file) else {
            continue;
        };
        let place = report.place(draft.mark).to_string();
        if let Some(earlier) = explicit.get(&id) {
            let help = format!("it is the id of the limit at {earlier} already");
            report.error(draft.mark, format!("duplicate id '{id}'"), help);
        }
        rule.id = id.as_str().into();
        taken.insert(id.clone());
        explicit.insert(id, place);
    }
    let joined: Vec<_> = drafts.iter().map(Draft::joined).collect();
    let mut uses: HashMap<&str, u32> = HashMap::new();
    for (id, _) in joined
        .iter()
        .zip(drafts)
        .filter(|(_, draft)| draft.explicit.is_none())
    {
        *uses.entry(id).or_default() += 1;
    }
    for ((rule, draft), joined) in rules.iter_mut().zip(drafts).zip(&joined) {
        if draft.explicit.is_some() {
            continue;
        }
        let alone = uses.get(joined.as_str()) == Some(&1) && !taken.contains(joined);
        let wanted = if alone {
            joined.clone()
        } else {
            draft.escaped()
        };
        rule.id = free(wanted, &taken).as_str().into();
        taken.insert(rule.id.to_string());
    }
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
