//! The thread that empties tiers which are leaving, and then removes them.
//!
//! That a tier is leaving is durable, and each file is wholly in its old or its new place: after a crash, the
//! thread of the next mount goes on. A file whose container programs access through the kernel waits until
//! they no longer do; what keeps files there is noted for the status.

use super::Shared;
use super::background::{create, finish, promote};
use super::worker_thread::WorkerThread;
use crate::error::{Error, Result};
use crate::layout::Ino;
use crate::layout::inode::Form;
use crate::layout::tier::{Container, TierNumber};
use crate::namespace::tier_changes::COMMIT_BYTES;
use crate::namespace::{BlockReason, Blocked, Eviction, Scan, Seek};
use crate::nvm::Memory;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The interval at which the thread looks for tiers that are leaving.
const PERIOD: Duration = Duration::from_millis(500);
/// The shortest time until files that could not move are tried again.
const RETRY_PERIOD: Duration = Duration::from_secs(1);
/// Repeated attempts take at most one part of the time in this many.
const RETRY_PART: u32 = 4;
/// The number of times that a file is copied if it changes meanwhile.
const ATTEMPTS: u32 = 3;
/// The size of the largest file that moves while other operations wait, if each copy of it was in vain.
const HELD_BYTES_MAX: u64 = 64 << 20;
/// The number of bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// Starts the thread, if the file system can have tiers and be changed.
pub(super) fn start<M: Memory + Send + Sync + 'static>(shared: &Shared<M>) -> Option<WorkerThread> {
    WorkerThread::start_with_tiers(shared, |shared, stopped| Worker { shared, stopped }.run())
}

/// Why a tier is not emptied now.
#[derive(Debug)]
enum Interruption {
    /// The mount ends, or the tier is kept.
    Over,
    /// The region cannot be changed any more.
    Failed(Error),
}

