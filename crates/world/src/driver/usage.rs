//! Checks the reported space usage of volumes.

use super::{Driver, Failure, Volume};
use weir_map::Usage;
use weir_model::{ExtentIndex, ExtentKey};

impl Driver {
    /// Checks that the reported usage of a volume is that of its extents.
    pub(super) fn check_usage(&self, volume: usize) -> Result<(), Failure> {
        let Volume { id, name, spec } = &self.volumes[volume];
        let (map, extent) = (self.engine.map(), self.setup.extent);
        let extents = spec.size.0.div_ceil(extent.bytes().0);
        let of = |index| Usage::of(&map.find(ExtentKey { volume: *id, index: ExtentIndex(index) }));
        let found = (0..extents).map(of).fold(Usage::default(), |sum, usage| sum + usage);
        let reported = map.usage(*id);
        if reported == found {
            return Ok(());
        }
        let [reported, found] = [reported, found].map(|usage| usage.bytes(extent.bytes()));
        Err(Failure::Usage { volume: name.clone(), reported, found })
    }
}
