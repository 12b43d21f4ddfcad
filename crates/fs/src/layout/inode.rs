//! Inodes: 256 bytes each.

use super::fields::{Reader, Writer};
use super::tier::{Container, TierNumber};
use super::{Geometry, Ino, PAGE_BYTES, Page, Time};
use crate::error::Error;

/// Bytes of an inode.
pub const INODE_BYTES: u64 = 256;
/// Entries of a page of a chunk tree, as a power of two.
pub const TREE_BITS: u32 = 10;
/// Largest size of all attributes of an inode in their stored form, in bytes.
pub const ATTRIBUTE_BYTES_MAX: u64 = 64 << 10;
/// Longest target of a symbolic link, in bytes.
pub const TARGET_BYTES_MAX: u64 = 4095;
/// Bit of a leaf's entry: the chunk is allocated, but reads as zeros.
pub const UNWRITTEN: u32 = 1 << 31;

/// Bits of a mode: type and permissions.
pub const MODE_BITS: u32 = 0o17_7777;
/// Flag of an inode: the file's data stays in the region.
const PINNED: u32 = 1;
/// Flag of an inode: the kernel may change the container without the server.
const PASSTHROUGH: u32 = 2;
/// Nanoseconds of a second.
pub const NANOS: u32 = 1_000_000_000;

/// Type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

impl Kind {
    /// Returns the type bits of a mode.
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::Fifo => libc::S_IFIFO,
            Self::CharDevice => libc::S_IFCHR,
            Self::Directory => libc::S_IFDIR,
            Self::BlockDevice => libc::S_IFBLK,
            Self::File => libc::S_IFREG,
            Self::Symlink => libc::S_IFLNK,
            Self::Socket => libc::S_IFSOCK,
        }
    }

    /// Returns the type that a mode's bits name.
    pub const fn of_mode(mode: u32) -> Option<Self> {
        Some(match mode & libc::S_IFMT {
            libc::S_IFIFO => Self::Fifo,
            libc::S_IFCHR => Self::CharDevice,
            libc::S_IFDIR => Self::Directory,
            libc::S_IFBLK => Self::BlockDevice,
            libc::S_IFREG => Self::File,
            libc::S_IFLNK => Self::Symlink,
            libc::S_IFSOCK => Self::Socket,
            _ => return None,
        })
    }

    /// Returns the byte that names the type in a directory entry: the mode's type bits.
    pub const fn code(self) -> u8 {
        (self.mode_bits() >> 12) as u8
    }

    /// Returns the type of a directory entry's byte.
    pub const fn of_code(code: u8) -> Option<Self> {
        Self::of_mode((code as u32) << 12)
    }
}

/// Where the bytes of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Nowhere.
    Empty,
    /// In consecutive pages.
    Run {
        /// The first page.
        first: Page,
        /// Number of pages, at least 1.
        pages: u32,
    },
    /// In chunks, which a tree of pages lists.
    Tree {
        /// The topmost page.
        root: Page,
        /// Levels of pages, 1 to 3.
        height: u32,
    },
    /// In a container, a file of a tier below the region.
    Container(Container),
}

/// An inode.
///
/// Bytes of the file that are mapped beyond its size have undefined contents: whatever grows the file zeroes
/// them first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Type and permissions; 0 in a null file.
    pub mode: u32,
    /// Number of names, or 2 and the number of subdirectories.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of contents.
    pub modified: Time,
    /// Time of the last change of the inode.
    pub changed: Time,
    /// Time of the last read, by the rules of `relatime`.
    pub accessed: Time,
    /// Time of creation.
    pub created: Time,
    /// Number that differs for each file that used the inode.
    pub generation: u32,
    /// Device number of a special file.
    pub device: u32,
    /// Where the bytes are.
    pub form: Form,
    /// Pages that are allocated to it: data, tree, overflow pages of a directory, attributes.
    pub pages: u64,
    /// Pages of extended attributes; `None` if there are none.
    pub attributes: Option<(Page, u32)>,
    /// Next inode in the list of orphans or null files.
    pub next: Option<Ino>,
    /// Previous inode in the list of orphans.
    pub previous: Option<Ino>,
    /// The directory that it is in. Of a file, a hint: the one in which it last got a name; 0 if unknown.
    pub parent: Ino,
    /// Directory: number of buckets.
    pub buckets: u32,
    /// Directory: number of entries.
    pub entries: u64,
    /// The file's data stays in the region.
    pub is_pinned: bool,
    /// The kernel may change the file's container without the server: its length and times are the file's.
    /// Without a container this says nothing, and is not stored.
    pub is_passthrough: bool,
}

