//! What users other than root need to mount: `fusermount3`, a directory of their own, and root's leave to
//! share it.

use crate::failure::Failure;
use rustix::fs::{Access, access};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The program that mounts for users other than root.
const HELPER: &str = "fusermount3";
/// Root's settings for it.
const SETTINGS: &str = "/etc/fuse.conf";

/// Rejects a mount that `fusermount3` would reject, and says why.
///
/// # Errors Fails if the program is missing or not set-user-id, if this user may not mount at the directory,
/// or not share the mount.
pub(super) fn check(directory: &Path, allow_other: bool) -> Result<(), Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let helper = find(std::env::split_paths(&path))?;
    check_helper(&helper)?;
    check_directory(directory)?;
    if allow_other { check_settings(std::fs::read_to_string(SETTINGS).ok().as_deref()) } else { Ok(()) }
}

fn find(mut folders: impl Iterator<Item = PathBuf>) -> Result<PathBuf, Failure> {
    let found = folders.find_map(|folder| Some(folder.join(HELPER)).filter(|path| path.is_file()));
    found.ok_or_else(|| {
        Failure::environment(
            format!("{HELPER} is not installed, and users other than root need it to mount"),
            "install the Debian package fuse3, or mount as root",
        )
    })
}

fn check_helper(helper: &Path) -> Result<(), Failure> {
    const SET_USER_ID: u32 = 0o4000;
    let status = helper.metadata().map_err(|error| Failure::os("inspect", helper, &error))?;
    if status.uid() == 0 && status.permissions().mode() & SET_USER_ID != 0 {
        return Ok(());
    }
    let helper = helper.display();
    Err(Failure::environment(
        format!("{helper} is not set-user-id root, so it cannot mount for other users"),
        format!("as root: chown root {helper} && chmod u+s {helper}, or mount as root"),
    ))
}

fn check_directory(directory: &Path) -> Result<(), Failure> {
    const STICKY: u32 = 0o1000;
    let status = directory.metadata().map_err(|error| Failure::os("inspect", directory, &error))?;
    let is_own = status.uid() == rustix::process::geteuid().as_raw();
    let is_writable = access(directory, Access::WRITE_OK).is_ok();
    if is_writable && (is_own || status.permissions().mode() & STICKY == 0) {
        return Ok(());
    }
    Err(Failure::environment(
        format!(
            "directory {} belongs to user {}, and this user may not mount there",
            directory.display(),
            status.uid()
        ),
        "name a directory of your own, or mount as root",
    ))
}

fn check_settings(settings: Option<&str>) -> Result<(), Failure> {
    let is_set = settings.unwrap_or_default().lines().any(|line| line.trim() == "user_allow_other");
    if is_set {
        return Ok(());
    }
    Err(Failure::environment(
        format!("--allow-other: {SETTINGS} does not let users share their mounts"),
        format!("leave the option out, or let root add the line user_allow_other to {SETTINGS}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sharing_needs_a_line_of_root() {
        assert!(check_settings(Some("# a comment\n user_allow_other\n")).is_ok());
        for settings in [None, Some(""), Some("#user_allow_other\n"), Some("mount_max = 9\n")] {
            let failure = check_settings(settings).expect_err("a refusal");
            assert!(failure.to_string().contains("user_allow_other"), "{failure}");
        }
    }

    #[test]
    fn a_missing_or_powerless_helper_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let failure = find([folder.path().to_owned()].into_iter()).expect_err("nothing is there");
        assert!(failure.to_string().contains("Debian package fuse3"), "{failure}");
        let helper = folder.path().join(HELPER);
        std::fs::write(&helper, "").expect("a file");
        assert_eq!(find([folder.path().to_owned()].into_iter()).expect("it"), helper);
        assert!(check_helper(&helper).expect_err("it may nothing").to_string().contains("chmod u+s"));
    }
}
