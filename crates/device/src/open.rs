//! Opening a device: its properties, whether it may be used, and its exclusive lock.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use weir_model::{Bytes, DeviceClass, DeviceOffset};
use weir_timing::ssd::without_collection;
use weir_timing::{NewFlashLog, WriteCache};

use crate::fault_injection::FaultInjection;
use crate::file::{DeviceProperties, Identity};
use crate::last_page::{Expected, LastPage};
use crate::lossy::{LossyLayer, LossyOptions};
use crate::mapped::Mapped;
use crate::pace::Pacer;
use crate::{DeviceError, location, lock};

/// Options for opening a device. `Default` is right for a server.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// Size. A file that does not exist is created with this size, sparse and accessible to its owner only;
    /// an existing file must have it.
    pub size: Option<Bytes>,
    /// How long to wait for another process to release the device.
    pub lock_wait: Duration,
    /// Whether a completed write may be lost in a power failure until it is flushed. `None`: detect it
    /// (unknown counts as yes).
    pub volatile_cache: Option<bool>,
    /// Device class. `None`: detect it.
    pub class: Option<DeviceClass>,
    /// Bypass the page cache where the file system can.
    pub direct: bool,
    /// Serve the device with the timing of this modelled drive, one of [`weir_timing::NAMES`]. A declared
    /// `volatile_cache` replaces the model's.
    pub pace: Option<String>,
    /// Creates the log of a modelled SSD whose garbage collection follows from the state of its flash. By
    /// default, such a drive collects nothing.
    pub flash_log: NewFlashLog,
    /// Options of the fault layer that loses unflushed writes. For tests.
    pub lossy: Option<LossyOptions>,
    /// Enables the fault layer that fails commands as the file `DEVICE.fault` says. For tests.
    pub injects_faults: bool,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            size: None,
            lock_wait: Duration::from_secs(10),
            volatile_cache: None,
            class: None,
            direct: true,
            pace: None,
            flash_log: without_collection,
            lossy: None,
            injects_faults: false,
        }
    }
}

/// Change that opening a device made to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// None.
    Nothing,
    /// An empty file was extended to the declared size.
    Size,
    /// The file was created.
    File,
}

