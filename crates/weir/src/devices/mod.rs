//! Opens and locks the devices of a pool file and checks that they belong together.

mod explain;
mod ineffective_keys;
mod opening;
mod recovery;
mod size;

pub(crate) use ineffective_keys::{ineffective_key_notes, ineffective_key_notes_for};
pub use opening::{Opening, expected_recovery};
pub(crate) use size::{ResizedDevice, has_zeroed_end, rounded_and_exact, without_option};
use size::{refuse_regrown, refuse_resized};

use crate::args::Accept;
use crate::failure::{self, Failure};
use crate::pool_file::{self, DeviceEntry, Fault, PoolFile};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_device::{Device, DeviceError, DeviceOptions, Devices, LogStructured, LossyOptions};
use weir_map::create::read_superblock;
use weir_map::{OpenOptions, Superblock};
use weir_model::{Bytes, DeviceClass, DeviceId, DeviceSet};

/// A pool file that was read and checked, and its path.
#[derive(Clone, Debug)]
pub struct PoolDescription {
    /// Contents of the pool file.
    pub file: PoolFile,
    /// Path of the pool file.
    pub path: PathBuf,
}

/// The devices of a pool, open and locked.
#[derive(Debug)]
pub struct OpenedPool {
    /// Devices in the order of the pool file, which is the order of their ids.
    pub devices: Devices,
    /// Superblock of each device, in the same order.
    pub superblocks: Vec<Superblock>,
    /// Options with which the map may be opened.
    pub options: OpenOptions,
}

