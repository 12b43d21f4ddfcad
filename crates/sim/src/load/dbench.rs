//! The dbench load: the recorded operations of one client of a file server, from dbench's own load file.
//!
//! The load file is dbench's `client.txt` (version 4; part of Debian's package dbench). Each line is an
//! operation: its name, its arguments, and the recorded result. Operations on existing files access them;
//! other operations and name lookups only take processor time, because directories are in memory. A flush
//! syncs its file.

use super::Transferred;
use super::file_system::{BlockRequest, FileId, FileSystem};
use super::process::{Program, ProgramStep};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use weir_model::{Bytes, Nanos};

/// Number of a file name.
type Name = u32;
/// Number of an open file in the recording.
type Handle = u32;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    Open {
        name: Name,
        handle: Handle,
        directory: bool,
    },
    Close(Handle),
    Read(Handle, Range<u64>),
    Write(Handle, Range<u64>),
    Sync(Handle),
    Touch(Handle),
    Unlink(Name),
    Rename(Name, Name),
    /// Removes a directory with everything below it.
    RemoveTree,
    /// An operation without I/O.
    Other,
}

/// A parsed load file.
#[derive(Clone, Debug)]
pub struct Recording {
    lines: Arc<[Line]>,
    /// For each name, that of its directory.
    parents: Arc<[Name]>,
}

/// Why a load file is invalid.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// It contains no file operation.
    #[error(
        "this is no load file of dbench; take the client.txt of its version 4, which Debian has in its package dbench"
    )]
    Empty,
    /// A line is malformed.
    #[error("line {0} of the load file cannot be read; take the client.txt of dbench 4, unchanged")]
    MalformedLine(usize),
}

#[derive(Default)]
struct Names {
    known: FxHashMap<String, Name>,
    parents: Vec<Name>,
}

impl Names {
    fn of(&mut self, path: &str) -> Name {
        let path = path.to_ascii_lowercase();
        if let Some(name) = self.known.get(&path) {
            return *name;
        }
        let parent = path.rsplit_once('\\').map_or("", |(parent, _)| parent).to_owned();
        let parent = if path.is_empty() { 0 } else { self.of(&parent) };
        let name = self.parents.len() as Name;
        self.parents.push(parent);
        self.known.insert(path, name);
        name
    }
}

impl Recording {
    /// Parses a load file.
    ///
    /// # Errors
    /// Fails if the text is not a load file.
    pub fn read(text: &str) -> Result<Self, RecordingError> {
        let mut names = Names::default();
        let lines = text.lines().enumerate();
        let lines =
            lines.map(|(at, text)| line(text, &mut names).ok_or(RecordingError::MalformedLine(at + 1)));
        let lines = lines.collect::<Result<Vec<_>, _>>()?;
        if !lines.iter().any(|line| matches!(line, Line::Write(..))) {
            return Err(RecordingError::Empty);
        }
        Ok(Self { lines: lines.into(), parents: names.parents.into() })
    }

