//! Changes, put to the tests that reach them.

use crate::changes::Change;
use crate::parallel;
use crate::program::{End, Program};
use crate::reach::Test;
use crate::weed::Compiled;
use anyhow::Result;
use std::ptr;
use std::time::Duration;

/// The bounds between quick tests, slower ones and slow ones: the quick ones run first, since most changes fail one.
const SPEEDS: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(3)];

/// The time that any run with a change may take, beside its tests' own.
const GRACE: Duration = Duration::from_secs(20);

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Caught,
    /// A test does not end: it notices.
    Hung,
    /// It does not compile.
    Uncompilable,
    /// No switch can stand where it is.
    Untried,
    /// All tests pass that reach it, if any does.
    Missed,
}

/// Tries each change that was compiled. The outcomes are in the order of the changes.
pub(crate) fn all(
    changes: &[Change],
    compiled: &Compiled,
    tests: &[Test<'_>],
) -> Result<Vec<Outcome>> {
    let ids: Vec<u32> = (1..).take(changes.len()).collect();
    let numbered: Vec<_> = ids.into_iter().zip(changes).collect();
    parallel::each(&numbered, |(id, change)| {
        if compiled.uncompilable.contains(id) {
            return Ok(Outcome::Uncompilable);
        }
        if !compiled.live.contains(id) {
            return Ok(Outcome::Untried);
        }
        let outcome = one(*id, tests)?;
        if outcome == Outcome::Missed {
            eprintln!("missed: {}", change.name);
        }
        Ok(outcome)
    })
}

/// Runs the tests that reach a change with it, until one fails.
fn one(id: u32, tests: &[Test<'_>]) -> Result<Outcome> {
    for group in groups(id, tests) {
        match twice(|| group.run(id))? {
            End::Passed => {}
            End::Failed => return Ok(Outcome::Caught),
            End::Hung => return Ok(Outcome::Hung),
        }
    }
    Ok(Outcome::Missed)
}

/// The end of a second run where the first does not pass: a busy machine, or one that stood still, fails a test too.
fn twice(mut run: impl FnMut() -> Result<End>) -> Result<End> {
    match run()? {
        End::Passed => Ok(End::Passed),
        End::Failed | End::Hung => run(),
    }
}

/// Tests of one program and one speed.
struct Group<'a> {
    program: &'a Program,
    tests: Vec<&'a Test<'a>>,
}

impl Group<'_> {
    fn run(&self, id: u32) -> Result<End> {
        let names: Vec<&str> = self.tests.iter().map(|test| test.name.as_str()).collect();
        let own: Duration = self.tests.iter().map(|test| test.took).sum();
        self.program.run_changed(&names, id, GRACE + own * 5)
    }
}

/// The tests that reach a change, the quickest first.
fn groups<'a>(id: u32, tests: &'a [Test<'a>]) -> Vec<Group<'a>> {
    let mut reaching: Vec<_> = tests.iter().filter(|it| it.reached.contains(&id)).collect();
    // Stable: the tests of a program stay together.
    reaching.sort_by_key(|test| speed(test));
    let alike =
        |a: &&Test<'_>, b: &&Test<'_>| speed(a) == speed(b) && ptr::eq(a.program, b.program);
    let groups = reaching.chunk_by(alike);
    let group = |tests: &[&'a Test<'a>]| {
        let program = tests.first()?.program;
        let tests = tests.to_vec();
        Some(Group { program, tests })
    };
    groups.filter_map(group).collect()
}

fn speed(test: &Test<'_>) -> usize {
    SPEEDS.iter().filter(|bound| test.took >= **bound).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_test_that_fails_once_in_two_runs_does_not_notice() {
        let ends = |ends: [End; 2]| {
            let mut ends = ends.into_iter();
            twice(|| Ok(ends.next().expect("two runs"))).expect("an end")
        };
        assert_eq!(ends([End::Failed, End::Passed]), End::Passed);
        assert_eq!(ends([End::Hung, End::Passed]), End::Passed);
        assert_eq!(ends([End::Hung, End::Failed]), End::Failed);
    }

    #[test]
    fn quick_tests_of_a_program_run_first_and_together() {
        let programs = ["a", "b"].map(|path| Program {
            path: path.into(),
            folder: path.into(),
        });
        let [a, b] = &programs;
        let test = |program, name: &str, took, reached: &[u32]| Test {
            program,
            name: name.to_owned(),
            took: Duration::from_millis(took),
            reached: BTreeSet::from_iter(reached.iter().copied()),
        };
        let tests = [
            test(a, "slow", 5_000, &[1]),
            test(a, "quick", 1, &[1, 2]),
            test(a, "elsewhere", 1, &[2]),
            test(a, "as quick", 2, &[1]),
            test(b, "other", 299, &[1]),
        ];
        let groups = groups(1, &tests);
        let names = groups.iter().map(|group| {
            let names = group.tests.iter().map(|test| test.name.as_str());
            names.collect::<Vec<_>>()
        });
        let expected = [&["quick", "as quick"][..], &["other"], &["slow"]];
        assert!(names.eq(expected));
    }
}
