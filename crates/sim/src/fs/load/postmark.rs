//! Postmark (J. Katcher, NetApp TR-3022): files are created, then transactions run, by one client.

use super::words::Words;
use super::{FileLoad, FileOp, FileStep};
use crate::load::synthetic::LoadRng;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use weir_model::{Bytes, Nanos};
use weir_policy::eviction::items::FileKey;

/// What a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mix {
    /// Reads or appends, and creates or removes, each by a coin toss.
    All,
    /// Reads only.
    Reads,
    /// Appends, and creates or removes.
    Changes,
}

impl Mix {
    const NAMES: [(&str, Self); 3] = [("all", Self::All), ("reads", Self::Reads), ("changes", Self::Changes)];
}

/// The load. An append ends below the largest size.
#[derive(Debug)]
pub(super) struct Postmark {
    mix: Mix,
    sizes: RangeInclusive<u64>,
    random: LoadRng,
    /// Files that exist, and their sizes.
    files: Vec<(FileKey, u64)>,
    created: u64,
    /// Files that are still to be created at first.
    at_first: u64,
    transactions: u64,
    pending: VecDeque<FileStep>,
}

impl Postmark {
    pub(super) fn parse(words: &mut Words<'_>, seed: u64) -> Result<Self, String> {
        Ok(Self {
            sizes: words.sizes("size", 512..=10_035)?,
            random: LoadRng::new(seed),
            files: Vec::new(),
            created: 0,
            at_first: words.count("files", 70_000)?,
            transactions: words.count("transactions", 200_000)?,
            mix: Mix::NAMES[words.one_of("mix", &Mix::NAMES.map(|(name, _)| name))?].1,
            pending: VecDeque::new(),
        })
    }

    fn create(&mut self) -> FileOp {
        let file = FileKey(self.created);
        self.created += 1;
        let size = self.sizes.start() + self.random.below(self.sizes.end() - self.sizes.start() + 1);
        self.files.push((file, size));
        FileOp::Create(file, Bytes(size))
    }

    fn pick(&mut self) -> Option<usize> {
        (!self.files.is_empty()).then(|| self.random.below(self.files.len() as u64) as usize)
    }

    fn transact(&mut self) {
        let mut ops = Vec::with_capacity(2);
        if let Some(at) = self.pick() {
            let (file, size) = self.files[at];
            let room = self.sizes.end() - size;
            let reads = match self.mix {
                Mix::All => self.random.below(2) == 0,
                Mix::Reads => true,
                Mix::Changes => false,
            };
            if reads {
                ops.push(FileOp::Read(file));
            } else if room > 0 {
                let len = 1 + self.random.below(room);
                self.files[at].1 += len;
                ops.push(FileOp::Append(file, Bytes(len)));
            }
        }
        if self.mix == Mix::Reads {
            self.enqueue(ops);
            return;
        }
        if self.random.below(2) == 0 {
            ops.push(self.create());
        } else if let Some(at) = self.pick() {
            ops.push(FileOp::Remove(self.files.swap_remove(at).0));
        } else {
            ops.push(self.create());
        }
        self.enqueue(ops);
    }

    /// Makes steps of a transaction's operations; the last one completes it.
    fn enqueue(&mut self, ops: Vec<FileOp>) {
        let count = ops.len();
        let steps = ops.into_iter().enumerate();
        let step = |(nth, op)| FileStep { op, cpu: Nanos(0), work: u32::from(nth + 1 == count) };
        self.pending.extend(steps.map(step));
    }
}

impl FileLoad for Postmark {
    fn clients(&self) -> usize {
        1
    }

    fn next_step(&mut self, _: usize) -> Option<FileStep> {
        if self.at_first > 0 {
            self.at_first -= 1;
            return Some(FileStep { op: self.create(), cpu: Nanos(0), work: 0 });
        }
        if self.pending.is_empty() {
            self.transactions = self.transactions.checked_sub(1)?;
            self.transact();
        }
        self.pending.pop_front()
    }

    fn work_unit(&self) -> &'static str {
        "transactions"
    }
}
