//! Which files are hot: what leaves the region next, what returns to it, and to which tier a file goes.
//!
//! The policies are those of `weir-policy`, as in `weir sim fs`.

use super::{Class, TierWork};
use crate::layout::inode::{Form, Inode};
use crate::layout::{Ino, PAGE_BYTES};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::Range;
use weir_model::Bytes;
use weir_policy::distribution::{DISTRIBUTION, Distribution, DistributionSettings, TierLoad};
use weir_policy::eviction::OMEGA;
use weir_policy::eviction::items::{FileKey, Item, ItemEviction, ItemEvictionPolicy, ItemSettings, Part};
use weir_policy::promotion::{PROMOTION, Promotion};

/// Files whose last access is remembered, to recognize sequential ones.
const RECENT_MAX: usize = 4096;
/// A gap up to which an access continues the one before: requests that run ahead arrive out of order.
const GAP_BYTES_MAX: u64 = 2 << 20;
/// Files that wait for promotion at most.
const WANTED_MAX: usize = 1024;

/// The history of accesses.
#[derive(Debug)]
pub(crate) struct Heat {
    omega: f64,
    /// Files with data in the region.
    resident: ItemEviction,
    promotion: Box<dyn Promotion>,
    distribution: Box<dyn Distribution>,
    /// Files in containers that turned hot.
    wanted: BTreeSet<Ino>,
    /// Where the last access to a file ended.
    recent: FxHashMap<Ino, u64>,
}

const fn item(ino: Ino) -> Item {
    Item { file: FileKey(ino.0), part: Part::Data }
}

/// Returns the bytes of the region that a file has.
const fn region_bytes(inode: &Inode) -> Bytes {
    Bytes(inode.pages * PAGE_BYTES)
}

impl Default for Heat {
    fn default() -> Self {
        Self::new(OMEGA)
    }
}

impl Heat {
    /// Returns an empty history. `omega` is the weight of accesses per byte beside recency, in bytes.
    pub(crate) fn new(omega: f64) -> Self {
        let eviction = ItemEvictionPolicy::by_name("trident").expect("a known policy");
        Self {
            omega,
            resident: eviction.start(&ItemSettings { omega }),
            promotion: PROMOTION[0].start(),
            distribution: DISTRIBUTION[0].start(&DistributionSettings::default()),
            wanted: BTreeSet::new(),
            recent: FxHashMap::default(),
        }
    }

    /// Returns the weight of accesses.
    pub(crate) const fn omega(&self) -> f64 {
        self.omega
    }

    /// Notes an access to a range of a file. Requests that continue the one before belong to the same access.
    pub(crate) fn accessed(&mut self, ino: Ino, inode: &Inode, range: &Range<u64>) {
        if self.recent.len() >= RECENT_MAX && !self.recent.contains_key(&ino) {
            self.recent.clear();
        }
        let before = self.recent.insert(ino, range.end);
        let continues =
            before.is_some_and(|end| range.start > 0 && end.abs_diff(range.start) <= GAP_BYTES_MAX);
        match inode.form {
            Form::Container(_) if continues => {}
            Form::Container(_) => {
                let is_hot = self.promotion.accessed(item(ino), Bytes(inode.size), &mut self.resident);
                if is_hot && !inode.is_pinned && self.wanted.len() < WANTED_MAX {
                    self.wanted.insert(ino);
                }
            }
            Form::Run { .. } | Form::Tree { .. } if continues && self.resident.contains(item(ino)) => {
                self.resident.resize(item(ino), region_bytes(inode));
            }
            Form::Run { .. } | Form::Tree { .. } => self.resident.access(item(ino), region_bytes(inode)),
            Form::Empty => {}
        }
    }

    /// Notes a file that has data in the region, unless it is known.
    pub(crate) fn found(&mut self, ino: Ino, inode: &Inode) {
        if !self.resident.contains(item(ino)) {
            self.resident.access(item(ino), region_bytes(inode));
        }
    }

    /// Notes that a file has no data in the region any more, or none at all.
    pub(crate) fn removed(&mut self, ino: Ino) {
        self.resident.remove(item(ino));
        self.promotion.removed(item(ino));
        self.wanted.remove(&ino);
    }

    /// Returns the number of files with data in the region that are known.
    pub(crate) fn residents(&self) -> usize {
        self.resident.len()
    }

    /// Takes the file that leaves the region next.
    pub(crate) fn evict(&mut self) -> Option<Ino> {
        self.resident.evict().map(|(item, _)| Ino(item.file.0))
    }

    /// Takes a file that is to return to the region.
    pub(crate) fn take_wanted(&mut self) -> Option<Ino> {
        self.wanted.pop_first()
    }

    /// Returns for each of these sizes the tier that it should go to, as an index.
    pub(crate) fn distribute(&mut self, sizes: &[Bytes], tiers: &[(Class, TierWork)]) -> Vec<usize> {
        let load = |(class, work): &(Class, TierWork)| TierLoad {
            seeks: *class == Class::Disk,
            load: work.busy_seconds,
            rate: work.rate,
        };
        let mut loads: Vec<_> = tiers.iter().map(load).collect();
        self.distribution.distribute(sizes, &mut loads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Page;
    use crate::layout::Time;
    use crate::layout::tier::{Container, TierNumber};

    fn file(form: Form, bytes: u64) -> Inode {
        let mut inode = Inode::new(libc::S_IFREG | 0o644, 0, 0, Time::default(), 0);
        (inode.form, inode.size, inode.pages) = (form, bytes, bytes.div_ceil(PAGE_BYTES));
        inode
    }

    const RUN: Form = Form::Run { first: Page(9), pages: 1 };
    const CONTAINER: Form = Form::Container(Container { tier: TierNumber(0), number: 1 });

    #[test]
    fn large_files_that_are_not_accessed_leave_first() {
        let mut heat = Heat::default();
        heat.accessed(Ino(2), &file(RUN, 4096), &(0..4096));
        heat.accessed(Ino(3), &file(RUN, 4096), &(0..4096));
        // It grows by requests that belong to one access.
        for part in 1..64 {
            let end = part << 20;
            heat.accessed(Ino(3), &file(RUN, end), &(end - (1 << 20)..end));
        }
        assert_eq!((heat.evict(), heat.evict(), heat.evict()), (Some(Ino(3)), Some(Ino(2)), None));
    }

    #[test]
    fn one_sequential_read_promotes_nothing_and_a_second_access_does() {
        let mut heat = Heat::default();
        let inode = file(CONTAINER, 64 << 20);
        let scan = |heat: &mut Heat| {
            (0..512).for_each(|at| heat.accessed(Ino(5), &inode, &(at << 17..(at + 1) << 17)));
        };
        scan(&mut heat);
        assert_eq!(heat.take_wanted(), None);
        scan(&mut heat);
        assert_eq!(heat.take_wanted(), Some(Ino(5)));
    }

    #[test]
    fn small_files_go_to_flash_and_large_ones_to_disks() {
        let work = TierWork { busy_seconds: 0.0, rate: Some(1e6) };
        let tiers = [(Class::Disk, work), (Class::Flash, work)];
        let targets = Heat::default().distribute(&[Bytes(1 << 20), Bytes(4096)], &tiers);
        assert_eq!(targets, [0, 1]);
    }
}
