//! Numbers of extents.

use super::{NONE, Numbers};
use rustc_hash::FxHashMap;
use weir_model::{ExtentKey, VolumeId};

/// The consecutive extents of a group: their numbers fill a cache line.
const GROUP: usize = 16;

#[derive(Clone, Debug)]
struct Group {
    numbers: [u32; GROUP],
    used: u8,
}

/// Numbers by extent, in groups of consecutive extents: neighbours are found with loads of one cache line,
/// and the hash table of groups is small.
#[derive(Clone, Debug, Default)]
pub struct ExtentNumbers {
    groups: FxHashMap<(VolumeId, u64), Box<Group>>,
    len: usize,
}

const fn locate(key: &ExtentKey) -> ((VolumeId, u64), usize) {
    let group = GROUP as u64;
    ((key.volume, key.index.0 / group), (key.index.0 % group) as usize)
}

impl ExtentNumbers {
    /// The memory of a group in bytes when the hash table is fullest, and just after it has doubled.
    const GROUP_BYTES: (usize, usize) = {
        let entry = size_of::<((VolumeId, u64), Box<Group>)>() + 1;
        (size_of::<Group>() + 8 * entry / 7, size_of::<Group>() + 16 * entry / 7)
    };

    /// Whether it has neither extents nor groups.
    #[cfg(test)]
    pub(super) fn is_unused(&self) -> bool {
        self.len == 0 && self.groups.is_empty()
    }
}

impl Numbers<ExtentKey> for ExtentNumbers {
    /// Of an extent that is alone in its group.
    const KEY_BYTES: (usize, usize) = Self::GROUP_BYTES;

    #[inline]
    fn get(&self, key: &ExtentKey) -> Option<u32> {
        let (group, at) = locate(key);
        self.groups.get(&group).map(|group| group.numbers[at]).filter(|number| *number != NONE)
    }

    fn insert(&mut self, key: ExtentKey, number: u32) {
        let (group, at) = locate(&key);
        let empty = || Box::new(Group { numbers: [NONE; GROUP], used: 0 });
        let group = self.groups.entry(group).or_insert_with(empty);
        let is_new = std::mem::replace(&mut group.numbers[at], number) == NONE;
        group.used += u8::from(is_new);
        self.len += usize::from(is_new);
    }

    fn remove(&mut self, key: &ExtentKey) -> Option<u32> {
        let (number_of_group, at) = locate(key);
        let group = self.groups.get_mut(&number_of_group)?;
        let number = std::mem::replace(&mut group.numbers[at], NONE);
        if number == NONE {
            return None;
        }
        group.used -= 1;
        self.len -= 1;
        if group.used == 0 {
            self.groups.remove(&number_of_group);
        }
        Some(number)
    }

    fn count(&self) -> usize {
        self.len
    }

    fn memory(&self) -> usize {
        let table = self.groups.capacity() * (Self::GROUP_BYTES.0 - size_of::<Group>());
        table + self.groups.len() * size_of::<Group>()
    }
}
