//! What `weir fs status` and `weir fs explain` show, as the server of a mount tells it.
//!
//! A mount answers for extended attributes that no file has: [`STATUS`] of any file, [`EXPLAIN`], and pages
//! of a [`Quota`].

mod quota;

pub use quota::{LimitChange, LimitsPart, NewLimit, Quota, QuotaOwner, QuotaPage};

use crate::error::{Error, Result};
use crate::layout::inode::{Form, Kind};
use crate::layout::{Ino, PAGE_BYTES, superblock};
use crate::namespace::{BlockReason, Blocked, Durability, FileSystem, Located, TierContents};
use crate::nvm::Memory;
use crate::tiers::{Class, Container, Role, TierNumber, TierState, container_path};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Name of the attribute whose value is a [`Status`], in JSON.
pub const STATUS: &str = "weir.status";
/// Name of the attribute whose value is an [`Explanation`] of the file, in JSON.
pub const EXPLAIN: &str = "weir.explain";
/// Longest value of these attributes, in bytes: the kernel's limit.
pub const BYTES_MAX: usize = 64 << 10;
/// Ranges that an explanation lists; with more, it would not fit into an attribute.
const RANGES_MAX: usize = 300;

/// State of a file system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "weir fs status")]
pub struct Status {
    /// Path of the region.
    pub region: String,
    /// The random UUID that it got when it was created, in hexadecimal.
    pub id: String,
    /// Version of the region's format.
    pub format_version: u32,
    /// The mount; `null` if it is not mounted.
    pub mount: Option<Mount>,
    /// `each_operation`: what changes names and inodes is durable when it returns, data after `fsync`;
    /// `sync`: everything is durable after an `fsync` of any file, and after the mount's interval.
    #[schemars(extend("enum" = ["each_operation", "sync"]))]
    pub durability: String,
    /// Size of the region.
    pub region_bytes: u64,
    /// Size of its chunks.
    pub chunk_bytes: u64,
    /// Space for files and their metadata.
    pub usable_bytes: u64,
    /// Space in use.
    pub used_bytes: u64,
    /// Space that is free, or becomes free with the next commit.
    pub free_bytes: u64,
    /// Files, directories included.
    pub files: u64,
    /// Files that could be created if they took all free space.
    pub files_free: u64,
    /// Removed files whose space the next new files take over.
    pub null_files: u64,
    /// Space of these.
    pub null_file_bytes: u64,
    /// How often the least worn chunk was allocated.
    pub wear_least: u32,
    /// How often the most worn chunk was allocated.
    pub wear_most: u32,
    /// The tiers below the region.
    pub tiers: Vec<TierPart>,
    /// Files whose data was lost with a tier (`weir fs remove-tier --lost`).
    pub lost_files: u64,
    /// Files that are pinned to the region (`weir fs pin`).
    pub pinned_files: u64,
    /// The sizes of these files together.
    pub pinned_bytes: u64,
    /// Limits of users and groups; `null` if there are none.
    pub limits: Option<LimitsPart>,
}

/// A tier below the region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Tier")]
pub struct TierPart {
    /// Number of the tier.
    pub tier: u32,
    /// `flash` or `disk`.
    #[schemars(extend("enum" = ["flash", "disk"]))]
    pub class: String,
    /// Its directory.
    pub path: String,
    /// `ready`; `read_only`: its file system is read-only, so nothing is evicted to it; `gone`: its directory
    /// is not there, or is another one, and its files cannot be read.
    #[schemars(extend("enum" = ["ready", "read_only", "gone"]))]
    pub state: String,
    /// Why it is gone.
    pub problem: Option<String>,
    /// It is being removed: it takes no files, and its own move elsewhere.
    pub leaving: bool,
    /// What its files wait for while it is leaving and mounted; `null` if nothing keeps them.
    pub blocked: Option<BlockedPart>,
    /// Files in it.
    pub files: u64,
    /// Their size.
    pub used_bytes: u64,
    /// Size of the file system that it is on; `null` if it is gone.
    pub total_bytes: Option<u64>,
    /// Space that is free there; `null` if it is gone.
    pub free_bytes: Option<u64>,
}

