//! Holds the modules of each crate to one direction.
//!
//! A top-level module is a room: a file in `src`, with the folder of its name. Rooms may need each other in circles of at
//! most three. A use of `crate::Name` that the root exports from a room needs that room.

mod circles;
mod paths;
#[path = "../repository/mod.rs"]
mod repository;
mod source;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use circles::{Needs, circles};
use repository::texts;
use source::Crate;

/// The most rooms that may need each other in a circle.
const CIRCLE_MAX: usize = 3;

#[test]
fn no_circle_has_more_than_three_rooms() {
    let mut told = String::new();
    let mut crates: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (path, text) in texts(&["crates/*/src/*.rs", "xtask/src/*.rs"]) {
        let (name, file) = path.split_once("/src/").expect("a source");
        let sources = crates.entry(name.to_owned()).or_default();
        sources.insert(file.to_owned(), text);
    }
    assert!(crates.len() > 20, "{} crates", crates.len());
    for (name, sources) in crates {
        let needs = Crate::read(&sources).needs();
        for circle in circles(&needs) {
            if circle.len() > CIRCLE_MAX {
                tell(&mut told, &name, &circle, &needs);
            }
        }
    }
    assert!(told.is_empty(), "{told}");
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
