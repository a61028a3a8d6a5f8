//! A run, from its first connection to its report.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use crate::connect::{Stream, Target};
use crate::failure::{LoadError, NoConnection};
use crate::load::Load;
use crate::pace::Window;
use crate::process::ProcessUse;
use crate::report::{Report, ServerUse};
use crate::tally::Tally;
use crate::thread::{self, Job, ThreadState};
use crate::windows::{Anchor, WindowCounts};

/// The interval between progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Time between the last connection and the first request.
const START_DELAY: Duration = Duration::from_millis(2);

/// The progress of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress {
    /// Time since the first request, warm-up included.
    pub elapsed: Duration,
    /// The total time.
    pub total: Duration,
    /// Decisions so far, warm-up included.
    pub decisions: u64,
}

/// Puts `load` on its target and reports the results. `progress` is called about ten times a
/// second.
///
/// Once all connections are established, failed requests are not an error but part of the report.
///
/// # Errors
/// The load is not valid, the target cannot be connected to, or the process cannot be measured.
pub fn run(load: &Load, progress: impl FnMut(Progress)) -> Result<Report, LoadError> {
    load.validate()?;
    let targets = targets(load)?;
    if let Some(pid) = load.pid {
        watched(pid)?;
    }
    let (payloads, order) = load.service.requests(load.keys);
    let anchor = Anchor::now();
    let job = Arc::new(Job {
        targets,
        payloads,
        order,
        pace: load.pace,
        windows: load
            .windows
            .map(|length| WindowCounts::new(length, load.limit, anchor)),
        connections: load.connections,
        streams: load.streams,
    });
    let threads = load.threads.min(load.connections);
    let counts: Vec<_> = (0..threads).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let (connected, connections) = mpsc::channel();
    let mut starts = Vec::new();
    let mut running = Vec::new();
    for (number, decisions) in (0..).zip(&counts) {
        let (start, window) = mpsc::channel();
        starts.push(start);
        let part = ThreadState {
            connections: share(load.connections, threads, number),
            decisions: Arc::clone(decisions),
            connected: connected.clone(),
            window,
        };
        let job = Arc::clone(&job);
        running.push(
            std::thread::Builder::new()
                .name("load".to_owned())
                .spawn(move || thread::run(&job, part))?,
        );
    }
    drop(connected);
    wait_for_connections(load, threads, &connections)?;
    let start = Instant::now() + START_DELAY;
    let window = Window {
        start,
        begin: start + load.warm_up,
        end: start + load.warm_up + load.duration,
    };
    for start in starts {
        // The receiver is gone only with its thread, see above.
        let _ = start.send(window);
    }
    let server = watch(load.pid, window, &counts, progress)?;
    let tally = join(running)?;
    let windows = tally
        .windows
        .as_ref()
        .map(|counts| counts.results(load.keys.count(), window.start, window.end));
    Ok(Report::new(load, &tally, windows, server))
}

/// Waits until each of so many threads has all of its connections.
fn wait_for_connections(
    load: &Load,
    threads: u32,
    connections: &mpsc::Receiver<Result<(), NoConnection>>,
) -> Result<(), LoadError> {
    for _ in 0..threads {
        // A thread that failed to start sends nothing; its error comes when it is joined.
        if let Ok(Err(reason)) = connections.recv() {
            return Err(LoadError::Connect {
                target: load.target.clone(),
                service: load.service.name(),
                reason,
            });
        }
    }
    Ok(())
}

