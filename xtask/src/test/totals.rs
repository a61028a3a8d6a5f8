//! The counts of tests, read from what test programs print.

/// The totals over test programs.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) ignored: u64,
    pub(super) names_failed: Vec<String>,
    started: u64,
    ended: u64,
}

impl Totals {
    /// The totals of all that a program has printed.
    pub(super) fn of(output: &str) -> Self {
        let mut totals = Self::default();
        output.lines().for_each(|line| totals.add(line));
        totals
    }

    /// True if as many runs have ended as were started, and each failed test is known by its name. One of several runs
    /// may have been killed.
    pub(super) fn are_whole(&self) -> bool {
        self.started == self.ended && self.failed == self.names_failed.len() as u64
    }

    /// Adds those of another program.
    pub(super) fn join(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.names_failed.extend_from_slice(&other.names_failed);
        self.started += other.started;
        self.ended += other.ended;
    }

    /// Adds a line of libtest: `test result: ok. 3 passed; 0 failed; 1 ignored; …` or `test NAME ... FAILED`.
    pub(super) fn add(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("test ")
            && let Some(name) = test.strip_suffix(" ... FAILED")
        {
            let name = name.strip_suffix(" - should panic").unwrap_or(name);
            self.names_failed.push(name.to_owned());
        }
        let is_start =
            line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test"));
        self.started += u64::from(is_start);
        let Some(counts) = line.strip_prefix("test result: ") else {
            return;
        };
        self.ended += 1;
        for part in counts.split([';', '.']) {
            match part.trim().split_once(' ') {
                Some((count, "passed")) => self.passed += count.parse().unwrap_or(0),
                Some((count, "failed")) => self.failed += count.parse().unwrap_or(0),
                Some((count, "ignored")) => self.ignored += count.parse().unwrap_or(0),
                _ => {}
            }
        }
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            passed,
            failed,
            ignored,
            ..
        } = self;
        write!(f, "{passed} passed, {failed} failed, {ignored} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::Totals;

    #[test]
    fn totals_add_up_over_test_programs() {
        let mut totals = Totals::of(
            "running 5 tests
test it::holds ... ok
test it::breaks ... FAILED
test it::panics - should panic ... FAILED
test result: FAILED. 2 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        );
        assert_eq!(totals.names_failed, ["it::breaks", "it::panics"]);
        totals.join(&Totals::of(
            "running 6 tests
test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.01s",
        ));
        assert_eq!(totals.to_string(), "6 passed, 2 failed, 1 skipped");
        assert!(totals.are_whole());
        totals.add("running 1 test");
        assert!(!totals.are_whole(), "one did not end");
    }
}
