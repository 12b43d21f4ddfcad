//! A program that uses many files at random, in given proportions: NFS clients, mail servers, Postmark.
//!
//! The next file is drawn by Zipf's law, or uniformly. A new file takes the number of a file that does not
//! exist; the number of files stays about the same as long as as many are created as removed.

use super::Transferred;
use super::file_system::{BlockRequest, FileId, FileSystem};
use super::process::{Program, ProgramStep};
use super::synthetic::LoadRng;
use rand_distr::{Distribution as _, Zipf};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use weir_model::{Bytes, Nanos};

/// Weights of the operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    /// Reading a file's attributes.
    pub stat: u32,
    /// Changing a file's attributes.
    pub touch: u32,
    /// Reading a file.
    pub read: u32,
    /// Appending to a file, up to the largest size.
    pub append: u32,
    /// Overwriting a part of a file.
    pub overwrite: u32,
    /// Creating and writing a file.
    pub create: u32,
    /// Removing a file.
    pub remove: u32,
}

/// How a program uses files.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Weights of its operations.
    pub weights: Weights,
    /// Initial number of files, at least one.
    pub files: u64,
    /// Number of directories, at least one.
    pub directories: u64,
    /// File sizes in bytes.
    pub sizes: RangeInclusive<u64>,
    /// True if sizes are distributed evenly on a logarithmic scale, so that most are small; otherwise evenly.
    pub mostly_small: bool,
    /// Zipf's exponent; 0 for a uniform choice of files.
    pub theta: f64,
    /// Bytes read at once; `None` for the whole file.
    pub read: Option<RangeInclusive<u64>>,
    /// Bytes written at once.
    pub write: RangeInclusive<u64>,
    /// True if reading updates the access time in the inode.
    pub updates_atime: bool,
    /// True if changes are synced.
    pub sync: bool,
    /// Processor time of a step.
    pub cpu_time: Nanos,
}

/// The program; see the module documentation.
#[derive(Debug)]
pub struct MixProgram {
    mix: Mix,
    directories: Vec<FileId>,
    files: Vec<FileId>,
    popularity: Option<Zipf<f64>>,
    random: LoadRng,
    /// Bytes of the current step.
    transferred: Transferred,
}

impl MixProgram {
    /// Creates the program and its files.
    pub fn new(mix: Mix, files: &mut FileSystem, seed: u64) -> Self {
        let law = (mix.theta > 0.0).then(|| Zipf::new(mix.files as f64, mix.theta).ok()).flatten();
        let mut asked = VecDeque::new();
        let directories = (0..mix.directories.max(1)).map(|_| files.create(None, &mut asked)).collect();
        let mut mixed = Self {
            directories,
            files: Vec::new(),
            popularity: law,
            random: LoadRng::new(seed),
            transferred: Transferred::default(),
            mix,
        };
        for _ in 0..mixed.mix.files.max(1) {
            mixed.create_file(files, &mut asked);
            asked.clear();
        }
        mixed.transferred = Transferred::default();
        mixed
    }

    fn between(&mut self, range: &RangeInclusive<u64>) -> u64 {
        range.start() + self.random.below(range.end() - range.start() + 1)
    }

    fn size(&mut self) -> u64 {
        let range = self.mix.sizes.clone();
        if !self.mix.mostly_small {
            return self.between(&range);
        }
        let (least, most) = (*range.start() as f64, *range.end() as f64);
        (least * (most / least).powf(self.random.share())) as u64
    }

    /// Picks one of the files and returns its number.
    fn pick(&mut self) -> usize {
        let count = self.files.len() as u64;
        let drawn = match self.popularity {
            Some(law) => law.sample(&mut self.random) as u64 - 1,
            None => self.random.below(count),
        };
        (drawn % count) as usize
    }

    fn create_file(&mut self, files: &mut FileSystem, requests: &mut VecDeque<BlockRequest>) -> FileId {
        let directory = self.directories[self.random.below(self.directories.len() as u64) as usize];
        let file = files.create(Some(directory), requests);
        let size = self.size();
        files.write(file, 0..size, requests);
        self.transferred.written += Bytes(size);
        self.files.push(file);
        file
    }

    fn write(
        &mut self,
        files: &mut FileSystem,
        file: FileId,
        append: bool,
        requests: &mut VecDeque<BlockRequest>,
    ) {
        let (len, has) = (self.between(&self.mix.write.clone()), files.len(file).0);
        if append {
            let room = self.mix.sizes.end().saturating_sub(has);
            if room == 0 {
                return;
            }
            files.write(file, has..has + len.min(room), requests);
            self.transferred.written += Bytes(len.min(room));
        } else {
            let at = self.random.below(has.saturating_sub(len) + 1);
            files.write(file, at..at + len, requests);
            self.transferred.written += Bytes(len);
        }
        if self.mix.sync {
            files.sync(file, requests);
        }
    }

    fn read(&mut self, files: &mut FileSystem, file: FileId, requests: &mut VecDeque<BlockRequest>) {
        let has = files.len(file).0;
        let len = self.mix.read.clone().map_or(has, |range| self.between(&range)).min(has);
        let at = self.random.below(has - len + 1);
        files.read_inode(file, requests);
        files.read(file, at..at + len, requests);
        self.transferred.read += Bytes(len);
        if self.mix.updates_atime {
            files.change_inode(file, requests);
        }
    }
}

impl Program for MixProgram {
    fn step(&mut self, files: &mut FileSystem, requests: &mut VecDeque<BlockRequest>) -> ProgramStep {
        let Weights { stat: look, touch, read, append, overwrite, create: make, remove } = self.mix.weights;
        let weights = [look, touch, read, append, overwrite, make, remove];
        let mut drawn = self.random.below(weights.iter().map(|w| u64::from(*w)).sum());
        let mut what = 0;
        while let Some(rest) = drawn.checked_sub(weights[what].into()).filter(|_| what + 1 < weights.len()) {
            (drawn, what) = (rest, what + 1);
        }
        let number = self.pick();
        let file = self.files[number];
        match what {
            0 => files.read_inode(file, requests),
            1 => {
                files.read_inode(file, requests);
                files.change_inode(file, requests);
            }
            2 => self.read(files, file, requests),
            3 | 4 => self.write(files, file, what == 3, requests),
            5 => {
                let made = self.create_file(files, requests);
                if self.mix.sync {
                    files.sync(made, requests);
                }
            }
            _ if self.files.len() as u64 > self.mix.files / 2 + 1 => {
                self.files.swap_remove(number);
                files.remove(file, requests);
            }
            _ => {}
        }
        ProgramStep {
            cpu_time: self.mix.cpu_time,
            work: 1,
            transferred: std::mem::take(&mut self.transferred),
        }
    }
}