/// What keeps files in a tier that is leaving.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Blocked")]
pub struct BlockedPart {
    /// `in_use`: programs have them open past the server (passthrough), or mapped; `changing`: programs
    /// change them all the time; `no_space`: other tiers and the region have no space for them;
    /// `unreadable`: their containers cannot be read.
    #[schemars(extend("enum" = ["in_use", "changing", "no_space", "unreadable"]))]
    pub reason: String,
    /// Files that stay for this reason.
    pub files: u64,
    /// Path of one of them in the mount; empty if it is unknown, or if the file has no name any more.
    pub path: String,
    /// Number of its inode.
    pub inode: u64,
}

impl BlockedPart {
    fn of<M: Memory>(fs: &FileSystem<M>, Blocked { reason, files, ino }: Blocked) -> Self {
        let reason = match reason {
            BlockReason::InUse => "in_use",
            BlockReason::Changing => "changing",
            BlockReason::NoSpace => "no_space",
            BlockReason::Unreadable => "unreadable",
        };
        let path = fs.header(ino).unwrap_or_default().path;
        let path = String::from_utf8_lossy(&path).into_owned();
        Self { reason: reason.to_owned(), files, path, inode: ino.0 }
    }
}

/// What `weir fs evict`, `promote`, `pin` and `unpin` ask of the server, by setting an attribute of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Move the file to a tier.
    Evict,
    /// Move the file to the region.
    Promote,
    /// Keep the file in the region.
    Pin,
    /// Let the file be evicted again.
    Unpin,
}

impl Command {
    const ALL: [Self; 4] = [Self::Evict, Self::Promote, Self::Pin, Self::Unpin];

    /// Returns the name of the attribute.
    pub const fn attribute(self) -> &'static str {
        match self {
            Self::Evict => "weir.evict",
            Self::Promote => "weir.promote",
            Self::Pin => "weir.pin",
            Self::Unpin => "weir.unpin",
        }
    }

    /// Returns the name of the command.
    pub fn verb(self) -> &'static str {
        self.attribute().trim_start_matches("weir.")
    }

    /// Returns the command of an attribute.
    pub fn of_attribute(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|command| command.attribute().as_bytes() == name)
    }
}

/// What `weir fs add-tier` and `remove-tier` ask of the server, by setting an attribute of any file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierCommand {
    /// Add the tier in this directory, or keep it if it is leaving.
    Add {
        /// What it is made of.
        class: Class,
        /// The directory, without links.
        path: PathBuf,
    },
    /// Begin to remove the tier in this directory.
    Remove {
        /// The directory, as the status shows it.
        path: PathBuf,
    },
}

impl TierCommand {
    const ADD: &'static str = "weir.add-tier";
    const REMOVE: &'static str = "weir.remove-tier";

    /// Returns the name of the attribute, and its value.
    pub fn attribute(&self) -> (&'static str, Vec<u8>) {
        match self {
            Self::Add { class, path } => {
                (Self::ADD, [class.name().as_bytes(), b" ", path.as_os_str().as_bytes()].concat())
            }
            Self::Remove { path } => (Self::REMOVE, path.as_os_str().as_bytes().to_vec()),
        }
    }

    /// Returns the command of an attribute; `None` if it has another name.
    ///
    /// # Errors
    /// `Invalid` if the value is none of a command.
    pub fn of_attribute(name: &[u8], value: &[u8]) -> Option<Result<Self>> {
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        if name == Self::REMOVE.as_bytes() {
            return Some(Ok(Self::Remove { path: path(value) }));
        }
        let add = |class: Class| {
            let rest = value.strip_prefix(class.name().as_bytes())?.strip_prefix(b" ")?;
            Some(Self::Add { class, path: path(rest) })
        };
        let is_add = name == Self::ADD.as_bytes();
        is_add.then(|| [Class::Flash, Class::Disk].into_iter().find_map(add).ok_or(Error::Invalid))
    }
}