/// Waits for the end of all threads, and adds up their counts.
fn join(running: Vec<JoinHandle<io::Result<Tally>>>) -> Result<Tally, LoadError> {
    let mut tally = Tally::new();
    for thread in running {
        match thread.join() {
            Ok(part) => tally.add(&part?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    Ok(tally)
}

/// Sends the first request once and returns the bytes of the answer: the gRPC message or the HTTP
/// body.
///
/// # Errors
/// As for [`run`], or the answer is not a decision.
pub fn first_answer(load: &Load) -> Result<Vec<u8>, LoadError> {
    load.validate()?;
    let targets = targets(load)?;
    let (payloads, _) = load.service.requests(load.keys);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let connected = match targets.first() {
            Some(target) => target.connect(1).await,
            None => Ok(Vec::new()),
        };
        let mut streams = connected.map_err(|reason| LoadError::Connect {
            target: load.target.clone(),
            service: load.service.name(),
            reason,
        })?;
        let Some(stream) = streams.first_mut() else {
            return Ok(Vec::new());
        };
        let body = ask(stream, &payloads.get(0), load).await?;
        let head = if load.service.has_streams() { 5 } else { 0 };
        Ok(body.get(head..).unwrap_or_default().to_vec())
    })
}

async fn ask(
    stream: &mut Stream,
    payload: &bytes::Bytes,
    load: &Load,
) -> Result<bytes::Bytes, LoadError> {
    match stream.ask(payload.clone()).await {
        Ok(answer) => Ok(answer.body),
        Err(failure) => Err(LoadError::Answer {
            target: load.target.clone(),
            answer: failure.to_string(),
        }),
    }
}

/// All targets, at least one.
fn targets(load: &Load) -> Result<Vec<Target>, LoadError> {
    let targets = load.target.split(',').map(|text| target(load, text));
    let targets = targets.collect::<Result<Vec<_>, _>>()?;
    if targets.len() > load.connections as usize {
        return Err(LoadError::invalid(format!(
            "connections: {} are too few for {} targets",
            load.connections,
            targets.len()
        )));
    }
    Ok(targets)
}

fn target(load: &Load, text: &str) -> Result<Target, LoadError> {
    let wrong = |source| LoadError::Target {
        target: text.to_owned(),
        source,
    };
    let found = text.to_socket_addrs().map_err(wrong)?.next();
    let none = || wrong(std::io::ErrorKind::NotFound.into());
    let address: SocketAddr = found.ok_or_else(none)?;
    Target::new(address, load.service.clone())
        .map_err(|error| LoadError::invalid(format!("{text}: {error}")))
}

/// The connections, of `all`, of thread `number` of `threads`.
fn share(all: u32, threads: u32, number: u32) -> std::ops::Range<u32> {
    let edge = |number: u32| (u64::from(all) * u64::from(number) / u64::from(threads)) as u32;
    edge(number)..edge(number + 1)
}

fn watched(pid: u32) -> Result<ProcessUse, LoadError> {
    ProcessUse::of(pid).map_err(|source| LoadError::Process { pid, source })
}

/// Waits for the end, and measures the server between the bounds of the window. Decisions are
/// counted at the moments of these samples, which come late on a busy processor.
fn watch(
    pid: Option<u32>,
    window: Window,
    counts: &[Arc<AtomicU64>],
    mut progress: impl FnMut(Progress),
) -> Result<Option<ServerUse>, LoadError> {
    let look = || -> Result<_, LoadError> {
        let server = pid.map(watched).transpose()?;
        Ok((server, decisions(counts), Instant::now()))
    };
    let mut wait = |until: Instant| {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            sleep(left.min(PROGRESS_INTERVAL));
            progress(Progress {
                elapsed: window.start.elapsed(),
                total: window.end - window.start,
                decisions: decisions(counts),
            });
        }
    };
    wait(window.begin);
    let (before, decisions_before, begin) = look()?;
    wait(window.end);
    let (after, decisions_after, end) = look()?;
    let (Some(pid), Some(before), Some(after)) = (pid, before, after) else {
        return Ok(None);
    };
    Ok(Some(ServerUse::new(
        pid,
        after.cpu.saturating_sub(before.cpu),
        end - begin,
        decisions_after - decisions_before,
        after.resident_bytes,
    )))
}

fn decisions(counts: &[Arc<AtomicU64>]) -> u64 {
    counts
        .iter()
        .map(|count| count.load(Ordering::Relaxed))
        .sum()
}
