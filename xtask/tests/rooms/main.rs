//! Holds the modules of each crate to one direction.
//!
//! A top-level module is a room: a file in `src`, with the folder of its name. Rooms may need each other in circles of at
//! most three. A use of `crate::Name` that the root exports from a room needs that room. The server's rooms have an order,
//! which `ARCHITECTURE.md` tells.

mod circles;
mod order;
mod paths;
#[path = "../repository/mod.rs"]
mod repository;
mod source;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use circles::{Needs, circles};
use order::Order;
use repository::{read, texts};
use source::Crate;

/// The most rooms that may need each other in a circle.
const CIRCLE_MAX: usize = 3;

#[test]
fn no_circle_has_more_than_three_rooms() {
    let mut told = String::new();
    let crates = needs_of(&["crates/*/src/*.rs", "xtask/src/*.rs"]);
    assert!(crates.len() > 20, "{} crates", crates.len());
    for (name, needs) in crates {
        for circle in circles(&needs) {
            if circle.len() > CIRCLE_MAX {
                tell(&mut told, &name, &circle, &needs);
            }
        }
    }
    assert!(told.is_empty(), "{told}");
}

#[test]
fn the_rooms_of_the_server_are_in_the_order_that_is_told() {
    let crates = needs_of(&["crates/ratekeeper-server/src/*.rs"]);
    let order = Order::read(&read("ARCHITECTURE.md"));
    let told = order.broken_by(&crates["crates/ratekeeper-server"]);
    assert!(told.is_empty(), "{told}");
}

/// The rooms of each crate, and what they need, of the sources that fit these patterns.
fn needs_of(patterns: &[&str]) -> BTreeMap<String, Needs> {
    let mut crates: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (path, text) in texts(patterns) {
        let (name, file) = path.split_once("/src/").expect("a source");
        let sources = crates.entry(name.to_owned()).or_default();
        sources.insert(file.to_owned(), text);
    }
    let crates = crates.into_iter();
    crates
        .map(|(name, sources)| (name, Crate::read(&sources).needs()))
        .collect()
}

/// Tells of a circle, with one use in each direction.
fn tell(told: &mut String, name: &str, circle: &[&str], needs: &Needs) {
    let _ = writeln!(
        told,
        "{name}: {} rooms in a circle: {circle:?}",
        circle.len()
    );
    for from in circle {
        for (to, used) in &needs[*from] {
            if circle.contains(&to.as_str()) {
                let _ = writeln!(told, "  {from} needs {to}: {used}");
            }
        }
    }
}
