//! A load after Postmark (Katcher, NetApp TR-3022): many small files, read, appended to, made and removed,
//! as a journalling file system asks for them on its disk.
//!
//! A transaction reads a whole file or appends a block to it, and makes or removes one, each by a
//! coin's toss. Made files are written whole. Inodes that change are written in their places, in order,
//! once a hundred have; before that the journal has them, one record after the other. With `sync`, as a mail
//! server does it, each change is in the journal and flushed before the next. What a file system's memory would have
//! answered is not asked for: inodes are not read, nor are files as far as `memory` says.
//!
//! | word | meaning | unless given |
//! |---|---|---|
//! | `files=` | how many there are room for; at first half of them exist | `20000` |
//! | `size=` | of files, from one to the other, evenly: `1KiB-10KiB` | `1KiB-10KiB` |
//! | `appends=` | of reads and appends, the share of appends | `50%` |
//! | `makes=` | the share of transactions that make or remove a file | `100%` |
//! | `memory=` | the share of reads that memory answers | `0%` |
//! | `sync` | flushes after changes | no |
//! | `rate=` | transactions a second, for an open loop | `100` |

use super::synthetic::{Chance, words::share};
use crate::{Arrival, Load, SimError, Space};
use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use weir_model::{BLOCK, Bytes, ExtentSize, Nanos, Op, VolumeOffset};

/// Bytes of an inode on disk.
const INODE: u64 = 256;
/// What a change that is flushed writes to the journal.
const RECORD: Bytes = Bytes(8192);
/// Changes after which inodes are written in their places.
const CHECKPOINT: u32 = 100;
/// What is written to the journal at once.
const PIECE: Bytes = Bytes::kib(128);
/// The share of the files' space the journal has.
const JOURNAL_SHARE: u64 = 32;
const JOURNAL_MIN: Bytes = Bytes::mib(1);
/// The longest file.
const SIZE_MAX: Bytes = Bytes::mib(16);
const FILES_MAX: u64 = 100_000_000;

/// What transactions do, in shares from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Of reads and appends, appends.
    pub appends: f64,
    /// Transactions that make or remove a file.
    pub makes: f64,
    /// Reads that memory answers.
    pub memory: f64,
    /// Changes are flushed.
    pub sync: bool,
    /// Transactions a second, in an open loop.
    pub rate: f64,
}

