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
use std::path::{Path, PathBuf};

use circles::{Needs, circles};
use repository::root;
use source::Crate;

/// The most rooms that may need each other in a circle.
const CIRCLE_MAX: usize = 3;

#[test]
fn no_circle_has_more_than_three_rooms() {
    let mut told = String::new();
    for folder in crates() {
        let sources = files(&folder.join("src"));
        let needs = Crate::read(&sources).needs();
        for circle in circles(&needs) {
            if circle.len() > CIRCLE_MAX {
                let name = folder.file_name().unwrap_or_default().to_string_lossy();
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

/// The folders of all crates.
fn crates() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("crates")).expect("there are crates");
    let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    folders.push(root().join("xtask"));
    folders.sort();
    folders
}

/// The Rust files below a folder, by their path in it.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next)
            .expect("a folder of sources")
            .flatten()
        {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source is text");
                let name = path.strip_prefix(folder).expect("it lies there");
                found.insert(name.display().to_string(), text);
            }
        }
    }
    found
}
