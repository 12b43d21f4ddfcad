//! Names the format of a device's contents: asks util-linux's `blkid`, which knows about a hundred file
//! systems, volume managers and partition tables, then checks the magic numbers below.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// Paths of `blkid`: ordinary users often lack the `sbin` folders in their `PATH`.
const PROGRAMS: [&str; 3] = ["blkid", "/usr/sbin/blkid", "/sbin/blkid"];
/// Exit code of `blkid`: signatures of several formats were found.
const AMBIVALENT: i32 = 8;

/// Position of a magic number.
#[derive(Clone, Copy)]
enum MagicOffset {
    Start(u64),
    /// This many bytes before the end.
    End(u64),
}
use MagicOffset::{End, Start};

/// Magic numbers, most specific first: a boot sector's comes last.
const MAGIC: &[(MagicOffset, &[u8], &str)] = &[
    (Start(0), b"QFI\xfb", "a qcow2 disk image"),
    (Start(0), b"SQLite format 3\0", "an SQLite database"),
    (Start(0), b"\x1f\x8b\x08", "a gzip archive"),
    (Start(0), b"\xfd7zXZ\0", "an xz archive"),
    (Start(0), b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (Start(0), b"BZh", "a bzip2 archive"),
    (Start(0), b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (Start(0), b"%PDF-", "a PDF document"),
    (Start(0), b"\x7fELF", "an ELF program"),
    (Start(0), b"PK\x03\x04", "a zip archive"),
    (Start(0), b"KDMV", "a VMDK disk image"),
    (Start(0), b"COWD", "a VMDK disk image"),
    (Start(0), b"# Disk DescriptorFile", "a VMDK disk image's descriptor"),
    (Start(0), b"vhdxfile", "a VHDX disk image"),
    (Start(0), b"conectix", "a VHD disk image"),
    (End(512), b"conectix", "a VHD disk image"),
    (Start(64), b"\x7f\x10\xda\xbe", "a VDI disk image"),
    (Start(0), b"weirDP", "a dump of a weir pool"),
    (Start(257), b"ustar", "a tar archive"),
    (Start(0), b"LUKS\xba\xbe", "a LUKS encrypted volume"),
    (Start(0), b"XFSB", "an xfs file system"),
    (Start(0x438), b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (Start(0x10040), b"_BHRfS_M", "a btrfs file system"),
    (Start(0x8001), b"CD001", "an iso9660 file system"),
    (Start(0x400), b"\x10\x20\xf5\xf2", "an f2fs file system"),
    (Start(3), b"NTFS    ", "an NTFS file system"),
    (Start(3), b"EXFAT   ", "an exFAT file system"),
    (Start(54), b"FAT1", "a FAT file system"),
    (Start(82), b"FAT32", "a FAT file system"),
    (Start(4096 - 10), b"SWAPSPACE2", "a swap area"),
    (Start(8192 - 10), b"SWAPSPACE2", "a swap area"),
    (Start(16384 - 10), b"SWAPSPACE2", "a swap area"),
    (Start(65536 - 10), b"SWAPSPACE2", "a swap area"),
    (Start(0), b"LABELONE", "an LVM2 physical volume"),
    (Start(512), b"LABELONE", "an LVM2 physical volume"),
    (Start(1024), b"LABELONE", "an LVM2 physical volume"),
    (Start(1536), b"LABELONE", "an LVM2 physical volume"),
    (Start(0), RAID, RAID_MEMBER),
    (Start(4096), RAID, RAID_MEMBER),
    (
        Start(4096 + 24),
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
        "a bcache device",
    ),
    (Start(512), b"EFI PART", "a GPT partition table"),
    (Start(4096), b"EFI PART", "a GPT partition table"),
    (End(512), b"EFI PART", "the backup of a GPT partition table"),
    (End(4096), b"EFI PART", "the backup of a GPT partition table"),
    (Start(510), b"\x55\xaa", "a boot sector or an MBR partition table"),
];
const RAID: &[u8] = b"\xfc\x4e\x2b\xa9";
const RAID_MEMBER: &str = "a member of a Linux software RAID (mdraid)";
const ZFS_MEMBER: &str = "a member of a ZFS pool";

/// Names the contents of the device at `path`, opened as `file`; `None` if they have no known format.
pub(super) fn of(path: &Path, file: &File, len: u64) -> io::Result<Option<String>> {
    if let Some(named) = by_blkid(path) {
        return Ok(Some(named));
    }
    by_magic(|at, bytes| read(file, at, bytes), len)
}

/// Reads as many bytes as there are.
fn read(file: &File, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], at + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Names the contents by magic number; `read` reads the device, which is `len` bytes long.
fn by_magic(read: impl Fn(u64, &mut [u8]) -> io::Result<usize>, len: u64) -> io::Result<Option<String>> {
    let found = |at: u64, magic: &[u8]| -> io::Result<bool> {
        let mut bytes = [0; 32];
        let bytes = &mut bytes[..magic.len()];
        Ok(read(at, bytes)? == magic.len() && bytes == magic)
    };
    for (at, magic, what) in MAGIC {
        let at = match at {
            Start(at) => Some(*at),
            End(before) => len.checked_sub(*before),
        };
        if let Some(at) = at
            && found(at, magic)?
        {
            return Ok(Some((*what).to_owned()));
        }
    }
    // RAID superblocks located from the end: metadata 1.0 and 0.90.
    let at_end =
        [(len / 512).checked_sub(16).map(|sector| (sector & !7) * 512), (len & !0xffff).checked_sub(0x10000)];
    for at in at_end.into_iter().flatten() {
        if found(at, RAID)? {
            return Ok(Some(RAID_MEMBER.to_owned()));
        }
    }
    Ok(is_zfs(&read, len)?.then(|| ZFS_MEMBER.to_owned()))
}

/// Reports whether one of the four labels of ZFS, two of them at the end, has an uberblock.
fn is_zfs(read: impl Fn(u64, &mut [u8]) -> io::Result<usize>, len: u64) -> io::Result<bool> {
    const LABEL: u64 = 256 << 10;
    const UBERBLOCKS: u64 = 128 << 10;
    let end = len / LABEL * LABEL;
    let labels = [Some(0), Some(LABEL), end.checked_sub(2 * LABEL), end.checked_sub(LABEL)];
    let mut area = vec![0; UBERBLOCKS as usize];
    for label in labels.into_iter().flatten() {
        let known = read(label + UBERBLOCKS, &mut area)?;
        let is_uberblock = |block: &[u8]| {
            block.starts_with(b"\x0c\xb1\xba\0\0\0\0\0") || block.starts_with(b"\0\0\0\0\0\xba\xb1\x0c")
        };
        if area[..known].chunks(1024).any(is_uberblock) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Asks `blkid`; returns `None` if it is not installed, fails or knows nothing.
fn by_blkid(path: &Path) -> Option<String> {
    let output = PROGRAMS.iter().find_map(|program| {
        Command::new(program).args(["-p", "-o", "export", "--"]).arg(path).output().ok()
    })?;
    match output.status.code()? {
        AMBIVALENT => Some("the signatures of more than one file system or partition table".to_owned()),
        0 => Some(describe(&String::from_utf8_lossy(&output.stdout))),
        _ => None,
    }
}

/// Describes the output of `blkid -o export` in words.
fn describe(export: &str) -> String {
    let value = |key: &str| export.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let label = value("LABEL").map(|label| format!(" labelled {label:?}")).unwrap_or_default();
    match (value("TYPE"), value("PTTYPE")) {
        (Some("crypto_LUKS"), _) => "a LUKS encrypted volume".to_owned() + &label,
        (Some("swap" | "swsuspend"), _) => "a swap area".to_owned() + &label,
        (Some("linux_raid_member"), _) => RAID_MEMBER.to_owned(),
        (Some("LVM2_member"), _) => "an LVM2 physical volume".to_owned(),
        (Some("zfs_member"), _) => ZFS_MEMBER.to_owned() + &label,
        (Some("bcache"), _) => "a bcache device".to_owned(),
        (Some(kind), _) if value("USAGE") == Some("filesystem") => {
            format!("{} {kind} file system{label}", article(kind))
        }
        (Some(kind), _) => format!("{} {kind} signature{label}", article(kind)),
        (None, Some("dos")) => "an MBR partition table".to_owned(),
        (None, Some("gpt")) => "a GPT partition table".to_owned(),
        (None, Some(table)) => format!("{} {table} partition table", article(table)),
        (None, None) => "a format that blkid recognises".to_owned(),
    }
}

fn article(word: &str) -> &'static str {
    // Some abbreviations are spelled out when read: an XFS, an LVM, an NTFS, an MBR.
    let vowel = word.starts_with(['a', 'e', 'i', 'o', 'A', 'E', 'I', 'O']);
    if vowel || word.starts_with("xfs") || word.starts_with("ntfs") || word.starts_with("f2fs") {
        "an"
    } else {
        "a"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blkid_output_is_described() {
        let ext4 = "DEVNAME=x\nLABEL=photos\nTYPE=ext4\nUSAGE=filesystem\n";
        assert_eq!(describe(ext4), "an ext4 file system labelled \"photos\"");
        assert_eq!(describe("TYPE=btrfs\nUSAGE=filesystem\n"), "a btrfs file system");
        assert_eq!(describe("PTUUID=1\nPTTYPE=gpt\n"), "a GPT partition table");
        assert_eq!(describe("TYPE=crypto_LUKS\nUSAGE=crypto\n"), "a LUKS encrypted volume");
        assert_eq!(describe("TYPE=isw_raid_member\nUSAGE=raid\n"), "an isw_raid_member signature");
        assert_eq!(describe(""), "a format that blkid recognises");
    }

    /// Names a device of this length that contains these bytes.
    fn named(len: u64, at: u64, bytes: &[u8]) -> Option<String> {
        let read = |from: u64, into: &mut [u8]| {
            let there = len.saturating_sub(from).min(into.len() as u64) as usize;
            into[..there].fill(0);
            for (index, byte) in bytes.iter().enumerate() {
                let place = (at + index as u64).checked_sub(from).filter(|place| *place < there as u64);
                if let Some(place) = place {
                    into[place as usize] = *byte;
                }
            }
            Ok(there)
        };
        by_magic(read, len).expect("memory is read")
    }

    #[test]
    fn formats_are_recognised_by_magic_number() {
        const LEN: u64 = (64 << 20) + 1536;
        for (at, magic, what) in MAGIC {
            let at = match at {
                Start(at) => *at,
                End(before) => LEN - before,
            };
            assert_eq!(named(LEN, at, magic).as_deref(), Some(*what));
        }
        let uberblock = b"\x0c\xb1\xba\0\0\0\0\0";
        let end = LEN / (256 << 10) * (256 << 10);
        for label in [0, 256 << 10, end - (512 << 10), end - (256 << 10)] {
            assert_eq!(named(LEN, label + (128 << 10) + 5 * 1024, uberblock).as_deref(), Some(ZFS_MEMBER));
        }
        for at in [((LEN / 512 - 16) & !7) * 512, (LEN & !0xffff) - 0x10000] {
            assert_eq!(named(LEN, at, RAID).as_deref(), Some(RAID_MEMBER));
        }
        assert_eq!(named(LEN, 12_345, b"nobody knows"), None);
        assert_eq!(named(100, 0, b"nobody"), None, "shorter than most");
    }
}
