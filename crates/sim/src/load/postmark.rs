//! A load after Postmark (Katcher, NetApp TR-3022): many small files are read, appended to, created and
//! removed, with the disk I/O of a journalling file system.
//!
//! A transaction reads a whole file or appends a block to it, and creates or removes one, each by a coin
//! toss. New files are written whole. Changed inodes are written in place, in order, after a hundred changes;
//! until then the journal has them, one record after the other. With `sync`, as a mail server does, each
//! change is in the journal and flushed before the next. I/O that the file system's memory would absorb is
//! left out: inodes are not read, nor are files to the extent that `memory` says.
//!
//! | word | meaning | unless given |
//! |---|---|---|
//! | `files=` | maximum number of files; at first half of them exist | `20000` |
//! | `size=` | range of file sizes, uniformly distributed: `1KiB-10KiB` | `1KiB-10KiB` |
//! | `appends=` | share of appends among reads and appends | `50%` |
//! | `makes=` | share of transactions that create or remove a file | `100%` |
//! | `memory=` | share of reads served from memory | `0%` |
//! | `sync` | flush after each change | no |
//! | `rate=` | transactions per second, for an open loop | `100` |

use super::synthetic::{LoadRng, words::share};
use crate::{Arrival, Load, SimError, VolumeData};
use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use weir_model::{BLOCK, Bytes, ExtentSize, Hint, Nanos, Op, VolumeOffset};

/// Size of an inode on disk, in bytes.
const INODE: u64 = 256;
/// Bytes that a flushed change writes to the journal.
const RECORD: Bytes = Bytes(8192);
/// Number of changes after which inodes are written in place.
const CHECKPOINT: u32 = 100;
/// Bytes written to the journal at once.
const PIECE: Bytes = Bytes::kib(128);
/// The journal's size is this fraction of the files' space.
const JOURNAL_SHARE: u64 = 32;
const JOURNAL_MIN: Bytes = Bytes::mib(1);
/// Maximum file size.
const SIZE_MAX: Bytes = Bytes::mib(16);
const FILES_MAX: u64 = 100_000_000;

/// Proportions of transactions; shares are from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Share of appends among reads and appends.
    pub appends: f64,
    /// Share of transactions that create or remove a file.
    pub creates_or_removes: f64,
    /// Share of reads served from memory.
    pub memory: f64,
    /// True if changes are flushed.
    pub sync: bool,
    /// Transactions per second, in an open loop.
    pub rate: f64,
}

impl Default for Mix {
    fn default() -> Self {
        Self { appends: 0.5, creates_or_removes: 1.0, memory: 0.0, sync: false, rate: 100.0 }
    }
}

/// The load; see the module documentation.
#[derive(Clone, Debug)]
pub struct Postmark {
    sizes: RangeInclusive<u64>,
    mix: Mix,
    random: LoadRng,
    /// Number of blocks of each file; zero if it does not exist.
    files: Vec<u32>,
    /// Space reserved for one file.
    slot: Bytes,
    journal: Bytes,
    /// Next position in the journal.
    head: u64,
    /// Inode blocks changed since they were written, and the number of changes.
    changed: BTreeSet<u64>,
    changes: u32,
    /// The rest of the current transaction.
    pending: VecDeque<(Op, VolumeOffset, Bytes)>,
}

impl Postmark {
    /// The word with which such a load begins.
    pub const NAME: &'static str = "postmark";

    /// Creates a load with room for `files` files, at least 2, of these sizes in bytes.
    pub fn new(files: u64, sizes: RangeInclusive<u64>, mix: Mix, seed: u64) -> Self {
        // Room for appending.
        let slot = Bytes((2 * *sizes.end()).next_multiple_of(BLOCK));
        let journal = (files * slot.0 / JOURNAL_SHARE).max(JOURNAL_MIN.0).next_multiple_of(BLOCK);
        let mut postmark = Self {
            sizes,
            mix,
            random: LoadRng::new(seed),
            files: vec![0; files.max(2) as usize],
            slot,
            journal: Bytes(journal),
            head: 0,
            changed: BTreeSet::new(),
            changes: 0,
            pending: VecDeque::new(),
        };
        for file in (0..postmark.files.len()).step_by(2) {
            postmark.files[file] = postmark.blocks();
        }
        postmark
    }

    /// Parses a load from its words, the first of which is [`Self::NAME`]. `size` parses sizes and returns
    /// what is allowed on an error.
    ///
    /// # Errors
    /// Returns what is wrong with the first invalid word, and what would be right.
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
                        "makes" => &mut mix.creates_or_removes,
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

    /// Returns the number of blocks of a new file.
    fn blocks(&mut self) -> u32 {
        let span = self.sizes.end() - self.sizes.start() + 1;
        (self.sizes.start() + self.random.below(span)).div_ceil(BLOCK).max(1) as u32
    }

    fn inodes(&self) -> Bytes {
        Bytes((self.files.len() as u64 * INODE).next_multiple_of(BLOCK))
    }

