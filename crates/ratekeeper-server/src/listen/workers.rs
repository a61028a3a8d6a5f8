//! The threads that serve connections: each runs a runtime of its own, and a connection stays
//! on one of them from its first byte to its last, so that no request crosses threads.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

/// Worker threads, or the runtime that everything else runs on as well. Dropping them ends
/// what they serve.
#[derive(Debug)]
pub(crate) struct Workers(Vec<Worker>);

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    /// Dropped, it ends the thread.
    _alive: Option<oneshot::Sender<()>>,
}

impl Workers {
    /// Starts `threads` of them; without a number, the calling task's runtime is the only one.
    ///
    /// # Errors
    /// The system has no threads to give.
    pub(crate) fn start(threads: Option<NonZeroUsize>) -> io::Result<Self> {
        let Some(threads) = threads else {
            return Ok(Self::here());
        };
        (0..threads.get())
            .map(Worker::start)
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// Uses only the calling task's runtime.
    pub(crate) fn here() -> Self {
        Self(vec![Worker {
            runtime: Handle::current(),
            _alive: None,
        }])
    }

    /// The runtimes that serve requests.
    pub(crate) fn runtimes(&self) -> impl Iterator<Item = &Handle> {
        self.0.iter().map(|worker| &worker.runtime)
    }

    /// The number of workers.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Creates the distribution of one listener's connections over the workers.
    pub(crate) fn turns(&self) -> Turns {
        let turn = |worker: &Worker| Turn {
            runtime: worker.runtime.clone(),
            connections: Arc::default(),
        };
        Turns {
            turns: self.0.iter().map(turn).collect(),
            last: 0,
        }
    }
}

impl Worker {
    fn start(index: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (alive, gone) = oneshot::channel();
        let worker = Self {
            runtime: runtime.handle().clone(),
            _alive: Some(alive),
        };
        thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(move || work(runtime, gone))?;
        Ok(worker)
    }
}

fn work(runtime: Runtime, gone: oneshot::Receiver<()>) {
    // An error is what it waits for: the sender was dropped.
    let _ = runtime.block_on(gone);
    // What blocks must not keep the process from ending.
    runtime.shutdown_background();
}

/// Distributes one listener's connections. A proxy opens few and keeps them: where each one counts,
/// an even share by number beats the kernel's hash of addresses.
#[derive(Debug)]
pub(crate) struct Turns {
    turns: Vec<Turn>,
    /// The worker whose turn was last.
    last: usize,
}

#[derive(Debug)]
struct Turn {
    runtime: Handle,
    /// The connections that it serves now.
    connections: Arc<AtomicUsize>,
}

impl Turns {
    /// The worker with the fewest connections; among equals, in turn. Its number comes first.
    pub(crate) fn next(&mut self) -> (usize, &Handle, ConnectionSlot) {
        let count = self.turns.len();
        let in_turn = (1..=count).map(|step| (self.last + step) % count);
        let least =
            in_turn.min_by_key(|index| self.turns[*index].connections.load(Ordering::Relaxed));
        // There is always one: a number of threads is not 0.
        self.last = least.unwrap_or(0);
        let turn = &self.turns[self.last];
        turn.connections.fetch_add(1, Ordering::Relaxed);
        (
            self.last,
            &turn.runtime,
            ConnectionSlot(Arc::clone(&turn.connections)),
        )
    }
}

/// A connection's place on a worker, free again when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot(Arc<AtomicUsize>);

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        // Relaxed: a count that is late by one connection shares out as well as any.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_go_where_the_fewest_are() {
        let workers = Workers::start(NonZeroUsize::new(3)).expect("three threads");
        let mut turns = workers.turns();
        let mut places: Vec<ConnectionSlot> = (0..6).map(|_| turns.next().2).collect();
        let counts = |turns: &Turns| -> Vec<usize> {
            let count = |turn: &Turn| turn.connections.load(Ordering::Relaxed);
            turns.turns.iter().map(count).collect()
        };
        assert_eq!(counts(&turns), [2, 2, 2]);
        drop(places.remove(0));
        let emptied = counts(&turns).iter().position(|count| *count == 1);
        places.push(turns.next().2);
        assert_eq!(counts(&turns), [2, 2, 2]);
        assert_eq!(Some(turns.last), emptied);
    }

    #[tokio::test]
    async fn without_threads_of_its_own_the_callers_runtime_serves() {
        let workers = Workers::start(None).expect("nothing to start");
        let mut turns = workers.turns();
        assert_eq!(turns.next().1.id(), Handle::current().id());
    }
}
