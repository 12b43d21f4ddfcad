//! Directories: tables of names, by linear hashing.
//!
//! Bucket i of a directory is page i of its data, with overflow pages chained to it. The hash of a name is
//! also its position: the order of a listing is that of hashes. Bucket numbers come from the hash's
//! *highest* bits, the highest one lowest, so that each bucket has a contiguous range of positions and
//! growing by one bucket cuts one range in two. A listing that goes on after a position therefore neither
//! misses nor repeats a name that was there all the time, however the directory grows or shrinks meanwhile.

use super::FileSystem;
use crate::error::{Error, Result};
use crate::layout::chunk::Purpose;
use crate::layout::dirent::{self, Bytes, Entry, FIRST_POSITION};
use crate::layout::inode::{Form, Inode};
use crate::layout::{Ino, NAME_BYTES_MAX, PAGE_BYTES, Page};
use crate::nvm::Memory;
use siphasher::sip::SipHasher24;
use std::hash::Hasher as _;

/// Bits of a position.
const POSITION_BITS: u32 = 63;

/// Returns the bucket of a position among `buckets`, and how many of the position's highest bits it depends
/// on.
const fn bucket_of(position: u64, buckets: u32) -> (u32, u32) {
    let reversed = (position << 1).reverse_bits();
    let bits = buckets.ilog2();
    let low = reversed & ((1 << bits) - 1);
    // The buckets before this one have been split.
    let is_split = low < (buckets - (1 << bits)) as u64;
    if is_split { ((reversed & ((2 << bits) - 1)) as u32, bits + 1) } else { (low as u32, bits) }
}

