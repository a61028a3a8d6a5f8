//! Tables: made-up keys that fill the memory of counters with denials, so that a new key finds no room.

use std::path::Path;

use anyhow::{Context, Result};
use ratekeeper_testkit::http1::ask;

use crate::plan::Plan;
use crate::row::{Fate, Row};
use crate::target::{self, JSON, Setup, Target};

/// A rule against guessing: what cannot be counted is denied.
const RULES: &str = "
domain: api
descriptors:
  - key: user
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
    on_store_failure: deny
";

/// Room for some thousand counters.
const SETTINGS: &str = "memory_limit: 1MiB\n";

/// Made-up keys, many times what there is room for: more than twice as many in each form.
const KEYS: u32 = 200_000;
const KEYS_MIN: u32 = 40_000;

/// Keys that come when the table is full, each of them this often.
const NEW: u32 = 300;
const TIMES: u32 = 4;

/// Checks in one request.
const BATCH: u32 = 500;

pub(crate) fn attack(program: &Path, plan: &Plan) -> Result<Vec<Row>> {
    let service = Setup::serve(program).start_with(RULES, SETTINGS);
    let before = service.process.allocated_kib();
    let mut row = Row::new("a table full of denials, service");
    let keys = (KEYS / plan.divisor).max(KEYS_MIN);
    for first in (0..keys).step_by(BATCH as usize) {
        // Twice each, so that every counter denies.
        for _ in 0..2 {
            let names = (first..first + BATCH).map(|number| format!("made-up-{number}"));
            check(&service, names)?;
        }
    }
    for number in 0..NEW {
        let name = || (0..TIMES).map(|_| format!("new-{number}"));
        let allowed = check(&service, name())?;
        let over = allowed.saturating_sub(1);
        for attempt in 0..TIMES {
            let fate = match attempt {
                attempt if attempt < over => Fate::Passed,
                attempt if attempt < allowed => Fate::Harmless,
                _ => Fate::Limited,
            };
            row.count(
                fate,
                format!("new-{number}: {allowed} of {TIMES} were allowed"),
            );
        }
    }
    row.measure(&service.process);
    // Beside the table there are records of who is denied, and pages that the allocator keeps: with four million keys 12 MiB
    // in all, and in a build without optimisation 13 with these, or 17 on a busy machine, where records of more seconds are
    // kept. A table without a bound would take 13 more.
    let grown = service.process.allocated_kib().saturating_sub(before);
    row.most("KiB of a table of 1 MiB", grown, 20 << 10);
    Ok(vec![row])
}

/// Takes one hit of each user in turn, and answers how many of these were allowed.
fn check(service: &Target, users: impl Iterator<Item = String>) -> Result<u32> {
    let checks: Vec<_> = users.map(|user| target::check("user", &user, "")).collect();
    let body = format!(r#"{{"checks":[{}]}}"#, checks.join(","));
    let answer = ask(service.port, "POST", "/v1/checks", JSON, &body).context("no answer")?;
    anyhow::ensure!(answer.status == 200, "{}: {}", answer.status, answer.body);
    let allowed = answer.body.matches(r#""decision":"allow""#).count();
    Ok(u32::try_from(allowed)?)
}
