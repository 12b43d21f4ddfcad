//! Copies the pool that `--keep` leaves.

use crate::failure::Failure;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// Name of the folder.
const FOLDER_NAME: &str = "weir-demo";
/// Number of bytes copied at once. Chunks of zeros become holes.
const CHUNK: usize = 1 << 20;

/// Returns the absolute path of the folder for the kept pool, in `parent` or in the current folder.
///
/// # Errors
/// Fails if the folder exists already.
pub(super) fn folder(parent: Option<&Path>) -> Result<PathBuf, Failure> {
    let parent = std::path::absolute(parent.unwrap_or(Path::new(".")));
    let folder = parent.map_err(|error| Failure::os("find", Path::new("."), &error))?.join(FOLDER_NAME);
    match std::fs::symlink_metadata(&folder) {
        Ok(_) => Err(Failure::usage(
            format!("--keep: {} exists already", folder.display()),
            format!("remove it (rm -r {}), or name another folder with --scratch DIR", folder.display()),
        )),
        Err(_) => Ok(folder),
    }
}

/// Copies the pool file and the devices of a pool that is not served. Removes the copies if it fails.
///
/// # Errors
/// Fails if there is not enough space, or if a file cannot be read.
pub(super) fn keep(from: &Path, to: &Path) -> Result<PathBuf, Failure> {
    std::fs::create_dir(to).map_err(|error| Failure::os("create", to, &error))?;
    let copied = copy_all(from, to);
    if copied.is_err() {
        let _ = std::fs::remove_dir_all(to);
    }
    copied.map(|()| to.join("pool.toml"))
}

fn copy_all(from: &Path, to: &Path) -> Result<(), Failure> {
    let entries = std::fs::read_dir(from).map_err(|error| Failure::os("read", from, &error))?;
    for entry in entries {
        let path = entry.map_err(|error| Failure::os("read", from, &error))?.path();
        let is_kept = path.extension().is_some_and(|ending| ending == "img" || ending == "toml");
        if let Some(name) = path.file_name().filter(|_| is_kept) {
            let to = to.join(name);
            copy(&path, &to).map_err(|error| Failure::os("write", &to, &error))?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    let (mut from, mut to) = (File::open(from)?, File::create_new(to)?);
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = from.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        if chunk[..read].iter().all(|byte| *byte == 0) {
            to.seek(SeekFrom::Current(read as i64))?;
        } else {
            to.write_all(&chunk[..read])?;
        }
    }
    to.set_len(from.metadata()?.len())?;
    to.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_pool_file_are_kept_and_nothing_else() {
        let parent = tempfile::tempdir().expect("a folder");
        let from = parent.path().join("from");
        std::fs::create_dir(&from).expect("made");
        let data = [vec![7; CHUNK], vec![0; 2 * CHUNK], b"end".to_vec(), vec![0; 9]].concat();
        std::fs::write(from.join("disk.img"), &data).expect("written");
        std::fs::write(from.join("pool.toml"), "text").expect("written");
        std::fs::write(from.join("server.log"), "text").expect("written");
        let to = folder(Some(parent.path())).expect("free");
        assert_eq!(keep(&from, &to).expect("kept"), to.join("pool.toml"));
        assert!(std::fs::read(to.join("disk.img")).expect("there") == data);
        assert!(!to.join("server.log").exists());
        let refused = folder(Some(parent.path())).expect_err("it exists");
        assert!(
            refused.message.contains("exists already") && refused.help.contains("--scratch DIR"),
            "{refused:?}"
        );
    }
}
