//! Restores files from containers alone, after the region was lost.

use super::files::{container_path, list, read_header};
use super::marker::Marker;
use super::{Header, TierNumber};
use crate::layout::Time;
use rustix::fs::{Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

/// Directory for files whose name is unknown.
const NAMELESS: &str = "lost+found";
/// Problems that an outcome lists at most.
const PROBLEMS_MAX: usize = 1000;

/// What was restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rescued {
    /// Files restored.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Files among them whose name is unknown; they are in `lost+found`.
    pub nameless: u64,
    /// Containers that could not be restored, or not with all that they had, at most 1000.
    pub problems: Vec<String>,
    /// Problems beyond those.
    pub more_problems: u64,
}

impl Rescued {
    fn problem(&mut self, text: String) {
        if self.problems.len() < PROBLEMS_MAX { self.problems.push(text) } else { self.more_problems += 1 }
    }
}

/// Returns the marker of a tier's directory.
///
/// # Errors
/// Returns the operating system's error; `InvalidData` if it has no marker.
pub fn marker(directory: &Path) -> io::Result<Marker> {
    Marker::read(directory)?.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Copies the files in the containers of a tier's directory to `target`, with names, permissions, owners and
/// times. Nothing that exists is replaced, and no symbolic link below `target` is followed. Directories are
/// made for their owner alone, as nothing says who could enter them.
///
/// # Errors
/// Returns the operating system's error if the containers cannot be listed. What concerns one of
/// them is told in the outcome.
pub fn rescue(directory: &Path, target: &Path, rescued: &mut Rescued) -> io::Result<()> {
    let TierNumber(tier) = marker(directory)?.number;
    for number in list(directory)? {
        let path = container_path(directory, number);
        let header = match read_header(directory, number) {
            Ok(Some(header)) => header,
            Ok(None) => {
                rescued
                    .problem(format!("{}: it has no header; its name and owner are unknown", path.display()));
                Header { mode: libc::S_IFREG | 0o600, ..Header::default() }
            }
            Err(error) => {
                rescued.problem(format!("{}: {error}", path.display()));
                continue;
            }
        };
        let name = match usable_path(&header.path) {
            Some(name) => name,
            None => {
                rescued.nameless += 1;
                Path::new(NAMELESS).join(format!("tier-{tier}-container-{number}"))
            }
        };
        match restore(&path, &header, target, &name, number) {
            Ok((size, warning)) => {
                rescued.files += 1;
                rescued.bytes += size;
                warning.into_iter().for_each(|text| rescued.problem(text));
            }
            Err(error) => rescued.problem(format!("{}, {}: {error}", path.display(), name.display())),
        }
    }
    Ok(())
}

/// Returns a path below the target; `None` if it would lead elsewhere.
fn usable_path(path: &[u8]) -> Option<PathBuf> {
    let path = Path::new(OsStr::from_bytes(path));
    let is_usable = path.components().all(|part| matches!(part, Component::Normal(_)));
    (is_usable && path.components().next().is_some()).then(|| path.to_owned())
}

/// Restores a file; returns its size, and what could not be set.
fn restore(
    from: &Path,
    header: &Header,
    target: &Path,
    name: &Path,
    number: u64,
) -> io::Result<(u64, Option<String>)> {
    let mut path = target.join(name);
    let parent = directory(target, name.parent())?;
    let file_name = name.file_name().unwrap_or_default().to_owned();
    let mut warning = None;
    let to = match create(&parent, &file_name) {
        Err(Errno::EXIST) => {
            let mut other = file_name;
            other.push(format!(".container-{number}"));
            let existing = std::mem::replace(&mut path, target.join(name).with_file_name(&other));
            warning = Some(format!("{} exists; restored as {}", existing.display(), path.display()));
            create(&parent, &other)?
        }
        to => to?,
    };
    let mut source = File::open(from)?;
    let found = source.metadata()?;
    let (len, known) = (found.len(), header.size.unwrap_or(found.len()));
    let size = known.max(len);
    // `io::copy` keeps no holes, but asks the kernel to share what it can.
    io::copy(&mut source, &mut &to)?;
    to.set_len(size)?;
    if len < known {
        warning = Some(format!("{}: only {len} of {known} bytes are there", path.display()));
    } else if len > known {
        // A crash came between a change of the size and its note, and nothing says which is newer.
        warning = Some(format!("{}: all {len} bytes restored; its header says {known}", path.display()));
    }
    // The owner comes first: a change of it takes set-user-id bits away.
    if std::os::unix::fs::fchown(&to, Some(header.uid), Some(header.gid)).is_err() {
        warning = Some(format!("{}: its owner {}:{} needs root", path.display(), header.uid, header.gid));
    }
    to.set_permissions(Permissions::from_mode(header.mode & 0o7777))?;
    let time = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() };
    let written = Time { seconds: found.mtime(), nanos: found.mtime_nsec() as u32 };
    let modified = if header.size.is_some() { header.modified } else { written };
    let times = Timestamps { last_access: time(header.accessed), last_modification: time(modified) };
    rustix::fs::futimens(&to, &times)?;
    to.sync_all()?;
    Ok((size, warning))
}