impl From<Error> for Interruption {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

struct Worker<M> {
    shared: Shared<M>,
    stopped: Receiver<()>,
}

impl<M: Memory> Worker<M> {
    fn waits(&self, time: Duration) -> bool {
        matches!(self.stopped.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }

    fn run(self) {
        while self.waits(PERIOD) {
            let tiers = self.shared.read().tiers().len() as u32;
            for number in (0..tiers).map(TierNumber) {
                let is_leaving = self.shared.read().is_leaving(number);
                // A failure shows in the next `fsync`; a tier that is kept, or a mount that ends, is none.
                if is_leaving && matches!(self.drain(number), Err(Interruption::Failed(Error::Failed))) {
                    return;
                }
            }
        }
    }

    fn verify(&self, number: TierNumber) -> Result<(), Interruption> {
        match self.waits(Duration::ZERO) && self.shared.read().is_leaving(number) {
            true => Ok(()),
            false => Err(Interruption::Over),
        }
    }

    /// Moves all files of a tier elsewhere and removes it.
    fn drain(&self, number: TierNumber) -> Result<(), Interruption> {
        let numbers_end = self.shared.read().next_container(number)?;
        loop {
            let (found, mut left) = self.first_pass(number)?;
            if !found {
                break;
            }
            let mut pause = RETRY_PERIOD;
            while !left.is_empty() {
                if !self.waits(pause) {
                    return Err(Interruption::Over);
                }
                let before = Instant::now();
                left = self.pass(number, left)?;
                pause = RETRY_PERIOD.max(before.elapsed() * RETRY_PART);
            }
        }
        // From here on no inode refers to the tier after a power loss either.
        self.shared.sync()?;
        let containers = self.shared.read().containers();
        for garbage in containers.list(number).unwrap_or_default() {
            self.verify(number)?;
            // If the tier is kept meanwhile, files get numbers beyond.
            if garbage < numbers_end {
                let _ = containers.remove(Container { tier: number, number: garbage });
            }
        }
        let mut fs = self.shared.write();
        if fs.is_leaving(number) {
            fs.forget_tier(number)?;
        }
        Ok(())
    }

    /// Tries to move all files of a tier; returns whether there were any, and those that stayed.
    fn first_pass(&self, number: TierNumber) -> Result<(bool, Vec<Ino>), Interruption> {
        let (mut scan, mut found, mut left) = (Scan::default(), false, Vec::new());
        loop {
            let mut files = Vec::new();
            let has_more = self.shared.read().scan_tier(&mut scan, number, &mut files);
            found |= !files.is_empty();
            self.verify(number)?;
            // What keeps them may be over by the next attempt: it is not noted yet.
            left.append(&mut self.move_files(number, files)?.files);
            if !has_more {
                return Ok((found, left));
            }
        }
    }

    /// Tries to move these files of a tier; returns those that stayed, and notes what keeps them.
    fn pass(&self, number: TierNumber, files: Vec<Ino>) -> Result<Vec<Ino>, Interruption> {
        let stayed = self.move_files(number, files)?;
        self.shared.read().set_blocked(number, stayed.blocked());
        Ok(stayed.files)
    }

    fn move_files(&self, number: TierNumber, files: Vec<Ino>) -> Result<Stayed, Interruption> {
        let (mut stayed, mut moved_bytes) = (Stayed::default(), 0);
        for ino in files {
            self.verify(number)?;
            match self.move_out(ino, number) {
                Ok(bytes) => moved_bytes += bytes,
                Err(error) => stayed.note(ino, reason(error)?),
            }
            // The commit frees the space of what was moved before.
            if moved_bytes >= COMMIT_BYTES {
                self.shared.sync()?;
                moved_bytes = 0;
            }
        }
        if moved_bytes > 0 {
            self.shared.sync()?;
        }
        Ok(stayed)
    }

    /// Moves a file out of a tier, if it is there: to another one, or to the region if no other can take it.
    /// Returns its size.
    fn move_out(&self, ino: Ino, number: TierNumber) -> Result<u64> {
        for _ in 0..ATTEMPTS {
            let inode = match self.shared.read().inode(ino) {
                Err(Error::NotFound) => return Ok(0),
                inode => inode?,
            };
            if !matches!(inode.form, Form::Container(Container { tier, .. }) if tier == number) {
                return Ok(0);
            }
            match self.relocate(ino, inode.size) {
                Ok(()) => return Ok(inode.size),
                Err(Error::Changing) => {}
                Err(Error::NoTier) => return self.promote(ino).map(|()| inode.size),
                Err(error) => return Err(error),
            }
        }
        let size = self.shared.read().inode(ino)?.size;
        if size > HELD_BYTES_MAX {
            return Err(Error::Changing);
        }
        self.shared.write().move_out(ino)?;
        Ok(size)
    }

    fn promote(&self, ino: Ino) -> Result<()> {
        promote(&self.shared, ino).map_err(|error| match error {
            Error::NoSpace | Error::TooLarge => Error::NoTier,
            error => error,
        })
    }

    /// Moves a file to the first tier that takes it, without holding up other operations for long.
    fn relocate(&self, ino: Ino, size: u64) -> Result<()> {
        let order = self.shared.read().targets(&[size]).remove(0);
        for tier in order {
            let eviction = self.shared.write().begin_relocation(ino, tier)?;
            let created = create(&self.shared, &eviction).map_err(|_| Error::NoTier);
            let copied = created.and_then(|()| self.copy(&eviction));
            // The next tier may have space.
            let moved = finish(&self.shared, &eviction, copied);
            if !matches!(moved, Err(Error::NoTier)) {
                return moved;
            }
        }
        Err(Error::NoTier)
    }

    /// Copies a container to another one, durably; `NoTier` if that cannot be written.
    fn copy(&self, eviction: &Eviction) -> Result<()> {
        let (Some(from), to) = (eviction.from, eviction.container) else { return Err(Error::Invalid) };
        let (containers, header) = {
            let fs = self.shared.read();
            (fs.containers(), fs.header(eviction.ino))
        };
        let full = |_: io::Error| Error::NoTier;
        let (mut buffer, mut offset) = (vec![0; COPY_BYTES], 0);
        while offset < eviction.size {
            if self.shared.read().has_changed(eviction) || !self.waits(Duration::ZERO) {
                return Err(Error::Changing);
            }
            let data = containers.seek(from, offset, Seek::Data).map_err(Error::Container)?;
            let Some(start) = data.filter(|start| *start < eviction.size) else { break };
            let part = &mut buffer[..(eviction.size - start).min(COPY_BYTES as u64) as usize];
            if containers.read(from, start, part).map_err(Error::Container)? < part.len() {
                return Err(Error::Container(io::ErrorKind::UnexpectedEof.into()));
            }
            containers.write(to, start, part).map_err(full)?;
            offset = start + part.len() as u64;
        }
        // A file of zeros alone may lack its container, too.
        let len = containers.len(from).map_err(Error::Container)?;
        if len < eviction.size {
            return Err(Error::Container(io::ErrorKind::UnexpectedEof.into()));
        }
        containers.set_len(to, eviction.size).map_err(full)?;
        if let Ok(mut header) = header {
            if let (true, Ok(Some(old))) = (header.path.is_empty(), containers.header(from)) {
                header.path = old.path;
            }
            // A header that cannot be written now is written in the background.
            let _ = containers.set_header(to, &header);
        }
        containers.sync(to).map_err(full)
    }
}

/// Files that could not move.
#[derive(Debug, Default)]
struct Stayed {
    files: Vec<Ino>,
    reasons: BTreeMap<BlockReason, (u64, Ino)>,
}

impl Stayed {
    fn note(&mut self, ino: Ino, reason: BlockReason) {
        self.files.push(ino);
        self.reasons.entry(reason).or_insert((0, ino)).0 += 1;
    }

    fn blocked(&self) -> Option<Blocked> {
        let (reason, (files, ino)) = self.reasons.first_key_value()?;
        Some(Blocked { reason: *reason, files: *files, ino: *ino })
    }
}

/// Returns why a file stays.
///
/// # Errors
/// Returns the error if it is not about the file.
fn reason(error: Error) -> Result<BlockReason> {
    match error {
        Error::InUse => Ok(BlockReason::InUse),
        Error::NoTier => Ok(BlockReason::NoSpace),
        Error::Changing => Ok(BlockReason::Changing),
        Error::Container(_) | Error::Damaged(_) => Ok(BlockReason::Unreadable),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests;