    /// Returns a load of weir's own making for machines without the load file: it has about the load file's
    /// numbers of operations, sizes of requests, and amount of data, by the counts that Wu's dissertation
    /// prints (tables III and IV), and none of its order.
    pub fn stand_in() -> Self {
        stand_in::recording()
    }

    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Reports whether there are no operations, which is never the case.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

/// The stand-in for dbench's load file: see [`Recording::stand_in`].
mod stand_in;

/// Parses a line; returns `None` if it is malformed.
fn line(text: &str, names: &mut Names) -> Option<Line> {
    let text = text.trim();
    let (operation, _) = text.split_once(' ').unwrap_or((text, ""));
    if !text.ends_with("NT_STATUS_OK") {
        return Some(Line::Other);
    }
    // The text outside quotation marks, and the text inside.
    let quoted: Vec<&str> = text.split('"').skip(1).step_by(2).collect();
    let numbers = || {
        let after = text.rsplit('"').next().unwrap_or(text).split_ascii_whitespace();
        after.filter_map(number).collect::<Vec<u64>>()
    };
    let range = |numbers: &[u64]| match numbers {
        [handle, at, len, ..] => Some((*handle as Handle, *at..at + len)),
        _ => None,
    };
    let handle = || numbers().first().map(|handle| *handle as Handle);
    Some(match operation {
        "NTCreateX" => match numbers()[..] {
            [options, _, handle] => {
                let name = names.of(quoted.first()?);
                Line::Open { name, handle: handle as Handle, directory: options & 1 != 0 }
            }
            _ => return None,
        },
        "Close" => Line::Close(handle()?),
        "ReadX" => {
            let (handle, range) = range(&numbers())?;
            Line::Read(handle, range)
        }
        "WriteX" => {
            let (handle, range) = range(&numbers())?;
            Line::Write(handle, range)
        }
        "Flush" => Line::Sync(handle()?),
        "SET_FILE_INFORMATION" => Line::Touch(handle()?),
        "Unlink" => Line::Unlink(names.of(quoted.first()?)),
        "Rename" => Line::Rename(names.of(quoted.first()?), names.of(quoted.get(1)?)),
        "Deltree" => Line::RemoveTree,
        _ => Line::Other,
    })
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A client that repeats the recorded operations endlessly. Its unit of work is the byte read or written, as
/// in dbench.
#[derive(Debug)]
pub struct Dbench {
    recording: Recording,
    next: usize,
    cpu_time: Nanos,
    /// Files by name.
    files: FxHashMap<Name, FileId>,
    open: FxHashMap<Handle, FileId>,
}

impl Dbench {
    /// Creates a client at the start of the recording; each operation takes `takes` of processor time.
    pub fn new(recording: Recording, takes: Nanos) -> Self {
        Self { recording, next: 0, cpu_time: takes, files: FxHashMap::default(), open: FxHashMap::default() }
    }

    /// Returns the file of that name, which is created if needed.
    fn file(&mut self, name: Name, files: &mut FileSystem, requests: &mut VecDeque<BlockRequest>) -> FileId {
        if let Some(file) = self.files.get(&name) {
            return *file;
        }
        let parent = self.recording.parents[name as usize];
        let directory = (parent != name).then(|| self.file(parent, files, requests));
        let file = files.create(directory, requests);
        self.files.insert(name, file);
        file
    }

    fn remove(&mut self, name: Name, files: &mut FileSystem, requests: &mut VecDeque<BlockRequest>) {
        if let Some(file) = self.files.remove(&name) {
            self.open.retain(|_, of| *of != file);
            files.remove(file, requests);
        }
    }
}

impl Program for Dbench {
    fn step(&mut self, files: &mut FileSystem, requests: &mut VecDeque<BlockRequest>) -> ProgramStep {
        let lines = self.recording.lines.clone();
        let mut transferred = Transferred::default();
        match &lines[self.next] {
            Line::Open { name, handle, directory } => {
                let file = self.file(*name, files, requests);
                if !directory {
                    self.open.insert(*handle, file);
                    files.read_inode(file, requests);
                }
            }
            Line::Close(handle) => drop(self.open.remove(handle)),
            Line::Read(handle, range) => {
                if let Some(file) = self.open.get(handle) {
                    files.read(*file, range.clone(), requests);
                }
                transferred.read = Bytes(range.end - range.start);
            }
            Line::Write(handle, range) => {
                if let Some(file) = self.open.get(handle) {
                    files.write(*file, range.clone(), requests);
                }
                transferred.written = Bytes(range.end - range.start);
            }
            Line::Sync(handle) => {
                if let Some(file) = self.open.get(handle) {
                    files.sync(*file, requests);
                }
            }
            Line::Touch(handle) => {
                if let Some(file) = self.open.get(handle) {
                    files.change_inode(*file, requests);
                }
            }
            Line::Unlink(name) => self.remove(*name, files, requests),
            Line::Rename(from, to) => {
                if let Some(file) = self.files.remove(from) {
                    self.remove(*to, files, requests);
                    files.change_inode(file, requests);
                    self.files.insert(*to, file);
                }
            }
            Line::RemoveTree => {
                let mut names: Vec<Name> = self.files.keys().copied().collect();
                names.sort_unstable();
                names.into_iter().rev().for_each(|name| self.remove(name, files, requests));
            }
            Line::Other => {}
        }
        self.next = (self.next + 1) % lines.len();
        let work = (transferred.read + transferred.written).0;
        ProgramStep { cpu_time: self.cpu_time, work, transferred }
    }
}

#[cfg(test)]
mod tests {
    use super::super::file_system::FileSystemConfig;
    use super::*;
    use weir_model::Op;

    const TEXT: &str = r#"Deltree "\clients\client1" NT_STATUS_OK
Mkdir "\clients" NT_STATUS_OK
NTCreateX "\clients\client1\a b" 0x40 0x1 9935 NT_STATUS_OBJECT_NAME_NOT_FOUND
NTCreateX "\clients\client1\a b" 0x40 0x2 9936 NT_STATUS_OK
WriteX 9936 0 10000 10000 NT_STATUS_OK
Flush 9936 NT_STATUS_OK
ReadX 9936 4096 100 100 NT_STATUS_OK
Close 9936 NT_STATUS_OK
Rename "\clients\client1\a b" "\CLIENTS\client1\c" NT_STATUS_OK
Unlink "\clients\client1\c" 0x6 NT_STATUS_OK
"#;

    #[test]
    fn recording_is_repeated_endlessly() {
        let recording = Recording::read(TEXT).expect("a recording");
        assert_eq!(recording.len(), 10);
        let shape = FileSystemConfig::for_tests(Bytes::mib(8));
        let mut files = FileSystem::new(shape);
        let mut dbench = Dbench::new(recording, Nanos::micros(30));
        for round in 0..3 {
            let mut asked = VecDeque::new();
            let steps: Vec<_> = (0..10).map(|_| dbench.step(&mut files, &mut asked)).collect();
            assert_eq!(steps.iter().map(|step| step.work).sum::<u64>(), 10_100);
            // The file's three blocks and its inode are synced; inodes are read before they are used.
            let written: u64 = asked.iter().filter(|ask| ask.op == Op::Write).map(|ask| ask.count).sum();
            assert_eq!(written, 4, "{round}: {asked:?}");
            assert!(asked.iter().all(|ask| ask.op == Op::Write), "{asked:?}");
            assert_eq!(dbench.files.len(), 3, "the directories stay");
        }
    }

    #[test]
    fn invalid_load_files_are_rejected() {
        assert!(matches!(Recording::read(""), Err(RecordingError::Empty)));
        assert!(matches!(Recording::read("Close x NT_STATUS_OK"), Err(RecordingError::MalformedLine(1))));
    }
}