impl PoolDescription {
    /// Reads and checks a pool file.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has a mistake; the message says where.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Failure::usage(
                format!("there is no pool file {}", path.display()),
                "name it with --pool FILE or $WEIR_POOL, or write ./pool.toml (docs/guide/pool-file.md)",
            ),
            io::ErrorKind::InvalidData => Failure::usage(
                format!("{} is not UTF-8 text", path.display()),
                "save it as UTF-8, or name the pool file with --pool FILE",
            ),
            _ => Failure::os("read", path, &error),
        })?;
        let file =
            pool_file::parse(&text).map_err(|mistakes| mistakes.of_file(&path.display().to_string()))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Returns the path of a device; the pool file gives it relative to its own folder.
    pub fn device_path(&self, device: &DeviceEntry) -> PathBuf {
        let path = self.path.parent().unwrap_or(Path::new("")).join(&device.path);
        std::path::absolute(&path).unwrap_or(path)
    }

    /// Returns the path of the file that lies beside the pool file, with the same name and this extension.
    pub fn sibling_path(&self, extension: &str) -> PathBuf {
        self.path.with_extension(extension)
    }

    /// Opens and locks all devices for a new pool and creates files that do not exist. Calls `opened` with
    /// each device as soon as it is open.
    ///
    /// # Errors
    /// Fails if a device cannot be opened, is in use, or is named twice; the failure lists all such devices.
    pub fn open_to_create(&self, mut opened: impl FnMut(&Device)) -> Result<Devices, Failure> {
        self.refuse_duplicate_devices()?;
        let (mut devices, mut failed) = (Devices::new(), Vec::new());
        for (entry, id) in self.file.devices.iter().zip((0u8..).map(DeviceId)) {
            failed.extend(self.open_new(entry, id, &mut devices, &mut opened).err());
        }
        match Failure::join(failed) {
            Some(failure) => Err(failure),
            None => Ok(devices),
        }
    }

    /// Opens and locks one device that is to join a pool, like [`Self::open_to_create`].
    ///
    /// # Errors
    /// Fails if the device cannot be opened, or is in use.
    pub fn open_new(
        &self,
        entry: &DeviceEntry,
        id: DeviceId,
        devices: &mut Devices,
        opened: impl FnOnce(&Device),
    ) -> Result<(), Failure> {
        let path = self.device_path(entry);
        let options = DeviceOptions { size: entry.size, ..options(entry, Duration::ZERO) };
        devices.open(id, &path, &options).map_err(|error| unusable_device_failure(entry, error))?;
        let Some(device) = devices.get(id) else { return Ok(()) };
        opened(device);
        match device.other_user() {
            None => Ok(()),
            Some(user) => Err(Failure::refused(
                format!("device {:?}: {} is {user}", entry.name, path.display()),
                "choose another device, or have its user let go of it first",
            )),
        }
    }

    /// Refuses two paths to one file or block device. Otherwise the second path would find the device locked
    /// by the first.
    fn refuse_duplicate_devices(&self) -> Result<(), Failure> {
        let mut seen: Vec<(Identity, &str, PathBuf)> = Vec::new();
        for entry in &self.file.devices {
            let path = self.device_path(entry);
            let identity = Identity::of(&path);
            if let Some((_, name, first)) = seen.iter().find(|(other, ..)| *other == identity) {
                let first = first.display().to_string();
                let second = path.display().to_string();
                let paths = if first == second { first } else { format!("{first} and {second}") };
                return Err(Failure::usage(
                    format!("{name:?} and {:?} are the same device: {paths}", entry.name),
                    "name it once",
                ));
            }
            seen.push((identity, &entry.name, path));
        }
        Ok(())
    }

    /// Opens those devices of an existing pool that are present, and checks that they belong to it. The map
    /// decides whether the pool may be opened without the absent ones.
    ///
    /// # Errors
    /// Fails if no pool was created yet, or if a device belongs to another pool, is damaged, or has another
    /// size.
    pub fn open_pool(&self, accept: &Accept, wait: Duration) -> Result<OpenedPool, Failure> {
        let without = self.ids(&accept.without)?;
        let (mut devices, absent) = self.open_present(without, wait)?;
        let mut superblocks = Vec::new();
        for (entry, id) in self.file.devices.iter().zip((0u8..).map(DeviceId)) {
            let Some(size) = devices.get(id).map(|device| device.size()) else { continue };
            let found = read_superblock(&mut devices, id, size).map_err(|error| self.explain(error))?;
            let path = self.device_path(entry);
            let superblock = found.ok_or_else(|| {
                Failure::refused(
                    format!("device {} ({}) belongs to no pool", entry.name, path.display()),
                    format!(
                        "if the pool was never created: weir pool create; if it was, this is the wrong device, or \
                         its size changed, or it is a blank one that is to take the place of one that is gone: \
                         weir pool replace {}",
                        entry.name
                    ),
                )
            })?;
            let is_block = devices.get(id).is_some_and(Device::is_block);
            refuse_resized(
                entry,
                &ResizedDevice { superblock: &superblock, current_size: size, path: &path, is_block },
            )?;
            self.check(entry, &path, size, &superblock, superblocks.first())?;
            refuse_regrown(&path, &mut devices, &superblock)?;
            self.check_number(entry, id, &superblock)?;
            superblocks.push(superblock);
        }
        if superblocks.is_empty() && absent.iter().next().is_some() {
            let is_left_out = without.iter().any(|id| self.exists(id));
            return Err(if is_left_out {
                self.metadata_absent_failure(absent, DeviceSet::default())
            } else {
                self.no_device_failure()
            });
        }
        let options =
            OpenOptions { accept_rollback: accept.accept_rollback, without, ..OpenOptions::default() };
        Ok(OpenedPool { devices, superblocks, options })
    }

    /// Opens and locks the devices that exist and are not excluded by `--without`; also returns which are
    /// absent.
    pub(super) fn open_present(
        &self,
        without: DeviceSet,
        wait: Duration,
    ) -> Result<(Devices, DeviceSet), Failure> {
        self.refuse_duplicate_devices()?;
        let (mut devices, mut absent) = (Devices::new(), DeviceSet::default());
        for (entry, id) in self.file.devices.iter().zip((0u8..).map(DeviceId)) {
            let path = self.device_path(entry);
            if without.contains(id) || !path.exists() {
                absent.insert(id);
            } else {
                devices.insert(id, open(entry, &path, wait)?)?;
            }
        }
        Ok((devices, absent))
    }

    /// Returns the failure for a pool none of whose devices exists; it names the first one.
    pub(super) fn no_device_failure(&self) -> Failure {
        missing_device_failure(self.name_and_path(DeviceId(0)))
    }

    /// Returns whether anything exists at the path of a device.
    fn exists(&self, id: DeviceId) -> bool {
        self.file.devices.get(id.index()).is_some_and(|entry| self.device_path(entry).exists())
    }

    /// Returns the device with this name, and its id.
    ///
    /// # Errors
    /// Fails if the pool has no such device.
    pub(crate) fn device(&self, name: &str) -> Result<(&DeviceEntry, DeviceId), Failure> {
        let id = self.ids(&[name.to_owned()])?.iter().next();
        let found = id.and_then(|id| Some((self.file.devices.get(id.index())?, id)));
        found.ok_or_else(|| {
            Failure::usage(format!("the pool has no device {name:?}"), self.known_devices_help())
        })
    }

    /// Returns the help for a device that the pool does not have.
    fn known_devices_help(&self) -> String {
        let names: Vec<_> = self.file.devices.iter().map(|entry| entry.name.as_str()).collect();
        format!("its devices are {}", names.join(", "))
    }

    /// Returns the ids of the devices with these names.
    ///
    /// # Errors
    /// Fails if the pool file describes no such device.
    pub(crate) fn ids(&self, names: &[String]) -> Result<DeviceSet, Failure> {
        let id = |name: &String| {
            let at = self.file.devices.iter().position(|entry| entry.name == *name);
            at.map(|at| DeviceId(at as u8)).ok_or_else(|| {
                Failure::usage(format!("the pool has no device {name:?}"), self.known_devices_help())
            })
        };
        names.iter().map(id).collect()
    }

    /// Checks that a device has the number it joined with: the map identifies devices by their number.
    fn check_number(&self, entry: &DeviceEntry, id: DeviceId, found: &Superblock) -> Result<(), Failure> {
        let listed = self.file.devices.len();
        if found.device == id && usize::from(found.devices) == listed {
            return Ok(());
        }
        Err(Failure::refused(
            format!(
                "device {} is number {} of the pool's {}, the pool file has it as number {} of {listed}",
                entry.name,
                found.device.0 + 1,
                found.devices,
                id.0 + 1
            ),
            "list all devices in the order in which the pool was created",
        ))
    }

    /// Returns the name of a device.
    fn name(&self, device: DeviceId) -> &str {
        self.file.devices.get(device.index()).map_or("?", |entry| &entry.name)
    }

    /// Returns the name and path of a device.
    pub fn name_and_path(&self, device: DeviceId) -> String {
        let entry = self.file.devices.get(device.index());
        entry.map_or_else(
            || device.to_string(),
            |entry| format!("{} ({})", entry.name, self.device_path(entry).display()),
        )
    }

    /// Checks the superblock of a device against the pool file and the superblock of the first device.
    fn check(
        &self,
        entry: &DeviceEntry,
        path: &Path,
        size: Bytes,
        found: &Superblock,
        first: Option<&Superblock>,
    ) -> Result<(), Failure> {
        let device = format!("device {} ({})", entry.name, path.display());
        let refused = |message: String, help: &str| Err(Failure::refused(message, help));
        if let Some(declared) = entry.size.filter(|declared| *declared != size) {
            return refused(
                format!(
                    "{device} has {size} ({} bytes), the pool file says size = {declared} ({} bytes)",
                    size.0, declared.0
                ),
                "correct size in the pool file, or leave it out: a device keeps the size it had when the pool was created",
            );
        }
        if let Some(first) = first.filter(|first| first.pool != found.pool) {
            return refused(
                format!(
                    "{device} belongs to pool {} ({}), the devices before it to pool {} ({})",
                    found.pool_name, found.pool, first.pool_name, first.pool
                ),
                "list the devices of one pool",
            );
        }
        if found.device_name != entry.name || found.pool_name != self.file.name {
            return refused(
                format!("{device} is device {} of pool {}", found.device_name, found.pool_name),
                "correct the names in the pool file, or the path; devices keep the order in which the pool was created",
            );
        }
        if found.extent != self.file.extent {
            return refused(
                format!(
                    "pool {} has extents of {}, the pool file says {}",
                    self.file.name,
                    found.extent.bytes(),
                    self.file.extent.bytes()
                ),
                "correct extent in the pool file; it cannot change once the pool is created",
            );
        }
        Ok(())
    }
}

