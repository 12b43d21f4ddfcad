//! The background thread of a mount with tiers: it evicts before the region is full, promotes what turned
//! hot, keeps headers current, and removes garbage.

use super::Shared;
use super::worker_thread::WorkerThread;
use crate::error::{Error, Result};
use crate::layout::Ino;
use crate::layout::inode::{Form, Kind};
use crate::layout::tier::{Container, TierNumber};
use crate::namespace::{Eviction, Scan};
use crate::nvm::Memory;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use weir_model::Bytes;
use weir_policy::Watermarks;

/// How often the fill of the region is looked at.
const PERIOD: Duration = Duration::from_millis(100);
/// How often a file system without tiers is asked whether it has got one.
const IDLE_PERIOD: Duration = Duration::from_secs(1);
/// How often headers are written.
const HEADER_PERIOD: Duration = Duration::from_secs(1);
/// How long after a search for files of the region the next one may begin.
const SCAN_PERIOD: Duration = Duration::from_secs(30);
/// The longest time that the end of a mount waits for headers.
const LAST_HEADERS_TIME: Duration = Duration::from_secs(5);
/// How long the search for old headers may keep evictions waiting.
const HEADERS_TIME: Duration = Duration::from_millis(100);
/// Files that are evicted together, so that they are distributed well.
const BATCH: usize = 64;
/// Headers that are written at a time.
const HEADERS_MAX: usize = 4096;
/// Largest file that returns to the region by itself: promotion holds up other changes.
const PROMOTED_BYTES_MAX: u64 = 64 << 20;
/// Bytes that are read ahead at a time before a promotion.
const READ_BYTES: usize = 1 << 20;

/// Starts the thread, if the file system has tiers, or may get some, and can be changed.
pub(super) fn start<M: Memory + Send + Sync + 'static>(shared: &Shared<M>) -> Option<WorkerThread> {
    WorkerThread::start_with_tiers(shared, |shared, stopped| Worker::new(shared, stopped).run())
}

struct Worker<M> {
    shared: Shared<M>,
    stopped: Receiver<()>,
    marks: Watermarks,
    headers_due: Instant,
    scan_due: Instant,
    /// Directories below which headers are old.
    renamed: Vec<Ino>,
}

impl<M: Memory> Worker<M> {
    fn new(shared: Shared<M>, stopped: Receiver<()>) -> Self {
        let now = Instant::now();
        let (marks, renamed) = (Watermarks::default(), Vec::new());
        Self { shared, stopped, marks, headers_due: now, scan_due: now, renamed }
    }

