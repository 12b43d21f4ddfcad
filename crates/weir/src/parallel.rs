//! Parallel work on several threads.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// A flag that cancels work after a failure.
#[derive(Debug, Default)]
pub struct Stop(AtomicBool);

/// Applies `work` to each item and returns the results in the order of the items. At most `threads` items are
/// in progress at a time, each on one thread, and items start in their order. After a failure, here or in
/// other work that shares `stop`, no further item starts. If other work set `stop`, results are missing.
///
/// # Errors
/// Returns the first failure, in the order of the items.
pub fn map<T: Sync, R: Send + Sync, E: Send + Sync>(
    items: &[T],
    threads: usize,
    stop: &Stop,
    work: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let next = AtomicUsize::new(0);
    let results: Vec<_> = items.iter().map(|_| OnceLock::new()).collect();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                while !stop.0.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some((item, result)) = items.get(at).zip(results.get(at)) else { break };
                    if result.get_or_init(|| work(item)).is_err() {
                        stop.0.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    results.into_iter().filter_map(OnceLock::into_inner).collect()
}

/// Returns the number of threads that this machine can run in parallel.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<_> = (0..100).collect();
        let done = map(&items, 4, &Stop::default(), |n| Ok::<_, ()>(n * 2));
        assert_eq!(done, Ok((0..100).map(|n| n * 2).collect()));
    }

    #[test]
    fn no_work_starts_after_a_failure() {
        let (items, begun, stop): (Vec<_>, _, _) =
            ((0..1000).collect(), AtomicUsize::new(0), Stop::default());
        let work = |n: &usize| {
            begun.fetch_add(1, Ordering::Relaxed);
            if *n == 3 { Err(*n) } else { Ok(*n) }
        };
        assert_eq!(map(&items, 1, &stop, work), Err(3));
        assert_eq!(begun.load(Ordering::Relaxed), 4);
        assert_eq!(map(&items, 2, &stop, |n| Ok::<_, ()>(*n)), Ok(vec![]));
    }
}