/// Opens a directory below the target, which is made if it does not exist.
fn directory(target: &Path, name: Option<&Path>) -> rustix::io::Result<OwnedFd> {
    const FLAGS: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
    let mut directory = rustix::fs::open(target, FLAGS, Mode::empty())?;
    for part in name.into_iter().flatten() {
        match rustix::fs::mkdirat(&directory, part, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        directory = rustix::fs::openat(&directory, part, FLAGS | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(directory)
}

/// Creates a file in a directory.
fn create(directory: &OwnedFd, name: &OsStr) -> rustix::io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

/// Returns the regions to which these directories belong.
pub fn regions(markers: &[Marker]) -> BTreeSet<[u8; 16]> {
    markers.iter().map(|marker| marker.region).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiers::{Class, Container, ContainerFiles, Containers as _, Tier};

    #[test]
    fn paths_that_lead_out_of_the_target_are_not_used() {
        assert_eq!(usable_path(b"a/b"), Some(PathBuf::from("a/b")));
        for path in [&b""[..], b"/etc/passwd", b"../x", b"a/../../x", b"."] {
            assert_eq!(usable_path(path), None, "{path:?}");
        }
    }

    /// A change of the owner takes the set-user-id bit away. What is beyond the noted size may be what a
    /// crash has kept from being noted. Directories are private, and links in them lead nowhere.
    #[test]
    fn a_file_gets_all_bytes_and_permissions_in_a_private_directory() {
        let (folder, target) = (tempfile::tempdir(), tempfile::tempdir());
        let (folder, target) = (folder.expect("a directory"), target.expect("a directory"));
        let tiers = [Tier::new(Class::Disk, folder.path().to_owned(), [7; 16])];
        ContainerFiles::create(&tiers, [1; 16]).expect("an empty directory");
        let containers = ContainerFiles::open(&tiers, [1; 16], true, |_| false).expect("it is prepared");
        let container = Container { tier: TierNumber(0), number: 1 };
        containers.create(container).expect("created");
        containers.write(container, 0, b"contents, and an old end").expect("written");
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let (mode, path) = (libc::S_IFREG | 0o4751, b"of/a/program".to_vec());
        let header = Header { mode, uid, gid, size: Some(8), path, ..Header::default() };
        containers.set_header(container, &header).expect("set");
        let mut rescued = Rescued::default();
        rescue(folder.path(), target.path(), &mut rescued).expect("a tier");
        assert_eq!((rescued.files, rescued.bytes), (1, 24));
        let path = target.path().join("of/a/program");
        let text = "all 24 bytes restored; its header says 8";
        assert_eq!(rescued.problems, [format!("{}: {text}", path.display())]);
        assert_eq!(std::fs::read(&path).expect("restored"), b"contents, and an old end");
        let mode = |path: &Path| path.metadata().expect("restored").mode() & 0o7777;
        assert_eq!((mode(&path), mode(&target.path().join("of/a"))), (0o4751, 0o700));

        let (target, elsewhere) = (tempfile::tempdir(), tempfile::tempdir());
        let (target, elsewhere) = (target.expect("a directory"), elsewhere.expect("a directory"));
        std::os::unix::fs::symlink(elsewhere.path(), target.path().join("of")).expect("a link");
        let mut rescued = Rescued::default();
        rescue(folder.path(), target.path(), &mut rescued).expect("a tier");
        assert_eq!((rescued.files, rescued.problems.len()), (0, 1), "{:?}", rescued.problems);
        assert_eq!(elsewhere.path().read_dir().expect("a directory").count(), 0);
    }
}
