//! New descriptors that take requests from limits, and have none for them.

use super::alike;
use super::loosened::{Side, how_often, is_laxer};
use super::requests::{Request, is_same};
use ratekeeper_rules::{Domain, Node, Rule, Visit, Walk};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ptr;
use std::rc::Rc;

/// Says of each descriptor that `before` does not have, and whose requests meet no limit, which one they met. Limits that are
/// `told` of already are left out.
pub(super) fn all(before: &Side<'_>, after: &Side<'_>, told: &BTreeSet<&str>) -> Vec<String> {
    let mut warnings = BTreeMap::new();
    for (domain, requests) in &after.requests {
        if let Some(old) = before.rules.domain(domain.name()) {
            let mut taken = Taken {
                sides: [(before, old), (after, domain)],
                told,
                below: HashMap::new(),
                asked: HashMap::new(),
                warnings: BTreeMap::new(),
            };
            for request in requests {
                taken.ask(request);
            }
            warnings.append(&mut taken.warnings);
        }
    }
    warnings.into_values().collect()
}

/// A domain of the old and the new rules, and what was found out about its requests.
struct Taken<'a> {
    sides: [(&'a Side<'a>, &'a Domain); 2],
    told: &'a BTreeSet<&'a str>,
    /// The entries with which requests that end at a descriptor of the old rules may go on to meet a limit.
    below: HashMap<*const Node, Rc<[Request]>>,
    /// Of a descriptor of the old rules and what takes its place: those of the above that lead to a warning.
    asked: HashMap<(*const Node, String), Rc<[usize]>>,
    /// The warnings by place.
    warnings: BTreeMap<String, String>,
}

impl Taken<'_> {
    /// Adds the warnings of a request of the new rules, and of those that go on from it.
    fn ask(&mut self, request: &Request) {
        let [(_, old), (after, new)] = self.sides;
        let (walk, old_walk) = (request.walk(new), request.walk(old));
        if !is_new(&walk, &old_walk) {
            return;
        }
        let own = self.add(request);
        // It may have kept further entries from the limits below the place where they were before.
        let Some(leaf) = old_walk.leaf() else {
            return;
        };
        let below = self.below(request, leaf.node);
        if below.is_empty() {
            return;
        }
        let key = (ptr::from_ref(leaf.node), alike::text(&walk, new, after));
        if let Some(leading) = self.asked.get(&key).map(Rc::clone) {
            for further in leading.iter().filter_map(|at| below.get(*at)) {
                self.add(&request.with(further));
            }
            return;
        }
        let here = format!("{}.{}", new.name(), shown(&walk, new));
        // Values below have requests of their own: only a pattern has others still.
        let is_all = !walk.is_complete() || !walk.last().is_some_and(|it| has_patterns(it.node));
        let mut places: BTreeSet<String> = own.into_iter().collect();
        let mut leading = Vec::new();
        for (at, further) in below.iter().enumerate() {
            if is_all && places.contains(&here) {
                break;
            }
            let place = self.add(&request.with(further));
            if place.is_some_and(|place| places.insert(place)) {
                leading.push(at);
            }
        }
        self.asked.insert(key, leading.into());
    }

    /// Adds the warning of one request, and returns its place.
    fn add(&mut self, request: &Request) -> Option<String> {
        let (place, warning) = warning(request, self.sides, self.told)?;
        self.warnings.entry(place.clone()).or_insert(warning);
        Some(place)
    }

    /// The entries with which `request`, which ends at `node` of the old rules, may go on to meet a limit there.
    fn below(&mut self, request: &Request, node: &Node) -> Rc<[Request]> {
        let ([(before, old), _], told) = (self.sides, self.told);
        let below = self.below.entry(ptr::from_ref(node)).or_insert_with(|| {
            let all = request.all_below((before.rules, old), node).into_iter();
            let held = all.filter(|it| {
                plans(old).any(|plan| !holds(it, (before, old), plan, told).is_empty())
            });
            held.map(|it| it.beyond(request)).collect()
        });
        Rc::clone(below)
    }
}

/// Returns true if a descriptor right below `node` is for many values.
fn has_patterns(node: &Node) -> bool {
    let mut nodes = node.nodes().iter();
    nodes.any(|node| node.value().is_none() || node.pattern().contains('*'))
}

/// The plans of a domain; without plans, that of no name.
fn plans(domain: &Domain) -> impl Iterator<Item = Option<&str>> {
    domain
        .plans()
        .iter()
        .map(|plan| Some(&**plan))
        .chain([None])
}

/// The rules that denied `request` on a plan, without those that are `told` of.
fn holds<'a>(
    request: &Request,
    (before, old): (&'a Side<'_>, &'a Domain),
    plan: Option<&str>,
    told: &BTreeSet<&str>,
) -> Vec<&'a Rule> {
    let mut rules = request.rules((before.rules, old), plan);
    rules.retain(|rule| before.denies(rule) && !told.contains(&*rule.id));
    rules
}

/// Returns true if the last place that one request finds in `walk` is not one of `old`.
fn is_new(walk: &Walk<'_>, old: &Walk<'_>) -> bool {
    let same = walk.iter().zip(old.iter());
    let same = same.take_while(|(now, before)| is_same(now, before));
    same.count() < walk.len()
}

/// The place that takes `request` from a limit, and a warning of that.
fn warning(
    request: &Request,
    [(before, old), (after, new)]: [(&Side<'_>, &Domain); 2],
    told: &BTreeSet<&str>,
) -> Option<(String, String)> {
    let walk = request.walk(new);
    if !is_new(&walk, &request.walk(old)) {
        return None;
    }
    let (held, now) = plans(old).find_map(|plan| {
        let now = request.rules((after.rules, new), plan);
        let is_free = |held: &&Rule| {
            let mut now = now.iter().filter(|rule| after.denies(rule));
            !now.any(|rule| !is_laxer(rule, held))
        };
        let held = holds(request, (before, old), plan, told);
        let held = held.into_iter().find(is_free)?;
        Some((held, now))
    })?;
    let last = walk.last()?;
    let why = reason(last, walk.is_complete(), &now, after)?;
    let place = format!("{}.{}", new.name(), shown(&walk, new));
    let warning = format!("{place}: new, {why}; {} held for its requests", held.id);
    Some((place, warning))
}

/// Says why the rules that requests meet at a place deny none of them, or fewer; [`None`] if that is told of the rule.
fn reason(last: &Visit<'_>, is_end: bool, now: &[&Rule], after: &Side<'_>) -> Option<String> {
    match now.first() {
        Some(rule) if rule.enabled && rule.limited().is_none() => None,
        Some(rule) => match now.iter().find(|rule| after.denies(rule)) {
            Some(rule) => Some(format!("and is {}", how_often(rule)?)),
            None => Some(format!("and {}", after.why_not(rule)?)),
        },
        None if !is_end && !last.node.rules().is_empty() => {
            Some("without a limit for further entries".to_owned())
        }
        None => Some("without a limit of its own".to_owned()),
    }
}

/// The place for people. Secret values are hidden.
fn shown(walk: &Walk<'_>, domain: &Domain) -> String {
    let nodes = walk.iter().map(|visit| visit.node);
    let parts = nodes.map(|node| domain.composite(node.key(), node.value()));
    parts.collect::<Vec<_>>().join(".")
}
