//! Devices whose size has changed since they joined the pool, and files that exceed this process's file size
//! limit.

use super::PoolDescription;
use crate::failure::{self, Failure};
use crate::pool_file::DeviceEntry;
use std::path::Path;
use weir_device::Devices;
use weir_map::Superblock;
use weir_model::{Bytes, DeviceId, Store as _};

/// A device whose size differs from the size with which it joined the pool.
#[derive(Clone, Debug)]
pub(crate) struct ResizedDevice<'a> {
    /// Superblock of the device.
    pub(crate) superblock: &'a Superblock,
    /// Present size.
    pub(crate) current_size: Bytes,
    /// Path of the device.
    pub(crate) path: &'a Path,
    /// The device is a block device, not a file.
    pub(crate) is_block: bool,
}

impl ResizedDevice<'_> {
    /// Returns the present size and the size in the superblock, in words.
    pub(crate) fn describe(&self) -> String {
        let was = self.superblock.size;
        format!(
            "has {}, but had {} when it joined the pool",
            rounded_and_exact(self.current_size),
            rounded_and_exact(was)
        )
    }

    /// Returns how to restore the size, and what data remain then.
    pub(crate) fn advice(&self) -> String {
        let Bytes(was) = self.superblock.size;
        let path = shell_word(self.path);
        let (is_grown, without) = (self.current_size.0 > was, without_option(self.superblock));
        let give_back = match (is_grown, self.is_block) {
            (true, false) => format!("cut it back: truncate -s {was} {path}"),
            (false, false) => format!("grow it back first (truncate -s {was} {path})"),
            (_, true) => format!("give {path} its {was} bytes back"),
        };
        if is_grown {
            return format!("nothing is lost; {give_back}");
        }
        let go_on = without.map_or_else(
            || "if its metadata is damaged then: weir pool restore FILE, from a dump".into(),
            |without| format!("or go on without it: {without}"),
        );
        format!(
            "put the right device or file back, or restore it from a backup; to read what is left of it, \
             {give_back} and weir pool check --repair takes it in again, zeros where it was cut off, if \
             nothing on it is elsewhere as well; {go_on}"
        )
    }
}

/// Returns the option that opens the pool without this device; `None` if the device has the only metadata. If
/// the device has one of two copies of the metadata and no record says that the pool went on with the other
/// copy alone, opening is refused even with this option; that refusal names what else is required.
pub(crate) fn without_option(superblock: &Superblock) -> Option<String> {
    let has_only_metadata = superblock.is_metadata_member() && superblock.members.len() < 2;
    let name = &superblock.device_name;
    (!has_only_metadata).then(|| format!("--without {name} (data that it alone held reads as EIO)"))
}

/// Returns a size rounded to a unit and in bytes, since two different sizes may round to the same words.
pub(crate) fn rounded_and_exact(size: Bytes) -> String {
    format!("{size} ({} bytes)", size.0)
}

/// Returns a path quoted for a shell.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+:@".contains(&byte));
    if is_plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

impl PoolDescription {
    /// Refuses device files that this process may not write up to their end, since writes would fail later.
    ///
    /// # Errors
    /// Fails if there are such files; the failure lists all of them.
    pub(crate) fn refuse_unwritable(&self, devices: &Devices) -> Result<(), Failure> {
        let Some(limit) = weir_device::limits::file_size() else { return Ok(()) };
        let ids = (0u8..).map(DeviceId).take(self.file.devices.len());
        let too_large = ids.filter_map(|id| {
            let device = devices.get(id).filter(|device| !device.is_block() && device.size() > limit)?;
            Some(Failure::environment(
                format!(
                    "device {} has {}, and this process may write no file beyond {} (ulimit -f)",
                    self.name_and_path(id),
                    rounded_and_exact(device.size()),
                    rounded_and_exact(limit)
                ),
                failure::RAISE_FILE_SIZE,
            ))
        });
        Failure::join(too_large.collect()).map_or(Ok(()), Err)
    }
}

/// Refuses a device whose size differs from the size with which it joined the pool.
pub(super) fn refuse_resized(entry: &DeviceEntry, device: &ResizedDevice<'_>) -> Result<(), Failure> {
    if device.superblock.size == device.current_size {
        return Ok(());
    }
    let message = format!("device {} ({}) {}", entry.name, device.path.display(), device.describe());
    Err(Failure::refused(message, device.advice()))
}

