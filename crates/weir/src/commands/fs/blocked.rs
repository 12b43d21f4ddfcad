//! What keeps files in a tier that is leaving, for people.

use weir_fs::report::BlockedPart;

/// Returns the name of one of the files that stay.
pub(super) fn file_of(blocked: &BlockedPart) -> String {
    let name = if blocked.path.is_empty() { "a file" } else { &format!("{:?}", blocked.path) };
    format!("{name} (inode {})", blocked.inode)
}

/// Returns what files that stay in their tier wait for.
pub(super) fn waits_for(blocked: &BlockedPart) -> String {
    let file = file_of(blocked);
    let files = match blocked.files {
        1 => file,
        files => format!("{files} files, one of them {file}"),
    };
    match blocked.reason.as_str() {
        "in_use" => format!("programs to close and unmap {files}"),
        "changing" => format!("programs to stop changing {files}"),
        "no_space" => format!("space elsewhere for {files}"),
        _ => format!("the containers of {files}, which cannot be read"),
    }
}
