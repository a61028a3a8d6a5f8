//! Runs test programs side by side: most of them wait most of the time.

use super::build::Build;
use super::job::{Job, JobCost};
use super::totals::Totals;
use crate::steps::{seconds, target};
use anyhow::{Context, Result};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The interval between looks at what has been built and what has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The interval between reports of what runs.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// The longest that a test program may run. The slowest take minutes.
const DEADLINE: Duration = Duration::from_secs(30 * 60);

/// The most jobs that run at once for each core: each takes memory.
const JOBS_FOR_A_CORE: usize = 3;

/// A job that has ended.
pub(super) struct Ended {
    pub(super) job: Job,
    pub(super) totals: Totals,
    took: Duration,
    /// The reason why not all of its tests ran.
    pub(super) fault: Option<String>,
}

impl Ended {
    pub(super) fn has_failed(&self) -> bool {
        !self.totals.names_failed.is_empty()
    }

    /// The names of the tests that failed, each with its program's.
    pub(super) fn failures(&self) -> impl Iterator<Item = String> {
        let names = self.totals.names_failed.iter();
        names.map(|name| format!("{}: {name}", self.job.name))
    }
}

/// Runs all tests of a build, each program as soon as it is built and the machine has room for it.
///
/// # Errors
/// They cannot be built, or not be started. Tests that fail are no error here.
pub(super) fn run(mut build: Build) -> Result<Vec<Ended>> {
    let mut schedule = Schedule::new(target().join("tests"))?;
    loop {
        let was_over = build.is_over();
        schedule.waiting.extend(build.take()?);
        if build.is_over() && !was_over {
            schedule.waiting.push(Job::documentation());
        }
        schedule.start_what_fits(!build.is_over())?;
        schedule.end_what_ended(&mut std::io::stdout())?;
        if build.is_over() && schedule.waiting.is_empty() && schedule.running.is_empty() {
            schedule.tell_the_longest();
            return Ok(std::mem::take(&mut schedule.ended));
        }
        schedule.tell_what_runs();
        std::thread::sleep(LOOK_EVERY);
    }
}

struct Schedule {
    cores: usize,
    /// The folder of the outputs of all jobs.
    logs: PathBuf,
    told: Instant,
    waiting: Vec<Job>,
    running: Vec<Running>,
    ended: Vec<Ended>,
}

/// Returns true if a job with these needs can start on so many cores, beside a compiler or other jobs.
fn has_room(cores: usize, is_building: bool, beside: &[JobCost], needs: JobCost) -> bool {
    let percent = |cores: usize| u32::try_from(cores * 100).unwrap_or(u32::MAX);
    let compiler = if is_building { percent(cores) } else { 0 };
    let load = compiler + beside.iter().map(|needs| needs.load).sum::<u32>();
    let is_measured = beside.iter().any(|needs| needs.is_measuring);
    if needs.is_measuring && (is_building || is_measured) {
        return false;
    }
    // Most jobs wait at times, so one core more than there are is kept busy, unless somebody measures.
    let cores_busy = if needs.is_measuring || is_measured {
        cores
    } else {
        cores + 1
    };
    // One job runs, whatever it needs.
    load == 0
        || (load + needs.load <= percent(cores_busy) && beside.len() < JOBS_FOR_A_CORE * cores)
}

struct Running {
    job: Job,
    child: Child,
    since: Instant,
    log: PathBuf,
    is_late: bool,
}

impl Schedule {
    fn new(logs: PathBuf) -> Result<Schedule> {
        std::fs::create_dir_all(&logs)
            .with_context(|| format!("cannot make {}", logs.display()))?;
        Ok(Schedule {
            cores: std::thread::available_parallelism()?.get(),
            logs,
            told: Instant::now(),
            waiting: Vec::new(),
            running: Vec::new(),
            ended: Vec::new(),
        })
    }

