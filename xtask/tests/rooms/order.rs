//! The order that `ARCHITECTURE.md` gives the rooms of the server.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::circles::Needs;

/// The words that the sentence of the order begins with, and those of the one that names rooms which know none.
const ORDER: &str = "Each of its modules knows only those after it:";
const KNOWING_NONE: &str = "All of them may use ";

/// The place of each room: a room may need those of larger places alone.
pub(crate) struct Order {
    places: BTreeMap<String, usize>,
}

impl Order {
    /// Reads the sentence: rooms in backticks, of which those between two dots have the same place, and then those that
    /// know none.
    pub(crate) fn read(text: &str) -> Self {
        let (_, order) = text.split_once(ORDER).expect("the order is told");
        let (order, rest) = order.split_once(KNOWING_NONE).expect("so are the last");
        let (last, _) = rest.split_once("which know none").expect("they know none");
        let groups = order.split('·').chain([last]).enumerate();
        let places = groups.flat_map(|(place, group)| {
            let names = group.split('`').skip(1).step_by(2);
            names.map(move |name| (name.to_owned(), place))
        });
        Self {
            places: places.collect(),
        }
    }

    /// Tells of each room that has no place, of each name without a room, and of each need of a room that does not come after.
    pub(crate) fn broken_by(&self, needs: &Needs) -> String {
        let mut told = String::new();
        for name in self.places.keys().filter(|name| !needs.contains_key(*name)) {
            let _ = writeln!(told, "there is no room {name}");
        }
        for (room, others) in needs {
            let Some(place) = self.places.get(room) else {
                let _ = writeln!(told, "{room} has no place");
                continue;
            };
            for (other, used) in others {
                if self.places.get(other).is_none_or(|after| after <= place) {
                    let _ = writeln!(told, "{room} needs {other}: {used}");
                }
            }
        }
        told
    }
}

#[test]
fn a_use_against_the_order_is_told() {
    let text = "Of a: Each of its modules knows only those after it: `a` (starts) · `b`, `c`\n· `d`, the last. All of \
                them may use `e`, some text, and `f`, which know none.\n\nOf `z`.";
    let order = Order::read(text);
    let broken_by = |pairs: &[(&str, &str)]| {
        let rooms = ["a", "b", "c", "d", "e", "f"].map(|room| (room.to_owned(), BTreeMap::new()));
        let mut needs = Needs::from(rooms);
        for (from, to) in pairs {
            let of_room = needs.entry((*from).to_owned()).or_default();
            of_room.insert((*to).to_owned(), "a use".to_owned());
        }
        order.broken_by(&needs)
    };
    let along = [("a", "b"), ("a", "d"), ("b", "d"), ("b", "e"), ("d", "f")];
    assert_eq!(broken_by(&along), "");
    for against in [("d", "b"), ("b", "c"), ("e", "f"), ("f", "a")] {
        let told = format!("{} needs {}: a use\n", against.0, against.1);
        assert_eq!(broken_by(&[along[0], against]), told);
    }
    let unknown = broken_by(&[("g", "b"), ("a", "g")]);
    assert_eq!(unknown, "a needs g: a use\ng has no place\n");
    let none = order.broken_by(&Needs::new());
    assert_eq!(none.matches("there is no room").count(), 6, "{none}");
}
