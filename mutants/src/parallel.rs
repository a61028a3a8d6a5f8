//! Work on many things at once.

use anyhow::{Result, anyhow};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Does `work` for each item, on as many threads as there are processors. The results are in the order of the items.
///
/// # Errors
/// The first error of a thread; the others stop after what they are at.
pub(crate) fn each<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    // Relaxed: it hands out numbers, and nothing else.
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else {
                return Ok(done);
            };
            let result = work(item);
            if result.is_err() {
                next.store(items.len(), Ordering::Relaxed);
            }
            done.push((at, result?));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let joined = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let ends = threads.into_iter().map(|thread| {
            let end = thread.join();
            end.map_err(|_| anyhow!("a thread panicked"))?
        });
        ends.collect::<Result<Vec<Vec<(usize, R)>>>>()
    })?;
    let mut done: Vec<_> = joined.into_iter().flatten().collect();
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::ensure;

    #[test]
    fn results_are_in_order_and_an_error_ends_it() {
        let items: Vec<u32> = (0..100).collect();
        let doubled = each(&items, |it| Ok(it * 2)).expect("nothing fails");
        assert!(doubled.iter().copied().eq((0..100).map(|it| it * 2)));
        let failed = each(&items, |it| {
            ensure!(*it != 50, "fifty");
            Ok(())
        });
        assert_eq!(failed.expect_err("one fails").to_string(), "fifty");
    }
}
