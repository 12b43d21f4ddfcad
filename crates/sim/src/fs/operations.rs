//! The operations on files: what each changes, and what is to be read for it.

use super::plan::FastTier;
use super::run::FsRun;
use super::space::{File, data, metadata};
use weir_model::Bytes;
use weir_policy::eviction::items::{FileKey, Item, Part};

/// What is to be read for an operation: the header and the data of a container: the tier, the file, and
/// whether only the header is.
pub(super) type Reads = [Option<(usize, FileKey, bool)>; 2];

impl FsRun<'_> {
    pub(super) fn create(&mut self, file: FileKey, len: Bytes) -> Reads {
        self.space.files.insert(file, File { len: len.0, ..File::default() });
        if self.space.metadata_size() > Bytes(0) {
            self.space.access(metadata(file), self.space.metadata_size());
        }
        if self.space.is_large(len.0) {
            self.write_large(file, len);
        } else if len > Bytes(0) {
            self.enter(file, self.space.space_of(len.0));
        }
        [None, None]
    }

    /// Puts data into the fast tier, or lets it grow there.
    fn enter(&mut self, file: FileKey, space: Bytes) {
        if !self.space.items.contains(data(file)) && matches!(self.plan.fast, FastTier::Memory(_)) {
            self.ages.push_back((self.now, file));
        }
        self.space.access(data(file), space);
    }

    /// Writes data that is too large for the fast tier to a tier below.
    fn write_large(&mut self, file: FileKey, len: Bytes) {
        let target = self.distribute(&[len]).first().copied().unwrap_or(0);
        let piece = self.tiers[target].bottom.rewrite(file, len);
        self.tiers[target].write_in_background(vec![piece]);
        self.memory.insert(data(file), len);
        if let Some(of) = self.space.files.get_mut(&file) {
            of.container = Some(target);
        }
    }

    pub(super) fn append(&mut self, file: FileKey, len: Bytes) -> Reads {
        let header = self.access_metadata(file);
        let Some(of) = self.space.files.get(&file).copied() else { return header };
        let new_len = of.len + len.0;
        match self.tier_of(file) {
            Some(tier) => {
                let piece = self.tiers[tier].bottom.write(file, len);
                self.tiers[tier].write_in_background(vec![piece]);
                self.add_load(tier, len);
                self.memory.insert(data(file), Bytes(new_len));
            }
            None => {
                let grown = self.space.space_of(new_len).0 - self.space.space_of(of.len).0;
                let before = self.space.items.size(data(file)).unwrap_or(Bytes(0));
                self.enter(file, Bytes(before.0 + grown));
            }
        }
        if let Some(of) = self.space.files.get_mut(&file) {
            of.len = new_len;
            of.is_clean = false;
        }
        header
    }

    /// Accesses a file's metadata. Returns what is to be read for it.
    pub(super) fn access_metadata(&mut self, file: FileKey) -> Reads {
        let item = metadata(file);
        if self.space.metadata_size() == Bytes(0) {
            // The tiers' file systems have it, and keep it in memory.
            return [None, None];
        }
        if self.space.items.contains(item) {
            self.hits[0] += 1;
            self.space.touch(item);
            return [None, None];
        }
        let Some(tier) = self.space.files.get(&file).and_then(|of| of.container) else { return [None, None] };
        let is_in_memory = self.memory.hit(item);
        self.hits[if is_in_memory { 1 } else { 2 }] += 1;
        self.memory.insert(item, self.space.metadata_size());
        self.promote(item, self.space.metadata_size());
        [(!is_in_memory).then_some((tier, file, true)), None]
    }

    /// Reads all of a file. Returns its length, and what is to be read for it.
    pub(super) fn read(&mut self, file: FileKey) -> (Bytes, Reads) {
        let [header, _] = self.access_metadata(file);
        let len = self.space.files.get(&file).map_or(0, |of| of.len);
        let container = self.space.files.get(&file).and_then(|of| of.container);
        let is_nvm = matches!(self.plan.fast, FastTier::Nvm(_));
        let is_in = self.space.items.contains(data(file));
        if is_in {
            self.space.touch(data(file));
        }
        match container {
            Some(tier) if !is_in || !is_nvm => {
                let is_in_memory = self.memory.hit(data(file));
                self.hits[if is_in_memory { 1 } else { 2 }] += 1;
                if is_in_memory {
                    return (Bytes(len), [header, None]);
                }
                self.memory.insert(data(file), Bytes(len));
                self.add_load(tier, Bytes(len));
                if is_nvm {
                    self.promote(data(file), self.space.space_of(len));
                }
                (Bytes(len), [None, Some((tier, file, false))])
            }
            _ => {
                self.hits[usize::from(!is_nvm)] += 1;
                (Bytes(len), [header, None])
            }
        }
    }

    pub(super) fn remove(&mut self, file: FileKey) -> Reads {
        let header = self.access_metadata(file);
        let of = self.space.remove(file);
        for item in [data(file), metadata(file)] {
            self.memory.remove(item);
            self.promotion.removed(item);
        }
        if let Some(tier) = of.container {
            self.tiers[tier].bottom.remove(file);
        }
        header
    }

    /// Promotes an item that was accessed, if the policy says so and there is space.
    fn promote(&mut self, item: Item, size: Bytes) {
        let lacks_metadata = item.part == Part::Data && !self.space.items.contains(metadata(item.file));
        let more = if lacks_metadata { self.space.metadata_size() } else { Bytes(0) };
        let fits = self.space.fits(size + more) && !self.space.is_large(size.0);
        if !fits || !self.promotion.accessed(item, size, &mut self.space.items) {
            return;
        }
        if lacks_metadata {
            self.space.access(metadata(item.file), more);
        }
        self.space.access(item, size);
        self.space.counts.promoted += size.0 + more.0;
        if let Some(of) = self.space.files.get_mut(&item.file)
            && item.part == Part::Data
        {
            of.is_clean = true;
        }
    }
}