    fn is_stopped(&self) -> bool {
        !matches!(self.stopped.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout))
    }

    fn run(mut self) {
        while self.shared.read().tiers().is_empty() {
            if !matches!(self.stopped.recv_timeout(IDLE_PERIOD), Err(RecvTimeoutError::Timeout)) {
                return;
            }
        }
        self.sweep();
        // A crash leaves headers old, and nothing says which: all are compared.
        self.renamed.push(Ino::ROOT);
        while matches!(self.stopped.recv_timeout(PERIOD), Err(RecvTimeoutError::Timeout)) {
            // Commits other than `sync` make garbage, too.
            self.shared.clear_garbage();
            self.evict(0);
            self.promote();
            if self.headers_due <= Instant::now() {
                let until = Instant::now() + HEADERS_TIME;
                self.renamed_directories(|worker| worker.is_stopped() || Instant::now() >= until);
                write_headers(&self.shared, HEADERS_MAX);
                end_passthrough(&self.shared);
                self.headers_due = Instant::now() + HEADER_PERIOD;
            }
        }
        self.write_last_headers();
    }

    /// Writes the headers that are old when the mount ends: there may be no next one that compares them.
    fn write_last_headers(&mut self) {
        let until = Instant::now() + LAST_HEADERS_TIME;
        self.renamed_directories(|_| Instant::now() >= until);
        while Instant::now() < until && self.shared.read().has_stale_headers() {
            write_headers(&self.shared, HEADERS_MAX);
        }
    }

    /// Walks all inodes; files of the region become known to the policy.
    fn scan(&mut self) -> Option<Scan> {
        let mut scan = Scan::default();
        while self.shared.read().scan(&mut scan) {
            if self.is_stopped() {
                return None;
            }
        }
        self.scan_due = Instant::now() + SCAN_PERIOD;
        Some(scan)
    }

    /// Removes containers that no file has.
    fn sweep(&mut self) {
        let (containers, tiers) = {
            let fs = self.shared.read();
            (fs.containers(), (0..fs.tiers().len() as u32).map(TierNumber))
        };
        let Some(scan) = self.scan() else { return };
        for tier in tiers {
            // Garbage in a tier that cannot be read is found by the next mount.
            for number in containers.list(tier).unwrap_or_default() {
                if self.is_stopped() {
                    return;
                }
                let container = Container { tier, number };
                if !scan.has(container) {
                    self.shared.read().remove_garbage(container, &scan);
                }
            }
        }
    }

    /// Evicts files if the region is fuller than the upper watermark, or would be with `wanted` more bytes,
    /// until it is below the lower one.
    fn evict(&mut self, wanted: u64) {
        let excess = |marks: Watermarks, (used, total): (u64, u64)| {
            marks.excess(Bytes(used), Bytes(wanted), Bytes(total)).0
        };
        let (used, total) = self.shared.read().fill();
        if !self.marks.starts(Bytes(used), Bytes(wanted), Bytes(total)) {
            return;
        }
        loop {
            let bytes = excess(self.marks, self.shared.read().fill());
            if bytes == 0 || self.is_stopped() || !self.evict_batch(bytes) {
                return;
            }
        }
    }

    /// Evicts some files; returns whether that freed space.
    fn evict_batch(&mut self, bytes: u64) -> bool {
        let mut victims = self.shared.write().take_victims(bytes, BATCH);
        if victims.is_empty() && self.scan_due <= Instant::now() && self.scan().is_some() {
            victims = self.shared.write().take_victims(bytes, BATCH);
        }
        let sizes: Vec<_> = victims.iter().map(|(_, size)| *size).collect();
        let targets = self.shared.read().targets(&sizes);
        let mut is_done = false;
        for ((ino, _), order) in victims.iter().zip(&targets) {
            is_done |= evict(&self.shared, *ino, order).is_ok();
        }
        // The space is free after the commit. A failure of it shows in the next `fsync`.
        is_done && self.shared.sync().is_ok()
    }

    /// Moves files that turned hot to the region.
    fn promote(&mut self) {
        loop {
            let wanted = self.shared.write().take_wanted();
            let Some((ino, size)) = wanted else { return };
            if size > PROMOTED_BYTES_MAX || self.is_stopped() {
                continue;
            }
            self.evict(size);
            let (used, total) = self.shared.read().fill();
            if !self.marks.starts(Bytes(used), Bytes(size), Bytes(total)) {
                // A file that cannot be read now stays where it is.
                let _ = promote(&self.shared, ino);
            }
        }
    }

    /// Notes the files in containers below renamed directories: their paths have changed. What is left when
    /// `is_over` says so is the next call's.
    fn renamed_directories(&mut self, is_over: impl Fn(&Self) -> bool) {
        loop {
            if self.renamed.is_empty() {
                self.renamed.extend(self.shared.write().take_renamed());
            }
            if self.renamed.is_empty() || is_over(self) {
                return;
            }
            let Some(directory) = self.renamed.pop() else { return };
            let fs = self.shared.read();
            let mut moved = Vec::new();
            for entry in fs.list(directory, 0, usize::MAX).unwrap_or_default() {
                match entry.kind {
                    Kind::Directory => self.renamed.push(entry.ino),
                    Kind::File => moved.push(entry.ino),
                    _ => {}
                }
            }
            drop(fs);
            self.shared.write().note_moved(&moved);
        }
    }
}

/// Moves a file to the first of these tiers that takes it, without holding up other operations for long.
///
/// # Errors `Changing` if it is changed meanwhile, and those of
/// [`FileSystem::evict_now`](crate::namespace::FileSystem).
pub(super) fn evict<M: Memory>(shared: &Shared<M>, ino: Ino, order: &[TierNumber]) -> Result<()> {
    let mut failure = Error::NoTier;
    for tier in order {
        match evict_to(shared, ino, *tier) {
            // The next tier may have space.
            Err(Error::Container(error)) => failure = Error::Container(error),
            done => return done,
        }
    }
    Err(failure)
}

fn evict_to<M: Memory>(shared: &Shared<M>, ino: Ino, tier: TierNumber) -> Result<()> {
    let eviction = shared.write().begin_eviction(ino, tier)?;
    let copied = create(shared, &eviction).and_then(|()| copy(shared, &eviction));
    finish(shared, &eviction, copied)
}