/// Returns the tiers of a file system with these contents.
fn tiers<M: Memory>(fs: &FileSystem<M>, contents: &TierContents) -> Vec<TierPart> {
    let containers = fs.containers();
    let part = |(number, (tier, &(files, used_bytes))): (u32, (&crate::tiers::Tier, &(u64, u64)))| {
        let state = containers.state(TierNumber(number));
        let space =
            containers.space(TierNumber(number)).ok().filter(|_| !matches!(state, TierState::Gone(_)));
        let (state, problem) = match state {
            TierState::Ready => ("ready", None),
            TierState::ReadOnly => ("read_only", None),
            TierState::Gone(problem) => ("gone", Some(problem)),
        };
        TierPart {
            tier: number,
            class: tier.class.name().to_owned(),
            path: tier.path.display().to_string(),
            state: state.to_owned(),
            problem,
            leaving: tier.role == Role::Leaving,
            blocked: fs.blocked(TierNumber(number)).map(|blocked| BlockedPart::of(fs, blocked)),
            files,
            used_bytes,
            total_bytes: space.map(|space| space.total_bytes),
            free_bytes: space.map(|space| space.free_bytes),
        }
    };
    let all = (0..).zip(fs.tiers().iter().zip(&contents.tiers));
    all.filter(|(_, (tier, _))| !tier.is_removed()).map(part).collect()
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mount {
    /// Directory that it is mounted at.
    pub directory: String,
    /// Process that serves it.
    pub pid: u32,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Groups of changes made durable since it was mounted.
    pub commits: u64,
    /// A flush of the region failed: nothing can be changed any more, and the last changes may be lost.
    pub failed: bool,
    /// The kernel reads and writes files in containers without the server (passthrough), where it can.
    pub passthrough: bool,
    /// Files that it accesses so now.
    pub passthrough_files: u64,
    /// Why it does not, or not for all of them; `null` if it does, or if there are no tiers.
    pub passthrough_problem: Option<String>,
    /// The weight of accesses per byte beside recency when files leave the region, in bytes.
    pub omega: f64,
}

impl Status {
    /// Returns the state of a file system whose region has this path. `durability` is that of the mount, or
    /// of the next one.
    pub fn of<M: Memory>(
        fs: &FileSystem<M>,
        region: &Path,
        durability: Durability,
        mount: Option<Mount>,
    ) -> Self {
        let superblock = fs.superblock();
        let contents = fs.tier_contents();
        let directory = mount.as_ref().map(|mount| Path::new(&mount.directory));
        let limits = LimitsPart::of(fs, directory);
        let (usage, roots, (wear_least, wear_most)) = (fs.usage(), fs.roots(), fs.wear());
        Self {
            region: region.display().to_string(),
            id: superblock.uuid.iter().map(|byte| format!("{byte:02x}")).collect(),
            format_version: superblock::VERSION,
            mount,
            durability: match durability {
                Durability::EachOperation => "each_operation",
                Durability::Sync => "sync",
            }
            .to_owned(),
            region_bytes: superblock.geometry.size,
            chunk_bytes: superblock.geometry.chunk_bytes,
            usable_bytes: usage.pages * usage.page_bytes,
            used_bytes: (usage.pages - usage.free_pages) * usage.page_bytes,
            free_bytes: usage.free_pages * usage.page_bytes,
            files: usage.inodes,
            files_free: usage.free_inodes,
            null_files: roots.null_count.into(),
            null_file_bytes: roots.null_pages * PAGE_BYTES,
            wear_least,
            wear_most,
            tiers: tiers(fs, &contents),
            lost_files: contents.lost,
            pinned_files: contents.pinned,
            pinned_bytes: contents.pinned_bytes,
            limits,
        }
    }
}

/// Where the bytes of a file are, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "weir fs explain")]
pub struct Explanation {
    /// Number of the inode.
    pub inode: u64,
    /// Type: `file`, `directory`, `symlink`, `fifo`, `socket`, `char_device` or `block_device`.
    #[schemars(extend("enum" = [
        "file", "directory", "symlink", "fifo", "socket", "char_device", "block_device"
    ]))]
    pub kind: String,
    /// Size.
    pub size_bytes: u64,
    /// Space allocated to it, metadata included.
    pub allocated_bytes: u64,
    /// `empty`: it has no space; `run`: consecutive pages in one chunk; `chunks`: chunks of its own;
    /// `container`: a file of a tier; `lost`: its data was lost with its tier.
    #[schemars(extend("enum" = ["empty", "run", "chunks", "container", "lost"]))]
    pub form: String,
    /// Why it has this form.
    pub reason: String,
    /// The container that it is in; `null` if it is in the region.
    pub container: Option<ContainerPart>,
    /// It is not evicted.
    pub pinned: bool,
    /// Where its bytes are in the region, by offset; what lies between is a hole. At most 300.
    pub ranges: Vec<RangePart>,
    /// Ranges beyond those in `ranges`.
    pub more_ranges: u64,
}

