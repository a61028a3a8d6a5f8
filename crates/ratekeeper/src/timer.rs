//! One thread that wakes everybody who waits for a time, in any async runtime or none.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use ratekeeper_store::boot_time;

use crate::clock::Alarms;

/// The longest sleep of the thread: the boot clock may run ahead of the one that it sleeps by.
const SLEEP_MAX: Duration = Duration::from_secs(60);

static ALARMS: Mutex<Option<Alarms>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();
static THREAD: OnceLock<Result<(), io::ErrorKind>> = OnceLock::new();

/// The system refused to start the thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoThread;

/// Wakes `waker` when the boot clock shows `due`, in microseconds.
pub(crate) fn set(due: u64, id: &mut Option<u64>, waker: &Waker) -> Result<(), NoThread> {
    let started = THREAD.get_or_init(|| {
        let thread = thread::Builder::new().name("ratekeeper-timer".to_owned());
        thread.spawn(run).map(drop).map_err(|error| error.kind())
    });
    started.map_err(|_| NoThread)?;
    let mut alarms = ALARMS.lock();
    let alarms = alarms.get_or_insert_default();
    let is_first = alarms.next().is_none_or(|next| due < next);
    alarms.set(due, id, waker);
    if is_first {
        CHANGED.notify_one();
    }
    Ok(())
}

pub(crate) fn cancel(due: u64, id: u64) {
    if let Some(alarms) = &mut *ALARMS.lock() {
        alarms.cancel(due, id);
    }
}

fn run() {
    let mut alarms = ALARMS.lock();
    loop {
        let now = boot_time().get();
        let due = alarms.get_or_insert_default().take_due(now);
        if !due.is_empty() {
            // Wakers are others' code, which may come back here, or panic. The others are called all the same: nobody else
            // would, in the whole process.
            parking_lot::MutexGuard::unlocked(&mut alarms, || {
                for waker in due {
                    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
                }
            });
            continue;
        }
        match alarms.as_ref().and_then(Alarms::next) {
            Some(next) => {
                let span = Duration::from_micros(next.saturating_sub(now)).min(SLEEP_MAX);
                CHANGED.wait_for(&mut alarms, span);
            }
            None => CHANGED.wait(&mut alarms),
        }
    }
}