/// An open device, locked against other processes as long as this value lives.
pub struct Device {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) facts: DeviceProperties,
    pub(crate) direct: bool,
    pub(crate) lossy: Option<LossyLayer>,
    pub(crate) fault_injection: Option<FaultInjection>,
    pub(crate) mapped: Option<Mapped>,
    pub(crate) last_page: Option<LastPage>,
    /// State of the file when it was opened.
    pub(crate) expected: Expected,
    pub(crate) pacer: Option<Pacer>,
    /// True if the model that paces it has a volatile write cache.
    models_cache: bool,
    file_change: FileChange,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("path", &self.path).field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl Device {
    /// Opens the file or block device at `path` for reading and writing and locks it.
    ///
    /// Blocks up to `options.lock_wait` while another process has it open.
    ///
    /// # Errors
    /// [`DeviceError::kind`] classifies the errors by what the caller must do. On an error nothing has
    /// changed: a file that was created is removed again.
    pub fn open(path: &Path, options: &DeviceOptions) -> Result<Self, DeviceError> {
        let named = |source| DeviceError::Open { path: path.to_owned(), source };
        let found = match std::fs::metadata(path) {
            Ok(found) => Some(found),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(named(e)),
        };
        let is_block = match &found {
            Some(found) => DeviceProperties::is_block(found)
                .ok_or_else(|| DeviceError::NotADevice { path: path.to_owned() })?,
            None => false,
        };
        let new_file = match found {
            Some(_) => None,
            None => Some(NewFile::create(path, options.size)?),
        };
        // The fault layer writes single sectors from unaligned memory, which direct transfers do not allow.
        let wants_direct = options.direct && options.lossy.is_none();
        let (file, direct) = open_file(path, is_block, wants_direct, options.lock_wait)?;
        lock::exclusive(&file, path, options.lock_wait)?;
        let (size, has_grown) = settle_size(path, &file, is_block, options.size)?;
        let mut facts = DeviceProperties::of(path, &file, size)?;
        facts.class = options.class.unwrap_or(facts.class);
        facts.volatile_cache = options.volatile_cache.unwrap_or(facts.volatile_cache);
        if wants_direct && !direct && !facts.memory_backed {
            tracing::warn!(
                device = %path.display(),
                "its file system refuses O_DIRECT: data goes through the page cache, and a write that the system cannot \
                 carry out is reported by the next flush only"
            );
        }
        let forget = options.lossy.as_ref().map(|forget| LossyLayer::new(path, forget));
        let demand = options.injects_faults.then(|| FaultInjection::new(path));
        let mapped = if facts.memory_backed && forget.is_none() { map(path, &file, &facts) } else { None };
        let has_tail = !facts.is_block && mapped.is_none() && forget.is_none();
        // If mapping the last page fails, it is read like any other.
        let tail = if has_tail { LastPage::new(&file, facts.size).ok() } else { None };
        let expected = Expected::of(&file, facts.size).map_err(named)?;
        let pacer = match &options.pace {
            Some(name) => Some(pacer(path, name, &facts, options)?),
            None => None,
        };
        let modelled = options.pace.as_deref().and_then(weir_timing::write_cache);
        let models_cache = modelled == Some(WriteCache::Volatile) && options.volatile_cache != Some(false);
        let made = match new_file {
            Some(new_file) => new_file.persist(),
            None if has_grown => FileChange::Size,
            None => FileChange::Nothing,
        };
        let path = path.to_owned();
        Ok(Self {
            path,
            file,
            facts,
            direct,
            lossy: forget,
            fault_injection: demand,
            mapped,
            last_page: tail,
            expected,
            pacer,
            models_cache,
            file_change: made,
        })
    }

    /// Returns the change that opening made to the file.
    pub fn file_change(&self) -> FileChange {
        self.file_change
    }

    /// Returns the file's permissions if users other than its owner and group may read or write it; `None`
    /// for block devices, whose permissions the system sets.
    ///
    /// # Errors
    /// Fails if the permissions cannot be read.
    pub fn permissions_for_others(&self) -> Result<Option<u32>, DeviceError> {
        let found =
            self.file.metadata().map_err(|source| self.error("asking for its permissions", source))?;
        Ok((!self.facts.is_block && found.mode() & 0o006 != 0).then_some(found.mode() & 0o7777))
    }

    /// Returns the path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Allocates space for a range of a file, keeping its contents: writes there cannot fail for lack of
    /// space. On a block device it does nothing.
    ///
    /// # Errors
    /// Fails if there is too little space.
    pub fn reserve(&self, at: DeviceOffset, len: Bytes) -> Result<(), DeviceError> {
        if self.facts.is_block {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), at.0, len.0) {
            // The file system cannot allocate space in advance.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
            Err(error) => Err(DeviceError::Reserve { path: self.path.clone(), len, source: error.into() }),
        }
    }

    /// Returns the usable size in bytes, a multiple of 4096.
    pub fn size(&self) -> Bytes {
        self.facts.size
    }

    /// Returns the smallest unit that the device can read or write, in bytes: a power of two from 512 to
    /// 4096.
    pub fn sector(&self) -> Bytes {
        self.facts.sector
    }

    /// Returns the device class, as declared or detected.
    pub fn class(&self) -> DeviceClass {
        self.facts.class
    }

    /// Reports whether a completed write may be lost in a power failure until it is flushed.
    pub fn volatile_cache(&self) -> bool {
        self.facts.volatile_cache
    }

    /// Reports whether a write must be followed by a flush (or use FUA) to be durable; the engine decides by
    /// this. It is true for a volatile cache, for a file, whose file system may not have written its
    /// metadata, for the model of a drive with a cache, and for the fault layer that loses writes.
    pub fn needs_flush(&self) -> bool {
        !self.flush_is_free() || self.models_cache || self.lossy.is_some()
    }

    /// Reports whether the device is served with a modelled drive's timing.
    pub fn is_paced(&self) -> bool {
        self.pacer.is_some()
    }

    /// Reports whether the file is in memory (tmpfs, ramfs): fast, and lost at a restart.
    pub fn memory_backed(&self) -> bool {
        self.facts.memory_backed
    }

    /// Reports whether the device is a block device rather than a file.
    pub fn is_block(&self) -> bool {
        self.facts.is_block
    }

    /// Reports whether transfers bypass the page cache. If not, a write is durable only after a flush, and
    /// the system reports a failed write only with the next flush.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Reports whether transfers use the page cache because the file system refuses O_DIRECT. Files in memory
    /// are excluded: their data never has to reach a device.
    pub fn is_refused_direct(&self) -> bool {
        !self.direct && self.lossy.is_none() && !self.facts.memory_backed
    }

    /// Returns the current size of the device. It differs from [`Self::size`] if the device was truncated or
    /// extended since it was opened.
    ///
    /// # Errors
    /// Fails if the system does not return the size.
    pub fn size_now(&self) -> io::Result<Bytes> {
        if self.facts.is_block {
            return Ok(Bytes(rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0))?));
        }
        Ok(Bytes(self.file.metadata()?.len()))
    }

    /// Returns the identity by which two paths to one device are recognised.
    pub(crate) fn identity(&self) -> Identity {
        self.facts.identity
    }

    /// Makes an error about this device.
    pub(crate) fn error(&self, what: &'static str, source: io::Error) -> DeviceError {
        DeviceError::Io { path: self.path.clone(), what, source }
    }
}

