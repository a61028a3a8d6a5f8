//! All changes that compile, compiled at once.

use crate::Args;
use crate::changes::{Change, Genre};
use crate::compile::{self, Diagnostic, Place};
use crate::program::Program;
use crate::render::{Switch, render};
use crate::{switch, tree};
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The most builds. Each shows errors of one stage of the compiler, which hide the next one's.
const BUILDS_MAX: usize = 40;

/// Errors that come of a switch, and not of the change: a value that is needed when compiled, or is gone too soon, a place
/// that is a value no longer, and arms that no longer are all.
const OF_SWITCHES: [&str; 6] = ["E0004", "E0005", "E0015", "E0070", "E0597", "E0716"];

/// The length of a match, in bytes, whose arms may be why it does not cover all.
const MATCH_BYTES: usize = 2_000;

/// Programs with all changes that compile.
#[derive(Default)]
pub(crate) struct Compiled {
    pub(crate) programs: Vec<Program>,
    /// The changes that are behind a switch.
    pub(crate) live: BTreeSet<u32>,
    /// The changes that do not compile.
    pub(crate) uncompilable: BTreeSet<u32>,
}

/// Findings of builds so far.
#[derive(Default)]
struct Known {
    uncompilable: BTreeSet<u32>,
    /// Changes that would compile, but not behind a switch.
    unswitchable: BTreeSet<u32>,
    /// Functions that have to stay `const`.
    constants: BTreeSet<String>,
}

/// Changes, files and switches of the package.
struct Files<'a> {
    root: &'a Path,
    tree: &'a Path,
    /// The root of the crate, which gets the function behind the switches.
    lib: String,
    by_file: BTreeMap<String, Vec<(u32, &'a Change)>>,
    changes: &'a [Change],
}

/// The switches of each file.
type Switches = BTreeMap<String, Vec<Switch>>;

/// Builds the package's tests with all changes, and without those that do not compile, until they build.
pub(crate) fn weed(args: &Args, tree: &Path, changes: &[Change]) -> Result<Compiled> {
    let files = Files::new(&args.root, tree, &args.package, changes)?;
    let mut known = Known::default();
    for _ in 0..BUILDS_MAX {
        let switches = files.write(&known)?;
        let build = compile::tests(tree, &args.package, &args.work.join("build"))?;
        if build.succeeded {
            let ids = switches.values().flatten().flat_map(|it| it.ids.clone());
            return Ok(Compiled {
                programs: build.programs,
                live: ids.collect(),
                uncompilable: known.uncompilable,
            });
        }
        ensure!(
            !build.errors.is_empty(),
            "the build ended without an error of the code's: it was stopped, or cargo failed"
        );
        let before = known.len();
        for error in &build.errors {
            files.learn(&mut known, &switches, error);
        }
        let errors = build.errors.iter().filter_map(|it| it.rendered.as_deref());
        ensure!(
            known.len() > before,
            "it does not compile for reasons other than the changes:\n{}",
            errors.collect::<Vec<_>>().join("\n")
        );
        eprintln!(
            "{} errors, of which the next build is without",
            build.errors.len()
        );
    }
    bail!("it does not compile after {BUILDS_MAX} builds")
}

impl Known {
    fn len(&self) -> usize {
        self.uncompilable.len() + self.unswitchable.len() + self.constants.len()
    }

    fn left_out(&self) -> BTreeSet<u32> {
        &self.uncompilable | &self.unswitchable
    }
}

