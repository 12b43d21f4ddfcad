//! Detects whether a device is blank, and what it contains if it is not.
//!
//! The decision does not depend on recognising a format: a device is blank if its file has no data at all, or
//! if every byte that is checked is zero. The check covers every place where `libblkid` expects a signature,
//! the first and the last MiB and more, the usual places of backup superblocks, samples over the whole device
//! and, for a file with holes, its data. Recognising a format only serves to name it.

mod name;

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::{Device, DeviceError};

/// Bytes read at the start: the last place that `libblkid` checks is 4 MiB, a second header of LUKS2.
const HEAD: u64 = (4 << 20) + SAMPLE_LEN;
/// Bytes read at the end: RAID superblocks, backup partition tables, labels of ZFS, footers of disk images.
const TAIL: u64 = 4 << 20;
/// Offsets of backup superblocks of ext2, ext3, ext4 and btrfs.
const BACKUPS: [u64; 4] = [8 << 20, 64 << 20, 128 << 20, 256 << 30];
/// Bytes read at each of [`BACKUPS`], per sample, and of data that is too long to be read whole.
const SAMPLE_LEN: u64 = 64 << 10;
/// Number of samples at even intervals over the whole device.
const SAMPLES: u64 = 64;
/// The data of a file with holes is read whole up to this many bytes.
const WHOLE_MAX: u64 = 64 << 20;
/// Maximum number of data segments of a file that are checked.
const SEGMENTS: usize = 1 << 12;
/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// Contents of a device that is not blank. `Display` completes the sentence "the device holds ...".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// A recognised format, such as "an ext4 file system".
    Known(String),
    /// Other data.
    Data {
        /// Offset of the first byte that is not zero.
        at: u64,
    },
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(what) => f.write_str(what),
            Self::Data { at } => write!(f, "data that is not zero at offset {at}"),
        }
    }
}

impl Device {
    /// Returns the contents of the device; `None` if it is blank: a file without data, or zeros wherever it
    /// is checked.
    ///
    /// It reads up to about 16 MiB of a block device, and up to 64 MiB more of a file's data. Formats are
    /// named by `blkid`, if it is installed, and by their magic numbers. A weir superblock counts as data.
    ///
    /// # Errors
    /// [`DeviceError::Io`] if the device cannot be read.
    pub fn contents(&self) -> Result<Option<Contents>, DeviceError> {
        self.inspect().map_err(|source| self.error("reading what it holds", source))
    }

    /// Returns the contents of the device, if they have a known format; see [`Self::contents`].
    ///
    /// # Errors
    /// [`DeviceError::Io`] if the device cannot be read.
    pub fn known_contents(&self) -> Result<Option<Contents>, DeviceError> {
        let named = self.reread().and_then(|file| name::of(&self.path, &file, length(&file)?));
        let named = named.map_err(|source| self.error("reading what it holds", source))?;
        Ok(named.map(Contents::Known))
    }

    fn inspect(&self) -> io::Result<Option<Contents>> {
        let file = self.reread()?;
        let len = length(&file)?;
        let data = match self.facts.is_block {
            true => std::iter::once(0..len).collect(),
            false => segments(&file, len)?,
        };
        if data.is_empty() {
            return Ok(None);
        }
        let at = first_data(&file, &regions(len, &data))?;
        // This also covers zeros: `blkid` may check places of a known format that this code does not.
        let named = name::of(&self.path, &file, len)?;
        Ok(named.map(Contents::Known).or(at.map(|at| Contents::Data { at })))
    }

