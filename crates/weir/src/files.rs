//! Output files of commands, which never overwrite other data unless the user asks for it.

use crate::failure::Failure;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The content of an output file that a command may replace or, for results, append to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// A picture: SVG or PNG.
    Picture,
    /// An HTML page.
    Page,
    /// Results of reproductions, a JSON document a line.
    Results,
}

/// Refuses to create a file in a folder that the kernel manages, such as `/dev`.
///
/// # Errors
/// Fails if the file does not exist and its folder is such a folder.
pub fn refuse_kernel_folder(path: &Path) -> Result<(), Failure> {
    let folder = weir_device::kernel_folder(path).map_err(|error| Failure::os("write", path, &error))?;
    match folder {
        Some(folder) if !path.exists() => Err(Failure::usage(
            format!("{} does not exist, and no file is made in {}", path.display(), folder.display()),
            "what is there describes this machine and is kept in memory; name a file elsewhere",
        )),
        _ => Ok(()),
    }
}

/// Creates the part of a file, which gets the file's name once it is complete, so that nobody takes a part
/// for a whole. Its name is unique to this process: no existing file is written to. `mode` is the file's
/// mode, less what the umask takes.
///
/// # Errors
/// Fails if the part cannot be created.
pub fn create_part(path: &Path, mode: u32) -> Result<(PathBuf, File), Failure> {
    let mut part = OsString::from(path);
    part.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(part);
    let file = File::options().write(true).create_new(true).mode(mode).open(&part);
    let file = file.map_err(|error| Failure::os("create", &part, &error))?;
    Ok((part, file))
}

/// Refuses a new file in a folder that does not exist.
fn refuse_missing_folder(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match std::fs::metadata(folder) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::os("create a file in", folder, &error)),
    }
}

/// Refuses to replace a file, unless it is empty or holds output of the same kind.
///
/// # Errors
/// Fails if the file holds anything else, is a block device or a folder, or cannot be read.
pub fn refuse_foreign_content(path: &Path, kind: OutputKind) -> Result<(), Failure> {
    refuse_kernel_folder(path)?;
    let found = match std::fs::metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return refuse_missing_folder(path),
        Err(error) => return Err(Failure::os("write", path, &error)),
    };
    // A terminal, a pipe or /dev/null has no data to lose.
    if found.is_char_device() || found.is_fifo() {
        return Ok(());
    }
    if !found.is_file() {
        let message = format!("{} is not a regular file", path.display());
        return Err(Failure::refused(message, "name another file to write"));
    }
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(1 << 10).read_to_end(&mut start));
    read.map_err(|error| Failure::os("read", path, &error))?;
    if start.is_empty() || kind.matches_start(&start) {
        return Ok(());
    }
    let what = match kind {
        OutputKind::Picture => "picture",
        OutputKind::Page => "page of HTML",
        OutputKind::Results => "file of results",
    };
    Err(Failure::refused(
        format!("{} exists and is no {what}", path.display()),
        "name another file, or remove this one",
    ))
}

/// Writes an output file of this kind and replaces a previous one.
///
/// # Errors
/// Fails as [`refuse_foreign_content`] does, or if the file cannot be written; in that case the file is
/// removed.
pub fn replace(path: &Path, kind: OutputKind, bytes: &[u8]) -> Result<(), Failure> {
    refuse_foreign_content(path, kind)?;
    let mut file = File::create(path).map_err(|error| Failure::os("write", path, &error))?;
    file.write_all(bytes).map_err(|error| {
        // A truncated picture looks like a whole one. Only a regular file is removed.
        if file.metadata().is_ok_and(|found| found.is_file()) {
            let _ = std::fs::remove_file(path);
        }
        Failure::os("write", path, &error)
    })
}

impl OutputKind {
    /// Returns whether a file that starts with these bytes is of this kind.
    fn matches_start(self, start: &[u8]) -> bool {
        let text = String::from_utf8_lossy(start).to_ascii_lowercase();
        let text = text.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
        match self {
            Self::Picture => {
                start.starts_with(b"\x89PNG")
                    || text.starts_with("<svg")
                    || (text.starts_with("<?xml") || text.starts_with("<!--")) && text.contains("<svg")
            }
            Self::Page => text.starts_with("<!doctype html") || text.starts_with("<html"),
            Self::Results => text.starts_with("{\"program\":"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::ErrorKind;

    #[test]
    fn only_regenerable_files_are_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let written = |before: &[u8], kind| {
            std::fs::write(&path, before).expect("written");
            let result = replace(&path, kind, b"new");
            assert_eq!(std::fs::read(&path).expect("read") == b"new", result.is_ok(), "all or nothing");
            result.map_err(|failure| failure.kind)
        };
        let pictures: [&[u8]; 4] = [b"", b"\x89PNG\r\n", b"<svg width=", b"<?xml version=\"1.0\"?>\n<svg"];
        assert!(pictures.into_iter().all(|picture| written(picture, OutputKind::Picture).is_ok()));
        assert!(written(b"<!DOCTYPE html>", OutputKind::Page).is_ok());
        let others: [&[u8]; 4] = [b"[pool]", b"<?xml?><plist>", b"<!doctype html>", &[0; 4096]];
        for other in others {
            assert_eq!(written(other, OutputKind::Picture), Err(ErrorKind::Refused));
        }
        assert_eq!(written(b"<svg", OutputKind::Page), Err(ErrorKind::Refused));
        assert_eq!(
            refuse_foreign_content(folder.path(), OutputKind::Page).map_err(|it| it.kind),
            Err(ErrorKind::Refused)
        );
        assert!(refuse_foreign_content(Path::new("/dev/null"), OutputKind::Page).is_ok());
        assert_eq!(
            refuse_foreign_content(Path::new("/dev/no"), OutputKind::Page).map_err(|it| it.kind),
            Err(ErrorKind::Usage)
        );
    }
}