/// Refuses a file that was truncated and has grown to its size again. The truncated part reads as zeros, and
/// so does the last page, which held the second superblock.
pub(super) fn refuse_regrown(path: &Path, devices: &mut Devices, found: &Superblock) -> Result<(), Failure> {
    let (name, size) = (&found.device_name, found.size);
    if !has_zeroed_end(devices, found) {
        return Ok(());
    }
    let without = without_option(found).map(|option| format!("go on without it: {option}, or, "));
    let restore =
        if without.is_some() { "" } else { "; if its metadata is damaged then: weir pool restore FILE" };
    Err(Failure::refused(
        format!(
            "device {name} ({}) has zeros where its second superblock was, in the last 4 KiB of its {size}: \
             it was truncated and has grown again, and what was cut off is gone",
            path.display()
        ),
        format!(
            "{}restore it from a backup, if no volume has two copies; or read what is left of it, zeros \
             where it was cut off: weir pool check --repair, which refuses if other devices hold a part of \
             its data, too{restore}",
            without.unwrap_or_default()
        ),
    ))
}

/// Reports whether a device has zeros where its second superblock belongs. One that cannot be read does not
/// count: it is no sign of truncation.
pub(crate) fn has_zeroed_end(devices: &mut Devices, superblock: &Superblock) -> bool {
    let mut page = vec![0xff; weir_map::PAGE];
    let read = devices.read(superblock.device, Superblock::second_at(superblock.size), &mut page);
    read.is_ok() && page.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_map::{NewDevice, NewPool, PoolId};
    use weir_model::{DeviceClass, ExtentSize};

    /// Returns the superblocks of a pool of two devices whose metadata is on these.
    fn superblocks(metadata: &[u8]) -> Vec<Superblock> {
        let device =
            |name: &str| NewDevice { name: name.into(), size: Bytes::mib(64), class: DeviceClass::Ssd };
        let pool = NewPool {
            id: PoolId([7; 16]),
            name: "test".into(),
            extent: ExtentSize::DEFAULT,
            devices: vec![device("fast"), device("slow")],
            metadata: metadata.iter().map(|id| DeviceId(*id)).collect(),
        };
        weir_map::create::layout(&pool).expect("a layout")
    }

    fn advice(superblock: &Superblock, now: Bytes, is_block: bool) -> String {
        ResizedDevice { superblock, current_size: now, path: Path::new("/a b/c.img"), is_block }.advice()
    }

    #[test]
    fn without_is_offered_only_if_metadata_is_elsewhere() {
        let one = superblocks(&[0]);
        assert_eq!(without_option(&one[0]), None);
        assert_eq!(
            without_option(&one[1]).expect("a way"),
            "--without slow (data that it alone held reads as EIO)"
        );
        let two = superblocks(&[0, 1]);
        assert_eq!(
            without_option(&two[0]).expect("a way"),
            "--without fast (data that it alone held reads as EIO)"
        );
        assert!(!advice(&one[0], Bytes::mib(8), false).contains("--without"));
        assert!(advice(&one[1], Bytes::mib(8), false).contains("--without slow"));
    }

    #[test]
    fn advice_has_exact_sizes() {
        let superblock = &superblocks(&[0])[1];
        let (was, one_more) = (superblock.size.0, Bytes(superblock.size.0 + 8));
        let grown = advice(superblock, one_more, false);
        assert_eq!(grown, format!("nothing is lost; cut it back: truncate -s {was} '/a b/c.img'"));
        let shrunk = advice(superblock, Bytes::mib(8), false);
        assert!(
            shrunk.contains(&format!("(truncate -s {was} '/a b/c.img') and weir pool check")),
            "{shrunk}"
        );
        assert!(!advice(superblock, one_more, true).contains("truncate"), "no file");
        let resized =
            ResizedDevice { superblock, current_size: one_more, path: Path::new("/c.img"), is_block: false };
        assert!(resized.describe().contains(&format!("({} bytes)", one_more.0)), "{}", resized.describe());
    }
}