impl Inode {
    /// Returns an inode without any data.
    pub const fn new(mode: u32, uid: u32, gid: u32, now: Time, generation: u32) -> Self {
        Self {
            mode,
            links: 1,
            uid,
            gid,
            size: 0,
            modified: now,
            changed: now,
            accessed: now,
            created: now,
            generation,
            device: 0,
            form: Form::Empty,
            pages: 0,
            attributes: None,
            next: None,
            previous: None,
            parent: Ino(0),
            buckets: 0,
            entries: 0,
            is_pinned: false,
            is_passthrough: false,
        }
    }

    /// Returns the type; `None` in a null file.
    pub const fn kind(&self) -> Option<Kind> {
        Kind::of_mode(self.mode)
    }

    /// Returns whether it is a directory.
    pub const fn is_directory(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }

    /// Subtracts pages that were freed.
    ///
    /// # Errors
    /// Returns `Damaged` if it had fewer.
    pub(crate) fn forget_pages(&mut self, count: u64) -> Result<(), Error> {
        let wrong =
            || Error::Damaged(format!("an inode says that it has {} pages, but has more", self.pages));
        self.pages = self.pages.checked_sub(count).ok_or_else(wrong)?;
        Ok(())
    }

    /// Returns the first field that cannot be right, as a part of a sentence; `None` in a sound inode.
    pub fn problem(&self, geometry: &Geometry) -> Option<String> {
        if let Some(problem) = self.space_problem(geometry) {
            return Some(problem);
        }
        let kind = self.kind();
        let times = [self.modified, self.changed, self.accessed, self.created];
        let is_wrong_target = kind == Some(Kind::Symlink) && !(1..=TARGET_BYTES_MAX).contains(&self.size);
        let table = u64::from(self.buckets) * PAGE_BYTES;
        match kind {
            _ if self.mode == 0 => None,
            None => Some(format!("an unknown type (mode {:o})", self.mode)),
            _ if self.mode & !MODE_BITS != 0 => Some(format!("an impossible mode of {:o}", self.mode)),
            _ if is_wrong_target || self.size > geometry.file_bytes_max() => {
                Some(format!("an impossible size of {} bytes", self.size))
            }
            Some(Kind::Directory) if self.size != table || self.buckets == 0 => {
                Some(format!("{} buckets in {} bytes", self.buckets, self.size))
            }
            Some(kind) if kind != Kind::Directory && self.buckets != 0 => {
                Some("buckets, but is no directory".to_owned())
            }
            Some(kind) if kind != Kind::File && matches!(self.form, Form::Container(_)) => {
                Some("a container, but is no file".to_owned())
            }
            _ if times.iter().any(|time| time.nanos >= NANOS) => {
                Some("a time with too many nanoseconds".to_owned())
            }
            Some(_) => None,
        }
    }

    /// Returns which of its space cannot exist.
    pub fn space_problem(&self, geometry: &Geometry) -> Option<String> {
        let run_max = (geometry.run_bytes_max() / PAGE_BYTES) as u32;
        let attributes_max = run_max.min((ATTRIBUTE_BYTES_MAX / PAGE_BYTES) as u32);
        let wrong_run = |(first, pages): (Page, u32), max: u32| {
            let is_wrong = pages > max || !geometry.is_run(first, pages);
            is_wrong.then(|| format!("page {} as the first of {pages}", first.0))
        };
        let data = match self.form {
            Form::Empty => None,
            Form::Run { first, pages } => wrong_run((first, pages), run_max),
            Form::Tree { height, .. } if !(1..=3).contains(&height) => {
                Some(format!("a tree of height {height}"))
            }
            Form::Tree { root, .. } => wrong_run((root, 1), 1),
            // Only the tier table says which tiers there are.
            Form::Container(Container { number, .. }) => {
                (number == 0).then(|| "a container without a number".to_owned())
            }
        };
        data.or_else(|| wrong_run(self.attributes?, attributes_max))
    }