/// Creates the container of a move.
pub(super) fn create<M: Memory>(shared: &Shared<M>, eviction: &Eviction) -> Result<()> {
    let containers = shared.read().containers();
    containers.create(eviction.container).map_err(Error::Container)
}

/// Gives a file its new container if it was copied, or gives the move up.
pub(super) fn finish<M: Memory>(shared: &Shared<M>, eviction: &Eviction, copied: Result<()>) -> Result<()> {
    let finished = match copied {
        Ok(()) => shared.write().finish_eviction(eviction),
        Err(error) => {
            shared.write().cancel_eviction(eviction);
            Err(error)
        }
    };
    shared.clear_garbage();
    finished
}

/// Copies a file of the region to its container, durably.
fn copy<M: Memory>(shared: &Shared<M>, eviction: &Eviction) -> Result<()> {
    let Eviction { ino, container, size, .. } = *eviction;
    let (containers, header) = {
        let fs = shared.read();
        (fs.containers(), fs.header(ino)?)
    };
    let mut offset = 0;
    loop {
        let part = shared.read().eviction_part(eviction, offset)?;
        let Some((at, bytes)) = part else { break };
        containers.write(container, at, &bytes).map_err(Error::Container)?;
        offset = at + bytes.len() as u64;
    }
    containers.set_len(container, size).map_err(Error::Container)?;
    containers.set_header(container, &header).map_err(Error::Container)?;
    containers.sync(container).map_err(Error::Container)
}

/// Moves a file to the region.
///
/// # Errors
/// As [`FileSystem::promote`](crate::namespace::FileSystem::promote).
pub(super) fn promote<M: Memory>(shared: &Shared<M>, ino: Ino) -> Result<()> {
    let (containers, inode, share) = {
        let fs = shared.read();
        (fs.containers(), fs.inode(ino)?, fs.region_share())
    };
    let Form::Container(container) = inode.form else { return Ok(()) };
    if inode.size > share {
        // Before it is read: a file with holes may be larger than anybody can read.
        return Err(Error::TooLarge);
    }
    // Into the kernel's cache, so that the move itself does not wait for the device.
    let (mut buffer, mut offset) = (vec![0; READ_BYTES], 0);
    while containers.read(container, offset, &mut buffer).map_err(Error::Container)? == READ_BYTES {
        offset += READ_BYTES as u64;
    }
    shared.write().promote(ino)
}

/// Ends passthrough for files that nobody has open or mapped any more.
fn end_passthrough<M: Memory>(shared: &Shared<M>) {
    let (containers, files) = {
        let fs = shared.read();
        (fs.containers(), fs.unsettled())
    };
    for (ino, flagged) in files {
        if let Some(container) = flagged {
            // Durable now, so that the commit of its size need not wait for it.
            let is_used = matches!(containers.is_used_by_others(container), Ok(true));
            if is_used || containers.sync_written_by_others(container).is_err() {
                continue;
            }
        }
        // A failure shows in the next `fsync`.
        let _ = shared.write().end_passthrough(ino);
    }
}

