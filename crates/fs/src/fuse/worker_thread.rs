//! A thread that works on a mounted file system, beside those that handle requests.

use super::Shared;
use crate::nvm::Memory;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct WorkerThread {
    stop: Option<Sender<()>>,
    handle: Option<JoinHandle<()>>,
}

impl WorkerThread {
    /// Starts `work`, if the file system has a tier table and can be changed.
    pub(super) fn start_with_tiers<M: Memory + Send + Sync + 'static>(
        shared: &Shared<M>,
        work: impl FnOnce(Shared<M>, Receiver<()>) + Send + 'static,
    ) -> Option<Self> {
        let is_needed = {
            let fs = shared.read();
            fs.superblock().has_tiers && !fs.is_read_only()
        };
        is_needed.then(|| Self::start(shared, work))
    }

    /// Starts `work`, which ends when its receiver reports that nobody sends any more.
    pub(super) fn start<M: Memory + Send + Sync + 'static>(
        shared: &Shared<M>,
        work: impl FnOnce(Shared<M>, Receiver<()>) + Send + 'static,
    ) -> Self {
        let (stop, stopped) = channel();
        let shared = shared.clone();
        let handle = std::thread::spawn(move || work(shared, stopped));
        Self { stop: Some(stop), handle: Some(handle) }
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(handle) = self.handle.take() {
            // A panic of it has ended the process, or shows in the lock.
            let _ = handle.join();
        }
    }
}
