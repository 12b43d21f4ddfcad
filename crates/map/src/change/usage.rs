//! The space that volumes use in the visible state: a running count of the durable state, corrected by the
//! pending changes.

use crate::format::value::{RecordId, Word};
use crate::map::Map;
use crate::state::extent_state::ExtentState;
use crate::state::usage::{Usage, UsageByVolume};
use std::borrow::Cow;
use weir_model::{ExtentIndex, ExtentKey, VolumeId};

impl Map {
    /// Returns the space that a volume uses in the visible state. Cost: one step for each of its extents with
    /// pending changes.
    pub fn usage(&self, volume: VolumeId) -> Usage {
        let first = ExtentKey { volume, index: ExtentIndex(0) };
        self.overlay.of_volume(first).fold(self.usage_by_volume.of(volume), |usage, (key, pending)| {
            usage + Usage::of(&ExtentState::of(pending.current())) - Usage::of(&self.find_durable(key))
        })
    }

    /// Counts the space of the durable map, when a pool is opened.
    pub(crate) fn count_usage(&mut self) {
        let mut usages = UsageByVolume::default();
        for (volume, v) in &self.catalogue.volumes {
            let mut usage = Usage::default();
            self.pages.for_each(v.tree, &mut |_, word| {
                usage = usage
                    + match Word::decode(word) {
                        Some(Word::Direct(_)) => Usage { wholes: 1, slots: 0 },
                        Some(Word::Record(id)) => self.usage_of_record(id),
                        _ => Usage::default(),
                    };
            });
            usages.change(*volume, Usage::default(), usage);
        }
        self.usage_by_volume = usages;
    }

    fn usage_of_record(&self, id: RecordId) -> Usage {
        self.records
            .get(id)
            .map_or(Usage::default(), |record| Usage::of(&ExtentState::Record(Cow::Borrowed(&record))))
    }
}
