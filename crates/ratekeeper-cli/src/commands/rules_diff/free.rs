//! The descriptors of a set of rules. Those without a limit of their own take requests from the limits beside them.

use super::loosened::is_path;
use ratekeeper_rules::{Domain, Node, Rule, RuleSet};
use std::collections::HashMap;

/// All descriptors, by domain and place.
pub(super) struct Descriptors<'a>(HashMap<Place<'a>, Descriptor<'a>>);

/// The domain and the composite keys from it on, paths in lower case: see [`is_path`].
type Place<'a> = (&'a str, Vec<Box<str>>);

pub(super) struct Descriptor<'a> {
    domain: &'a str,
    /// The composite keys for people, each after a dot. Secret values are hidden.
    shown: String,
    /// The place of the same key without a value; [`None`] if it has none.
    of_key: Option<Vec<Box<str>>>,
    /// True if requests that end here meet no limit of it.
    is_free: bool,
}

impl<'a> Descriptors<'a> {
    pub(super) fn of(rules: &'a RuleSet) -> Self {
        let mut all = Self(HashMap::new());
        for domain in rules.domains() {
            all.add(domain, (&[], ""), domain.nodes());
        }
        all
    }

    fn add(&mut self, domain: &'a Domain, above: (&[Box<str>], &str), nodes: &'a [Node]) {
        for node in nodes {
            let place = |last: &str| -> Vec<Box<str>> {
                let above = above.0.iter().cloned();
                above.chain([last.into()]).collect()
            };
            let path = place(node.pattern());
            let shown = format!("{}.{}", above.1, domain.composite(node.key(), node.value()));
            self.add(domain, (&path, &shown), node.nodes());
            let descriptor = Descriptor {
                domain: domain.name(),
                shown,
                of_key: node.value().map(|_| place(node.key())),
                is_free: node.rules().is_empty() && node.by_plan().next().is_none(),
            };
            self.0.insert((domain.name(), folded(&path)), descriptor);
        }
    }

    pub(super) fn get(&self, domain: &'a str, path: &[Box<str>]) -> Option<&Descriptor<'a>> {
        self.0.get(&(domain, folded(path)))
    }

    /// Says of each descriptor without a limit that `old` does not have which limit of `old_rules` held for its requests, of
    /// those for which `denies` returns true.
    pub(super) fn taken(
        &self,
        old: &Self,
        old_rules: &RuleSet,
        denies: impl Fn(&Rule) -> bool,
    ) -> Vec<String> {
        let is_new = |place: &&Place<'a>| !old.0.contains_key(*place);
        let new = self.0.iter().filter(|(place, _)| is_new(place));
        let warning = |descriptor: &Descriptor<'a>| {
            let of_key = descriptor.of_key.as_ref().filter(|_| descriptor.is_free)?;
            let mut rules = old_rules.rules().iter();
            let held = rules.find(|rule| {
                *rule.domain == *descriptor.domain && is_path(&rule.path, of_key) && denies(rule)
            })?;
            let (Descriptor { domain, shown, .. }, id) = (descriptor, &held.id);
            Some(format!(
                "{domain}{shown}: new, without a limit of its own; {id} held for its requests"
            ))
        };
        new.filter_map(|(_, descriptor)| warning(descriptor))
            .collect()
    }
}

impl Descriptor<'_> {
    pub(super) const fn is_free(&self) -> bool {
        self.is_free
    }

    /// The place of the same key without a value, whose limit holds where this descriptor is not.
    pub(super) fn of_key(&self) -> Option<&[Box<str>]> {
        self.of_key.as_deref()
    }
}

fn folded(path: &[Box<str>]) -> Vec<Box<str>> {
    let parts = path.iter();
    let folded = parts.map(|part| match part.starts_with("path_/") {
        true => part.to_ascii_lowercase().into(),
        false => part.clone(),
    });
    folded.collect()
}
