//! Locations of file systems' metadata, for policies that use them when clients give no hint, and the volumes
//! still to survey ([`crate::background::survey`]).

use crate::core::Core;
use crate::policy::Host;
use std::collections::BTreeMap;
use weir_model::{BlockRange, Bytes, ExtentKey, Hint, Nanos, VolumeId};
use weir_policy::ext::{Layout, Ranges};

/// The delay between a write of a superblock and its survey; a program that makes a file system has finished
/// by then.
pub(crate) const AFTER: Nanos = Nanos::secs(5);

/// The result of a volume's survey.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) layout: Layout,
    pub(crate) metadata: Ranges,
}

/// The time at which to survey a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) at: Nanos,
    /// Whether its superblock was rewritten in the meantime, so that one more survey must follow.
    pub(crate) again: bool,
}

impl Due {
    pub(crate) const fn at(at: Nanos) -> Self {
        Self { at, again: false }
    }
}

/// The results of surveys, and the surveys due.
#[derive(Debug, Default)]
pub(crate) struct Inference {
    pub(crate) known: BTreeMap<VolumeId, Known>,
    pub(crate) due: BTreeMap<VolumeId, Due>,
}

impl Inference {
    /// Returns how much of the volume is metadata, if known.
    pub(crate) fn found(&self, volume: VolumeId) -> Option<Bytes> {
        self.known.get(&volume).map(|known| known.metadata.bytes())
    }

    /// Forgets a removed volume.
    pub(crate) fn forget(&mut self, volume: VolumeId) {
        self.known.remove(&volume);
        self.due.remove(&volume);
    }
}

impl Host {
    /// Returns the hint for the blocks: the client's, else one from the survey.
    #[inline]
    pub(crate) fn hint(&self, core: &Core, said: Hint, key: ExtentKey, range: BlockRange) -> Hint {
        if said != Hint::None || self.inference.known.is_empty() {
            return said;
        }
        let first = key.index.0 * u64::from(core.map.extent().blocks()) + u64::from(range.first);
        let known = self.inference.known.get(&key.volume);
        match known.is_some_and(|known| known.metadata.contain(first, range.count.into())) {
            true => Hint::Metadata,
            false => said,
        }
    }

    /// Schedules surveys of the volumes whose policy wants them and that have none, after policies have
    /// changed.
    pub(crate) fn look_for_metadata(&mut self, core: &Core) {
        for volume in core.map.catalogue().volumes.keys() {
            let wanted = self.policies.watches(*volume).metadata;
            if wanted && !self.inference.known.contains_key(volume) {
                self.inference.due.entry(*volume).or_insert(Due::at(core.now));
            }
        }
    }

    /// Schedules a survey if a change of these blocks may include the superblock.
    #[inline]
    pub(crate) fn note_superblock(&mut self, core: &Core, key: ExtentKey, range: BlockRange) {
        if key.index.0 == 0 && range.first == 0 && self.policies.watches(key.volume).metadata {
            let due = self.inference.due.entry(key.volume);
            due.and_modify(|due| due.again = true).or_insert(Due::at(core.now + AFTER));
        }
    }
}
