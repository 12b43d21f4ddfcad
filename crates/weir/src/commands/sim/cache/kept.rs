//! Results kept in a file, so that a run that was interrupted goes on where it was.
//!
//! A line is a result, complete with what it was made from ([`Key`]), and is added when the result is there. A line that was
//! not written whole can only be the last one; it is taken off. After a power cut there may be zero bytes where a file
//! system had no time to write: from the line with the first of them on, all is taken off. Whoever holds the file has it locked.

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

/// How a line begins.
const START: &[u8] = b"{\"key\":{\"weir\":\"";

/// All that decides a result. The same key, the same result, but for the time it took.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Key {
    /// The version that made it, and which way of counting.
    pub(super) weir: String,
    /// SHA-256 of the trace's file, in hexadecimal.
    pub(super) trace_sha256: String,
    /// As `--format` names it.
    pub(super) format: Option<String>,
    pub(super) strict: bool,
    pub(super) block_bytes: u64,
    pub(super) policy: String,
    pub(super) admission: String,
    /// As `--size` names it.
    pub(super) size: String,
    pub(super) write_mode: String,
    /// As a number's text, for it is to be the same or not.
    pub(super) dirty: Option<String>,
}

/// A line.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    key: Key,
    #[serde(flatten)]
    played: Played,
}

/// A file of results.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    file: File,
    /// How much of it is whole lines; `None` once that is not certain.
    len: Option<u64>,
    results: HashMap<Key, Played>,
}

impl Kept {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// If it cannot be had, another process has it, or there is something else in it.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let os = |what, error: std::io::Error| Failure::os(what, path, &error);
        crate::files::refuse_kernel_folder(path)?;
        // A pipe or a device has no end to go on from, or none at all.
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
        // JSON has no zero bytes.
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
        // Of zeros alone nobody knows what they were.
        let is_ours = written > 0 || bytes.is_empty();
        let is_ours = is_ours && (torn.starts_with(START) || START.starts_with(torn));
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

    /// The result of a key, if it is there.
    pub(super) fn get(&self, key: &Key) -> Option<&Played> {
        self.results.get(key)
    }

    /// Adds a result.
    ///
    /// # Errors
    /// If it cannot be written; what was written of the line is taken off. If not even that can be, nothing more is added.
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

/// SHA-256 of a file's contents, in hexadecimal.
///
/// # Errors
/// If it cannot be read.
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
