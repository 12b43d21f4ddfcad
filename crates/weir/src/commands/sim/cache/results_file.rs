//! Keeps results in a file, so that an interrupted command continues where it stopped.
//!
//! Each line is one result, with all that determines it ([`Key`]), and is appended when the result is known.
//! Only the last line can be incomplete, and it is removed. After a power loss the file may have zero bytes
//! where the file system had no time to write: everything from the line with the first zero byte on is
//! removed. The process that has the file open holds a lock on it.

use super::Played;
use crate::failure::Failure;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use weir_model::Bytes;

/// Start of every line.
const LINE_START: &[u8] = b"{\"key\":{\"weir\":\"";

/// Identifies a result by all that determines it. Equal keys have equal results, except for the processor
/// time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Key {
    /// Version of weir that computed the result, and version of the way of counting.
    pub(super) weir: String,
    /// SHA-256 of the trace's file, in hexadecimal.
    pub(super) trace_sha256: String,
    /// The format, as `--format` names it.
    pub(super) format: Option<String>,
    pub(super) strict: bool,
    pub(super) block_bytes: u64,
    pub(super) policy: String,
    pub(super) admission: String,
    /// The size, as `--size` names it.
    pub(super) size: String,
    pub(super) write_mode: String,
    /// The number as text, because keys are compared for equality.
    pub(super) dirty: Option<String>,
    /// Settings of admission policies; `None` if they are the published ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) admission_settings: Option<String>,
    /// The flash below; `None` without flash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) flash: Option<String>,
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    key: Key,
    #[serde(flatten)]
    played: Played,
}

/// A file of results, open and locked.
#[derive(Debug)]
pub(super) struct ResultsFile {
    path: PathBuf,
    file: File,
    /// Length of the complete lines, in bytes; `None` once a failed write has made it uncertain.
    len: Option<u64>,
    results: HashMap<Key, Played>,
}

impl ResultsFile {
    /// Opens and locks the file, or creates it.
    ///
    /// # Errors
    /// Fails if the file cannot be opened, is locked by another process, or holds something else.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let os = |what, error: std::io::Error| Failure::os(what, path, &error);
        crate::files::refuse_kernel_folder(path)?;
        // Results are appended at the end of the file; a pipe or a device has no such end.
        if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            return Err(Failure::refused(
                format!("{} is not a regular file", path.display()),
                "name a file to keep the results in",
            ));
        }
        let open = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = open.map_err(|error| os("open", error))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => Failure::refused(
                format!("another process adds results to {}", path.display()),
                "wait until it has ended, or name another file",
            ),
            error => os("lock", error.into()),
        })?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| os("read", error))?;
        // JSON has no zero bytes, so the first one marks what was not written.
        let written = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let whole = bytes[..written].iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let (lines, torn) = bytes[..written].split_at(whole);
        let other = |line: usize, why: &str| {
            Failure::usage(
                format!("line {line} of {} is no result: {why}", path.display()),
                "name a file that this command has made, or a new one",
            )
        };
        let mut results = HashMap::new();
        let lines: Vec<_> = lines.split_inclusive(|byte| *byte == b'\n').collect();
        for (number, line) in (1..).zip(&lines) {
            let Line { key, played } =
                serde_json::from_slice(line).map_err(|error| other(number, &error.to_string()))?;
            results.insert(key, played);
        }
        // A file of zeros alone could be anything.
        let is_ours = written > 0 || bytes.is_empty();
        let is_ours = is_ours && (torn.starts_with(LINE_START) || LINE_START.starts_with(torn));
        if !is_ours {
            return Err(other(lines.len() + 1, "it begins otherwise"));
        }
        if whole < bytes.len() {
            let (off, kept) = (Bytes((bytes.len() - whole) as u64), results.len());
            tracing::warn!(
                "{} does not end as it should: its last {off} are taken off, {kept} results are kept",
                path.display()
            );
            file.set_len(whole as u64).map_err(|error| os("shorten", error))?;
        }
        Ok(Self { path: path.into(), file, len: Some(whole as u64), results })
    }

    /// Returns the result of a key, or `None` if the file does not have it.
    pub(super) fn get(&self, key: &Key) -> Option<&Played> {
        self.results.get(key)
    }

    /// Appends a result.
    ///
    /// # Errors
    /// Fails if the result cannot be written. The incomplete line is removed; if that fails too, nothing more
    /// is appended.
    pub(super) fn add(&mut self, key: &Key, played: &Played) -> Result<(), Failure> {
        let line = Line { key: key.clone(), played: played.clone() };
        let mut text =
            serde_json::to_vec(&line).map_err(|error| Failure::environment(error.to_string(), ""))?;
        text.push(b'\n');
        let Some(len) = self.len.take() else {
            let message =
                format!("{} ends in the middle of a line that could not be written", self.path.display());
            return Err(Failure::environment(message, "make room there, and run this again"));
        };
        let written = self.file.write_all(&text);
        self.len = match written {
            Ok(()) => Some(len + text.len() as u64),
            Err(_) => self.file.set_len(len).ok().map(|()| len),
        };
        written.map_err(|error| Failure::os("write", &self.path, &error))
    }
}

/// Returns the SHA-256 of a file's contents, in hexadecimal.
///
/// # Errors
/// Fails if the file cannot be read.
pub(super) fn sha256(path: &Path) -> Result<String, Failure> {
    let read = || {
        let (mut file, mut hash, mut buffer) = (File::open(path)?, Sha256::new(), vec![0; 1 << 20]);
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(hash.finalize()),
                len => hash.update(&buffer[..len]),
            }
        }
    };
    let digest = read().map_err(|error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Failure::usage(format!("there is no trace {}", path.display()), "name a file")
        }
        _ => Failure::os("read", path, &error),
    })?;
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}
