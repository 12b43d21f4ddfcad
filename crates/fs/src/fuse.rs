//! The mount: answers the kernel's FUSE requests from a file system.
//!
//! Requests that only read run in parallel, all others one after the other; what is read from and written to
//! containers goes beside both.

mod acl;
mod background;
mod convert;
mod drain;
mod handler;
mod mounts;
mod opens;
mod quotas;
mod requests;
mod tier_commands;
mod worker_thread;

pub use mounts::{MountPoint, UnmountError, mounts, unmount};

use crate::error::{Error, Result};
use crate::layout::Time;
use crate::namespace::{FileSystem, WEAR_GAP};
use crate::nvm::Memory;
use fuser::{Config, MountOption, Session, SessionACL};
use handler::{Handler, Place, TellEnd};
use opens::Opens;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, SystemTime};
use worker_thread::WorkerThread;

/// Chunks from which data moves at a time so that chunks wear alike.
const LEVELLED_MAX: usize = 32;
/// Threads that answer requests: so many that some can wait for a tier that does not answer.
const THREADS: usize = 16;

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
    pub fn new(mut fs: FileSystem<M>) -> Self {
        fs.defer_removals();
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
        // Most of what containers have to write, they write while other operations go on.
        let (dirty, containers) = {
            let fs = self.read();
            (fs.dirty_containers(), fs.containers())
        };
        for container in dirty {
            if containers.sync(container).is_err() {
                self.write().note_failed_sync(container);
            }
        }
        let synced = self.write().sync();
        self.clear_garbage();
        synced
    }

    /// Removes containers that no file has any more, while other operations go on.
    fn clear_garbage(&self) {
        if !self.read().has_garbage() {
            return;
        }
        let (garbage, containers) = {
            let mut fs = self.write();
            (fs.take_garbage(), fs.containers())
        };
        for container in garbage {
            // The next mount removes those that stay.
            let _ = containers.remove(container);
        }
    }
}

/// Options of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Path of the region, which the table of mounts and the status show.
    pub region: PathBuf,
    /// Whether other users than the one who mounts may use it.
    pub allow_other: bool,
    /// Whether device files and set-user-id bits count; only root may ask for that.
    pub is_trusted: bool,
    /// Longest time until changes become durable without an `fsync`.
    pub sync_interval: Duration,
    /// Whether the kernel may read and write containers without the server, where it can.
    pub passthrough: bool,
    /// The weight of accesses per byte beside recency when files are evicted, in bytes.
    pub omega: f64,
}

/// How a mount ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was unmounted, and nobody used it any more.
    Unmounted,
    /// It was stopped while programs used it. Everything written is durable; the process must end now, so
    /// that these programs get errors instead of waiting for ever.
    InUse,
}

/// What wakes the thread that waits for the end of a mount.
#[derive(Debug)]
enum Event {
    /// The kernel ended the session.
    Ended,
    /// [`Stop::stop`] was called.
    Stopped,
}

/// Ends a mount, from any thread.
#[derive(Clone, Debug)]
pub struct Stop(Sender<Event>);

impl Stop {
    /// Asks the mount to end. It makes everything durable and unmounts, even if it is in use.
    pub fn stop(&self) {
        // Nobody receives this if the mount has ended.
        let _ = self.0.send(Event::Stopped);
    }
}

/// Mounts the file system at `directory` and answers requests until it is unmounted, or stopped by what
/// `mounted` gets.
///
/// # Errors
/// Returns an error if the kernel refuses the mount, or if what is left cannot be made durable at the end.
pub fn serve<M: Memory + Send + Sync + 'static>(
    fs: FileSystem<M>,
    directory: &Path,
    options: &MountOptions,
    mounted: impl FnOnce(Stop),
) -> io::Result<End> {
    let config = config(options, fs.is_read_only());
    fs.set_omega(options.omega);
    let opens = Opens::new(!fs.tiers().is_empty(), options.passthrough);
    let shared = Shared::new(fs);
    let threads = [background::start(&shared), drain::start(&shared), Some(quotas::start(&shared))];
    let (sender, events) = channel();
    let notifier = Arc::new(OnceLock::new());
    let place = Place { region: options.region.clone(), directory: directory.to_owned() };
    let handler = Handler::new(shared.clone(), Arc::clone(&notifier), place, opens, TellEnd(sender.clone()));
    let session = Session::new(handler, directory, &config)?;
    let _ = notifier.set(session.notifier());
    let session = session.spawn()?;
    mounted(Stop(sender));
    let end = wait(&shared, threads, directory, options.sync_interval, &events);
    // When it is dropped, the session would unmount whatever is mounted at the directory by then.
    std::mem::forget(session);
    end
}

