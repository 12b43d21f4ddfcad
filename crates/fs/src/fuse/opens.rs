//! Files that the kernel has open, and how it accesses them.
//!
//! The first opening of a file decides: while it is open, the kernel either asks the server to read and
//! write, or uses the file's container itself (passthrough), always the same one.

use crate::error::Result;
use crate::layout::tier::Container;
use crate::layout::{Ino, Time};
use crate::namespace::FileSystem;
use crate::nvm::Memory;
use fuser::{BackingId, InitFlags, KernelConfig};
use rustc_hash::FxHashMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Stacked file systems that may be below this one: containers are on none.
const STACK_DEPTH: u32 = 1;

/// How the kernel accesses an open file.
#[derive(Debug)]
enum Access {
    /// It asks the server.
    Requests,
    /// It uses the container.
    Passthrough {
        container: Container,
        /// Time of the last read of the container when that was looked at last.
        accessed: Time,
        /// What the kernel knows the container by.
        backing: Option<Arc<BackingId>>,
    },
}

#[derive(Debug)]
struct Open {
    count: u64,
    access: Access,
}

/// The files that the kernel has open, if it tells.
#[derive(Debug, Default)]
pub(super) struct Opens {
    files: Mutex<FxHashMap<Ino, Open>>,
    /// Whether the kernel asks when it opens files, from the beginning to the end of the mount.
    is_asked: bool,
    is_refused: AtomicBool,
    /// Why containers are not accessed by the kernel.
    problem: Mutex<Option<String>>,
}

impl Opens {
    /// Returns the openings of a mount. `has_tiers`: passthrough is possible; `is_wanted`: it is allowed.
    pub(super) fn new(has_tiers: bool, is_wanted: bool) -> Self {
        let problem = match () {
            () if !is_wanted => Some("it is switched off".to_owned()),
            () if !has_tiers => Some("there was no tier when it was mounted".to_owned()),
            () if !is_privileged() => Some("the server lacks CAP_SYS_ADMIN".to_owned()),
            () => None,
        };
        let is_asked = has_tiers && problem.is_none();
        Self { is_asked, problem: Mutex::new(problem), ..Self::default() }
    }

    /// Agrees on passthrough with the kernel.
    pub(super) fn negotiate(&mut self, config: &mut KernelConfig) {
        if !self.is_asked {
            return;
        }
        let is_known = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok();
        self.is_asked = is_known && config.set_max_stack_depth(STACK_DEPTH).is_ok();
        if self.is_asked {
            // A file that is emptied when it is opened goes to the region.
            let _ = config.add_capabilities(InitFlags::FUSE_ATOMIC_O_TRUNC);
        } else {
            self.refuse("the kernel has no FUSE passthrough (Linux 6.9 or later)".to_owned());
        }
    }

    /// Returns whether the kernel asks when it opens files.
    pub(super) const fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// Returns whether the kernel accesses containers.
    pub(super) fn is_passthrough(&self) -> bool {
        self.is_asked && !self.is_refused.load(Ordering::Relaxed)
    }

    /// Returns why the kernel does not access some or all containers.
    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn refuse(&self, problem: String) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
    }

    fn files(&self) -> MutexGuard<'_, FxHashMap<Ino, Open>> {
        self.files.lock().expect("no operation panicked")
    }

    /// Counts an opening; returns whether the kernel is to use the container. With `may_pass` false, it is so
    /// only if it does already.
    ///
    /// # Errors
    /// As [`FileSystem::passthrough_container`].
    pub(super) fn enter<M: Memory>(&self, fs: &FileSystem<M>, ino: Ino, may_pass: bool) -> Result<bool> {
        let mut files = self.files();
        if let Some(open) = files.get_mut(&ino) {
            open.count += 1;
            return Ok(matches!(open.access, Access::Passthrough { .. }));
        }
        let container = match may_pass && self.is_passthrough() {
            true => fs.passthrough_container(ino)?,
            false => None,
        };
        let access = container.map_or(Access::Requests, |container| {
            fs.set_passthrough(ino, true);
            let accessed =
                fs.containers().stat(container).map_or_else(|_| Time::default(), |stat| stat.accessed);
            Access::Passthrough { container, accessed, backing: None }
        });
        let is_passthrough = container.is_some();
        files.insert(ino, Open { count: 1, access });
        Ok(is_passthrough)
    }

    /// Returns what the kernel knows a file's container by; `register` makes it known. If the kernel refuses,
    /// it asks the server, and this returns `None`.
    pub(super) fn backing<M: Memory>(
        &self,
        fs: &FileSystem<M>,
        ino: Ino,
        register: impl FnOnce(&File) -> io::Result<BackingId>,
    ) -> Option<Arc<BackingId>> {
        let mut files = self.files();
        let open = files.get_mut(&ino)?;
        let Access::Passthrough { container, backing, .. } = &mut open.access else { return None };
        if let Some(known) = backing {
            return Some(Arc::clone(known));
        }
        match fs.containers().file(*container).and_then(|file| register(&file)) {
            Ok(new) => Some(Arc::clone(backing.insert(Arc::new(new)))),
            Err(error) => {
                self.refuse(format!("the kernel refuses a container: {error}"));
                if error.kind() == io::ErrorKind::PermissionDenied {
                    self.is_refused.store(true, Ordering::Relaxed);
                }
                open.access = Access::Requests;
                fs.set_passthrough(ino, false);
                None
            }
        }
    }

    /// Notes the end of an opening; returns whether the kernel used the container, and whether that was read
    /// meanwhile.
    pub(super) fn leave<M: Memory>(&self, fs: &FileSystem<M>, ino: Ino) -> Option<bool> {
        let mut files = self.files();
        let open = files.get_mut(&ino)?;
        open.count -= 1;
        let is_last = open.count == 0;
        let was_read = match &mut open.access {
            Access::Requests => None,
            Access::Passthrough { container, accessed, .. } => {
                let found = fs.containers().stat(*container).map_or(*accessed, |stat| stat.accessed);
                Some(std::mem::replace(accessed, found) != found)
            }
        };
        if is_last {
            // The kernel has ended its use of the container before it told.
            files.remove(&ino);
            if was_read.is_some() {
                fs.set_passthrough(ino, false);
            }
        }
        was_read
    }
}

/// Returns whether this process may have the kernel access files for others.
fn is_privileged() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}
