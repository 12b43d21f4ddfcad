//! Two programs that end: an archive is extracted, and a kernel is compiled.

use super::words::Words;
use super::{FileLoad, FileOp, FileStep};
use crate::load::synthetic::LoadRng;
use rand_distr::{Distribution as _, Exp1};
use std::collections::VecDeque;
use weir_model::{Bytes, Nanos};
use weir_policy::eviction::items::FileKey;

/// Bytes that bzip2 decompresses in a second on one processor of the publication's machine.
const DECOMPRESSION: Bytes = Bytes(15_000_000);
/// Sources and headers that are read for an object, and the processor time that compiling it takes.
const READ_FOR_OBJECT: u64 = 20;
const COMPILATION: Nanos = Nanos::millis(300);
/// The mean size of an object: 25 MB in all.
const OBJECT: u64 = 16_000;

/// A program.
#[derive(Debug)]
pub(super) struct Program {
    kind: Kind,
    random: LoadRng,
    created: u64,
    /// Files that are left to be created.
    left: u64,
    pending: Vec<VecDeque<FileStep>>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Sizes: the least, the most, the mean; and the bytes that are decompressed in a second.
    Untar { sizes: [f64; 3], rate: f64 },
    /// The number of sources, those that still have to be there at first, and their mean size.
    Compile { sources: u64, at_first: u64, mean: u64 },
}

impl Program {
    pub(super) fn parse(words: &mut Words<'_>, seed: u64) -> Result<Self, String> {
        let (kind, left, clients) = if words.name() == "untar" {
            let sizes = words.sizes("size", 30_000..=1_000_000)?;
            let mean = words.size("mean", Bytes(123_000))?;
            let sizes = [*sizes.start(), *sizes.end(), mean.0].map(|size| size as f64);
            let rate = words.size("rate", DECOMPRESSION)?.0.max(1) as f64;
            (Kind::Untar { sizes, rate }, words.count("files", 12_680)?, 1)
        } else {
            let objects = words.count("files", 1500)?;
            let sources = words.count("sources", 6000)?;
            let mean = words.size("source", Bytes(12_000))?.0;
            (Kind::Compile { sources, at_first: sources, mean }, objects, 2)
        };
        let pending = vec![VecDeque::new(); clients];
        Ok(Self { kind, random: LoadRng::new(seed), created: 0, left, pending })
    }

    fn create(&mut self, size: f64, cpu: Nanos, work: u32) -> FileStep {
        let file = FileKey(self.created);
        self.created += 1;
        FileStep { op: FileOp::Create(file, Bytes(size as u64)), cpu, work }
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        let size: f64 = Exp1.sample(&mut self.random);
        size * mean
    }
}

impl FileLoad for Program {
    fn clients(&self) -> usize {
        self.pending.len()
    }

    fn next_step(&mut self, client: usize) -> Option<FileStep> {
        if let Some(step) = self.pending[client].pop_front() {
            return Some(step);
        }
        if let Kind::Compile { at_first, mean, .. } = &mut self.kind
            && *at_first > 0
        {
            *at_first -= 1;
            let mean = *mean as f64;
            let size = self.exponential(mean).max(1.0);
            return Some(self.create(size, Nanos(0), 0));
        }
        self.left = self.left.checked_sub(1)?;
        match self.kind {
            Kind::Untar { sizes: [least, most, mean], rate } => {
                let size = (least + self.exponential(mean - least)).min(most);
                Some(self.create(size, Nanos::from_secs_f64(size / rate), 1))
            }
            Kind::Compile { sources, .. } => {
                for _ in 0..READ_FOR_OBJECT {
                    let op = FileOp::Read(FileKey(self.random.below(sources)));
                    self.pending[client].push_back(FileStep { op, cpu: Nanos(0), work: 0 });
                }
                let size = self.exponential(OBJECT as f64).max(1.0);
                let object = self.create(size, COMPILATION, 1);
                self.pending[client].push_back(object);
                self.pending[client].pop_front()
            }
        }
    }

    fn is_warm(&self) -> bool {
        !matches!(self.kind, Kind::Compile { at_first: 1.., .. })
    }

    fn work_unit(&self) -> &'static str {
        "files"
    }
}
