//! Work on several threads.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What `work` makes of each item, in their order: at most so many at the same time, each on one thread, begun in the order
/// of the items.
pub fn map<T: Sync, R: Send + Sync>(items: &[T], threads: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<_> = items.iter().map(|_| OnceLock::new()).collect();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                while let Some((item, result)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    items.get(at).zip(results.get(at))
                } {
                    result.get_or_init(|| work(item));
                }
            });
        }
    });
    results.into_iter().filter_map(OnceLock::into_inner).collect()
}

/// As many threads as there are cores.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
