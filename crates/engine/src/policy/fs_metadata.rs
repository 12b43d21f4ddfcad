//! What is known of file systems' metadata, for policies that want to know it where clients do not say, and
//! which volumes are to be looked at ([`crate::background::survey`]).

use crate::core::Core;
use crate::policy::Host;
use std::collections::BTreeMap;
use weir_model::{BlockRange, Bytes, ExtentKey, Hint, Nanos, VolumeId};
use weir_policy::ext::{Layout, Ranges};

/// How long after a superblock was written it is looked at: by then who makes a file system has finished.
pub(crate) const AFTER: Nanos = Nanos::secs(5);

/// What was found of a volume.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) layout: Layout,
    pub(crate) metadata: Ranges,
}

/// When to look at a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) at: Nanos,
    /// Its superblock was written again meanwhile: to be looked at once more afterwards.
    pub(crate) again: bool,
}

impl Due {
    pub(crate) const fn at(at: Nanos) -> Self {
        Self { at, again: false }
    }
}

/// What was found, and what is to be looked at.
#[derive(Debug, Default)]
pub(crate) struct Inference {
    pub(crate) known: BTreeMap<VolumeId, Known>,
    pub(crate) due: BTreeMap<VolumeId, Due>,
}

impl Inference {
    /// How much of the volume is metadata; `None` if that is not known.
    pub(crate) fn found(&self, volume: VolumeId) -> Option<Bytes> {
        self.known.get(&volume).map(|known| known.metadata.bytes())
    }

    /// The volume is gone.
    pub(crate) fn forget(&mut self, volume: VolumeId) {
        self.known.remove(&volume);
        self.due.remove(&volume);
    }
}

impl Host {
    /// What the blocks are, if the client does not say.
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

    /// Policies have changed: looks at the volumes whose policy wants to know, unless that has been done.
    pub(crate) fn look_for_metadata(&mut self, core: &Core) {
        for volume in core.map.catalogue().volumes.keys() {
            let wanted = self.policies.watches(*volume).metadata;
            if wanted && !self.inference.known.contains_key(volume) {
                self.inference.due.entry(*volume).or_insert(Due::at(core.now));
            }
        }
    }

    /// Blocks of an extent are to be changed: if the superblock may be among them, it is to be looked at.
    #[inline]
    pub(crate) fn note_superblock(&mut self, core: &Core, key: ExtentKey, range: BlockRange) {
        if key.index.0 == 0 && range.first == 0 && self.policies.watches(key.volume).metadata {
            let due = self.inference.due.entry(key.volume);
            due.and_modify(|due| due.again = true).or_insert(Due::at(core.now + AFTER));
        }
    }
}