/// The object that a path leads to.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    /// A block device.
    Block(u64),
    /// A file, identified by its file system and inode number.
    File(u64, u64),
    /// Nothing yet; a file would be created at this path.
    Nothing(PathBuf),
}

impl Identity {
    fn of(path: &Path) -> Self {
        match std::fs::metadata(path) {
            Ok(found) if found.file_type().is_block_device() => Self::Block(found.rdev()),
            Ok(found) => Self::File(found.dev(), found.ino()),
            Err(_) => Self::Nothing(resolve(path.to_owned())),
        }
    }
}

/// Resolves the folder and the symbolic links of a path as far as they exist, to where a file would be
/// created.
fn resolve(mut path: PathBuf) -> PathBuf {
    // Linux follows at most 40 symbolic links.
    for _ in 0..40 {
        if let (Some(folder), Some(name)) = (path.parent(), path.file_name())
            && let Ok(folder) = folder.canonicalize()
        {
            path = folder.join(name);
        }
        match (std::fs::read_link(&path), path.parent()) {
            (Ok(target), Some(folder)) => path = folder.join(target),
            _ => break,
        }
    }
    path
}

fn missing_device_failure(device: impl std::fmt::Display) -> Failure {
    Failure::refused(
        format!("device {device} does not exist"),
        "if the pool was never created: weir pool create; if it was, bring the device back",
    )
}

fn open(entry: &DeviceEntry, path: &Path, wait: Duration) -> Result<Device, Failure> {
    if !path.exists() {
        return Err(missing_device_failure(format_args!("{} ({})", entry.name, path.display())));
    }
    Ok(Device::open(path, &options(entry, wait))?)
}

