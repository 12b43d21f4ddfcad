//! Locations of file systems' metadata, for policies that use them when clients give no hint, and the volumes
//! still to survey ([`crate::background::survey`]).

use crate::core::Core;
use crate::policy::Host;
use std::collections::BTreeMap;
use weir_model::{BlockRange, Bytes, ExtentKey, Hint, Nanos, VolumeId};
use weir_policy::ext::{Layout, Ranges};

/// The delay between a write of a superblock and its survey; a program that makes a file system has finished
/// by then.
pub(crate) const SURVEY_DELAY: Nanos = Nanos::secs(5);

/// The result of a volume's survey.
#[derive(Debug)]
pub(crate) struct SurveyResult {
    pub(crate) layout: Layout,
    pub(crate) metadata: Ranges,
}

/// The time at which to survey a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScheduledSurvey {
    pub(crate) at: Nanos,
    /// Whether its superblock was rewritten in the meantime, so that one more survey must follow.
    pub(crate) repeat: bool,
}

impl ScheduledSurvey {
    pub(crate) const fn at(at: Nanos) -> Self {
        Self { at, repeat: false }
    }
}

/// The results of surveys, and the surveys due.
#[derive(Debug, Default)]
pub(crate) struct Inference {
    pub(crate) results: BTreeMap<VolumeId, SurveyResult>,
    pub(crate) scheduled: BTreeMap<VolumeId, ScheduledSurvey>,
}

impl Inference {
    /// Returns how much of the volume is metadata, if known.
    pub(crate) fn metadata_size(&self, volume: VolumeId) -> Option<Bytes> {
        self.results.get(&volume).map(|known| known.metadata.bytes())
    }

    /// Forgets a removed volume.
    pub(crate) fn remove_volume(&mut self, volume: VolumeId) {
        self.results.remove(&volume);
        self.scheduled.remove(&volume);
    }
}

impl Host {
    /// Returns the hint for the blocks: the client's, else one from the survey.
    #[inline]
    pub(crate) fn hint(&self, core: &Core, client_hint: Hint, key: ExtentKey, range: BlockRange) -> Hint {
        if client_hint != Hint::None || self.inference.results.is_empty() {
            return client_hint;
        }
        let first = key.index.0 * u64::from(core.map.extent().blocks()) + u64::from(range.first);
        let known = self.inference.results.get(&key.volume);
        match known.is_some_and(|known| known.metadata.contains(first, range.count.into())) {
            true => Hint::Metadata,
            false => client_hint,
        }
    }

    /// Schedules surveys of the volumes whose policy wants them and that have none, after policies have
    /// changed.
    pub(crate) fn look_for_metadata(&mut self, core: &Core) {
        for volume in core.map.catalogue().volumes.keys() {
            let wanted = self.policies.watches(*volume).metadata;
            if wanted && !self.inference.results.contains_key(volume) {
                self.inference.scheduled.entry(*volume).or_insert(ScheduledSurvey::at(core.now));
            }
        }
    }

    /// Schedules a survey if a change of these blocks may include the superblock.
    #[inline]
    pub(crate) fn note_superblock(&mut self, core: &Core, key: ExtentKey, range: BlockRange) {
        if key.index.0 == 0 && range.first == 0 && self.policies.watches(key.volume).metadata {
            let due = self.inference.scheduled.entry(key.volume);
            due.and_modify(|due| due.repeat = true).or_insert(ScheduledSurvey::at(core.now + SURVEY_DELAY));
        }
    }
}