    fn file_offset(&self, file: usize) -> VolumeOffset {
        VolumeOffset(self.journal.0 + self.inodes().0 + file as u64 * self.slot.0)
    }

    /// Picks a file that exists, or one that does not; `None` if a few draws find none.
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
                self.pending.push_back((Op::Read, self.file_offset(file), len));
            }
        }
        if self.random.share() >= self.mix.creates_or_removes {
            return;
        }
        let make = self.random.below(2) == 0;
        if let Some(file) = self.pick(!make) {
            self.create_or_remove(file, make);
        }
    }

    fn append(&mut self, file: usize) {
        let room = (self.slot.0 / BLOCK) as u32;
        let last = self.files[file].min(room - 1);
        self.files[file] = last + 1;
        let at = self.file_offset(file) + Bytes(u64::from(last) * BLOCK);
        self.pending.push_back((Op::Write, at, Bytes(BLOCK)));
        self.change(file);
    }

    fn create_or_remove(&mut self, file: usize, make: bool) {
        if make {
            self.files[file] = self.blocks();
            let len = Bytes(u64::from(self.files[file]) * BLOCK);
            self.pending.push_back((Op::Write, self.file_offset(file), len));
        } else {
            self.files[file] = 0;
        }
        self.change(file);
    }

    /// Marks a file's inode as changed.
    fn change(&mut self, file: usize) {
        self.changed.insert(self.journal.0 + file as u64 * INODE / BLOCK * BLOCK);
        self.changes += 1;
        if self.mix.sync {
            self.log(RECORD);
            self.pending.push_back((Op::Flush, VolumeOffset(0), Bytes(0)));
        }
        if self.changes.is_multiple_of(CHECKPOINT) {
            let changed = std::mem::take(&mut self.changed);
            if !self.mix.sync {
                // A descriptor of the blocks and a commit record.
                self.log(Bytes((changed.len() as u64 + 2) * BLOCK));
            }
            let writes = changed.into_iter().map(|at| (Op::Write, VolumeOffset(at), Bytes(BLOCK)));
            self.pending.extend(writes);
        }
    }

    /// Writes to the journal, wrapping around at its end.
    fn log(&mut self, len: Bytes) {
        let mut left = len.0.min(self.journal.0);
        while left > 0 {
            let piece = left.min(PIECE.0).min(self.journal.0 - self.head);
            self.pending.push_back((Op::Write, VolumeOffset(self.head), Bytes(piece)));
            self.head = (self.head + piece) % self.journal.0;
            left -= piece;
        }
    }
}

impl Load for Postmark {
    fn volumes(&self, extent: ExtentSize) -> Vec<VolumeData> {
        vec![VolumeData::filled(Bytes(self.file_offset(self.files.len()).0), extent)]
    }

    fn duration(&self) -> Nanos {
        Nanos::secs(600)
    }

    fn next_arrival(&mut self, now: Nanos) -> Arrival {
        let mut at = now;
        while self.pending.is_empty() {
            at = now + Nanos::from_secs_f64(self.random.gap() / self.mix.rate);
            self.transact();
        }
        let (op, offset, len) = self.pending.pop_front().unwrap_or((Op::Flush, VolumeOffset(0), Bytes(0)));
        Arrival { at, volume: 0, op, offset, len, hint: Hint::None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_of_files_their_inodes_and_the_journal() {
        for sync in [true, false] {
            let mut load = Postmark::new(1000, 1024..=10_240, Mix { sync, ..Mix::default() }, 3);
            let size = load.volumes(ExtentSize::DEFAULT)[0].size;
            let inodes = load.journal.0..load.journal.0 + load.inodes().0;
            let mut now = Nanos(0);
            let (mut reads, mut flushes, mut logged, mut inode_writes, mut data) = (0, 0, 0, 0, 0);
            for _ in 0..50_000 {
                let Arrival { at, op, offset, len, .. } = load.next_arrival(now);
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
            // A transaction: half a read, half an append, half a creation, half a removal: 1.5 changes.
            let transactions = f64::from(reads) * 2.0;
            let of_each = |count: u64| count as f64 / transactions;
            assert!((of_each(data) - 1.0).abs() < 0.05, "{data} data, {reads} reads");
            // A hundred changes touch nearly all of the 63 blocks of inodes.
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
    fn words_are_parsed_or_rejected() {
        let kib = |text: &str| text.parse().map(Bytes::kib).map_err(|_| "a size".to_owned());
        let words = "postmark files=100 size=4-64 sync rate=7 appends=80% makes=0.1 memory=90%";
        let load = Postmark::parse(words, 1, kib).expect("a load");
        assert_eq!((load.files.len(), load.slot, load.mix.sync), (100, Bytes::kib(128), true));
        assert_eq!((load.mix.appends, load.mix.creates_or_removes, load.mix.memory), (0.8, 0.1, 0.9));
        for bad in ["files=1", "size=64-4", "size=x", "sync=1", "rate=0", "reads=5", "makes=2"] {
            assert!(Postmark::parse(&format!("postmark {bad}"), 1, kib).is_err(), "{bad}");
        }
    }
}
