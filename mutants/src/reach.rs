//! The switches that each test comes by.

use crate::parallel;
use crate::program::{End, Program};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The most that a test may take without a change.
const BOUND: Duration = Duration::from_secs(600);

/// Runs of each test: one with random inputs does not come by the same switches each time.
const RUNS: usize = 2;

/// A test that passes without a change.
pub(crate) struct Test<'a> {
    pub(crate) program: &'a Program,
    pub(crate) name: String,
    pub(crate) took: Duration,
    /// The numbers of the changes.
    pub(crate) reached: BTreeSet<u32>,
}

/// Runs each test alone, and records the switches that it comes by. Tests that fail are named, and left out.
pub(crate) fn record<'a>(programs: &'a [Program], folder: &Path) -> Result<Vec<Test<'a>>> {
    if folder.exists() {
        fs::remove_dir_all(folder).context("cannot remove what was told before")?;
    }
    let mut named = Vec::new();
    for program in programs {
        named.extend(program.tests()?.into_iter().map(|name| (program, name)));
    }
    eprintln!("{} tests run alone, {RUNS} times", named.len());
    let numbered: Vec<_> = named.into_iter().enumerate().collect();
    let tests = parallel::each(&numbered, |(number, (program, name))| {
        let folder = folder.join(number.to_string());
        fs::create_dir_all(&folder).context("cannot make a folder")?;
        let Some(took) = run(program, name, &folder)? else {
            eprintln!("left out, since it fails without a change: {name}");
            return Ok(None);
        };
        Ok(Some(Test {
            program,
            name: name.clone(),
            took,
            reached: told(&folder)?,
        }))
    })?;
    Ok(tests.into_iter().flatten().collect())
}

/// Runs a test some times. Returns the longest that it took, or `None` if it failed.
fn run(program: &Program, name: &str, folder: &Path) -> Result<Option<Duration>> {
    let mut longest = Duration::ZERO;
    for _ in 0..RUNS {
        let start = Instant::now();
        if program.run_telling(name, folder, BOUND)? != End::Passed {
            return Ok(None);
        }
        longest = longest.max(start.elapsed());
    }
    Ok(Some(longest))
}

/// The numbers that all processes have left in a folder.
fn told(folder: &Path) -> Result<BTreeSet<u32>> {
    let mut reached = BTreeSet::new();
    for file in fs::read_dir(folder)? {
        let bytes = fs::read(file?.path())?;
        let (numbers, _) = bytes.as_chunks::<4>();
        reached.extend(numbers.iter().map(|number| u32::from_le_bytes(*number)));
    }
    Ok(reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_processes_tell_is_joined() {
        let folder = std::env::temp_dir().join(format!("reached-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder can be made");
        for (name, numbers) in [("1", &[7_u32, 300][..]), ("2", &[7, 8])] {
            let bytes: Vec<u8> = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
            fs::write(folder.join(name), bytes).expect("it is written");
        }
        let told = told(&folder).expect("it is read");
        fs::remove_dir_all(&folder).expect("it is removed");
        assert_eq!(told, BTreeSet::from([7, 8, 300]));
    }
}