/// Maps a file in memory; without the mapping access is only slower.
fn map(path: &Path, file: &File, facts: &DeviceProperties) -> Option<Mapped> {
    let mapped = Mapped::new(file, facts.size);
    mapped
        .inspect_err(|error| tracing::info!(device = %path.display(), %error, "the file is not mapped"))
        .ok()
}

/// Creates a pacer with the model called `name` for this device.
fn pacer(
    path: &Path,
    name: &str,
    facts: &DeviceProperties,
    options: &DeviceOptions,
) -> Result<Pacer, DeviceError> {
    let with = |cache| weir_timing::model_with(name, facts.size, cache, options.flash_log);
    let timing = match options.volatile_cache {
        None => weir_timing::model(name, facts.size, options.flash_log),
        Some(true) => with(WriteCache::Volatile),
        Some(false) => with(WriteCache::Protected),
    };
    timing
        .map(Pacer::new)
        .ok_or_else(|| DeviceError::UnknownModel { path: path.to_owned(), name: name.to_owned() })
}

/// Opens the file, bypassing the page cache if wanted and possible; also returns whether it is bypassed.
fn open_file(path: &Path, is_block: bool, direct: bool, wait: Duration) -> Result<(File, bool), DeviceError> {
    let open = |direct: bool| {
        let mut flags = OFlags::CLOEXEC;
        flags.set(OFlags::DIRECT, direct);
        // On a block device, EXCL without CREATE fails while it is mounted or claimed by the system.
        flags.set(OFlags::EXCL, is_block);
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags.bits() as i32);
        lock::retry(wait, || match options.open(path) {
            Err(e) if is_block && e.kind() == io::ErrorKind::ResourceBusy => None,
            other => Some(other),
        })
        .map_err(|_| in_use_error(path, wait))?
        .map_err(|source| DeviceError::Open { path: path.to_owned(), source })
    };
    if direct {
        match open(true) {
            Err(DeviceError::Open { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => {}
            other => return Ok((other?, true)),
        }
    }
    Ok((open(false)?, false))
}

/// Makes the error for a busy block device: it is in use by another weir process, or by the system itself.
fn in_use_error(path: &Path, waited: Duration) -> DeviceError {
    let path = path.to_owned();
    match File::open(&path).map(|file| lock::is_locked(&file)) {
        Ok(true) => DeviceError::InUse { path, waited },
        _ => DeviceError::Claimed { path },
    }
}

/// A file that was just created. It is removed when dropped, unless it is kept.
struct NewFile<'p>(Option<&'p Path>);

impl<'p> NewFile<'p> {
    /// Creates the file, for its owner only, if it is to have a size and its location allows files.
    fn create(path: &'p Path, size: Option<Bytes>) -> Result<Self, DeviceError> {
        let named = |source| DeviceError::Open { path: path.to_owned(), source };
        if path.is_symlink() {
            return Err(DeviceError::DanglingLink { path: path.to_owned() });
        }
        if let Some(folder) = location::kernel_folder(path).map_err(named)? {
            return Err(DeviceError::NoSuchDevice { path: path.to_owned(), folder });
        }
        if size.is_none() {
            return Err(DeviceError::Missing { path: path.to_owned() });
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        file.map(|_| Self(Some(path))).map_err(named)
    }

    fn persist(mut self) -> FileChange {
        self.0 = None;
        FileChange::File
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Sets the size of a new file, or checks the size of an existing one. Returns the size, and whether it was
/// set.
fn settle_size(
    path: &Path,
    file: &File,
    is_block: bool,
    declared: Option<Bytes>,
) -> Result<(Bytes, bool), DeviceError> {
    let io = |what| move |source| DeviceError::Io { path: path.to_owned(), what, source };
    let actual = Bytes(if is_block {
        rustix::fs::seek(file, rustix::fs::SeekFrom::End(0)).map_err(|e| io("asking its size")(e.into()))?
    } else {
        file.metadata().map_err(io("asking its size"))?.len()
    });
    match declared {
        Some(size) if actual == Bytes(0) && !is_block => {
            file.set_len(size.0).map_err(io("setting its size"))?;
            Ok((size, true))
        }
        Some(size) if size != actual => {
            Err(DeviceError::SizeDiffers { path: path.to_owned(), declared: size, actual })
        }
        _ => Ok((actual, false)),
    }
}