/// Writes headers that are old, at most `max`.
fn write_headers<M: Memory>(shared: &Shared<M>, max: usize) {
    if !shared.read().has_stale_headers() {
        return;
    }
    let stale = shared.write().take_stale_headers(max);
    let (containers, headers) = {
        let fs = shared.read();
        (fs.containers(), fs.headers(&stale))
    };
    for (container, mut header) in headers {
        let old = containers.header(container).ok().flatten();
        if header.path.is_empty()
            && let Some(old) = &old
        {
            header.path.clone_from(&old.path);
        }
        if old.as_ref() != Some(&header) {
            // A header that cannot be written stays old until the file changes again, or the next mount.
            let _ = containers.set_header(container, &header);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check_with_containers;
    use crate::layout::inode::Kind;
    use crate::namespace::New;
    use crate::nvm::Simulated;
    use crate::testing::{NEW, NOW, contents, file, file_system, open};
    use crate::tiers::{Class, Containers as _, SimulatedContainers};

    /// The container is durable before the commit after which the file has it, although a commit during the
    /// copy has synced what was there by then.
    #[test]
    fn evicted_files_survive_a_power_loss() {
        let (mut fs, containers) = file_system(&[Class::Flash]);
        let ino = file(&mut fs, "file", 9000);
        let shared = Shared::new(fs);
        let begun = shared.write().begin_eviction(ino, TierNumber(0)).expect("the tier takes it");
        create(&shared, &begun).expect("the tier takes it");
        shared.sync().expect("no failure");
        let copied = copy(&shared, &begun);
        assert!(finish(&shared, &begun, copied).is_ok());
        shared.sync().expect("no failure");
        let memory = shared.read().store().memory().after_power_loss(|_| 0);
        let fs = open(memory, &containers.after_power_loss(&mut |_| 0));
        assert!(matches!(fs.inode(ino).expect("it exists").form, Form::Container(_)));
        let mut found = vec![0; 9000];
        assert_eq!(fs.read(ino, 0, &mut found).expect("it can be read"), 9000);
        assert!(found == contents(ino, 9000));
        assert!(check_with_containers(&fs).is_clean());
    }

    /// Returns a file system whose only file was in a container, and was removed.
    fn with_removed_file() -> (Shared<Simulated>, SimulatedContainers) {
        let (mut fs, containers) = file_system(&[Class::Flash]);
        let ino = file(&mut fs, "file", 9000);
        fs.evict_now(ino).expect("a tier takes it");
        let shared = Shared::new(fs);
        shared.sync().expect("no failure");
        shared.write().unlink(Ino::ROOT, b"file", NOW).expect("it exists");
        (shared, containers)
    }

    #[test]
    fn containers_of_removed_files_go_once_that_is_durable() {
        let (shared, containers) = with_removed_file();
        let list = || containers.list(TierNumber(0)).expect("no failure").len();
        assert_eq!(list(), 1);
        shared.sync().expect("no failure");
        assert_eq!(list(), 0);
        let other = file(&mut shared.write(), "other", 9000);
        let begun = shared.write().begin_eviction(other, TierNumber(0)).expect("the tier takes it");
        create(&shared, &begun).expect("the tier takes it");
        assert!(finish(&shared, &begun, Err(Error::Changing)).is_err());
        assert_eq!(list(), 0, "nor is what a move leaves kept until then");
    }

    /// Commits of operations are no `sync`, and with nothing left to make durable there may be none for long.
    #[test]
    fn containers_go_without_a_sync() {
        let (shared, containers) = with_removed_file();
        shared.write().sync().expect("a commit");
        let list = || containers.list(TierNumber(0)).expect("no failure").len();
        assert_eq!(list(), 1);
        let thread = start(&shared).expect("it has tiers");
        let until = Instant::now() + Duration::from_secs(60);
        while list() > 0 {
            assert!(Instant::now() < until, "nobody removes it");
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(thread);
    }

    /// Holes cost nothing, so anybody could have the server read for hours.
    #[test]
    fn a_file_that_the_region_cannot_take_is_not_read() {
        let (mut fs, _) = file_system(&[Class::Flash]);
        let ino = file(&mut fs, "file", 9000);
        fs.evict_now(ino).expect("a tier takes it");
        fs.truncate(ino, fs.region_share() + 1, NOW).expect("holes");
        let Form::Container(container) = fs.inode(ino).expect("it exists").form else { panic!("evicted") };
        fs.containers().remove(container).expect("it exists");
        let shared = Shared::new(fs);
        assert!(
            matches!(promote(&shared, ino), Err(Error::TooLarge)),
            "it would not be found if it were read"
        );
    }

    #[test]
    fn a_search_for_old_headers_goes_on_where_it_was() {
        let (mut fs, _) = file_system(&[Class::Flash]);
        let new = New { kind: Kind::Directory, permissions: 0o755, ..NEW };
        let (directory, _) = fs.create_file(Ino::ROOT, b"directory", &new, NOW).expect("space");
        let ino = file(&mut fs, "file", 9000);
        let how = crate::namespace::RenameHow::Replace;
        fs.rename((Ino::ROOT, b"file"), (directory, b"file"), how, NOW).expect("no failure");
        fs.evict_now(ino).expect("a tier takes it");
        fs.take_stale_headers(10);
        let mut worker = Worker::new(Shared::new(fs), std::sync::mpsc::channel().1);
        worker.renamed.push(Ino::ROOT);
        let asked = std::cell::Cell::new(0);
        worker.renamed_directories(|_| asked.replace(asked.get() + 1) == 1);
        assert!(!worker.shared.read().has_stale_headers(), "only the root has been searched");
        worker.renamed_directories(|_| false);
        assert_eq!(worker.shared.write().take_stale_headers(10), [ino]);
    }
}
