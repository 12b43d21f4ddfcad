//! Opening a device: what it is, whether it may be used, and its exclusive lock.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use weir_model::{Bytes, DeviceClass, DeviceOffset};
use weir_timing::WriteCache;

use crate::demand::Demand;
use crate::file::{Facts, Identity};
use crate::forget::{Forget, ForgetOptions};
use crate::mapped::Mapped;
use crate::pace::Pacer;
use crate::tail::{Expected, Tail};
use crate::{DeviceError, location, lock};

/// How a device is to be opened. `Default` is what a server wants.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// Create a file that does not exist, sparse and for its owner only, with this size; one that exists must
    /// have it.
    pub size: Option<Bytes>,
    /// How long to wait for another process to let go of the device.
    pub lock_wait: Duration,
    /// Whether a completed write may be lost in a power cut until it is flushed. `None`: find
    /// out (unknown counts as yes).
    pub volatile_cache: Option<bool>,
    /// What kind of device it is. `None`: find out.
    pub class: Option<DeviceClass>,
    /// Go around the page cache where the file system can.
    pub direct: bool,
    /// Serve the device with the timing of this modelled drive, one of [`weir_timing::NAMES`]. A
    /// declared `volatile_cache` replaces the model's.
    pub pace: Option<String>,
    /// The fault layer that forgets whatever was not flushed. For tests.
    pub forget: Option<ForgetOptions>,
    /// The fault layer that fails when the file `DEVICE.fault` says so. For tests.
    pub fails_on_demand: bool,
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
            forget: None,
            fails_on_demand: false,
        }
    }
}

/// What opening a device made of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// Nothing: it is as it was.
    Nothing,
    /// An empty file was given its size.
    Size,
    /// The file itself.
    File,
}

/// An open device, locked against other processes as long as this value lives.
pub struct Device {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) facts: Facts,
    pub(crate) direct: bool,
    pub(crate) forget: Option<Forget>,
    pub(crate) demand: Option<Demand>,
    pub(crate) mapped: Option<Mapped>,
    pub(crate) tail: Option<Tail>,
    /// What it was when it was opened.
    pub(crate) expected: Expected,
    pub(crate) pacer: Option<Pacer>,
    /// The model it is paced by has a volatile write cache.
    models_cache: bool,
    made: Made,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("path", &self.path).field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl Device {
    /// Opens the file or block device at `path` for reading and writing and locks it.
    ///
    /// Blocks up to `options.lock_wait` while another process holds it.
    ///
    /// # Errors
    /// By what the caller must do: see [`DeviceError::kind`]. Nothing was changed: a file that was created is
    /// removed again.
    pub fn open(path: &Path, options: &DeviceOptions) -> Result<Self, DeviceError> {
        let named = |source| DeviceError::Open { path: path.to_owned(), source };
        let found = match std::fs::metadata(path) {
            Ok(found) => Some(found),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(named(e)),
        };
        let is_block = match &found {
            Some(found) => {
                Facts::is_block(found).ok_or_else(|| DeviceError::NotADevice { path: path.to_owned() })?
            }
            None => false,
        };
        let new_file = match found {
            Some(_) => None,
            None => Some(NewFile::create(path, options.size)?),
        };
        // The layer that forgets writes single sectors from unaligned memory.
        let wants_direct = options.direct && options.forget.is_none();
        let (file, direct) = open_file(path, is_block, wants_direct, options.lock_wait)?;
        lock::exclusive(&file, path, options.lock_wait)?;
        let (size, has_grown) = settle_size(path, &file, is_block, options.size)?;
        let mut facts = Facts::of(path, &file, size)?;
        facts.class = options.class.unwrap_or(facts.class);
        facts.volatile_cache = options.volatile_cache.unwrap_or(facts.volatile_cache);
        if wants_direct && !direct && !facts.memory_backed {
            tracing::warn!(
                device = %path.display(),
                "its file system refuses O_DIRECT: data goes through the page cache, and a write that the system cannot \
                 carry out is reported by the next flush only"
            );
        }
        let forget = options.forget.as_ref().map(|forget| Forget::new(path, forget));
        let demand = options.fails_on_demand.then(|| Demand::new(path));
        let mapped = if facts.memory_backed && forget.is_none() { map(path, &file, &facts) } else { None };
        let has_tail = !facts.is_block && mapped.is_none() && forget.is_none();
        // Without, its last page is read like any other.
        let tail = if has_tail { Tail::new(&file, facts.size).ok() } else { None };
        let expected = Expected::of(&file, facts.size).map_err(named)?;
        let pacer = match &options.pace {
            Some(name) => Some(pacer(path, name, &facts, options.volatile_cache)?),
            None => None,
        };
        let modelled = options.pace.as_deref().and_then(weir_timing::write_cache);
        let models_cache = modelled == Some(WriteCache::Volatile) && options.volatile_cache != Some(false);
        let made = match new_file {
            Some(new_file) => new_file.keep(),
            None if has_grown => Made::Size,
            None => Made::Nothing,
        };
        let path = path.to_owned();
        Ok(Self {
            path,
            file,
            facts,
            direct,
            forget,
            demand,
            mapped,
            tail,
            expected,
            pacer,
            models_cache,
            made,
        })
    }

    /// What opening it made of its file.
    pub fn made(&self) -> Made {
        self.made
    }

    /// The file's permissions if users that are neither its owner nor of its group may read or write it;
    /// `None` for block devices, whose permissions the system gives.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn open_to_others(&self) -> Result<Option<u32>, DeviceError> {
        let found =
            self.file.metadata().map_err(|source| self.error("asking for its permissions", source))?;
        Ok((!self.facts.is_block && found.mode() & 0o006 != 0).then_some(found.mode() & 0o7777))
    }

    /// The name it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has the file system set aside space for a range of a file, keeping what is in it: writes there
    /// cannot fail for lack of space. Block devices have it anyway.
    ///
    /// # Errors
    /// If there is too little space.
    pub fn reserve(&self, at: DeviceOffset, len: Bytes) -> Result<(), DeviceError> {
        if self.facts.is_block {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), at.0, len.0) {
            // A file system that cannot promise it.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
            Err(error) => Err(DeviceError::Reserve { path: self.path.clone(), len, source: error.into() }),
        }
    }

    /// Usable bytes, a multiple of 4096.
    pub fn size(&self) -> Bytes {
        self.facts.size
    }

    /// The smallest unit the device can read or write, in bytes: a power of two, 512 to 4096.
    pub fn sector(&self) -> Bytes {
        self.facts.sector
    }

    /// What kind of device it is, as declared or guessed.
    pub fn class(&self) -> DeviceClass {
        self.facts.class
    }

    /// Whether a completed write may be lost in a power cut until it is flushed.
    pub fn volatile_cache(&self) -> bool {
        self.facts.volatile_cache
    }

    /// Whether a write needs a flush (or FUA) behind it to be as durable as it can be: what an engine
    /// must go by. Besides a volatile cache that is a file, whose file system may owe its own
    /// records; a model of a drive with a cache; and a layer that forgets.
    pub fn needs_flush(&self) -> bool {
        !self.flush_is_free() || self.models_cache || self.forget.is_some()
    }

    /// Whether the device is served with a modelled drive's timing.
    pub fn is_paced(&self) -> bool {
        self.pacer.is_some()
    }

    /// Whether the file lies in memory (tmpfs, ramfs): fast, and gone after a restart.
    pub fn memory_backed(&self) -> bool {
        self.facts.memory_backed
    }

    /// Whether the device is a block device, rather than a file.
    pub fn is_block(&self) -> bool {
        self.facts.is_block
    }

    /// Whether transfers go around the page cache. If not, a write is durable only after a flush, and the system tells
    /// of one that it could not carry out with the next flush alone.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Whether transfers go through the page cache because the file system refuses O_DIRECT, and what is there may
    /// never reach a device: not so of a file that lies in memory.
    pub fn is_refused_direct(&self) -> bool {
        !self.direct && self.forget.is_none() && !self.facts.memory_backed
    }

    /// How long the device is now: other than [`Self::size`] if it was truncated or enlarged since it was opened.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn size_now(&self) -> io::Result<Bytes> {
        if self.facts.is_block {
            return Ok(Bytes(rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0))?));
        }
        Ok(Bytes(self.file.metadata()?.len()))
    }

    /// What tells two names for one device.
    pub(crate) fn identity(&self) -> Identity {
        self.facts.identity
    }

    /// An error about this device.
    pub(crate) fn error(&self, what: &'static str, source: io::Error) -> DeviceError {
        DeviceError::Io { path: self.path.clone(), what, source }
    }
}