fn config(options: &MountOptions, is_read_only: bool) -> Config {
    let is_root = rustix::process::geteuid().is_root();
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(mounts::source(&options.region, is_root)),
        MountOption::Subtype("weir".to_owned()),
        MountOption::DefaultPermissions,
    ];
    if is_read_only {
        config.mount_options.push(MountOption::RO);
    }
    if options.is_trusted {
        config.mount_options.extend([MountOption::Dev, MountOption::Suid]);
    }
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    config
}

/// Makes changes durable from time to time, until the mount ends or is stopped; then all of them.
fn wait<M: Memory>(
    shared: &Shared<M>,
    threads: [Option<WorkerThread>; 3],
    directory: &Path,
    interval: Duration,
    events: &Receiver<Event>,
) -> io::Result<End> {
    let mut levelled_at = 0;
    loop {
        match events.recv_timeout(interval) {
            Err(RecvTimeoutError::Timeout) => {
                // A failure shows in the next `fsync`, and again at the end.
                if shared.read().has_slack() {
                    while matches!(shared.write().trim(), Ok(true)) {}
                    shared.write().age_slack();
                }
                if shared.read().lacks_null_files() {
                    while matches!(shared.write().make_null_files(), Ok(true)) {}
                }
                level_wear(shared, &mut levelled_at);
                if shared.read().is_dirty() {
                    let _ = shared.sync();
                }
            }
            // The kernel tells the end of the session; until then it may have requests.
            Ok(Event::Stopped) if unmount(directory, false).is_ok() => {}
            Ok(Event::Stopped) => {
                // Pages that programs have changed in a mapping become requests to write.
                if let Ok(root) = File::open(directory) {
                    let _ = rustix::fs::syncfs(&root);
                }
                drop(threads);
                // If that fails, the directory stays and says that its server has ended.
                let _ = unmount(directory, true);
                let mut fs = shared.write();
                let containers = fs.containers();
                let mut flagged = fs.flagged_containers().into_iter();
                let written = flagged.try_for_each(|container| containers.sync_written_by_others(container));
                let synced = written.map_err(Error::Container).and(fs.sync());
                fs.clear_garbage();
                // Nothing is acknowledged any more that would not be durable.
                std::mem::forget(fs);
                return synced.map(|()| End::InUse).map_err(io::Error::other);
            }
            Ok(Event::Ended) | Err(RecvTimeoutError::Disconnected) => {
                drop(threads);
                let mut fs = shared.write();
                if fs.is_read_only() {
                    return Ok(End::Unmounted);
                }
                fs.forget_all().and_then(|()| fs.end_all_passthrough()).map_err(io::Error::other)?;
                fs.trim_all().and_then(|()| fs.sync()).map_err(io::Error::other)?;
                fs.clear_garbage();
                return Ok(End::Unmounted);
            }
        }
    }
}

/// Moves data so that chunks wear alike, once enough was written since the last time.
fn level_wear<M: Memory>(shared: &Shared<M>, levelled_at: &mut u64) {
    let events = shared.read().store().wear_events();
    if events - *levelled_at < u64::from(WEAR_GAP) || shared.read().is_read_only() {
        return;
    }
    *levelled_at = events;
    for _ in 0..LEVELLED_MAX {
        let Some(plan) = shared.read().plan_levelling(WEAR_GAP) else { break };
        // A failure shows in the next `fsync`. What programs change just now moves another time.
        if !shared.write().level(&plan).unwrap_or(false) {
            break;
        }
    }
}

/// Returns the present time.
pub fn now() -> Time {
    convert::time(SystemTime::now())
}
