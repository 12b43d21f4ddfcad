//! Iteration over all extents, a few at a time.

use weir_map::{Map, Volume};
use weir_model::{ExtentIndex, ExtentKey, VolumeId};

/// Returns the extent after this one.
pub(crate) const fn next_key(key: ExtentKey) -> ExtentKey {
    ExtentKey { index: ExtentIndex(key.index.0 + 1), ..key }
}

/// Returns the first non-empty extent at or after this one, in its volume or in the next `wanted` volume that
/// has one.
pub(crate) fn next_extent(map: &Map, from: ExtentKey, wanted: impl Fn(&Volume) -> bool) -> Option<ExtentKey> {
    let at = |volume, index| ExtentKey { volume, index };
    let here = map.next_used(from.volume, from.index).map(|index| at(from.volume, index));
    here.or_else(|| {
        let later = map.catalogue().volumes_from(VolumeId(from.volume.0 + 1));
        let mut later = later.filter(|(_, volume)| wanted(volume)).map(|(id, _)| *id);
        later.find_map(|volume| Some(at(volume, map.next_used(volume, ExtentIndex(0))?)))
    })
}