/// Maps a file in memory; without the mapping it only is slower.
fn map(path: &Path, file: &File, facts: &Facts) -> Option<Mapped> {
    let mapped = Mapped::new(file, facts.size);
    mapped
        .inspect_err(|error| tracing::info!(device = %path.display(), %error, "the file is not mapped"))
        .ok()
}

/// The model called `name`, for this device.
fn pacer(path: &Path, name: &str, facts: &Facts, volatile: Option<bool>) -> Result<Pacer, DeviceError> {
    let timing = match volatile {
        None => weir_timing::model(name, facts.size),
        Some(true) => weir_timing::model_with(name, facts.size, WriteCache::Volatile),
        Some(false) => weir_timing::model_with(name, facts.size, WriteCache::Protected),
    };
    timing
        .map(Pacer::new)
        .ok_or_else(|| DeviceError::UnknownModel { path: path.to_owned(), name: name.to_owned() })
}

/// Opens the file, around the page cache if wanted and possible; says whether it is.
fn open_file(path: &Path, is_block: bool, direct: bool, wait: Duration) -> Result<(File, bool), DeviceError> {
    let open = |direct: bool| {
        let mut flags = OFlags::CLOEXEC;
        flags.set(OFlags::DIRECT, direct);
        // On a block device without CREATE: refused while mounted or claimed by the system.
        flags.set(OFlags::EXCL, is_block);
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags.bits() as i32);
        lock::retry(wait, || match options.open(path) {
            Err(e) if is_block && e.kind() == io::ErrorKind::ResourceBusy => None,
            other => Some(other),
        })
        .map_err(|_| claimed(path, wait))?
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

/// Why a block device is refused as busy: another weir process has it, or the system itself.
fn claimed(path: &Path, waited: Duration) -> DeviceError {
    let path = path.to_owned();
    match File::open(&path).map(|file| lock::is_held(&file)) {
        Ok(true) => DeviceError::InUse { path, waited },
        _ => DeviceError::Claimed { path },
    }
}

/// A file that was just created; removed again unless it is kept.
struct NewFile<'p>(Option<&'p Path>);

impl<'p> NewFile<'p> {
    /// Creates it, for its owner only, where a file makes sense and if it is to have a size.
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

    fn keep(mut self) -> Made {
        self.0 = None;
        Made::File
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Gives a new file its size, and checks the size of an old one. The size, and whether it was given.
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