    /// Returns the bytes that hold it.
    pub fn encode(&self) -> [u8; INODE_BYTES as usize] {
        let mut bytes = [0; INODE_BYTES as usize];
        let mut writer = Writer(&mut bytes);
        // The first line has what a write to the file changes.
        writer.u32(self.mode);
        writer.u32(self.links);
        writer.u32(self.uid);
        writer.u32(self.gid);
        writer.u64(self.size);
        for time in [self.modified, self.changed, self.accessed] {
            writer.u64(time.seconds.cast_unsigned());
            writer.u32(time.nanos);
        }
        writer.u32(self.generation);
        let (form, count, first) = match self.form {
            Form::Empty => (0, 0, 0),
            Form::Run { first, pages } => (1, pages, first.0),
            Form::Tree { root, height } => (2, height, root.0),
            Form::Container(Container { tier, number }) => (3, tier.0, number),
        };
        writer.u32(form);
        writer.u32(count);
        writer.u64(first);
        writer.u64(self.pages);
        writer.u64(self.created.seconds.cast_unsigned());
        writer.u32(self.created.nanos);
        writer.u32(self.device);
        let (attributes, attribute_pages) = self.attributes.unwrap_or((Page(0), 0));
        writer.u64(attributes.0);
        writer.u32(attribute_pages);
        writer.u32(self.buckets);
        writer.u64(self.entries);
        writer.u64(self.parent.0);
        writer.u64(self.next.map_or(0, |ino| ino.0));
        writer.u64(self.previous.map_or(0, |ino| ino.0));
        let is_passthrough = self.is_passthrough && matches!(self.form, Form::Container(_));
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        writer.u32(flag(self.is_pinned, PINNED) | flag(is_passthrough, PASSTHROUGH));
        bytes
    }

    /// Reads it; `None` if it has a form that this version does not know.
    pub fn decode(bytes: &[u8; INODE_BYTES as usize]) -> Option<Self> {
        let (inode, is_known) = Self::decode_lenient(bytes);
        is_known.then_some(inode)
    }

    /// Reads it, as one without data if it has an unknown form; also returns whether the form is known.
    pub fn decode_lenient(bytes: &[u8; INODE_BYTES as usize]) -> (Self, bool) {
        let mut reader = Reader(bytes);
        let (mode, links, uid, gid) = (reader.u32(), reader.u32(), reader.u32(), reader.u32());
        let size = reader.u64();
        let mut times = [Time::default(); 3];
        for time in &mut times {
            *time = Time { seconds: reader.u64().cast_signed(), nanos: reader.u32() };
        }
        let generation = reader.u32();
        let (form, count, first) = (reader.u32(), reader.u32(), reader.u64());
        let (form, is_known) = match form {
            0 => (Form::Empty, true),
            1 => (Form::Run { first: Page(first), pages: count }, true),
            2 => (Form::Tree { root: Page(first), height: count }, true),
            3 => (Form::Container(Container { tier: TierNumber(count), number: first }), true),
            _ => (Form::Empty, false),
        };
        let ino = |number| (number != 0).then_some(Ino(number));
        let mut inode = Self {
            mode,
            links,
            uid,
            gid,
            size,
            modified: times[0],
            changed: times[1],
            accessed: times[2],
            generation,
            form,
            pages: reader.u64(),
            created: Time { seconds: reader.u64().cast_signed(), nanos: reader.u32() },
            device: reader.u32(),
            attributes: {
                let (first, pages) = (Page(reader.u64()), reader.u32());
                (pages != 0).then_some((first, pages))
            },
            buckets: reader.u32(),
            entries: reader.u64(),
            parent: Ino(reader.u64()),
            next: ino(reader.u64()),
            previous: ino(reader.u64()),
            is_pinned: false,
            is_passthrough: false,
        };
        let flags = reader.u32();
        inode.is_pinned = flags & PINNED != 0;
        inode.is_passthrough = flags & PASSTHROUGH != 0 && matches!(form, Form::Container(_));
        (inode, is_known)
    }
}
