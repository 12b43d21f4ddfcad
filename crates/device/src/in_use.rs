//! Detects other users of a file. Block devices are opened exclusively instead.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::Device;

impl Device {
    /// Returns who uses the device's file besides weir, in words that complete "the file is ...": a loop
    /// device, or a process that locked part of it, as QEMU locks the images of running machines. `None` for
    /// block devices, and if no user is found; not every process that has a file open can be detected.
    pub fn other_user(&self) -> Option<String> {
        if self.facts.is_block {
            return None;
        }
        loop_device(&self.file).or_else(|| {
            let own = self.file.metadata().ok()?;
            locked_by(own.dev(), own.ino(), &std::fs::read_to_string("/proc/locks").ok()?)
        })
    }
}

/// Returns the loop device that presents this file as a block device.
fn loop_device(file: &File) -> Option<String> {
    let own = file.metadata().ok()?;
    std::fs::read_dir("/sys/block").ok()?.flatten().find_map(|entry| {
        let backing = std::fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        let other = std::fs::metadata(Path::new(backing.trim_end_matches('\n'))).ok()?;
        let is_same = (own.dev(), own.ino()) == (other.dev(), other.ino());
        is_same.then(|| format!("in use by /dev/{}", entry.file_name().display()))
    })
}

/// Returns who holds a record lock on this file, according to `/proc/locks`. It ignores `flock`, which weir
/// itself holds.
fn locked_by(device: u64, inode: u64, locks: &str) -> Option<String> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let [_, kind @ ("POSIX" | "OFDLCK"), _, _, pid, of, ..] = fields[..] else { return None };
        (of == file).then(|| match kind {
            "POSIX" => format!("in use by process {pid}, which has locked it"),
            _ => "in use by a process that has locked it".to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::locked_by;

    #[test]
    fn record_lock_owner_is_found() {
        let locks = "1: FLOCK  ADVISORY  WRITE 10 fd:00:7 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 3568 fd:00:8 0 EOF\n\
                     2: -> POSIX  ADVISORY  WRITE 3569 fd:00:11 0 EOF\n\
                     3: OFDLCK ADVISORY  READ -1 08:01:9 100 101\n";
        let by = |major, minor, inode| locked_by(rustix::fs::makedev(major, minor), inode, locks);
        assert_eq!(by(0xfd, 0, 8).as_deref(), Some("in use by process 3568, which has locked it"));
        assert_eq!(by(8, 1, 9).as_deref(), Some("in use by a process that has locked it"));
        assert_eq!((by(0xfd, 0, 7), by(0xfd, 0, 11), by(8, 1, 8)), (None, None, None));
    }
}