impl<'a> Files<'a> {
    fn new(
        root: &'a Path,
        tree: &'a Path,
        package: &str,
        changes: &'a [Change],
    ) -> Result<Files<'a>> {
        let lib = format!("crates/{package}/src/lib.rs");
        ensure!(root.join(&lib).is_file(), "{lib} is missing");
        let mut by_file: BTreeMap<_, Vec<_>> = BTreeMap::from([(lib.clone(), Vec::new())]);
        for (id, change) in (1..).zip(changes) {
            let of_file = by_file.entry(change.file.clone()).or_default();
            of_file.push((id, change));
        }
        Ok(Files {
            root,
            tree,
            lib,
            by_file,
            changes,
        })
    }

    /// Writes all files with the switches that are known to compile.
    fn write(&self, known: &Known) -> Result<Switches> {
        let left_out = known.left_out();
        let mut switches = Switches::new();
        for (file, changes) in &self.by_file {
            let text = fs::read_to_string(self.root.join(file))
                .with_context(|| format!("cannot read {file}"))?;
            let mut rendered = render(&text, changes, &left_out, &known.constants)
                .with_context(|| format!("in {file}"))?;
            if *file == self.lib {
                rendered.text += &switch::function(self.changes.len());
            }
            tree::write(&self.tree.join(file), rendered.text.as_bytes())?;
            switches.insert(file.clone(), rendered.switches);
        }
        Ok(switches)
    }

    /// Learns from an error of the compiler.
    fn learn(&self, known: &mut Known, switches: &Switches, error: &Diagnostic) {
        let called = constant(error).filter(|name| name != switch::NAME);
        if let Some(name) = called {
            known.constants.insert(name);
            return;
        }
        let ids = self.blamed(switches, error);
        if error.has_code(&OF_SWITCHES) {
            known.unswitchable.extend(ids);
        } else {
            known.uncompilable.extend(ids);
        }
    }

    /// The changes that an error is of: the innermost around it; else those within what it is about; else the nearest
    /// before it.
    fn blamed(&self, switches: &Switches, error: &Diagnostic) -> BTreeSet<u32> {
        let primary = error.spans.iter().filter(|place| place.is_primary);
        let of = |place: &Place| switches.get(&place.file_name).into_iter().flatten();
        if error.has_code(&["E0004", "E0005"]) {
            let arms = primary.clone().flat_map(|place| {
                let near = place.byte_start..place.byte_start + MATCH_BYTES;
                of(place).filter(move |it| near.contains(&it.at.start) && self.is_arm(it))
            });
            return arms.flat_map(|it| it.ids.clone()).collect();
        }
        let around = primary.clone().filter_map(|place| {
            let around = of(place)
                .filter(|it| it.at.start <= place.byte_start && place.byte_end <= it.at.end);
            around.min_by_key(|it| it.at.len())
        });
        let within = error.spans.iter().flat_map(|place| {
            of(place).filter(|it| place.byte_start <= it.at.start && it.at.end <= place.byte_end)
        });
        let before = primary.clone().filter_map(|place| {
            let before = of(place).filter(|it| it.at.end <= place.byte_start);
            before.max_by_key(|it| it.at.end)
        });
        let all = |them: &mut dyn Iterator<Item = &Switch>| -> BTreeSet<u32> {
            them.flat_map(|it| it.ids.clone()).collect()
        };
        let mut ids = all(&mut around.into_iter());
        if ids.is_empty() {
            ids = all(&mut within.into_iter());
        }
        if ids.is_empty() {
            ids = all(&mut before.into_iter());
        }
        ids
    }

    fn is_arm(&self, switch: &Switch) -> bool {
        let genre = |id: &u32| self.changes.get(*id as usize - 1).map(|it| it.genre);
        switch
            .ids
            .iter()
            .any(|id| genre(id) == Some(Genre::MatchArm))
    }
}

/// The name of the function that an error wants to be `const`.
fn constant(error: &Diagnostic) -> Option<String> {
    let rest = error.message.strip_prefix("cannot call non-const ")?;
    let path = rest.split('`').nth(1)?;
    // Types of the function itself are at the end, those of its type before.
    let types = path.rfind("::<").filter(|_| path.ends_with('>'));
    let path = path.get(..types.unwrap_or(path.len()))?;
    path.rsplit("::").next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error(message: &str, code: &str, at: (usize, usize)) -> Diagnostic {
        let span = json!({
            "file_name": "a.rs", "byte_start": at.0, "byte_end": at.1, "is_primary": true
        });
        let error = json!({
            "level": "error", "message": message, "code": { "code": code }, "spans": [span]
        });
        serde_json::from_value(error).expect("an error")
    }

    #[test]
    fn a_function_that_has_to_be_const_is_named() {
        let name = |path: &str| {
            let message = format!("cannot call non-const function `{path}` in constants");
            constant(&error(&message, "E0015", (0, 0)))
        };
        for path in ["a", "B::a", "B::<C>::a", "<B as C>::a", "b::a::<C>"] {
            assert_eq!(name(path).as_deref(), Some("a"), "{path}");
        }
        assert_eq!(constant(&error("mismatched types", "E0308", (0, 0))), None);
    }

    #[test]
    fn an_error_is_of_the_innermost_switch_around_it() {
        let switch = |at, id| Switch { at, ids: vec![id] };
        let switches = vec![switch(10..50, 1), switch(20..30, 2), switch(60..70, 3)];
        let switches = Switches::from([("a.rs".to_owned(), switches)]);
        let files = Files {
            root: Path::new(""),
            tree: Path::new(""),
            lib: String::new(),
            by_file: BTreeMap::new(),
            changes: &[],
        };
        for (at, id) in [((22, 24), 2), ((35, 40), 1), ((55, 80), 3), ((90, 95), 3)] {
            let mut known = Known::default();
            files.learn(&mut known, &switches, &error("mismatched", "E0308", at));
            assert_eq!(known.uncompilable, BTreeSet::from([id]), "{at:?}");
        }
        let mut known = Known::default();
        files.learn(
            &mut known,
            &switches,
            &error("too short", "E0716", (22, 24)),
        );
        assert_eq!(known.unswitchable, BTreeSet::from([2]));
    }
}