    /// Opens the same file again, for reads at any byte through the page cache.
    fn reread(&self) -> io::Result<File> {
        File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

fn length(file: &File) -> io::Result<u64> {
    Ok(rustix::fs::seek(file, SeekFrom::End(0))?)
}

/// Returns the parts of a file that are not holes; the whole file where the file system cannot tell.
fn segments(file: &File, len: u64) -> io::Result<Vec<Range<u64>>> {
    let mut segments = Vec::new();
    let mut at = 0;
    while at < len && segments.len() < SEGMENTS {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(len);
        segments.push(start..end.max(start + 1));
        at = end.max(start + 1);
    }
    Ok(segments)
}

/// Returns the ranges to check, in ascending order, of a device of this length whose data is in these
/// segments.
fn regions(len: u64, data: &[Range<u64>]) -> Vec<Range<u64>> {
    let piece = |at: u64| at..at.saturating_add(SAMPLE_LEN);
    let mut regions = vec![0..HEAD, len.saturating_sub(TAIL)..len];
    regions.extend(BACKUPS.map(piece));
    regions
        .extend((1..SAMPLES).map(|n| piece((u128::from(len) * u128::from(n) / u128::from(SAMPLES)) as u64)));
    let all: u64 = data.iter().map(|segment| segment.end - segment.start).sum();
    regions.extend(data.iter().map(|segment| match all <= WHOLE_MAX {
        true => segment.clone(),
        false => segment.start..segment.end.min(segment.start + SAMPLE_LEN),
    }));
    regions.retain_mut(|region| {
        region.end = region.end.min(len);
        region.start < region.end
    });
    regions.sort_unstable_by_key(|region| region.start);
    regions
}

/// Returns the offset of the first byte in these ranges that is not zero.
fn first_data(file: &File, regions: &[Range<u64>]) -> io::Result<Option<u64>> {
    let mut chunk = vec![0; CHUNK];
    let mut done = 0;
    for region in regions {
        let mut at = region.start.max(done);
        while at < region.end {
            let want = (region.end - at).min(CHUNK as u64) as usize;
            let read = match file.read_at(&mut chunk[..want], at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if read == 0 {
                return Ok(None);
            }
            if chunk[..read] != ZEROS[..read] {
                let first = chunk[..read].iter().position(|byte| *byte != 0).unwrap_or(0);
                return Ok(Some(at + first as u64));
            }
            at += read as u64;
        }
        done = done.max(region.end);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceOptions;
    use weir_model::Bytes;

    const LEN: u64 = 300 << 20;

    /// Creates a device over a sparse file with these bytes written.
    fn device(folder: &tempfile::TempDir, written: &[(u64, &[u8])]) -> Device {
        let path = folder.path().join("device");
        let file = File::create(&path).expect("a file");
        file.set_len(LEN).expect("a length");
        written.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).expect("written"));
        let options = DeviceOptions { size: Some(Bytes(LEN)), ..DeviceOptions::default() };
        Device::open(&path, &options).expect("it opens")
    }

    fn contents(written: &[(u64, &[u8])]) -> Option<Contents> {
        let folder = tempfile::tempdir().expect("a folder");
        device(&folder, written).contents().expect("it is read")
    }

    #[test]
    fn holes_and_zeros_are_blank() {
        assert_eq!(contents(&[]), None);
        assert_eq!(contents(&[(0, &[0; 8192]), (LEN / 3, &[0; 4096]), (LEN - 4096, &[0; 4096])]), None);
    }

    #[test]
    fn a_single_byte_anywhere_in_a_sparse_file_is_data() {
        for at in [0, 1, 4095, (1 << 20) - 1, 5 << 20, LEN / 3 + 17, LEN - (1 << 20), LEN - 1] {
            assert_eq!(contents(&[(at, &[1])]), Some(Contents::Data { at }), "byte {at}");
        }
    }

    #[test]
    fn device_without_holes_is_probed_everywhere() {
        let len = 1 << 40;
        let whole = std::iter::once(0..len).collect::<Vec<_>>();
        let regions = regions(len, &whole);
        let is_seen = |at: u64| regions.iter().any(|region| region.contains(&at));
        let mib = 1 << 20;
        let ends = [0, 1, mib - 1, len - mib, len - 1];
        // LUKS2's last second header, VMFS, backups of ext4 and btrfs, samples.
        let probed = [4 * mib, 2 * mib, 8 * mib + 1080, 128 * mib + 1080, 64 * mib + 64, 256 << 30, len / 2];
        assert!(ends.into_iter().chain(probed).all(is_seen), "{regions:?}");
        let read: u64 = regions.iter().map(|region| region.end - region.start).sum();
        assert!(read < 16 * mib, "{read} bytes");
        assert!(regions.is_sorted_by_key(|region| region.start));
    }

    #[test]
    fn long_data_is_sampled() {
        let block = vec![0; 80 << 20];
        assert_eq!(contents(&[(100 << 20, &block)]), None);
        let segment_after = 200 << 20;
        let found = contents(&[(100 << 20, &block), (segment_after, &[7])]);
        assert_eq!(found, Some(Contents::Data { at: segment_after }));
    }

    #[test]
    fn unaligned_file_is_read_to_its_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("odd");
        let mut bytes = vec![0; 10_000];
        bytes[9_999] = 1;
        std::fs::write(&path, bytes).expect("written");
        let device = Device::open(&path, &DeviceOptions::default()).expect("it opens");
        assert_eq!(device.contents().expect("it is read"), Some(Contents::Data { at: 9_999 }));
    }
}
