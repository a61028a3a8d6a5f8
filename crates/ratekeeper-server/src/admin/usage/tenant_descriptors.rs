//! The descriptors of a tenant that can be told from the rules and from its own limits.

use std::collections::BTreeSet;

use ratekeeper_rules::{Domain, Entry, LEVEL_KEYS, Node, ServiceLevel, TENANT};

/// Descriptors of a tenant.
#[derive(Debug, Default)]
pub(super) struct TenantDescriptors<'a> {
    /// The entries of those whose values the rules have.
    pub(super) lists: Vec<Vec<Entry<'a>>>,
    /// The patterns of those whose values only requests have.
    pub(super) dynamic: BTreeSet<String>,
    /// True if there are more than were looked for.
    pub(super) is_cut: bool,
}

/// The descriptors of the tenant that `own` names, at most `most`.
pub(super) fn descriptors<'a>(
    domain: &'a Domain,
    own: Entry<'a>,
    most: usize,
) -> TenantDescriptors<'a> {
    let mut search = Search {
        domain,
        own,
        most,
        above: Vec::new(),
        known: TenantDescriptors::default(),
    };
    search.among(domain.nodes(), false);
    search.known
}

impl<'a> TenantDescriptors<'a> {
    /// Adds the counters of a tenant for service levels, as long as there are at most `most` lists.
    pub(super) fn add_levels(&mut self, levels: &'a [ServiceLevel], own: Entry<'a>, most: usize) {
        let [level_key, method_key] = LEVEL_KEYS;
        for level in levels.iter().filter(|level| level.enabled) {
            if level.methods.is_empty() {
                let pattern = format!("{level_key}:{},{method_key}:*", level.id);
                self.dynamic.insert(pattern);
            }
            for method in &level.methods {
                if self.lists.len() >= most {
                    self.is_cut = true;
                    return;
                }
                let own = own_of(level, own);
                let entry = |key, value| Entry { key, value };
                let entries = [own, entry(level_key, &level.id), entry(method_key, method)];
                self.lists.push(entries.to_vec());
            }
        }
    }

    /// Adds the descriptors of a tenant's own limits, given the entries after the tenant's, as long as there are at
    /// most `most` lists.
    pub(super) fn add_overrides(&mut self, all: Vec<Vec<Entry<'a>>>, own: Entry<'a>, most: usize) {
        for after in all {
            let list: Vec<_> = std::iter::once(own).chain(after).collect();
            if self.lists.contains(&list) {
                continue;
            }
            if self.lists.len() >= most {
                self.is_cut = true;
                return;
            }
            self.lists.push(list);
        }
    }
}

/// The entry that names the tenant of `own` in the counters of `level`.
pub(super) fn own_of<'a>(level: &ServiceLevel, own: Entry<'a>) -> Entry<'a> {
    let is_in_path = level.pattern.variables().any(|name| name == TENANT);
    let key = if is_in_path { TENANT } else { own.key };
    Entry { key, ..own }
}

struct Search<'a> {
    domain: &'a Domain,
    own: Entry<'a>,
    most: usize,
    /// The entries on the way to the nodes that are looked at.
    above: Vec<Entry<'a>>,
    known: TenantDescriptors<'a>,
}

impl<'a> Search<'a> {
    fn among(&mut self, nodes: &'a [Node], has_tenant: bool) {
        for node in nodes {
            if self.known.lists.len() >= self.most || self.known.dynamic.len() >= self.most {
                self.known.is_cut = true;
                return;
            }
            let is_tenant = !has_tenant && node.key() == self.own.key;
            let is_fixed = |text: &&str| !text.is_empty() && !text.contains('*');
            let entry = match node.value().filter(is_fixed) {
                _ if is_tenant => self.own,
                Some(value) if is_fixed(&node.key()) => Entry {
                    key: node.key(),
                    value,
                },
                _ => {
                    if has_tenant {
                        self.known.dynamic.insert(self.pattern(node));
                    }
                    continue;
                }
            };
            self.above.push(entry);
            // A request takes one of the nodes of its key: for this value it may be another one.
            let walk = self.domain.walk(&self.above);
            let is_taken = walk.len() == self.above.len()
                && walk
                    .last()
                    .is_some_and(|visit| std::ptr::eq(visit.node, node));
            if is_taken {
                let has_tenant = has_tenant || is_tenant;
                if has_tenant {
                    self.known.lists.push(self.above.clone());
                }
                self.among(node.nodes(), has_tenant);
            }
            self.above.pop();
        }
    }

    /// The entries after the tenant's, with `*` for what requests bring.
    fn pattern(&self, node: &Node) -> String {
        let after = self.above.iter().filter(|entry| entry.key != self.own.key);
        let mut parts: Vec<_> = after
            .map(|entry| format!("{}:{}", entry.key, entry.value))
            .collect();
        parts.push(format!(
            "{}:{}",
            node.key(),
            node.value()
                .filter(|value| !value.is_empty())
                .unwrap_or("*")
        ));
        parts.join(",")
    }
}
