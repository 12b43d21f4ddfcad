//! Recovery of a device whose file is no longer where the next start looks for it.
//!
//! A file without any name is lost once it is closed; until then it can be copied through the process that
//! has it open. A file with another name is intact, but the next start does not find it; it can be given its
//! old name again while in use.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::Device;
use crate::file::Identity;

/// A device that has a name, but whose path no longer leads to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// True if the path leads to something else now.
    pub replaced: bool,
    /// Its current path, if the system knows it.
    pub found_at: Option<PathBuf>,
    /// The command that gives a file its old name again; `None` for block devices.
    pub restore_command: Option<String>,
}

impl Moved {
    /// Describes the problem of the device at this path and what to do.
    pub fn advice(&self, path: &Path) -> String {
        let there = match self.replaced {
            true => "something else is there now",
            false => "nothing is there now",
        };
        let place = self.found_at.as_ref().map_or(String::new(), |at| format!(", at {} now", at.display()));
        let put_back = match &self.restore_command {
            Some(command) => {
                format!("as the server's user, or root, put it back while it is served: {command} ; or ")
            }
            None => String::new(),
        };
        format!(
            "it was moved away from {}, where {there}; nothing is lost, and it is used on{place}, but the \
             next start does not find it: {put_back}name its new place in the pool file",
            path.display()
        )
    }
}

/// A device whose file has no name any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovedFile {
    /// Its former path.
    pub path: String,
    /// The path it can be copied from as long as it is open: `/proc/PID/fd/NUMBER`.
    pub open: String,
    /// True if the file was also truncated.
    pub is_truncated: bool,
}

/// Returns the command that saves the contents of all these devices. It is one command, because the server
/// would be stopped after the first of several. `None` if there are no such devices.
pub fn save_removed(removed: &[RemovedFile]) -> Option<String> {
    let pid = removed.first()?.open.split('/').nth(2)?;
    let mut folders: Vec<_> = removed.iter().filter_map(|file| Path::new(&file.path).parent()).collect();
    folders.dedup();
    let folders: String = folders.iter().map(|folder| format!(" {}", quoted(folder.as_os_str()))).collect();
    let copy = |file: &RemovedFile| {
        let (open, path) = (quoted(file.open.as_ref()), quoted(file.path.as_ref()));
        format!("cp -p --sparse=always {open} {path} && ")
    };
    let copies: String = removed.iter().map(copy).collect();
    let missing = match removed.iter().any(|file| file.is_truncated) {
        true => "what was cut off is missing",
        false => "nothing is missing",
    };
    Some(format!(
        "do not stop the server; as its user, or root, halt it, copy what it has open, and end it: \
         kill -STOP {pid} && mkdir -p{folders} && {copies}sync && kill -KILL {pid} ; then start it again \
         (first write the pool file anew if it was removed as well): {missing}. If a copy fails, the server is \
         not ended: copy to another place, and name that in the pool file"
    ))
}

/// Quotes a word for the shell, whatever its contents.
fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

impl Device {
    /// Returns the path of the open file for other processes of this system.
    fn open_path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// Returns the path from which the open file can be copied, if it was removed or replaced since it was
    /// opened. The path is valid as long as the file is open.
    pub fn removed_file(&self) -> Option<PathBuf> {
        self.expected.has_lost_name(&self.file).then(|| self.open_path())
    }

    /// Like [`Self::removed_file`], with the properties that saving it needs.
    pub fn removed(&self) -> Option<RemovedFile> {
        let open = self.removed_file()?.display().to_string();
        let is_cut = self.size_now().is_ok_and(|now| now < self.size());
        Some(RemovedFile { path: self.path.display().to_string(), open, is_truncated: is_cut })
    }

    /// Returns the problem if the device has a name, but its path leads to nothing or to something else.
    /// Errors that keep the system from telling, such as a folder without search permission, report no
    /// problem.
    pub fn moved(&self) -> Option<Moved> {
        let is_ours = |found: &Metadata| Identity::of(found) == self.identity();
        let replaced = match std::fs::metadata(&self.path) {
            Ok(found) if is_ours(&found) => return None,
            Ok(_) => true,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                false
            }
            Err(_) => return None,
        };
        let now = self.file.metadata().ok()?;
        if now.nlink() == 0 || !is_ours(&now) {
            return None;
        }
        let open = self.open_path();
        let found_at = std::fs::read_link(&open).ok();
        let found_at = found_at.filter(|at| std::fs::metadata(at).is_ok_and(|found| is_ours(&found)));
        let put_back = (!self.is_block()).then(|| restore_command(&open, &self.path, replaced));
        Some(Moved { replaced, found_at, restore_command: put_back })
    }
}

/// Returns the command that makes the path a name of the open file again. It moves aside the file that is
/// there now, without overwriting another.
fn restore_command(open: &Path, path: &Path, replaced: bool) -> String {
    let word = quoted(path.as_os_str());
    let place = match replaced {
        true => format!("mv -n {word} {}", quoted(format!("{}.other", path.display()).as_ref())),
        false => format!("mkdir -p {}", quoted(path.parent().unwrap_or(path).as_os_str())),
    };
    format!("{place} && ln -L {} {word}", quoted(open.as_os_str()))
}

#[cfg(test)]
mod tests;
