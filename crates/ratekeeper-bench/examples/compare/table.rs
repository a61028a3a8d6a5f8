//! All results, as text and as JSON.

use std::fmt;
use std::time::Instant;

use anyhow::Result;
use ratekeeper_bench::Keys;
use serde::Serialize;

use crate::Plan;
use crate::instructions::Instructions;
use crate::loads::SPREADS;
use crate::machine;
use crate::versus::{By, Side, Versus};

/// Medians of a server that is not compared with another.
#[derive(Debug, Serialize)]
pub(crate) struct Alone(pub(crate) Side);

/// Memory that counters take.
#[derive(Debug, Serialize)]
pub(crate) struct Memory {
    pub(crate) who: &'static str,
    pub(crate) keys: u32,
    pub(crate) bytes_per_key: f64,
    pub(crate) resident_bytes: u64,
    pub(crate) seconds: f64,
}

/// All results. Its serde form is `target/bench/grpc.json`, or `redis.json`.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    machine: String,
    load_average_before: f64,
    seconds_per_run: f64,
    versus: Vec<Versus>,
    alone: Vec<(String, Alone)>,
    memory: Vec<Memory>,
    instructions: Option<Instructions>,
    /// Notes for the reader.
    notes: Vec<String>,
    /// Results that are missing, each with the reason.
    missing: Vec<(String, String)>,
}

impl Table {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            machine: machine::describe(),
            load_average_before: machine::load_average(),
            seconds_per_run: plan.run.as_secs_f64(),
            versus: Vec::new(),
            alone: Vec::new(),
            memory: Vec::new(),
            instructions: None,
            notes: Vec::new(),
            missing: Vec::new(),
        }
    }

    pub(crate) fn versus(
        &mut self,
        plan: &Plan,
        name: &str,
        compare: impl FnOnce(&str) -> Result<Versus>,
    ) {
        if let Some(versus) = self.step(plan, name, || compare(name)) {
            let [ratio, more] = compared(&versus);
            eprintln!("{}: {ratio}; CPU {more} us", versus.name);
            self.versus.push(versus);
        }
    }

    /// Compares with each spread of keys; each name begins with `what`.
    pub(crate) fn spreads(
        &mut self,
        plan: &Plan,
        what: &str,
        compare: impl Fn(&str, Keys) -> Result<Versus>,
    ) {
        for (spread, keys) in SPREADS {
            let name = format!("{what}, {spread}");
            self.versus(plan, &name, |name| compare(name, keys));
        }
    }

    pub(crate) fn alone(&mut self, plan: &Plan, name: &str, run: impl FnOnce() -> Result<Alone>) {
        if let Some(alone) = self.step(plan, name, run) {
            self.alone.push((name.to_owned(), alone));
        }
    }

    pub(crate) fn memory(
        &mut self,
        plan: &Plan,
        name: &str,
        run: impl FnOnce() -> Result<Vec<Memory>>,
    ) {
        if let Some(rows) = self.step(plan, name, run) {
            self.memory = rows;
        }
    }

    pub(crate) fn instructions(
        &mut self,
        plan: &Plan,
        name: &str,
        count: impl FnOnce() -> Result<Instructions>,
    ) {
        self.instructions = self.step(plan, name, count);
    }

    pub(crate) fn add_note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Runs one comparison if it is selected and time is left. A failed one leaves a note, and the
    /// others continue.
    fn step<T>(&mut self, plan: &Plan, name: &str, run: impl FnOnce() -> Result<T>) -> Option<T> {
        if !plan.only.is_empty() && !plan.only.iter().any(|only| name.contains(only)) {
            return None;
        }
        let result = if Instant::now() > plan.deadline {
            Err(anyhow::anyhow!("no time was left for it"))
        } else {
            eprintln!("{name} …");
            run()
        };
        match result {
            Ok(result) => Some(result),
            Err(error) => {
                eprintln!("{name}: {error:#}");
                self.missing.push((name.to_owned(), format!("{error:#}")));
                None
            }
        }
    }

    /// Half of the maximum rate of the constant server with that spread of keys.
    pub(crate) fn half_load(&self, spread: &str) -> Option<f64> {
        let name = format!("closed, {spread}");
        let found = self.versus.iter().find(|versus| versus.name == name)?;
        Some((found.theirs.decisions_per_second / 2.0 / 1_000.0).round() * 1_000.0)
    }

    /// The number of results that are missing.
    pub(crate) const fn missing(&self) -> usize {
        self.missing.len()
    }
}

/// The ratio of both, and the processor time that ours takes more, in microseconds.
fn compared(versus: &Versus) -> [String; 2] {
    let by = match versus.by {
        By::Rate => "rate",
        By::Cpu => "CPU",
    };
    let wide = match versus.converged {
        true => "",
        false => ", wider than 3 %",
    };
    let ((ratio, low, high), pairs) = (versus.ratio, versus.pairs);
    let (more, more_low, more_high) = versus.cpu_us_more;
    [
        format!("{by} {ratio:.3} [{low:.3}, {high:.3}] n={pairs}{wide}"),
        format!("{more:+.2} [{more_low:+.2}, {more_high:+.2}]"),
    ]
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Measured on {}; {} s a run; load average before: {:.2}.\n",
            self.machine, self.seconds_per_run, self.load_average_before
        )?;
        writeln!(
            f,
            "| load | server | k decisions/s | p50 us | p99 us | CPU us a decision | MiB | ratio [95 %] | CPU more, us [95 %] |"
        )?;
        writeln!(f, "|---|---|---:|---:|---:|---:|---:|---|---|")?;
        for versus in &self.versus {
            let [ratio, more] = compared(versus);
            row(f, &versus.name, &versus.ours, &ratio, &more)?;
            row(f, "", &versus.theirs, "", "")?;
        }
        for (name, Alone(side)) in &self.alone {
            let per_core = format!("{:.2} M decisions/s a core", 1.0 / side.cpu_us);
            row(f, name, side, &per_core, "")?;
        }
        if !self.memory.is_empty() {
            writeln!(
                f,
                "\n| memory | keys | bytes a key, resident | MiB |\n|---|---:|---:|---:|"
            )?;
        }
        for memory in &self.memory {
            writeln!(
                f,
                "| {} | {} | {:.0} | {:.1} |",
                memory.who,
                memory.keys,
                memory.bytes_per_key,
                mebibytes(memory.resident_bytes)
            )?;
        }
        if let Some(instructions) = &self.instructions {
            write!(f, "{instructions}")?;
        }
        for versus in &self.versus {
            let (ours, theirs) = (versus.ours.answer_bytes, versus.theirs.answer_bytes);
            if versus.theirs.who == "constant" && ours != theirs {
                writeln!(
                    f,
                    "\n{}: answers were {ours:?} bytes long, the constant one {theirs:?}.",
                    versus.name
                )?;
            }
        }
        for note in &self.notes {
            writeln!(f, "\n{note}")?;
        }
        for (name, why) in &self.missing {
            writeln!(f, "\nMissing: {name}: {why}")?;
        }
        Ok(())
    }
}

fn row(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    side: &Side,
    ratio: &str,
    more: &str,
) -> fmt::Result {
    writeln!(
        f,
        "| {name} | {} | {:.1} | {:.0} | {:.0} | {:.2} | {:.0} | {ratio} | {more} |",
        side.who,
        side.decisions_per_second / 1e3,
        side.p50_us,
        side.p99_us,
        side.cpu_us,
        mebibytes(side.resident_bytes)
    )
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