impl Default for Mix {
    fn default() -> Self {
        Self { appends: 0.5, makes: 1.0, memory: 0.0, sync: false, rate: 100.0 }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Postmark {
    sizes: RangeInclusive<u64>,
    mix: Mix,
    random: Chance,
    /// Blocks each file has, and none if it does not exist.
    files: Vec<u32>,
    /// Room for one file.
    slot: Bytes,
    journal: Bytes,
    /// Where the journal goes on.
    head: u64,
    /// Blocks of inodes changed since they were written, and the changes.
    changed: BTreeSet<u64>,
    changes: u32,
    /// What is left of the present transaction.
    asked: VecDeque<(Op, VolumeOffset, Bytes)>,
}

impl Postmark {
    /// The word such a load begins with.
    pub const NAME: &'static str = "postmark";

    /// With room for so many files, at least 2, of these sizes in bytes.
    pub fn new(files: u64, sizes: RangeInclusive<u64>, mix: Mix, seed: u64) -> Self {
        // Room for appending.
        let slot = Bytes((2 * *sizes.end()).next_multiple_of(BLOCK));
        let journal = (files * slot.0 / JOURNAL_SHARE).max(JOURNAL_MIN.0).next_multiple_of(BLOCK);
        let mut postmark = Self {
            sizes,
            mix,
            random: Chance::new(seed),
            files: vec![0; files.max(2) as usize],
            slot,
            journal: Bytes(journal),
            head: 0,
            changed: BTreeSet::new(),
            changes: 0,
            asked: VecDeque::new(),
        };
        for file in (0..postmark.files.len()).step_by(2) {
            postmark.files[file] = postmark.blocks();
        }
        postmark
    }

    /// The load these words describe; the first is [`Self::NAME`]. Sizes are read by `size`, which on
    /// refusal says what is allowed.
    ///
    /// # Errors
    /// What is wrong with the first word that makes no sense, and what would.
    pub fn parse(
        words: &str,
        seed: u64,
        size: impl Fn(&str) -> Result<Bytes, String>,
    ) -> Result<Self, SimError> {
        let (mut files, mut sizes, mut mix) = (20_000, 1024..=10_240, Mix::default());
        for word in words.split_ascii_whitespace().skip(1) {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let wrong =
                |allowed: &str| SimError::Load(format!("{word:?} in a load: {key} must be {allowed}"));
            match key {
                "files" => {
                    let count = value.parse().ok().filter(|count| (2..=FILES_MAX).contains(count));
                    files = count.ok_or_else(|| wrong("from 2 to 100000000"))?;
                }
                "size" => {
                    let (least, most) = value.split_once('-').unwrap_or((value, value));
                    let (least, most) = size(least)
                        .and_then(|least| Ok((least, size(most)?)))
                        .map_err(|allowed| wrong(&allowed))?;
                    if least > most || most > SIZE_MAX {
                        return Err(wrong("from one size to another, up to 16MiB: 1KiB-10KiB"));
                    }
                    sizes = least.0..=most.0;
                }
                "appends" | "makes" | "memory" => {
                    let of = match key {
                        "appends" => &mut mix.appends,
                        "makes" => &mut mix.makes,
                        _ => &mut mix.memory,
                    };
                    *of = share(value).ok_or_else(|| wrong("from 0% to 100%"))?;
                }
                "sync" if value.is_empty() => mix.sync = true,
                "rate" => {
                    let given = value.parse().ok().filter(|rate| (0.01..=1e6).contains(rate));
                    mix.rate = given.ok_or_else(|| wrong("from 0.01 to 1000000"))?;
                }
                _ => {
                    let known = "there are files, size, appends, makes, memory, sync, rate";
                    return Err(SimError::Load(format!("a load of postmark has no {key:?}; {known}")));
                }
            }
        }
        Ok(Self::new(files, sizes, mix, seed))
    }

    /// Blocks of a new file.
    fn blocks(&mut self) -> u32 {
        let span = self.sizes.end() - self.sizes.start() + 1;
        (self.sizes.start() + self.random.below(span)).div_ceil(BLOCK).max(1) as u32
    }

    fn inodes(&self) -> Bytes {
        Bytes((self.files.len() as u64 * INODE).next_multiple_of(BLOCK))
    }

    fn at(&self, file: usize) -> VolumeOffset {
        VolumeOffset(self.journal.0 + self.inodes().0 + file as u64 * self.slot.0)
    }

    /// A file that exists, or one that does not; `None` if a few draws find none.
    fn pick(&mut self, exists: bool) -> Option<usize> {
        (0..64).find_map(|_| {
            let file = self.random.below(self.files.len() as u64) as usize;
            ((self.files[file] > 0) == exists).then_some(file)
        })
    }

    fn transact(&mut self) {
        if let Some(file) = self.pick(true) {
            if self.random.share() < self.mix.appends {
                self.append(file);
            } else if self.random.share() >= self.mix.memory {
                let len = Bytes(u64::from(self.files[file]) * BLOCK);
                self.asked.push_back((Op::Read, self.at(file), len));
            }
        }
        if self.random.share() >= self.mix.makes {
            return;
        }
        let make = self.random.below(2) == 0;
        if let Some(file) = self.pick(!make) {
            self.make_or_remove(file, make);
        }
    }

    fn append(&mut self, file: usize) {
        let room = (self.slot.0 / BLOCK) as u32;
        let last = self.files[file].min(room - 1);
        self.files[file] = last + 1;
        let at = self.at(file) + Bytes(u64::from(last) * BLOCK);
        self.asked.push_back((Op::Write, at, Bytes(BLOCK)));
        self.change(file);
    }

    fn make_or_remove(&mut self, file: usize, make: bool) {
        if make {
            self.files[file] = self.blocks();
            let len = Bytes(u64::from(self.files[file]) * BLOCK);
            self.asked.push_back((Op::Write, self.at(file), len));
        } else {
            self.files[file] = 0;
        }
        self.change(file);
    }

    /// A file's inode has changed.
    fn change(&mut self, file: usize) {
        self.changed.insert(self.journal.0 + file as u64 * INODE / BLOCK * BLOCK);
        self.changes += 1;
        if self.mix.sync {
            self.log(RECORD);
            self.asked.push_back((Op::Flush, VolumeOffset(0), Bytes(0)));
        }
        if self.changes.is_multiple_of(CHECKPOINT) {
            let changed = std::mem::take(&mut self.changed);
            if !self.mix.sync {
                // What they are, and that they are all there.
                self.log(Bytes((changed.len() as u64 + 2) * BLOCK));
            }
            let writes = changed.into_iter().map(|at| (Op::Write, VolumeOffset(at), Bytes(BLOCK)));
            self.asked.extend(writes);
        }
    }

    /// Writes to the journal, from its start again where it ends.
    fn log(&mut self, len: Bytes) {
        let mut left = len.0.min(self.journal.0);
        while left > 0 {
            let piece = left.min(PIECE.0).min(self.journal.0 - self.head);
            self.asked.push_back((Op::Write, VolumeOffset(self.head), Bytes(piece)));
            self.head = (self.head + piece) % self.journal.0;
            left -= piece;
        }
    }
}

impl Load for Postmark {
    fn spaces(&self, extent: ExtentSize) -> Vec<Space> {
        vec![Space::all(Bytes(self.at(self.files.len()).0), extent)]
    }

    fn lasts(&self) -> Nanos {
        Nanos::secs(600)
    }

    fn next(&mut self, now: Nanos) -> Arrival {
        let mut at = now;
        while self.asked.is_empty() {
            at = now + Nanos::from_secs_f64(self.random.gap() / self.mix.rate);
            self.transact();
        }
        let (op, offset, len) = self.asked.pop_front().unwrap_or((Op::Flush, VolumeOffset(0), Bytes(0)));
        Arrival { at, volume: 0, op, offset, len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_of_files_their_inodes_and_the_journal() {
        for sync in [true, false] {
            let mut load = Postmark::new(1000, 1024..=10_240, Mix { sync, ..Mix::default() }, 3);
            let size = load.spaces(ExtentSize::DEFAULT)[0].size;
            let inodes = load.journal.0..load.journal.0 + load.inodes().0;
            let mut now = Nanos(0);
            let (mut reads, mut flushes, mut logged, mut inode_writes, mut data) = (0, 0, 0, 0, 0);
            for _ in 0..50_000 {
                let Arrival { at, op, offset, len, .. } = load.next(now);
                assert!(at >= now && offset.0 + len.0 <= size.0 && offset.0.is_multiple_of(BLOCK));
                now = at;
                match op {
                    Op::Read => reads += 1,
                    Op::Flush => flushes += 1,
                    _ if inodes.contains(&offset.0) => inode_writes += 1,
                    _ if offset.0 < inodes.start => logged += len.0 / BLOCK,
                    _ => data += 1,
                }
            }
            // A transaction: half a read, half an append, half a file made, half one removed: 1.5 changes.
            let transactions = f64::from(reads) * 2.0;
            let of_each = |count: u64| count as f64 / transactions;
            assert!((of_each(data) - 1.0).abs() < 0.05, "{data} data, {reads} reads");
            // A hundred changes meet nearly all of the 63 blocks of inodes.
            assert!((0.60..0.90).contains(&of_each(inode_writes)), "{inode_writes} inodes, {reads} reads");
            let (flushed, journal) = if sync { (1.5, 3.0) } else { (0.0, 0.78) };
            assert!((of_each(flushes) - flushed).abs() < 0.05, "{flushes} flushes, {reads} reads");
            assert!((of_each(logged) - journal).abs() < 0.1, "{logged} blocks logged, {reads} reads");
            let exist = load.files.iter().filter(|blocks| **blocks > 0).count();
            assert!((300..700).contains(&exist), "{exist} files");
            assert!((now.as_secs_f64() / (transactions / 100.0) - 1.0).abs() < 0.05, "{now}");
        }
    }

    #[test]
    fn words_are_understood_or_refused() {
        let kib = |text: &str| text.parse().map(Bytes::kib).map_err(|_| "a size".to_owned());
        let words = "postmark files=100 size=4-64 sync rate=7 appends=80% makes=0.1 memory=90%";
        let load = Postmark::parse(words, 1, kib).expect("a load");
        assert_eq!((load.files.len(), load.slot, load.mix.sync), (100, Bytes::kib(128), true));
        assert_eq!((load.mix.appends, load.mix.makes, load.mix.memory), (0.8, 0.1, 0.9));
        for bad in ["files=1", "size=64-4", "size=x", "sync=1", "rate=0", "reads=5", "makes=2"] {
            assert!(Postmark::parse(&format!("postmark {bad}"), 1, kib).is_err(), "{bad}");
        }
    }
}
