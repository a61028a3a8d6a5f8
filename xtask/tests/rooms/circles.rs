//! Rooms that need each other.

use std::collections::{BTreeMap, BTreeSet};

/// Each room, the rooms that it needs, and one use of each.
pub(crate) type Needs = BTreeMap<String, BTreeMap<String, String>>;

/// The circles: the largest sets of two or more rooms of which each needs each, by the way of others too.
pub(crate) fn circles(needs: &Needs) -> Vec<Vec<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = needs
        .keys()
        .map(|room| (room.as_str(), reached_from(room, needs)))
        .collect();
    let mut circles = Vec::new();
    let mut seen = BTreeSet::new();
    for (room, to) in &reached {
        let circle: Vec<&str> = to
            .iter()
            .filter(|other| reached.get(*other).is_some_and(|back| back.contains(room)))
            .copied()
            .collect();
        if circle.len() > 1 && seen.insert(circle.clone()) {
            circles.push(circle);
        }
    }
    circles
}

fn reached_from<'n>(room: &str, needs: &'n Needs) -> BTreeSet<&'n str> {
    let mut reached = BTreeSet::new();
    let mut next = vec![room];
    while let Some(room) = next.pop() {
        for to in needs.get(room).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(to.as_str()) {
                next.push(to);
            }
        }
    }
    reached
}

#[test]
fn circles_are_found_by_the_way_of_others() {
    let needs = |pairs: &[(&str, &str)]| {
        let mut needs = Needs::new();
        for (from, to) in pairs {
            let to = ((*to).to_owned(), String::new());
            needs.entry((*from).to_owned()).or_default().extend([to]);
        }
        needs
    };
    let one = needs(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "a")]);
    assert_eq!(circles(&one), [["a", "b", "c"]]);
    let two = needs(&[("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "c")]);
    assert_eq!(circles(&two), [["a", "b"], ["c", "d"]]);
    assert!(circles(&needs(&[("a", "b"), ("a", "c"), ("b", "c")])).is_empty());
}
