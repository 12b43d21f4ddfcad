//! Containers as files of other file systems.

use super::header::{self, hex};
use super::marker::{self, Marker};
use super::{Container, ContainerStat, Containers, Header, Seek, Tier, TierNumber, TierSpace, TierState};
use super::{TierWork, lease};
use crate::error::TierError;
use crate::layout::Time;
use rustc_hash::FxHashMap;
use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;
use weir_model::{Bytes, Nanos};
use weir_policy::distribution::{METER_PERIOD, RateMeter};

/// Directory of the containers in that of a tier.
const FOLDER: &str = "containers";
/// Directories among which containers are spread.
const FOLDERS: u64 = 256;
/// What the name of a header's file ends with, where a file system has no extended attributes.
const SIDECAR: &str = "header";
/// Bytes of the blocks in which the kernel counts the space of files.
const BLOCK_BYTES: u64 = 512;
/// Container files that are kept open.
const OPEN_MAX: usize = 512;
/// Bytes of zeros that are written at a time where holes are not supported.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// An open container.
#[derive(Debug)]
struct Open {
    file: Arc<File>,
    /// The number of its changes, and how many of them a sync has covered. With changes that no sync has
    /// covered it stays open: errors of writing them back are told to this file.
    changes: u64,
    synced: u64,
    /// Whether its name is not durable yet.
    is_new: bool,
    /// Whether a sync has failed: the next one could not tell.
    has_failed: bool,
    /// Held while it is synced: the kernel tells one sync alone of a failure, and the next must know of it.
    sync: Arc<Mutex<()>>,
}

impl Open {
    fn new(file: File) -> Self {
        let sync = Arc::default();
        Self { file: Arc::new(file), changes: 0, synced: 0, is_new: false, has_failed: false, sync }
    }

    fn is_needed(&self) -> bool {
        self.changes != self.synced || self.is_new || self.has_failed
    }

    /// Notes the end of a sync that began after so many changes.
    fn note_sync(&mut self, changes: u64, has_failed: bool) {
        self.synced = self.synced.max(changes);
        self.has_failed |= has_failed;
    }
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    region: [u8; 16],
    tier: Tier,
    /// The marker's file, which is locked, or why the tier is left out.
    lock: Result<File, TierError>,
    meter: Mutex<(RateMeter, f64)>,
}

/// The directories of tiers, by number.
type Directories = Vec<Arc<Directory>>;