/// The container of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Container")]
pub struct ContainerPart {
    /// Number of the tier.
    pub tier: u32,
    /// `flash` or `disk`.
    #[schemars(extend("enum" = ["flash", "disk"]))]
    pub class: String,
    /// Number of the container in the tier.
    pub number: u64,
    /// Path of the container file.
    pub path: String,
}

fn container<M: Memory>(fs: &FileSystem<M>, form: Form) -> Option<ContainerPart> {
    let Form::Container(Container { tier, number }) = form else { return None };
    let found = fs.tiers().get(tier.0 as usize)?;
    Some(ContainerPart {
        tier: tier.0,
        class: found.class.name().to_owned(),
        number,
        path: container_path(&found.path, number).display().to_string(),
    })
}

/// Consecutive bytes of a file that are consecutive in the region, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Range")]
pub struct RangePart {
    /// Offset in the file.
    pub offset_bytes: u64,
    /// Number of bytes allocated; may reach beyond the file's size.
    pub length_bytes: u64,
    /// Offset in the region.
    pub region_offset_bytes: u64,
    /// Allocated, but not written yet: it reads as zeros.
    pub unwritten: bool,
    /// How often the most worn of its chunks was allocated.
    pub wear: u32,
}

impl From<Located> for RangePart {
    fn from(range: Located) -> Self {
        Self {
            offset_bytes: range.offset,
            length_bytes: range.len,
            region_offset_bytes: range.at,
            unwritten: range.is_unwritten,
            wear: range.wear,
        }
    }
}

impl Explanation {
    /// Returns where a file is, and why.
    ///
    /// # Errors
    /// As [`FileSystem::locate`].
    pub fn of<M: Memory>(fs: &FileSystem<M>, ino: Ino) -> Result<Self> {
        let location = fs.locate(ino, RANGES_MAX)?;
        let inode = &location.inode;
        let largest = fs.superblock().geometry.run_bytes_max();
        let (form, reason) = match inode.form {
            Form::Empty => ("empty", "nothing was written to it, or all of it is a hole".to_owned()),
            Form::Run { .. } => (
                "run",
                format!(
                    "files with data in their first {largest} bytes alone have consecutive pages in one chunk"
                ),
            ),
            Form::Container(container) if container.is_lost() => {
                ("lost", "its tier was removed without it; restore it from a backup, or remove it".to_owned())
            }
            Form::Container(_) if inode.size > fs.region_share() => {
                ("container", format!("files of more than {} bytes leave the region", fs.region_share()))
            }
            Form::Container(_) => (
                "container",
                "it was evicted: others were hotter when the region was nearly full, or on request"
                    .to_owned(),
            ),
            Form::Tree { .. } => {
                ("chunks", format!("files that had more than {largest} bytes have chunks of their own"))
            }
        };
        let kind = match inode.kind() {
            Some(Kind::Directory) => "directory",
            Some(Kind::Symlink) => "symlink",
            Some(Kind::Fifo) => "fifo",
            Some(Kind::Socket) => "socket",
            Some(Kind::CharDevice) => "char_device",
            Some(Kind::BlockDevice) => "block_device",
            Some(Kind::File) | None => "file",
        };
        Ok(Self {
            inode: ino.0,
            kind: kind.to_owned(),
            size_bytes: inode.size,
            allocated_bytes: inode.pages * PAGE_BYTES,
            form: form.to_owned(),
            reason,
            container: container(fs, inode.form),
            pinned: inode.is_pinned,
            more_ranges: location.more_ranges,
            ranges: location.ranges.into_iter().map(RangePart::from).collect(),
        })
    }
}

#[cfg(test)]
mod tests;
