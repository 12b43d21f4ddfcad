//! The mount: answers the kernel's FUSE requests from a file system.
//!
//! Requests that only read run in parallel, all others one after the other.

mod acl;
mod convert;
mod handler;
mod requests;

use crate::error::Result;
use crate::layout::Time;
use crate::namespace::FileSystem;
use crate::nvm::Memory;
use fuser::{Config, MountOption, Session, SessionACL};
use handler::Handler;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, SystemTime};

/// Threads that answer requests.
const THREADS: usize = 4;

/// A file system that several threads use.
#[derive(Debug)]
pub struct Shared<M>(Arc<RwLock<FileSystem<M>>>);

impl<M> Clone for Shared<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M: Memory> Shared<M> {
    /// Shares a file system.
    pub fn new(fs: FileSystem<M>) -> Self {
        Self(Arc::new(RwLock::new(fs)))
    }

    // A thread that panics in the middle of a change leaves the file system in an unknown state; all others
    // then panic, too, so that nothing of it becomes durable.
    fn read(&self) -> RwLockReadGuard<'_, FileSystem<M>> {
        self.0.read().expect("no operation panicked")
    }

    fn write(&self) -> RwLockWriteGuard<'_, FileSystem<M>> {
        self.0.write().expect("no operation panicked")
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// As [`FileSystem::sync`].
    pub fn sync(&self) -> Result<()> {
        self.write().sync()
    }
}

/// Options of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Name of the source in the table of mounts.
    pub source: String,
    /// Whether other users than the one who mounts may use it.
    pub allow_other: bool,
    /// Whether device files and set-user-id bits count; only root may ask for that.
    pub is_trusted: bool,
    /// Longest time until changes become durable without an `fsync`.
    pub sync_interval: Duration,
}

/// Mounts the file system at `directory` and answers requests until it is unmounted.
///
/// # Errors
/// Returns an error if the kernel refuses the mount, or if what is left cannot be made durable at the end.
pub fn serve<M: Memory + Send + Sync + 'static>(
    fs: FileSystem<M>,
    directory: &Path,
    options: &MountOptions,
    mounted: impl FnOnce(),
) -> io::Result<()> {
    let shared = Shared::new(fs);
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.source.clone()),
        MountOption::Subtype("weir".to_owned()),
        MountOption::DefaultPermissions,
    ];
    if options.is_trusted {
        config.mount_options.extend([MountOption::Dev, MountOption::Suid]);
    }
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let notifier = Arc::new(OnceLock::new());
    let handler = Handler::new(shared.clone(), Arc::clone(&notifier));
    let session = Session::new(handler, directory, &config)?;
    let _ = notifier.set(session.notifier());
    mounted();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let (timer, interval) = (shared.clone(), options.sync_interval);
    let timer = thread::spawn(move || {
        while stopped.recv_timeout(interval) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            // A failure shows in the next `fsync`, and again at the end.
            if timer.read().is_dirty() {
                let _ = timer.sync();
            }
        }
    });
    let ended = session.run();
    drop(stop);
    let _ = timer.join();
    let mut fs = shared.write();
    fs.forget_all().and_then(|()| fs.sync()).map_err(io::Error::other)?;
    ended
}

/// Returns the present time.
pub fn now() -> Time {
    convert::time(SystemTime::now())
}
