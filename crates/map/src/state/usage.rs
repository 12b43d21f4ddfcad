//! The space that volumes use: a running count of the durable state, and of the space being released.

use crate::format::value::{Chunk, Location};
use crate::state::extent_state::ExtentState;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::{Add, Sub};
use weir_model::{BLOCK, Bytes, DeviceId, VolumeId};

/// The space of extents on the devices: every place of each, so copies and reserved space count too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Whole places.
    pub wholes: u64,
    /// Slots of 4 KiB, in shared extents.
    pub slots: u64,
}

impl Usage {
    /// Returns the space of one extent. Cost: linear in its places.
    pub fn of(found: &ExtentState<'_>) -> Self {
        let ExtentState::Record(record) = found else {
            return Self { wholes: u64::from(matches!(found, ExtentState::Direct(_))), slots: 0 };
        };
        record.places.iter().fold(Self::default(), |sum, place| match &place.at {
            Location::Whole(_) => Self { wholes: sum.wholes + 1, ..sum },
            Location::Fine { slots, .. } => Self { slots: sum.slots + slots.len() as u64, ..sum },
        })
    }

    /// Returns the space in bytes, with whole places of this size.
    pub fn bytes(self, extent: Bytes) -> Bytes {
        Bytes(self.wholes * extent.0 + self.slots * BLOCK)
    }
}

impl Add for Usage {
    type Output = Self;
    fn add(self, more: Self) -> Self {
        Self { wholes: self.wholes + more.wholes, slots: self.slots + more.slots }
    }
}

impl Sub for Usage {
    type Output = Self;
    fn sub(self, less: Self) -> Self {
        debug_assert!(self.wholes >= less.wholes && self.slots >= less.slots, "{self:?} - {less:?}");
        Self { wholes: self.wholes.saturating_sub(less.wholes), slots: self.slots.saturating_sub(less.slots) }
    }
}

/// The space of the durable map, by volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsageByVolume(BTreeMap<VolumeId, Usage>);

impl UsageByVolume {
    /// Updates the count for an extent of the volume that has changed.
    pub(crate) fn change(&mut self, volume: VolumeId, from: Usage, to: Usage) {
        let usage = self.0.entry(volume).or_default();
        *usage = *usage + to - from;
    }

    /// Forgets a deleted volume.
    pub(crate) fn remove_volume(&mut self, volume: VolumeId) {
        self.0.remove(&volume);
    }

    /// Returns the space of one volume.
    pub(crate) fn of(&self, volume: VolumeId) -> Usage {
        self.0.get(&volume).copied().unwrap_or_default()
    }
}

/// The extents and slots whose release is not yet durable: their number, and the number of extents of each
/// device.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingReleases {
    total: usize,
    wholes: SmallVec<[u32; 8]>,
}

impl PendingReleases {
    /// Adds released chunks.
    pub(crate) fn add(&mut self, chunks: &[Chunk]) {
        self.total += chunks.len();
        for device in whole_devices(chunks) {
            if self.wholes.len() <= device.index() {
                self.wholes.resize(device.index() + 1, 0);
            }
            self.wholes[device.index()] += 1;
        }
    }

    /// Removes chunks.
    pub(crate) fn remove(&mut self, chunks: &[Chunk]) {
        self.total -= chunks.len();
        whole_devices(chunks).for_each(|device| self.wholes[device.index()] -= 1);
    }

    /// Returns their number.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Returns the number of extents of a device.
    pub(crate) fn wholes(&self, device: DeviceId) -> u32 {
        self.wholes.get(device.index()).copied().unwrap_or(0)
    }
}

fn whole_devices(chunks: &[Chunk]) -> impl Iterator<Item = DeviceId> + '_ {
    chunks.iter().filter_map(|chunk| match chunk {
        Chunk::Whole(whole) => Some(whole.device),
        Chunk::Slot(..) => None,
    })
}
