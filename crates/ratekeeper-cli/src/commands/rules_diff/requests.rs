//! Requests that stand for all that end at a descriptor, and the limits that they meet: the rules themselves match them.

use ratekeeper_rules::{
    Domain, Entry, Evaluation, Matched, Node, PathForm, PlanIndex, Rule, RuleSet, Visit, Walk,
};

/// The entries of a request.
#[derive(Clone, Default)]
pub(super) struct Request(Vec<(String, String)>);

/// The texts in place of a `*`, or of any value. The first one that no descriptor beside it has is as good as all others.
const ANY: [&str; 3] = ["~", "", "~/~"];

impl Request {
    /// A request for each node of `domain`, which ends there.
    pub(super) fn all<'a>(rules: &'a RuleSet, domain: &'a Domain) -> Vec<(Self, &'a Node)> {
        let mut all = Vec::new();
        Self::default().add_below((rules, domain), domain.nodes(), &mut all);
        all
    }

    /// This one, which ends at `node`, with more entries for each node below that.
    pub(super) fn all_below(&self, (rules, domain): (&RuleSet, &Domain), node: &Node) -> Vec<Self> {
        let mut all = Vec::new();
        self.add_below((rules, domain), node.nodes(), &mut all);
        all.into_iter().map(|(request, _)| request).collect()
    }

    /// The entries that it has beyond those of `head`.
    pub(super) fn beyond(mut self, head: &Self) -> Self {
        Self(self.0.split_off(head.0.len()))
    }

    /// This one with the entries of `further`.
    pub(super) fn with(&self, further: &Self) -> Self {
        Self([&*self.0, &*further.0].concat())
    }

    fn add_below<'a>(
        &self,
        (rules, domain): (&'a RuleSet, &'a Domain),
        nodes: &'a [Node],
        all: &mut Vec<(Self, &'a Node)>,
    ) {
        for node in nodes {
            let request = self.then((rules, domain), node);
            all.push((request.clone(), node));
            request.add_below((rules, domain), node.nodes(), all);
        }
    }

    /// This one with an entry for `node`, which lies below: one that finds it, if there is any.
    fn then(&self, (rules, domain): (&RuleSet, &Domain), node: &Node) -> Self {
        let candidates = ANY.iter().flat_map(|any| entries(rules, node, any));
        let candidates = candidates.map(|entry| {
            let mut request = self.clone();
            request.0.push(entry);
            request
        });
        let mut candidates = candidates.peekable();
        let first = candidates.peek().cloned();
        let found = candidates.find(|request| {
            let leaf = request.walk(domain).leaf();
            leaf.is_some_and(|leaf| std::ptr::eq(leaf.node, node))
        });
        found.or(first).unwrap_or_default()
    }

    /// The nodes that it finds.
    pub(super) fn walk<'a>(&self, domain: &'a Domain) -> Walk<'a> {
        let entries = self.0.iter().map(|(key, value)| Entry { key, value });
        domain.walk(&entries.collect::<Vec<_>>())
    }

    /// The rules that are for it on the plan of that name, the default one if there is none.
    pub(super) fn rules<'a>(
        &self,
        (rules, domain): (&'a RuleSet, &'a Domain),
        plan: Option<&str>,
    ) -> Vec<&'a Rule> {
        let walk = self.walk(domain);
        let visits: Vec<Visit<'a>> = match domain.evaluation() {
            Evaluation::Leaf => walk.leaf().into_iter().collect(),
            Evaluation::Path => walk.to_vec(),
        };
        let mut plans = (0..).map(PlanIndex).zip(domain.plans());
        let plan = plans.find(|(_, name)| Some(&***name) == plan);
        let plan = plan.map_or(PlanIndex::DEFAULT, |(plan, _)| plan);
        let indexes = visits.iter().flat_map(|visit| visit.node.rules_on(plan));
        indexes.map(|index| rules.rule(*index)).collect()
    }
}

/// Returns true if one entry found the same place among the rules of both walks.
pub(super) fn is_same(one: &Visit<'_>, other: &Visit<'_>) -> bool {
    let (of_one, of_other) = (one.node.pattern(), other.node.pattern());
    match (one.how, other.how) {
        (Matched::Exact, Matched::Exact) => true,
        // Upper case in paths makes no difference, and else both would not match.
        (one, other) => one == other && of_one.eq_ignore_ascii_case(of_other),
    }
}

/// The entries that may find `node`, with `any` for what it leaves open: as paths are compared first.
fn entries(rules: &RuleSet, node: &Node, any: &str) -> Vec<(String, String)> {
    let key = node.key().replace('*', any);
    let value = node.value().unwrap_or("*").replace('*', any);
    let folding = rules.path_folding_of(&key);
    let forms = [PathForm::Path, PathForm::Endpoint, PathForm::Segment];
    let folded = forms.map(|form| folding.fold(form, &value).into_owned());
    let values = folded.into_iter().chain([value.clone()]);
    values.map(|value| (key.clone(), value)).collect()
}
