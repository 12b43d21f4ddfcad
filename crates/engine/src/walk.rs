//! Walks over all extents there are, a few at a time.

use weir_map::{Map, Volume};
use weir_model::{ExtentIndex, ExtentKey, VolumeId};

/// The extent behind this one.
pub(crate) const fn after(key: ExtentKey) -> ExtentKey {
    ExtentKey { index: ExtentIndex(key.index.0 + 1), ..key }
}

/// The first extent at or after this one that is anything but empty, in its volume or the next one that
/// is `wanted` and has any.
pub(crate) fn next_extent(map: &Map, from: ExtentKey, wanted: impl Fn(&Volume) -> bool) -> Option<ExtentKey> {
    let at = |volume, index| ExtentKey { volume, index };
    let here = map.next_used(from.volume, from.index).map(|index| at(from.volume, index));
    here.or_else(|| {
        let later = map.catalogue().volumes_from(VolumeId(from.volume.0 + 1));
        let mut later = later.filter(|(_, volume)| wanted(volume)).map(|(id, _)| *id);
        later.find_map(|volume| Some(at(volume, map.next_used(volume, ExtentIndex(0))?)))
    })
}