/// Containers in directories of other file systems.
#[derive(Debug)]
pub struct ContainerFiles {
    region: [u8; 16],
    directories: RwLock<Directories>,
    writable: bool,
    open: Mutex<FxHashMap<Container, Open>>,
    started: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn folder(directory: &Path, number: u64) -> PathBuf {
    directory.join(FOLDER).join(format!("{:02x}", number % FOLDERS))
}

/// Returns the path of a container in the directory of its tier.
pub fn container_path(directory: &Path, number: u64) -> PathBuf {
    folder(directory, number).join(number.to_string())
}

fn sidecar_path(directory: &Path, number: u64) -> PathBuf {
    folder(directory, number).join(format!("{number}.{SIDECAR}"))
}

/// Returns the numbers of all containers in the directory of a tier.
pub(super) fn list(directory: &Path) -> io::Result<Vec<u64>> {
    list_folders(directory, false)
}

/// Returns the numbers of all containers in a directory that may lack folders: when a tier is removed, these
/// go before the marker.
pub(super) fn list_what_is_there(directory: &Path) -> io::Result<Vec<u64>> {
    list_folders(directory, true)
}

fn list_folders(directory: &Path, may_lack: bool) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for part in 0..FOLDERS {
        let entries = match std::fs::read_dir(folder(directory, part)) {
            Err(error) if may_lack && error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let name = entry?.file_name();
            numbers.extend(name.to_str().and_then(|name| name.parse::<u64>().ok()));
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads the header of a container in the directory of a tier.
pub(super) fn read_header(directory: &Path, number: u64) -> io::Result<Option<Header>> {
    match std::fs::read(sidecar_path(directory, number)) {
        Ok(text) => return Ok(Header::decode(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut text = vec![0; 64 << 10];
    match rustix::fs::getxattr(container_path(directory, number), header::ATTRIBUTE, &mut text[..]) {
        Ok(len) => Ok(Header::decode(&text[..len])),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the space that the containers in the directory of a tier have.
///
/// # Errors
/// Returns the operating system's error.
pub fn allocated_bytes(directory: &Path) -> io::Result<u64> {
    list(directory)?.into_iter().try_fold(0, |sum, number| {
        Ok(sum + container_path(directory, number).metadata()?.blocks() * BLOCK_BYTES)
    })
}

/// Makes a directory that of a tier: with a marker, and folders for containers.
///
/// # Errors
/// Returns the operating system's error; `AlreadyExists` if it is that of a tier already.
pub(super) fn prepare(directory: &Path, marker: &Marker) -> io::Result<()> {
    if marker::path(directory).exists() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    for part in 0..FOLDERS {
        std::fs::create_dir_all(folder(directory, part))?;
    }
    File::open(directory.join(FOLDER))?.sync_all()?;
    // The marker comes last: without it the directory is none of a tier.
    marker.write(directory)?;
    match directory.parent().map(File::open) {
        Some(Ok(parent)) => parent.sync_all(),
        // Not for this user to read; whoever made the directory has done this long ago.
        _ => Ok(()),
    }
}

/// Removes what [`prepare`] made, as far as it is empty.
///
/// # Errors
/// Returns the operating system's error if the marker stays.
pub(super) fn discard(directory: &Path) -> io::Result<()> {
    (0..FOLDERS).for_each(|part| drop(std::fs::remove_dir(folder(directory, part))));
    let _ = std::fs::remove_dir(directory.join(FOLDER));
    marker::note_leaving(directory, false)?;
    // The marker goes last: as long as it is there, this can be done again.
    match std::fs::remove_file(marker::path(directory)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::open(directory)?.sync_all(),
    }
}

impl ContainerFiles {
    /// Makes directories those of a new region's tiers.
    ///
    /// # Errors
    /// Returns the operating system's error, and the directory; what was made before is removed.
    pub fn create(tiers: &[Tier], region: [u8; 16]) -> Result<(), (PathBuf, io::Error)> {
        for (number, tier) in (0..).zip(tiers) {
            let marker = Marker { region, tier: tier.uuid, number: TierNumber(number), class: tier.class };
            if let Err(error) = prepare(&tier.path, &marker) {
                Self::discard(&tiers[..number as usize]);
                return Err((tier.path.clone(), error));
            }
        }
        Ok(())
    }

    /// Removes what [`create`](Self::create) made, as far as it is empty.
    pub fn discard(tiers: &[Tier]) {
        for tier in tiers {
            // Whatever stays is refused by the next creation, which says so.
            let _ = discard(&tier.path);
        }
    }

    /// Opens the tiers of a region. Those that may lack are left out if they cannot be used.
    ///
    /// # Errors
    /// Returns the tier that cannot be used, and why.
    pub fn open(
        tiers: &[Tier],
        region: [u8; 16],
        writable: bool,
        may_lack: impl Fn(&Tier) -> bool,
    ) -> Result<Self, (TierNumber, TierError)> {
        let mut directories = Vec::new();
        for (number, tier) in (0..).map(TierNumber).zip(tiers) {
            let directory = Directory::open(number, tier, region, writable);
            match &directory.lock {
                Err(error) if !tier.is_removed() && !may_lack(tier) => return Err((number, error.clone())),
                _ => directories.push(Arc::new(directory)),
            }
        }
        let directories = RwLock::new(directories);
        Ok(Self { region, directories, writable, open: Mutex::default(), started: Instant::now() })
    }

    /// Returns why a tier cannot be used now.
    ///
    /// # Errors
    /// Returns the reason.
    pub fn verify(&self, tier: TierNumber) -> Result<(), TierError> {
        let directory = self.known(tier).ok_or(TierError::NoDirectory)?;
        // One that was left out stays so until the tiers are opened again.
        directory.lock.as_ref().map_err(TierError::clone)?;
        directory.verify(tier)
    }

    /// Returns the directory of a tier, which may be left out.
    fn known(&self, tier: TierNumber) -> Option<Arc<Directory>> {
        let directories = self.directories.read().unwrap_or_else(PoisonError::into_inner);
        directories.get(tier.0 as usize).cloned()
    }

    /// Sets the directory of a tier, the last one or a new one after it.
    fn set_directory(&self, number: TierNumber, directory: Directory) {
        let mut directories = self.directories.write().unwrap_or_else(PoisonError::into_inner);
        match directories.get_mut(number.0 as usize) {
            Some(place) => *place = Arc::new(directory),
            None => directories.push(Arc::new(directory)),
        }
    }

    fn directory(&self, tier: TierNumber) -> io::Result<Arc<Directory>> {
        let directory = self.known(tier).filter(|directory| directory.lock.is_ok());
        directory.ok_or_else(|| io::Error::from_raw_os_error(libc::ENXIO))
    }

    /// Returns a container that is about to be changed.
    fn dirty(&self, container: Container) -> io::Result<Arc<File>> {
        self.with_open(container, |open| {
            open.changes += 1;
            Arc::clone(&open.file)
        })
    }

    fn with_open<T>(&self, container: Container, take: impl FnOnce(&mut Open) -> T) -> io::Result<T> {
        let directory = self.directory(container.tier)?;
        if let Some(open) = lock(&self.open).get_mut(&container) {
            return Ok(take(open));
        }
        // Other tiers do not wait for one that is slow to open a file.
        self.close_some();
        let path = container_path(&directory.path, container.number);
        let file = OpenOptions::new().read(true).write(self.writable).open(&path);
        // On a read-only file system, reading is possible still.
        let file = match file {
            Err(error) if error.raw_os_error() == Some(libc::EROFS) => File::open(&path)?,
            file => file?,
        };
        Ok(take(lock(&self.open).entry(container).or_insert_with(|| Open::new(file))))
    }

    /// Closes containers if many are open; those with changes are synced first.
    fn close_some(&self) {
        let mut all = lock(&self.open);
        if all.len() < OPEN_MAX {
            return;
        }
        all.retain(|_, open| open.is_needed());
        if all.len() < OPEN_MAX {
            return;
        }
        let dirty: Vec<_> = all.keys().take(OPEN_MAX / 4).copied().collect();
        drop(all);
        for container in dirty {
            // A failure is noted, and the next sync tells it.
            let _ = self.sync(container);
        }
        lock(&self.open).retain(|_, open| open.is_needed());
    }

    /// Runs an operation of a tier and measures it.
    fn timed<T>(&self, tier: TierNumber, bytes: u64, run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let before = Instant::now();
        let done = run()?;
        let busy = before.elapsed();
        let now = Nanos(self.started.elapsed().as_nanos() as u64);
        let directory = self.directory(tier)?;
        let (meter, seconds) = &mut *lock(&directory.meter);
        meter.record(now, Bytes(bytes), Nanos(busy.as_nanos() as u64));
        *seconds += busy.as_secs_f64();
        Ok(done)
    }
}

impl Directory {
    /// Opens the directory of a tier, or notes why it is left out.
    fn open(number: TierNumber, tier: &Tier, region: [u8; 16], writable: bool) -> Self {
        let meter = Mutex::new((RateMeter::new(METER_PERIOD), 0.0));
        let (path, lock) = (tier.path.clone(), Err(TierError::Removed));
        let mut directory = Self { path, region, tier: tier.clone(), lock, meter };
        if !tier.is_removed() {
            directory.lock = directory.verify(number).and_then(|()| directory.locked(writable));
        }
        directory
    }

    /// Returns why this is not the directory of the tier.
    fn verify(&self, number: TierNumber) -> Result<(), TierError> {
        if !self.path.is_dir() {
            return Err(TierError::NoDirectory);
        }
        let found = Marker::read(&self.path).map_err(|error| TierError::Os(error.to_string()))?;
        match found {
            None => Err(TierError::NoMarker),
            Some(marker) if marker.region != self.region => Err(TierError::OtherRegion(hex(&marker.region))),
            Some(marker) if marker.tier != self.tier.uuid || marker.number != number => {
                Err(TierError::OtherTier(marker.number.0))
            }
            Some(_) => Ok(()),
        }
    }

    /// Returns the marker, locked: one process at a time changes containers.
    fn locked(&self, writable: bool) -> Result<File, TierError> {
        let os = |error: io::Error| TierError::Os(error.to_string());
        let file = File::open(marker::path(&self.path)).map_err(os)?;
        let how = match writable {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        match rustix::fs::flock(&file, how) {
            Ok(()) => Ok(file),
            Err(Errno::WOULDBLOCK) => Err(TierError::InUse),
            Err(error) => Err(os(error.into())),
        }
    }
}

impl Containers for ContainerFiles {
    fn create(&self, container: Container) -> io::Result<()> {
        let directory = self.directory(container.tier)?;
        let path = container_path(&directory.path, container.number);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
        // Of a container that an interrupted eviction left.
        let _ = std::fs::remove_file(sidecar_path(&directory.path, container.number));
        self.close_some();
        lock(&self.open).insert(container, Open { changes: 1, is_new: true, ..Open::new(file) });
        Ok(())
    }

    fn read(&self, container: Container, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let file = self.file(container)?;
        let len = out.len() as u64;
        self.timed(container.tier, len, || {
            let mut done = 0;
            while done < out.len() {
                match file.read_at(&mut out[done..], offset + done as u64) {
                    Ok(0) => break,
                    Ok(read) => done += read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(done)
        })
    }

    fn write(&self, container: Container, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.dirty(container)?;
        let written = self.timed(container.tier, bytes.len() as u64, || file.write_all_at(bytes, offset));
        // A sync in between may have missed some of it.
        self.note_change(container)?;
        written
    }

    fn len(&self, container: Container) -> io::Result<u64> {
        Ok(self.file(container)?.metadata()?.len())
    }

    fn stat(&self, container: Container) -> io::Result<ContainerStat> {
        let found = self.file(container)?.metadata()?;
        Ok(ContainerStat {
            len: found.len(),
            accessed: Time { seconds: found.atime(), nanos: found.atime_nsec() as u32 },
            modified: Time { seconds: found.mtime(), nanos: found.mtime_nsec() as u32 },
        })
    }

    fn set_times(&self, container: Container, accessed: Time, modified: Time) -> io::Result<()> {
        let time = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() };
        let times = Timestamps { last_access: time(accessed), last_modification: time(modified) };
        Ok(rustix::fs::futimens(&*self.dirty(container)?, &times)?)
    }

    fn file(&self, container: Container) -> io::Result<Arc<File>> {
        self.with_open(container, |open| Arc::clone(&open.file))
    }

    fn note_change(&self, container: Container) -> io::Result<()> {
        self.dirty(container).map(drop)
    }

    fn is_used_by_others(&self, container: Container) -> io::Result<bool> {
        lease::is_used_by_others(&*self.file(container)?)
    }

    fn set_len(&self, container: Container, len: u64) -> io::Result<()> {
        self.dirty(container)?.set_len(len)
    }

    fn punch(&self, container: Container, range: Range<u64>) -> io::Result<()> {
        let file = self.dirty(container)?;
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&*file, how, range.start, range.end - range.start) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            result => return Ok(result?),
        }
        let end = range.end.min(file.metadata()?.len());
        for offset in (range.start..end).step_by(ZEROS.len()) {
            file.write_all_at(&ZEROS[..(end - offset).min(ZEROS.len() as u64) as usize], offset)?;
        }
        Ok(())
    }

    fn allocate(&self, container: Container, range: Range<u64>) -> io::Result<()> {
        let file = self.dirty(container)?;
        let how = FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&*file, how, range.start, range.end - range.start)?)
    }

    fn seek(&self, container: Container, offset: u64, what: Seek) -> io::Result<Option<u64>> {
        let file = self.file(container)?;
        let to = match what {
            Seek::Data => SeekFrom::Data(offset),
            Seek::Hole => SeekFrom::Hole(offset),
        };
        match rustix::fs::seek(&*file, to) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn sync(&self, container: Container) -> io::Result<()> {
        let Some(sync) = lock(&self.open).get(&container).map(|open| Arc::clone(&open.sync)) else {
            return Ok(());
        };
        let _one_at_a_time = lock(&sync);
        let (file, changes, is_new) = match lock(&self.open).get(&container) {
            Some(open) if open.has_failed => return Err(io::Error::from_raw_os_error(libc::EIO)),
            Some(open) if open.is_needed() => (Arc::clone(&open.file), open.changes, open.is_new),
            // Nothing was written to it since it was synced, and perhaps closed.
            _ => return Ok(()),
        };
        let synced = self.timed(container.tier, 0, || file.sync_all()).and_then(|()| match is_new {
            true => File::open(folder(&self.directory(container.tier)?.path, container.number))?.sync_all(),
            false => Ok(()),
        });
        // Not if another one has taken its place.
        if let Some(open) = lock(&self.open).get_mut(&container).filter(|open| Arc::ptr_eq(&open.file, &file))
        {
            open.is_new = false;
            open.note_sync(changes, synced.is_err());
        }
        synced
    }

    fn remove(&self, container: Container) -> io::Result<()> {
        let directory = self.directory(container.tier)?;
        lock(&self.open).remove(&container);
        let _ = std::fs::remove_file(sidecar_path(&directory.path, container.number));
        std::fs::remove_file(container_path(&directory.path, container.number))
    }

    fn list(&self, tier: TierNumber) -> io::Result<Vec<u64>> {
        list(&self.directory(tier)?.path)
    }

    fn header(&self, container: Container) -> io::Result<Option<Header>> {
        read_header(&self.directory(container.tier)?.path, container.number)
    }

    fn set_header(&self, container: Container, header: &Header) -> io::Result<()> {
        let directory = self.directory(container.tier)?;
        let (text, sidecar) = (header.encode(), sidecar_path(&directory.path, container.number));
        let file = self.file(container)?;
        match rustix::fs::fsetxattr(&*file, header::ATTRIBUTE, &text, XattrFlags::empty()) {
            // A sidecar counts before the attribute.
            Ok(()) => match std::fs::remove_file(sidecar) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
            Err(Errno::OPNOTSUPP | Errno::NOSPC | Errno::TOOBIG) => {
                let new = sidecar.with_extension("new");
                std::fs::write(&new, &text).and_then(|()| std::fs::rename(new, sidecar))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn adopt(&self, number: TierNumber, tier: &Tier) -> io::Result<()> {
        let marker = Marker { region: self.region, tier: tier.uuid, number, class: tier.class };
        prepare(&tier.path, &marker)?;
        let directory = Directory::open(number, tier, self.region, self.writable);
        if let Err(error) = &directory.lock {
            let error = io::Error::other(error.to_string());
            let _ = discard(&tier.path);
            return Err(error);
        }
        self.set_directory(number, directory);
        Ok(())
    }

    fn note_leaving(&self, number: TierNumber, is_leaving: bool) -> io::Result<()> {
        marker::note_leaving(&self.directory(number)?.path, is_leaving)
    }

    fn release(&self, number: TierNumber) -> io::Result<()> {
        let Some(directory) = self.known(number) else { return Ok(()) };
        let Directory { path, tier, .. } = &*directory;
        let removed = Tier::removed(tier.next);
        self.set_directory(number, Directory::open(number, &removed, self.region, self.writable));
        lock(&self.open).retain(|container, _| container.tier != number);
        // Of one that was left out, nothing is known.
        if directory.lock.is_ok() { discard(path) } else { Ok(()) }
    }

    fn state(&self, tier: TierNumber) -> TierState {
        let directory = match self.verify(tier).and_then(|()| self.known(tier).ok_or(TierError::NoDirectory))
        {
            Ok(directory) => directory,
            Err(error) => return TierState::Gone(error.to_string()),
        };
        match rustix::fs::statvfs(&directory.path) {
            Ok(found) if found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) => TierState::ReadOnly,
            Ok(_) => TierState::Ready,
            Err(error) => TierState::Gone(error.to_string()),
        }
    }

    fn space(&self, tier: TierNumber) -> io::Result<TierSpace> {
        let directory = self.directory(tier)?;
        let found = rustix::fs::statvfs(&directory.path)?;
        Ok(TierSpace {
            device: directory.path.metadata()?.dev(),
            total_bytes: found.f_blocks * found.f_frsize,
            free_bytes: found.f_bavail * found.f_frsize,
        })
    }

    fn work(&self, tier: TierNumber) -> TierWork {
        let Ok(directory) = self.directory(tier) else { return TierWork::default() };
        let now = Nanos(self.started.elapsed().as_nanos() as u64);
        let (meter, busy_seconds) = &mut *lock(&directory.meter);
        TierWork { busy_seconds: *busy_seconds, rate: meter.rate(now) }
    }
}

#[cfg(test)]
mod tests;