impl<M: Memory> FileSystem<M> {
    /// Returns the position of a name.
    pub(crate) fn position(&self, name: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.superblock.hash_key);
        hasher.write(name);
        (hasher.finish() >> (64 - POSITION_BITS)).max(FIRST_POSITION)
    }

    /// Returns the page of a bucket.
    pub(crate) fn bucket_page(&self, directory: &Inode, bucket: u32) -> Result<Page> {
        let at = self.segment(directory, u64::from(bucket) * PAGE_BYTES).at;
        let at = at.ok_or_else(|| Error::Damaged(format!("bucket {bucket} of a directory is not mapped")))?;
        Ok(Page(at / PAGE_BYTES))
    }

    /// Returns the pages of a bucket: the first, and the overflow pages.
    pub(crate) fn chain(&self, first: Page) -> Result<Vec<(Page, Bytes)>> {
        let mut chain = Vec::new();
        let mut next = Some(first);
        while let Some(page) = next {
            // Chains are short; one that comes back to a page would have no end.
            let is_known = chain.iter().any(|(known, _)| *known == page);
            if is_known || !self.is_possible(page, 1) {
                return Err(Error::Damaged(format!("page {} ends in no bucket's end", first.0)));
            }
            let bytes = self.page_bytes_at(page);
            next = dirent::next_page(&bytes);
            chain.push((page, bytes));
        }
        Ok(chain)
    }

    /// Returns the entries of a page.
    pub(crate) fn entries(page: Page, bytes: &Bytes) -> Result<Vec<Entry>> {
        let records = records(page, bytes)?;
        let used = records.into_iter().filter(|record| record.ino.0 != 0);
        used.map(|record| {
            let kind = crate::layout::inode::Kind::of_code(record.code);
            let kind = kind.ok_or_else(|| Error::Damaged(format!("page {} has an unknown type", page.0)))?;
            Ok(Entry { hash: record.hash, ino: record.ino, kind, name: record.name.to_vec() })
        })
        .collect()
    }

    /// Gives a new directory its first bucket.
    pub(super) fn new_directory(&mut self, ino: Ino, parent: Ino) -> Result<()> {
        let mut inode = self.raw_inode(ino)?;
        (inode.links, inode.parent) = (2, parent);
        self.add_bucket(ino, &mut inode)?;
        self.set_inode(ino, &inode);
        Ok(())
    }

    /// Maps one more bucket, without entries.
    pub(crate) fn add_bucket(&mut self, ino: Ino, directory: &mut Inode) -> Result<Page> {
        let bucket = directory.buckets;
        let end = (u64::from(bucket) + 1) * PAGE_BYTES;
        if let Form::Empty | Form::Run { .. } = directory.form
            && end <= self.geometry().run_bytes_max()
        {
            self.grow_table(directory, end)?;
        } else {
            if let Form::Run { first, pages } = directory.form {
                self.table_to_chunk(ino, directory, first, pages)?;
            }
            let index = (end - 1) / self.geometry().chunk_bytes;
            if self.chunk_at(directory, index).is_none() {
                self.allocate_chunk(ino, directory, index, false)?;
            }
        }
        directory.buckets += 1;
        directory.size = end;
        let page = self.bucket_page(directory, bucket)?;
        // Nothing refers to this page yet.
        self.store.store_data(page.address(), &dirent::empty_page())?;
        Ok(page)
    }

    /// Makes the run of a directory's buckets end at or after `end`.
    fn grow_table(&mut self, directory: &mut Inode, end: u64) -> Result<()> {
        let old = match directory.form {
            Form::Run { first, pages } => Some((first, pages)),
            _ => None,
        };
        let needed = (end / PAGE_BYTES) as u32;
        if old.is_some_and(|(_, pages)| pages >= needed) {
            return Ok(());
        }
        let pages = needed.next_power_of_two();
        let first = self.space.take_pages(&mut self.store, pages, Purpose::Metadata)?;
        directory.pages += u64::from(pages);
        directory.form = Form::Run { first, pages };
        self.move_table(directory, old, first.address())
    }

    fn table_to_chunk(&mut self, ino: Ino, directory: &mut Inode, first: Page, pages: u32) -> Result<()> {
        directory.form = Form::Empty;
        let mapped = self.allocate_chunk(ino, directory, 0, false)?;
        self.move_table(directory, Some((first, pages)), self.geometry().chunk_at(mapped.chunk))
    }

    /// Copies the buckets to new space, to which nothing refers yet, and frees the old.
    fn move_table(&mut self, directory: &mut Inode, old: Option<(Page, u32)>, to: u64) -> Result<()> {
        let Some((first, pages)) = old else { return Ok(()) };
        for bucket in 0..u64::from(directory.buckets) {
            let bytes = self.page_bytes_at(Page(first.0 + bucket));
            self.store.store_data(to + bucket * PAGE_BYTES, &bytes)?;
        }
        directory.forget_pages(pages.into())?;
        self.space.free_pages_at(&mut self.store, first, pages)
    }

    /// Returns a directory's inode.
    pub(super) fn directory(&self, ino: Ino) -> Result<Inode> {
        let inode = self.inode(ino)?;
        if inode.is_directory() { Ok(inode) } else { Err(Error::NotDirectory) }
    }

    /// Finds a name: the inode and its type, by the entry.
    pub(super) fn find(&self, directory: &Inode, name: &[u8]) -> Result<Option<Entry>> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Error::NameTooLong);
        }
        Ok(self.find_record(directory, name)?.map(|(_, _, _, entry)| entry))
    }

    fn find_record(&self, directory: &Inode, name: &[u8]) -> Result<Option<(Page, Bytes, usize, Entry)>> {
        let hash = self.position(name);
        let (bucket, _) = bucket_of(hash, directory.buckets);
        for (page, bytes) in self.chain(self.bucket_page(directory, bucket)?)? {
            let found = records(page, &bytes)?
                .iter()
                .find(|record| record.ino.0 != 0 && record.hash == hash && record.name == name)
                .map(|record| record.at);
            if let Some(at) = found {
                let entry = Self::entries(page, &bytes)?.into_iter().find(|entry| entry.name == name);
                return Ok(entry.map(|entry| (page, bytes, at, entry)));
            }
        }
        Ok(None)
    }

    /// Adds a name, which the directory must not have.
    pub(crate) fn add_entry(&mut self, ino: Ino, directory: &mut Inode, mut entry: Entry) -> Result<()> {
        entry.hash = self.position(&entry.name);
        let (bucket, _) = bucket_of(entry.hash, directory.buckets);
        let chain = self.chain(self.bucket_page(directory, bucket)?)?;
        for (page, bytes) in &chain {
            // Two names with one hash of 63 bits could not be told apart in a listing.
            if records(*page, bytes)?.iter().any(|it| it.ino.0 != 0 && it.hash == entry.hash) {
                return Err(Error::NoSpace);
            }
        }
        if !self.add_to_chain(chain, &entry) {
            self.split_bucket(ino, directory)?;
            let (bucket, _) = bucket_of(entry.hash, directory.buckets);
            let chain = self.chain(self.bucket_page(directory, bucket)?)?;
            let last = chain.last().map(|(page, _)| *page);
            if !self.add_to_chain(chain, &entry) {
                let mut page = dirent::empty_page();
                dirent::add(&mut page, &entry);
                let new = self.add_overflow_page(directory, &page)?;
                let last = last.ok_or_else(|| Error::Damaged("a bucket has no page".to_owned()))?;
                self.store.stage(last.address(), &new.0.to_le_bytes());
            }
        }
        directory.entries = directory.entries.saturating_add(1);
        Ok(())
    }

    fn add_to_chain(&mut self, chain: Vec<(Page, Bytes)>, entry: &Entry) -> bool {
        for (page, mut bytes) in chain {
            if dirent::add(&mut bytes, entry) {
                self.store.stage(page.address(), &bytes);
                return true;
            }
        }
        false
    }

    fn add_overflow_page(&mut self, directory: &mut Inode, contents: &Bytes) -> Result<Page> {
        let page = self.space.take_pages(&mut self.store, 1, Purpose::Metadata)?;
        directory.pages += 1;
        self.store.store_data(page.address(), contents)?;
        Ok(page)
    }

    /// Adds a bucket, to which half of the positions of an existing one go.
    fn split_bucket(&mut self, ino: Ino, directory: &mut Inode) -> Result<()> {
        let new = directory.buckets;
        let old = new - (1 << new.ilog2());
        self.add_bucket(ino, directory)?;
        let chain = self.chain(self.bucket_page(directory, old)?)?;
        let mut entries = Vec::new();
        for (page, bytes) in &chain {
            entries.extend(Self::entries(*page, bytes)?);
        }
        let (moved, kept): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| bucket_of(entry.hash, directory.buckets).0 == new);
        for (page, _) in &chain[1..] {
            directory.forget_pages(1)?;
            self.space.free_pages_at(&mut self.store, *page, 1)?;
        }
        let first = self.bucket_page(directory, new)?;
        let bytes = self.build_chain(directory, &moved)?;
        self.store.store_data(first.address(), &bytes)?;
        let bytes = self.build_chain(directory, &kept)?;
        self.store.stage(chain[0].0.address(), &bytes);
        Ok(())
    }

    /// Returns the first page of a bucket with these entries; writes new overflow pages for what it has no
    /// space for.
    fn build_chain(&mut self, directory: &mut Inode, entries: &[Entry]) -> Result<Bytes> {
        let mut pages = vec![dirent::empty_page()];
        for entry in entries {
            let last = pages.last_mut().expect("there is a first page");
            if !dirent::add(last, entry) {
                let mut page = dirent::empty_page();
                dirent::add(&mut page, entry);
                pages.push(page);
            }
        }
        let mut below: Option<Page> = None;
        while let Some(mut page) = pages.pop() {
            if let Some(next) = below {
                page[..8].copy_from_slice(&next.0.to_le_bytes());
            }
            if pages.is_empty() {
                return Ok(page);
            }
            below = Some(self.add_overflow_page(directory, &page)?);
        }
        Ok(dirent::empty_page())
    }

    /// Removes a name.
    pub(super) fn remove_entry(&mut self, directory: &mut Inode, name: &[u8]) -> Result<()> {
        let (page, mut bytes, at, _) = self.find_record(directory, name)?.ok_or(Error::NotFound)?;
        dirent::remove(&mut bytes, at);
        self.store.stage(page.address(), &bytes);
        directory.entries = directory.entries.checked_sub(1).ok_or_else(too_few_entries)?;
        Ok(())
    }

    /// Makes an existing name refer to another inode.
    pub(super) fn replace_entry(&mut self, directory: &Inode, name: &[u8], new: &Entry) -> Result<()> {
        let (page, bytes, at, old) = self.find_record(directory, name)?.ok_or(Error::NotFound)?;
        let record = records(page, &bytes)?.iter().find(|record| record.at == at).map(|record| record.len);
        let len = record.ok_or_else(|| Error::Damaged("an entry vanished".to_owned()))?;
        let mut record = vec![0; len];
        let entry = Entry { ino: new.ino, kind: new.kind, ..old };
        dirent::write_record(&mut record, len, Some(&entry));
        self.store.stage(page.address() + at as u64, &record[..entry.record_bytes()]);
        Ok(())
    }

    /// Returns entries with positions after `after`, in order: those of whole buckets, until there are at
    /// least `count`.
    ///
    /// # Errors
    /// `NotDirectory`, `NotFound`.
    pub fn list(&self, ino: Ino, after: u64, count: usize) -> Result<Vec<Entry>> {
        let directory = self.directory(ino)?;
        let mut found = Vec::new();
        let mut position = after.saturating_add(1);
        while position < 1 << POSITION_BITS && found.len() < count {
            let (bucket, bits) = bucket_of(position, directory.buckets);
            let start = found.len();
            for (page, bytes) in self.chain(self.bucket_page(&directory, bucket)?)? {
                found.extend(Self::entries(page, &bytes)?.into_iter().filter(|it| it.hash >= position));
            }
            found[start..].sort_unstable_by_key(|entry| entry.hash);
            let range_bits = POSITION_BITS - bits;
            position = ((position >> range_bits) + 1) << range_bits;
        }
        Ok(found)
    }

    /// Frees the overflow pages of a directory that is removed.
    pub(super) fn free_overflow_pages(&mut self, directory: &mut Inode) -> Result<()> {
        for bucket in 0..directory.buckets {
            for (page, _) in self.chain(self.bucket_page(directory, bucket)?)?.into_iter().skip(1) {
                directory.forget_pages(1)?;
                self.space.free_pages_at(&mut self.store, page, 1)?;
            }
        }
        directory.buckets = 0;
        Ok(())
    }

    /// Returns whether a position belongs to a bucket.
    pub(crate) fn is_in_bucket(position: u64, bucket: u32, buckets: u32) -> bool {
        bucket_of(position, buckets).0 == bucket
    }
}

