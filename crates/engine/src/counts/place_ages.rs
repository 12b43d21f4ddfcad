//! The time since which extents have their places, for the places assigned last. It serves `explain` only,
//! and is lost when the engine ends.

use crate::core::Core;
use crate::counts::Counts;
use crate::policy::Host;
use weir_map::{Record, Whole};
use weir_model::{ExtentKey, Nanos, PlaceId, PlaceKind};
use weir_policy::Lru;

/// The number of places remembered; they take about 1.2 MiB.
const PLACES_MAX: usize = 16_384;

/// The times at which places were assigned.
#[derive(Debug)]
pub(crate) struct PlaceAges(Lru<(ExtentKey, PlaceId), Nanos>);

impl Default for PlaceAges {
    fn default() -> Self {
        Self(Lru::new(PLACES_MAX))
    }
}

impl PlaceAges {
    /// Returns how long the extent has had the place, or `None` if unknown.
    pub(crate) fn age(&self, key: ExtentKey, place: PlaceId, now: Nanos) -> Option<Nanos> {
        self.0.get(&(key, place)).map(|since| now.since(*since))
    }
}

impl Counts {
    /// Records that the extent gets this place, if it does not have it yet.
    #[inline]
    pub(crate) fn note_new_place(
        &mut self,
        core: &Core,
        key: ExtentKey,
        record: Option<&Record>,
        place: PlaceId,
    ) {
        if record.and_then(|r| r.place(place)).is_none_or(|p| p.valid.is_empty()) {
            self.note_assigned(core, key, place);
        }
    }

    fn note_assigned(&mut self, core: &Core, key: ExtentKey, place: PlaceId) {
        self.place_ages.0.insert((key, place), core.now);
    }
}

impl Counts {
    /// Puts the place under the extent in the map ([`weir_map::Map::attach_place`]) and records the time.
    pub(crate) fn place(&mut self, core: &mut Core, host: &mut Host, key: ExtentKey, whole: Whole) {
        host.note_first_space(core, key, whole.device);
        core.map.attach_place(key, whole);
        self.note_assigned(core, key, PlaceId { device: whole.device, kind: PlaceKind::Whole });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{DeviceId, ExtentIndex, VolumeId};

    #[test]
    fn place_ages_are_bounded_in_memory() {
        let key = |i| ExtentKey { volume: VolumeId(0), index: ExtentIndex(i) };
        let place = PlaceId { device: DeviceId(1), kind: PlaceKind::Whole };
        let mut since = PlaceAges::default();
        (0..3 * PLACES_MAX as u64).for_each(|i| {
            since.0.insert((key(i), place), Nanos(i));
        });
        assert_eq!(since.0.len(), PLACES_MAX);
        const { assert!(PLACES_MAX * Lru::<(ExtentKey, PlaceId), Nanos>::ENTRY_BYTES < 5 << 18) };
        let last = 3 * PLACES_MAX as u64 - 1;
        assert_eq!(since.age(key(last), place, Nanos(last + 5)), Some(Nanos(5)));
        assert_eq!(since.age(key(0), place, Nanos(last)), None);
    }
}
