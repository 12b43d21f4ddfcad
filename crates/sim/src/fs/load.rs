//! Loads of a file system: programs that create, read, append to and remove files.
//!
//! | load | what it does | words, with their defaults |
//! |---|---|---|
//! | `postmark` | reads, appends, creates, removes | `files=70000 size=512B-10035B transactions=200000` |
//! | `create-files` | creates files until its time is over | `mean=1200KB clients=16` |
//! | `fileserver` | creates, appends, reads, removes | `files=10000 mean=128KiB append=16KiB clients=50` |
//! | `webproxy` | replaces a file and reads five | `files=60000 mean=16KiB clients=100` |
//! | `untar` | writes files as fast as they are decompressed | `files=12680 size=30KB-1MB mean=123KB` |
//! | `kernel-compile` | compiles sources, mostly processor time | `files=1500 sources=6000 source=12KB` |
//!
//! Transactions of `postmark` only read with `mix=reads`, and do not read with `mix=changes`.
//! `scale=` multiplies the number of files and of transactions: `1/8`.

mod filebench;
mod postmark;
mod programs;
mod words;

use crate::SimError;
use weir_model::{Bytes, Nanos};
use weir_policy::eviction::items::FileKey;

/// An operation on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOp {
    /// Creates a file and writes this much to it; a number is used once only.
    Create(FileKey, Bytes),
    /// Appends to a file.
    Append(FileKey, Bytes),
    /// Reads all of a file.
    Read(FileKey),
    /// Reads or changes a file's metadata only.
    Stat(FileKey),
    /// Removes a file.
    Remove(FileKey),
}

/// The next step of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStep {
    /// The operation.
    pub op: FileOp,
    /// Processor time that the program takes for it, besides that of the file system.
    pub cpu: Nanos,
    /// Units of work that are done with it.
    pub work: u32,
}

/// Programs that use a file system. Files that they name exist, and none is removed twice.
pub trait FileLoad {
    /// Returns the number of clients, at least 1.
    fn clients(&self) -> usize;

    /// Returns the next step of a client; `None` when it has no more.
    fn next_step(&mut self, client: usize) -> Option<FileStep>;

    /// Whether the steps from now on are to be measured: the files that exist before are created first.
    fn is_warm(&self) -> bool {
        true
    }

    /// Returns how long it runs from there on; `None` if it ends by itself.
    fn duration(&self) -> Option<Nanos> {
        None
    }

    /// Returns what a unit of work is, in the plural.
    fn work_unit(&self) -> &'static str;
}

/// Names and descriptions of all loads.
pub const FILE_LOADS: &[(&str, &str)] = &[
    ("postmark", "small files: read or append, create or remove"),
    ("create-files", "creates files of about a megabyte"),
    ("fileserver", "creates, appends to, reads and removes files"),
    ("webproxy", "replaces a file and reads five"),
    ("untar", "writes the files of an archive"),
    ("kernel-compile", "compiles, mostly processor time"),
];

/// Parses a load from its words.
///
/// # Errors
/// Returns what is wrong with the first invalid word, and what would be right.
pub fn parse(text: &str, seed: u64) -> Result<Box<dyn FileLoad>, SimError> {
    let mut words = words::Words::new(text).map_err(SimError::Load)?;
    let load: Result<Box<dyn FileLoad>, String> = match words.name() {
        "postmark" => postmark::Postmark::parse(&mut words, seed).map(|load| Box::new(load) as _),
        "create-files" | "fileserver" | "webproxy" => {
            filebench::Filebench::parse(&mut words, seed).map(|load| Box::new(load) as _)
        }
        "untar" | "kernel-compile" => {
            programs::Program::parse(&mut words, seed).map(|load| Box::new(load) as _)
        }
        other => Err(format!("there is no load {other:?} of a file system; there are {}", names())),
    };
    load.and_then(|load| words.finish().map(|()| load)).map_err(SimError::Load)
}

fn names() -> String {
    FILE_LOADS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