fn too_few_entries() -> Error {
    Error::Damaged("a directory has more entries than its inode says".to_owned())
}

fn records(page: Page, bytes: &Bytes) -> Result<Vec<dirent::Record<'_>>> {
    dirent::records(bytes).ok_or_else(|| Error::Damaged(format!("page {} of a directory is damaged", page.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::inode::Kind;
    use crate::namespace::{New, RenameHow};
    use crate::testing::{NOW, file, file_system};

    /// Each bucket has the positions of one range, and the ranges of all buckets cover all positions.
    #[test]
    fn buckets_are_contiguous_ranges() {
        for buckets in 1..70 {
            let mut seen = vec![0; buckets as usize];
            let mut position = 0;
            while position < 1 << POSITION_BITS {
                let (bucket, bits) = bucket_of(position, buckets);
                let end = ((position >> (POSITION_BITS - bits)) + 1) << (POSITION_BITS - bits);
                assert_eq!(bucket_of(end - 1, buckets), (bucket, bits));
                seen[bucket as usize] += 1;
                position = end;
            }
            assert!(seen.iter().all(|&count| count == 1), "{buckets} buckets: {seen:?}");
        }
    }

    /// A new bucket takes positions of one bucket only, the one that is split.
    #[test]
    fn growing_splits_one_bucket() {
        for new in 1_u32..70 {
            let old = new - (1 << new.ilog2());
            for position in (0..1 << POSITION_BITS).step_by(1 << 54) {
                let (before, after) = (bucket_of(position, new).0, bucket_of(position, new + 1).0);
                assert!(before == after || (before, after) == (old, new), "{new}: {before} {after}");
            }
        }
    }

    /// Also the pages beyond the first ones of its buckets.
    #[test]
    fn a_removed_directory_leaves_no_page() {
        let (mut fs, _) = file_system(&[]);
        let linked = file(&mut fs, "file", 10);
        let before = fs.usage().free_pages;
        let new = New { kind: Kind::Directory, permissions: 0o755, ..crate::testing::NEW };
        let (ino, _) = fs.create_file(Ino::ROOT, b"directory", &new, NOW).expect("space");
        let names: Vec<_> = (0..300).map(|number| format!("{number:0>255}").into_bytes()).collect();
        for name in &names {
            fs.link(linked, ino, name, NOW).expect("space");
        }
        let directory = fs.inode(ino).expect("it exists");
        let page = |bucket| fs.bucket_page(&directory, bucket).expect("it is mapped");
        let pages: usize =
            (0..directory.buckets).map(|bucket| fs.chain(page(bucket)).expect("sound").len()).sum();
        assert!(pages > directory.buckets as usize, "some buckets have several pages");
        names.iter().for_each(|name| fs.unlink(ino, name, NOW).expect("it exists"));
        fs.remove_directory(Ino::ROOT, b"directory", NOW).expect("it is empty");
        fs.sync().expect("no failure");
        assert_eq!(fs.usage().free_pages, before);
        let report = crate::check::check(&fs);
        assert!(report.is_clean(), "{report:#?}");
    }

    #[test]
    fn nothing_comes_to_a_removed_directory() {
        let (mut fs, _) = file_system(&[]);
        let new = New { kind: Kind::Directory, permissions: 0o755, ..crate::testing::NEW };
        let (ino, _) = fs.create_file(Ino::ROOT, b"directory", &new, NOW).expect("space");
        let other = file(&mut fs, "file", 10);
        fs.refer(ino);
        fs.remove_directory(Ino::ROOT, b"directory", NOW).expect("it is empty");
        let to = (ino, &b"file"[..]);
        let renamed = fs.rename((Ino::ROOT, b"file"), to, RenameHow::Replace, NOW);
        assert!(matches!(renamed, Err(Error::NotFound)));
        assert!(matches!(fs.link(other, ino, b"file", NOW), Err(Error::NotFound)));
        assert!(matches!(fs.create_file(ino, b"file", &new, NOW), Err(Error::NotFound)));
        // A removed file gets no name either.
        fs.refer(other);
        fs.unlink(Ino::ROOT, b"file", NOW).expect("it exists");
        assert!(matches!(fs.link(other, Ino::ROOT, b"file", NOW), Err(Error::NotFound)));
    }
}