    /// Starts waiting jobs for which there is room: those that measure, before the machine is busy, then the longest.
    fn start_what_fits(&mut self, is_building: bool) -> Result<()> {
        self.waiting
            .sort_by_key(|job| std::cmp::Reverse((job.needs.is_measuring, job.needs.seconds)));
        while let Some(at) = self
            .waiting
            .iter()
            .position(|job| self.has_room(job, is_building))
        {
            let job = self.waiting.remove(at);
            let running = self.started(job)?;
            self.running.push(running);
        }
        Ok(())
    }

    fn has_room(&self, job: &Job, is_building: bool) -> bool {
        let beside: Vec<JobCost> = self.running.iter().map(|it| it.job.needs).collect();
        let is_early = is_building && job.is_starting;
        !is_early && has_room(self.cores, is_building, &beside, job.needs)
    }

    fn started(&self, job: Job) -> Result<Running> {
        let log = self.logs.join(job.file_name());
        let output =
            File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = job.command(&[]);
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", job.name))?;
        Ok(Running {
            job,
            child,
            since: Instant::now(),
            log,
            is_late: false,
        })
    }

    /// Takes the jobs that have ended, and shows the whole output of each.
    fn end_what_ended(&mut self, shown: &mut dyn Write) -> Result<()> {
        let mut at = 0;
        while let Some(running) = self.running.get_mut(at) {
            if let Some(status) = running.exit_status()? {
                let ended = self.running.swap_remove(at).finish(status, shown)?;
                self.ended.push(ended);
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    fn tell_what_runs(&mut self) {
        if self.told.elapsed() < TELL_EVERY {
            return;
        }
        self.told = Instant::now();
        let running = self.running.iter();
        let running = running.map(|it| format!("{} {}", it.job.name, seconds(it.since.elapsed())));
        let running: Vec<String> = running.collect();
        if !running.is_empty() {
            eprintln!("==> tests: running: {}", running.join(", "));
        }
    }

    fn tell_the_longest(&mut self) {
        self.ended
            .sort_by_key(|ended| std::cmp::Reverse(ended.took));
        let longest = self.ended.iter().take(12);
        let longest = longest.map(|it| format!("{} {}", it.job.name, seconds(it.took)));
        let longest: Vec<String> = longest.collect();
        eprintln!("==> tests: the longest: {}", longest.join(", "));
    }
}

impl Drop for Schedule {
    /// Leaves nothing running if the tests are given up.
    fn drop(&mut self) {
        for running in &mut self.running {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }
}

impl Running {
    /// Its exit status, if it has ended. One that is late is killed.
    fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        if self.since.elapsed() > DEADLINE && !self.is_late {
            self.is_late = true;
            self.child.kill()?;
        }
        Ok(self.child.try_wait()?)
    }

    fn finish(self, status: ExitStatus, shown: &mut dyn Write) -> Result<Ended> {
        let took = self.since.elapsed();
        let output = std::fs::read(&self.log)?;
        writeln!(
            shown,
            "\n     Running {} ({})",
            self.job.name,
            seconds(took)
        )?;
        shown.write_all(&output)?;
        let totals = Totals::of(&String::from_utf8_lossy(&output));
        let is_whole = totals.are_whole() && (status.success() == totals.names_failed.is_empty());
        let fault = if self.is_late {
            Some(format!(
                "{} had not ended after {}",
                self.job.name,
                seconds(DEADLINE)
            ))
        } else {
            (!is_whole).then(|| format!("{} ended with {status}", self.job.name))
        };
        if let Some(fault) = &fault {
            writeln!(shown, "\n{fault}")?;
        }
        Ok(Ended {
            job: self.job,
            totals,
            took,
            fault,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const WAITING: JobCost = JobCost::of_a_job(20, false);
    const BUSY: JobCost = JobCost::of_a_job(100, false);
    const MEASURING: JobCost = JobCost::of_a_job(60, true);

    #[test]
    fn jobs_that_wait_run_beside_the_compiler_and_busy_ones_after_it() {
        assert!(has_room(2, true, &[WAITING; 4], WAITING));
        assert!(has_room(2, true, &[], BUSY));
        assert!(!has_room(2, true, &[BUSY], WAITING));
        assert!(has_room(2, false, &[BUSY; 2], BUSY));
        assert!(!has_room(2, false, &[BUSY; 3], WAITING));
        assert!(
            !has_room(2, false, &[WAITING; 6], WAITING),
            "each takes memory"
        );
    }

    #[test]
    fn jobs_that_measure_have_no_neighbour_of_their_kind_and_no_compiler() {
        assert!(!has_room(8, true, &[], MEASURING));
        assert!(!has_room(8, false, &[MEASURING], MEASURING));
        assert!(has_room(8, false, &[WAITING], MEASURING));
        assert!(has_room(8, false, &[MEASURING], WAITING));
        assert!(
            has_room(2, false, &[MEASURING, WAITING], BUSY),
            "the cores are enough"
        );
        assert!(!has_room(2, false, &[BUSY, BUSY], MEASURING));
        assert!(!has_room(2, false, &[MEASURING, BUSY], BUSY));
    }

    #[test]
    fn on_one_core_every_job_gets_its_turn() {
        let heavy = JobCost::of_a_job(400, true);
        assert!(has_room(1, false, &[], heavy));
        assert!(!has_room(1, false, &[BUSY], heavy));
    }

    /// Runs shell scripts as test programs, and returns what is shown of them, too.
    fn ran(scripts: &[(&str, &str)]) -> (Vec<Ended>, String) {
        let mut shown = Vec::new();
        let folder =
            std::env::temp_dir().join(format!("xtask-{}-{}", std::process::id(), scripts[0].0));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        let mut schedule = Schedule::new(folder.clone()).expect("there is room");
        schedule.cores = 2;
        for (name, script) in scripts {
            let path = folder.join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a file can be written");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("it is ours");
            schedule.waiting.push(Job::program(name, &path, &folder));
        }
        while !(schedule.waiting.is_empty() && schedule.running.is_empty()) {
            schedule.start_what_fits(false).expect("a shell starts");
            schedule
                .end_what_ended(&mut shown)
                .expect("it can be waited for");
            std::thread::sleep(LOOK_EVERY);
        }
        let ended = std::mem::take(&mut schedule.ended);
        std::fs::remove_dir_all(folder).expect("it is ours");
        (ended, String::from_utf8(shown).expect("scripts print text"))
    }

    const OK: &str = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";

    #[test]
    fn programs_run_beside_each_other_in_their_package() {
        let meet = |mine: &str, other: &str| {
            format!(
                "echo running 1 test; touch {mine}; until [ -e {other} ]; do sleep 0.01; done; echo '{OK}'"
            )
        };
        let (ended, shown) = ran(&[("ping", &meet("a", "b")), ("pong", &meet("b", "a"))]);
        assert_eq!(shown.matches(OK).count(), 2, "{shown}");
        let passed = ended.iter().map(|it| it.totals.passed).sum::<u64>();
        assert!(passed == 2 && ended.iter().all(|it| it.fault.is_none()));
    }

    #[test]
    fn a_program_that_ends_in_its_midst_is_a_fault_and_a_failed_test_is_none() {
        let failed = format!(
            "echo running 1 test; echo 'test it::holds ... FAILED'; echo '{}'; exit 101",
            "test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out"
        );
        let killed = "echo running 2 tests; kill -KILL $$";
        let silent = format!("echo running 1 test; echo '{OK}'; exit 3");
        let (ended, _) = ran(&[("failed", &failed), ("killed", killed), ("silent", &silent)]);
        let of = |name: &str| {
            ended
                .iter()
                .find(|it| it.job.name.ends_with(name))
                .expect("it ran")
        };
        assert!(of("failed").fault.is_none());
        assert!(
            of("failed")
                .failures()
                .next()
                .is_some_and(|it| it.ends_with("failed: it::holds"))
        );
        assert!(
            of("killed")
                .fault
                .as_ref()
                .is_some_and(|it| it.contains("signal: 9"))
        );
        assert!(of("silent").fault.is_some());
    }
}
