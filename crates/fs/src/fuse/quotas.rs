//! Limits of users and groups in a mount: the thread that counts, and requests to show and set them.

use super::Shared;
use super::handler::Handler;
use super::worker_thread::WorkerThread;
use crate::error::{Error, Result};
use crate::layout::quota::Owner;
use crate::namespace::{Counting, FileSystem};
use crate::nvm::Memory;
use crate::report::{LimitChange, Quota, QuotaPage};
use fuser::Request;
use std::ops::{Deref, DerefMut};
use std::sync::RwLockWriteGuard;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// Inodes that are counted at a time, without other operations.
const PIECE: u64 = 1024;
/// How often the thread looks whether counting has begun.
const PERIOD: Duration = Duration::from_millis(200);

/// Starts the thread that counts.
pub(super) fn start<M: Memory + Send + Sync + 'static>(shared: &Shared<M>) -> WorkerThread {
    WorkerThread::start(shared, |shared, stopped| {
        let mut pause = Duration::ZERO;
        while matches!(stopped.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
            let is_running = matches!(shared.read().counting(), Counting::Running { .. });
            pause = if is_running && shared.write().count_inodes(PIECE) { Duration::ZERO } else { PERIOD };
        }
    })
}

/// A file system that is changed for a program: limits hold, unless it is root's.
pub(super) struct WriteFor<'a, M: Memory>(RwLockWriteGuard<'a, FileSystem<M>>);

impl<'a, M: Memory> WriteFor<'a, M> {
    pub(super) fn new(shared: &'a Shared<M>, request: &Request) -> Self {
        let mut fs = shared.write();
        fs.enforce_limits(request.uid() != 0);
        Self(fs)
    }
}

impl<M: Memory> Deref for WriteFor<'_, M> {
    type Target = FileSystem<M>;

    fn deref(&self) -> &FileSystem<M> {
        &self.0
    }
}

impl<M: Memory> DerefMut for WriteFor<'_, M> {
    fn deref_mut(&mut self) -> &mut FileSystem<M> {
        &mut self.0
    }
}

impl<M: Memory> Drop for WriteFor<'_, M> {
    fn drop(&mut self) {
        self.0.enforce_limits(false);
    }
}

/// Returns whether a program may do what is for root and the user who mounted.
pub(super) fn is_administrator(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

impl<M: Memory> Handler<M> {
    /// Returns a page of usage and limits, in JSON: all for root and the user who mounted, their own for
    /// others.
    pub(super) fn quota_page(&self, request: &Request, first: u64) -> Result<Vec<u8>> {
        let own = [Owner::User(request.uid()), Owner::Group(request.gid())];
        let is_shown = |owner| is_administrator(request.uid()) || own.contains(&owner);
        let place = self.place();
        let fs = self.shared.read();
        let quota = Quota::of(&fs, &place.region, Some(&place.directory), is_shown);
        let page = QuotaPage { is_damaged: fs.verify_limits().is_err(), ..QuotaPage::of(quota, first) };
        serde_json::to_vec(&page).map_err(|error| Error::Io(error.into()))
    }

    /// Changes the limits of a user or group.
    ///
    /// # Errors
    /// `NotPermitted` if the caller is neither root nor the server's user; those of
    /// [`FileSystem::set_limit`].
    pub(super) fn set_limit(&self, caller: u32, change: LimitChange) -> Result<()> {
        if !is_administrator(caller) {
            return Err(Error::NotPermitted);
        }
        change.apply(&mut self.shared.write())
    }
}
