//! `weir pool create` makes a pool of the devices that the pool file names.

use super::metadata;
use super::occupied::refuse_occupied;
use crate::devices::{PoolDescription, log_warnings, warn_of_readable_files};
use crate::failure::Failure;
use crate::status::Status;
use crate::{pool, progress};
use std::fs::File;
use std::path::{Path, PathBuf};
use weir_device::{Device, Devices, FileChange, file_system_magic};
use weir_map::{MapError, NewDevice, NewPool, PoolId, Superblock};
use weir_model::{Bytes, DeviceOffset, Store};

/// Creates the pool that a pool file describes.
///
/// # Errors
/// Fails if the pool cannot be created. Unless a device failed while it was written to, nothing has changed
/// then.
pub(crate) fn create(pool_file: &Path, force: bool) -> Result<Status, Failure> {
    let described = PoolDescription::read(pool_file)?;
    pool::refuse_served(&described)?;
    progress::during("creating the pool", || create_on_devices(&described, force))?;
    pool::status(pool_file)
}

/// Creates the pool of blank devices. With `force`, it takes devices that are not blank and all their data is
/// lost.
///
/// It inspects all devices before it writes to one.
///
/// # Errors
/// Fails if a device cannot be used, or is not blank and `force` is not given. Nothing has changed then, and
/// files that were created are removed again. Also fails if a device fails while it is written to.
fn create_on_devices(described: &PoolDescription, force: bool) -> Result<(), Failure> {
    let mut made = FileChanges::default();
    let mut devices = described.open_to_create(|device| made.record(device))?;
    described.refuse_unwritable(&devices)?;
    if !force {
        let all = devices.iter().map(|(id, _)| id).collect();
        refuse_occupied(described, &mut devices, all)?;
    }
    warn_of_readable_files(described, &devices)?;
    for warning in log_warnings(described, &devices, file_system_magic) {
        tracing::warn!("{warning}");
    }
    let new = new_pool(described, &mut devices)?;
    let layout = weir_map::create::layout(&new).map_err(|error| described.explain(error))?;
    layout.iter().try_for_each(|sb| reserve_on(&devices, sb))?;
    layout.iter().try_for_each(|sb| fill_probe_areas(described, &mut devices, sb))?;
    weir_map::create(&mut devices, &new).map_err(|error| described.explain(error))?;
    made.commit();
    Ok(())
}

/// Makes the file system allocate the space for one device's metadata. Otherwise a file system that fills up
/// later would stop the pool from writing its map.
pub(super) fn reserve_on(devices: &Devices, sb: &Superblock) -> Result<(), Failure> {
    let Some(device) = devices.get(sb.device) else { return Ok(()) };
    let page = Bytes(weir_map::PAGE as u64);
    let metadata = match sb.is_metadata_member() {
        true => Bytes(sb.pages_at().0 + sb.meta_pages * page.0),
        false => page,
    };
    device.reserve(DeviceOffset(0), metadata)?;
    Ok(device.reserve(Superblock::second_at(sb.size), page)?)
}

/// Writes zeros where the engine's probe reads to measure the device. A read of a hole in a file causes no
/// disk I/O, and the slowest device would then appear as the fastest.
pub(super) fn fill_probe_areas(
    described: &PoolDescription,
    devices: &mut Devices,
    sb: &Superblock,
) -> Result<(), Failure> {
    let (device, what) = (sb.device, "write");
    weir_engine::probe_extents(sb.data_extents).try_for_each(|extent| {
        let at = sb.data_at + Bytes(u64::from(extent.0) * sb.extent.bytes().0);
        let written = devices.write(device, at, &[0; weir_map::PAGE]);
        written.map_err(|error| described.explain(MapError::Io { device, what, at, error }))
    })
}

fn new_pool(described: &PoolDescription, devices: &mut Devices) -> Result<NewPool, Failure> {
    let entries = &described.file.devices;
    let in_order = entries.iter().zip(devices.iter()).map(|(entry, (_, device))| NewDevice {
        name: entry.name.clone(),
        size: device.size(),
        class: device.class(),
    });
    let in_order = in_order.collect();
    Ok(NewPool {
        id: PoolId(uuid::Uuid::new_v4().into_bytes()),
        name: described.file.name.clone(),
        extent: described.file.extent,
        devices: in_order,
        metadata: metadata::select(&described.file, devices)?,
    })
}

/// The changes that opening the devices made to their files. Dropping the value undoes them, unless
/// [`FileChanges::commit`] was called.
#[derive(Debug, Default)]
pub(super) struct FileChanges(Vec<(PathBuf, FileChange)>);

impl FileChanges {
    pub(super) fn record(&mut self, device: &Device) {
        self.0.push((device.path().to_owned(), device.file_change()));
    }

    pub(super) fn commit(mut self) {
        self.0.clear();
    }
}

impl Drop for FileChanges {
    fn drop(&mut self) {
        for (path, made) in &self.0 {
            // A failure to undo is ignored: the command has already failed, and nothing else would remove the
            // file.
            let _ = match made {
                FileChange::Nothing => Ok(()),
                FileChange::Size => File::options().write(true).open(path).and_then(|file| file.set_len(0)),
                FileChange::File => std::fs::remove_file(path),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Accept;
    use rustix::fs::{SeekFrom, seek};
    use std::time::Duration;

    #[test]
    fn files_on_a_log_are_warned_of() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pool.toml");
        let device =
            |name: &str| format!("[[device]]\nname = \"{name}\"\npath = \"{name}.img\"\nsize = \"64MiB\"\n");
        let text = format!("[pool]\nname = \"p\"\n{}{}", device("log"), device("plain"));
        std::fs::write(&path, text).expect("a pool file");
        let described = PoolDescription::read(&path).expect("a pool file");
        let devices = described.open_to_create(|_| {}).expect("they open");
        let warnings = |magic: u64| {
            log_warnings(&described, &devices, |path| {
                if path.ends_with("log.img") { Ok(magic) } else { Err(std::io::ErrorKind::NotFound.into()) }
            })
        };
        let [f2fs] = &warnings(0xf2f5_2010)[..] else { panic!("one device") };
        for part in ["device \"log\"", "log.img is on F2FS", "several times the writes", "partition"] {
            assert!(f2fs.contains(part), "{part:?} should be in: {f2fs}");
        }
        let [btrfs] = &warnings(0x9123_683e)[..] else { panic!("one device") };
        assert!(btrfs.contains("chattr +C") && !f2fs.contains("chattr"), "{btrfs}");
        assert_eq!(warnings(0xef53), Vec::<String>::new(), "ext4");
    }

    #[test]
    fn probed_areas_contain_no_holes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pool.toml");
        let text = "[pool]\nname = \"p\"\n[[device]]\nname = \"d\"\npath = \"d.img\"\nsize = \"64MiB\"\n";
        std::fs::write(&path, text).expect("a pool file");
        create(&path, false).expect("a pool");
        let described = PoolDescription::read(&path).expect("a pool file");
        let opened = described.open_pool(&Accept::default(), Duration::ZERO).expect("it opens");
        let superblock = &opened.superblocks[0];
        let file = File::open(folder.path().join("d.img")).expect("the device");
        for extent in weir_engine::probe_extents(superblock.data_extents) {
            let at = superblock.data_at.0 + u64::from(extent.0) * superblock.extent.bytes().0;
            assert_eq!(seek(&file, SeekFrom::Data(at)).ok(), Some(at), "{extent:?}");
        }
    }
}