/// Returns the options with which an existing device is opened.
fn options(entry: &DeviceEntry, wait: Duration) -> DeviceOptions {
    DeviceOptions {
        lock_wait: wait,
        // A fault layer loses unflushed writes, as a volatile cache does.
        volatile_cache: entry.volatile_cache.or(entry.fault.map(|_| true)),
        class: entry.class.or_else(|| class_of(entry.pace?)),
        pace: entry.pace.map(str::to_owned),
        flash_log: weir_sim::flash_log,
        lossy: lossy_options(entry.fault),
        injects_faults: entry.fault == Some(Fault::OnDemand),
        ..DeviceOptions::default()
    }
}

/// Returns the failure for a device that cannot be opened for a new pool, with the name of the device.
fn unusable_device_failure(entry: &DeviceEntry, error: DeviceError) -> Failure {
    let is_nowhere = matches!(error, DeviceError::NoSuchDevice { .. } | DeviceError::Missing { .. });
    let failure = Failure::from(error);
    match is_nowhere {
        true => Failure {
            message: failure.message.replacen("device ", &format!("device {:?}: ", entry.name), 1),
            ..failure
        },
        false => failure,
    }
}

/// Returns the options of the fault layer that forgets writes, if the device is to have it.
fn lossy_options(fault: Option<Fault>) -> Option<LossyOptions> {
    let early_permille = match fault? {
        Fault::ForgetUnflushed => 0,
        Fault::ForgetSome => 300,
        Fault::OnDemand => return None,
    };
    Some(LossyOptions { early_permille, ..LossyOptions::default() })
}

/// Returns the device class of a modelled drive.
fn class_of(pace: &str) -> Option<DeviceClass> {
    let family = pace.split('-').next();
    [DeviceClass::Nvm, DeviceClass::Ssd, DeviceClass::Hdd]
        .into_iter()
        .find(|class| family == Some(class.name()))
}

/// Logs a warning for each device file that other users of the machine may read or write: it holds data of
/// all volumes.
///
/// # Errors
/// Fails if the operating system does not report the mode of a file.
pub fn warn_of_readable_files(described: &PoolDescription, devices: &Devices) -> Result<(), Failure> {
    for (entry, id) in described.file.devices.iter().zip((0u8..).map(DeviceId)) {
        let Some(device) = devices.get(id) else { continue };
        if let Some(mode) = device.permissions_for_others()? {
            let (name, path) = (&entry.name, device.path().display());
            let access = if mode & 0o002 == 0 { "read" } else { "read and write" };
            tracing::warn!(
                "device {name:?}: every user may {access} {path} (mode {mode:04o}); chmod 600 {path}"
            );
        }
    }
    Ok(())
}

/// Returns a warning for each device that is a file on a file system with a log of its own. `magic_of`
/// returns the number of a file's file system.
///
/// A file system that cannot be asked has no warning: the pool works on it all the same.
pub fn log_warnings(
    described: &PoolDescription,
    devices: &Devices,
    magic_of: impl Fn(&Path) -> io::Result<u64>,
) -> Vec<String> {
    let entries = described.file.devices.iter().zip((0u8..).map(DeviceId));
    let warning = |(entry, id): (&DeviceEntry, DeviceId)| {
        let device = devices.get(id)?;
        let LogStructured { name, in_place, .. } = LogStructured::by_magic(magic_of(device.path()).ok()?)?;
        let in_place = in_place.map(|how| format!(", or {how}")).unwrap_or_default();
        Some(format!(
            "device {:?}: {} is on {name}, which writes every change to a new place: its cleaner and that of \
             an SSD below copy the same data, which costs several times the writes, and time; use a disk, a \
             partition or a file on ext4 or XFS{in_place} (weir sim logs computes the cost)",
            entry.name,
            device.path().display()
        ))
    };
    entries.filter_map(warning).collect()
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        if let DeviceError::InUse { path, .. } = &error {
            // A single device does not know how long the command has waited in total.
            let message = format!("device {} is in use by another weir process", path.display());
            let help = "if that is a server of this pool, it is starting or stopping: try again; \
                        else stop that process, or name the pool file it was started with";
            return Self { locked: Some(path.clone()), ..Self::refused(message, help) };
        }
        let failure = Self::from_message(error.kind(), &error.to_string());
        match error {
            DeviceError::Setup { what: "buffer memory", .. } => Self {
                help: "free memory, or lower `clients` under [serve] or `extent_cache` in the pool file"
                    .to_owned(),
                ..failure
            },
            DeviceError::Io { source, .. } | DeviceError::Reserve { source, .. }
                if source.kind() == io::ErrorKind::FileTooLarge =>
            {
                Self { help: failure::RAISE_FILE_SIZE.to_owned(), ..failure }
            }
            _ => failure,
        }
    }
}
