//! One thread of the load: its runtime, its connections, its counts.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout_at};

use crate::connect::{Stream, Target};
use crate::failure::{Failure, NoConnection};
use crate::load::Pace;
use crate::pace::{Schedule, Window};
use crate::payload::{Order, Payloads};
use crate::tally::{Tally, Times};
use crate::windows::WindowCounts;

/// The grace period for answers after the end.
const GRACE_PERIOD: Duration = Duration::from_secs(5);

/// The pause between attempts to reconnect.
const RECONNECT_DELAY: Duration = Duration::from_millis(100);

/// The state that all threads share.
#[derive(Debug)]
pub(crate) struct Job {
    /// At least one.
    pub(crate) targets: Vec<Target>,
    pub(crate) payloads: Payloads,
    pub(crate) order: Order,
    pub(crate) pace: Pace,
    /// Counts by window, if requested.
    pub(crate) windows: Option<WindowCounts>,
    pub(crate) connections: u32,
    pub(crate) streams: u32,
}

impl Job {
    async fn connect(&self, number: u32) -> Result<Vec<Stream>, NoConnection> {
        let place = number as usize % self.targets.len().max(1);
        match self.targets.get(place) {
            Some(target) => target.connect(self.streams).await,
            None => Err(NoConnection::NoTarget),
        }
    }
}

/// The state of one thread.
#[derive(Debug)]
pub(crate) struct ThreadState {
    /// The numbers of its connections.
    pub(crate) connections: Range<u32>,
    /// Its decisions so far, warm-up included.
    pub(crate) decisions: Arc<AtomicU64>,
    /// Reports success or the error once all connections were attempted.
    pub(crate) connected: Sender<Result<(), NoConnection>>,
    /// Receives the window when the run begins; closed if it does not.
    pub(crate) window: Receiver<Window>,
}

/// Runs until the window is over and all answers are in.
pub(crate) fn run(job: &Arc<Job>, part: ThreadState) -> io::Result<Tally> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut first = Vec::new();
    for number in part.connections.clone() {
        match runtime.block_on(job.connect(number)) {
            Ok(streams) => first.push(streams),
            Err(reason) => {
                // The receiver is gone if another thread failed first.
                let _ = part.connected.send(Err(reason));
                return Ok(Tally::new());
            }
        }
    }
    let _ = part.connected.send(Ok(()));
    let Ok(window) = part.window.recv() else {
        return Ok(Tally::new());
    };
    Ok(load(&runtime, job, &part, first, window))
}

fn load(
    runtime: &Runtime,
    job: &Arc<Job>,
    part: &ThreadState,
    first: Vec<Vec<Stream>>,
    window: Window,
) -> Tally {
    let mut tally = Tally::new();
    tally.windows.clone_from(&job.windows);
    let tally = Rc::new(RefCell::new(tally));
    let in_flight = Rc::new(RefCell::new(0));
    let mut schedules = Vec::new();
    let local = LocalSet::new();
    let mut connections = JoinSet::new();
    for (number, streams) in part.connections.clone().zip(first) {
        let schedule = Rc::new(Schedule::new(window, job.pace, number, job.connections));
        schedules.push(Rc::clone(&schedule));
        let worker = Worker {
            job: Arc::clone(job),
            window,
            schedule,
            tally: Rc::clone(&tally),
            in_flight: Rc::clone(&in_flight),
            decisions: Arc::clone(&part.decisions),
        };
        connections.spawn_local_on(keep_sending(worker, number, streams), &local);
    }
    runtime.block_on(local.run_until(async {
        let all = async { while connections.join_next().await.is_some() {} };
        // Answers after the grace period are counted as missing below.
        let _ = timeout_at((window.end + GRACE_PERIOD).into(), all).await;
    }));
    let mut tally = std::mem::replace(&mut *tally.borrow_mut(), Tally::new());
    tally.failed(Failure::Unanswered, *in_flight.borrow());
    let left = schedules.iter().map(|schedule| schedule.left()).sum();
    tally.failed(Failure::Unsent, left);
    tally
}

/// The state that a stream needs for sending requests.
#[derive(Clone)]
struct Worker {
    job: Arc<Job>,
    window: Window,
    schedule: Rc<Schedule>,
    tally: Rc<RefCell<Tally>>,
    in_flight: Rc<RefCell<u64>>,
    decisions: Arc<AtomicU64>,
}

/// Sends requests on all streams of a connection, and reconnects after a loss.
async fn keep_sending(worker: Worker, number: u32, streams: Vec<Stream>) {
    let mut next = Some(streams);
    loop {
        let streams = match next.take() {
            Some(streams) => streams,
            None => match worker.job.connect(number).await {
                Ok(streams) => streams,
                Err(_) => {
                    worker.tally.borrow_mut().failed(Failure::Connect, 1);
                    sleep(RECONNECT_DELAY).await;
                    Vec::new()
                }
            },
        };
        let mut streaming = JoinSet::new();
        for (index, stream) in (0..).zip(streams) {
            let order = worker
                .job
                .order
                .of_worker(number * worker.job.streams + index);
            streaming.spawn_local(worker.clone().ask(stream, order));
        }
        while streaming.join_next().await.is_some() {}
        if worker.schedule.is_over() {
            return;
        }
    }
}

impl Worker {
    /// Sends requests until the run is over or the connection is lost.
    async fn ask(self, mut stream: Stream, mut order: Order) {
        while let Some(due) = self.schedule.next().await {
            let number = order.next();
            let payload = self.job.payloads.get(number);
            let sent = match self.job.pace {
                Pace::Closed => due,
                Pace::Open { .. } => Instant::now(),
            };
            *self.in_flight.borrow_mut() += 1;
            let answer = stream.ask(payload).await;
            *self.in_flight.borrow_mut() -= 1;
            let times = Times {
                due,
                sent,
                answered: Instant::now(),
            };
            match answer {
                Ok(answer) => {
                    let decisions = answer.decisions;
                    let count = u64::from(decisions.allowed) + u64::from(decisions.denied);
                    // Relaxed: only a count, written by this thread alone.
                    self.decisions.fetch_add(count, Ordering::Relaxed);
                    let mut tally = self.tally.borrow_mut();
                    if let Some(windows) = &mut tally.windows {
                        windows.answered(number, sent, times.answered, decisions.allowed > 0);
                    }
                    if self.counts(&times) {
                        tally.answered(decisions, answer.body.len(), &times);
                    }
                }
                Err(failure) => {
                    // The warm-up's failures count too: none may go unnoticed.
                    self.tally.borrow_mut().failed(failure, 1);
                    if failure.is_of_connection() {
                        return;
                    }
                }
            }
        }
    }

    /// A closed loop counts the requests answered in the window; an open loop counts those due in
    /// it, however late they are answered.
    fn counts(&self, times: &Times) -> bool {
        self.window.holds(match self.job.pace {
            Pace::Closed => times.answered,
            Pace::Open { .. } => times.due,
        })
    }
}
