//! Whether a file is open or mapped elsewhere, which the kernel tells by granting a lease or not.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

/// `F_SETSIG`: chooses the signal by which the kernel tells that somebody opens a leased file.
const F_SETSIG: libc::c_int = 10;

fn set(file: &File, command: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file` is borrowed, and these commands take a number.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, value) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Returns whether a file that is open for reading and writing has other openings or mappings, those of
/// other processes included.
///
/// # Errors
/// Returns the operating system's error if the file system or the owner of the file rules out leases.
pub(super) fn is_used_by_others(file: &File) -> io::Result<bool> {
    // The default, SIGIO, would end this process if somebody opens the file just now; SIGURG is ignored.
    set(file, F_SETSIG, libc::SIGURG)?;
    match set(file, libc::F_SETLEASE, libc::F_WRLCK) {
        Ok(()) => set(file, libc::F_SETLEASE, libc::F_UNLCK).map(|()| false),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::OpenOptionsExt as _;

    #[test]
    fn other_openings_and_mappings_are_noticed() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("file");
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = file.expect("a file");
        match is_used_by_others(&file) {
            Err(error) => println!("not tested: no leases here: {error}"),
            Ok(is_used) => {
                assert!(!is_used);
                let other = File::open(&path).expect("the file");
                assert!(is_used_by_others(&file).expect("a lease"));
                drop(other);
                assert!(!is_used_by_others(&file).expect("a lease"), "a lease was not given back");
            }
        }
    }
}
