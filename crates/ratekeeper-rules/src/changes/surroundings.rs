//! The properties of a rule that its domain, its descriptors and its service level have.

use hashbrown::HashMap;

use crate::{Domain, Evaluation, Node, RuleIndex, RuleSet, ServiceLevel};

/// The properties of one rule.
#[derive(Clone, Default)]
pub(super) struct Surroundings<'a> {
    /// The patterns on its path whose values are counted together.
    pub(super) together: Vec<&'a str>,
    /// The key of the tenant's entry, if that stands behind another one: counters are those of the tenant.
    pub(super) subject: Option<&'a str>,
    /// The evaluation of its domain.
    pub(super) evaluation: Option<Evaluation>,
    /// The calls that it is for, if it is a service level's: methods and path.
    pub(super) calls: Option<(String, &'a str)>,
}

impl Surroundings<'_> {
    /// The properties that have changed and identify no counter, in words.
    pub(super) fn changes_since(&self, before: &Self) -> Vec<String> {
        let both = [before, self];
        let spelt = [
            (
                "evaluation",
                both.map(|it| it.evaluation.map(Evaluation::name)),
            ),
            ("methods", both.map(|it| Some(&*it.calls.as_ref()?.0))),
            ("pathPattern", both.map(|it| Some(it.calls.as_ref()?.1))),
        ];
        let spelt = spelt.into_iter().filter_map(|(name, [from, to])| {
            let (from, to) = from.zip(to)?;
            (from != to).then(|| format!("{name} {from} -> {to}"))
        });
        spelt.collect()
    }
}

/// Finds those of all rules.
pub(super) fn all(rules: &RuleSet) -> HashMap<RuleIndex, Surroundings<'_>> {
    let mut found = Found(HashMap::new());
    for domain in rules.domains() {
        let around = Surroundings {
            evaluation: Some(domain.evaluation()),
            ..Surroundings::default()
        };
        found.add(domain, domain.nodes(), (0, &around));
    }
    for level in rules.service_levels() {
        found.add_level(level);
    }
    found.0
}

struct Found<'a>(HashMap<RuleIndex, Surroundings<'a>>);

impl<'a> Found<'a> {
    fn add(
        &mut self,
        domain: &'a Domain,
        nodes: &'a [Node],
        (depth, above): (usize, &Surroundings<'a>),
    ) {
        for node in nodes {
            let mut around = above.clone();
            if node.share_threshold() {
                around.together.push(node.pattern());
            }
            if depth > 0 && domain.tenant() == Some(node.key()) {
                around.subject = domain.tenant();
            }
            let of_plans = node.by_plan().flat_map(|(_, rules)| rules);
            for index in node.rules().iter().chain(of_plans) {
                self.0.insert(*index, around.clone());
            }
            self.add(domain, node.nodes(), (depth + 1, &around));
        }
    }

    fn add_level(&mut self, level: &'a ServiceLevel) {
        let methods = match level.methods.is_empty() {
            true => "all".to_owned(),
            false => level.methods.join(" "),
        };
        let of_plans = level.by_plan.iter().flat_map(|(_, rules)| rules);
        for index in level.rules.iter().chain(of_plans) {
            let calls = Some((methods.clone(), level.pattern.as_str()));
            let around = Surroundings {
                calls,
                ..Surroundings::default()
            };
            self.0.insert(*index, around);
        }
    }
}
