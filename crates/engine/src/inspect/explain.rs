//! The location of a block, its age and the reasons for it.

use crate::Engine;
use crate::core::Core;
use crate::counts::Counts;
use crate::lookup;
use crate::policy::advice::places_of;
use weir_map::Place;
use weir_model::{
    BLOCK, BlockRange, Bytes, DeviceOffset, ErrorKind, ExtentKey, Nanos, PlaceId, PlaceKind, Rng, Seed,
    VolumeOffset,
};
use weir_policy::placement::{Places, PolicyContext, Question, Reasons};

/// The location of a block, its age and the reasons for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockExplanation {
    /// The offset of the block in its volume.
    pub block: VolumeOffset,
    /// The offset of its extent.
    pub extent: VolumeOffset,
    /// The size of an extent.
    pub extent_size: Bytes,
    /// The index of the block in its extent.
    pub number: u16,
    /// The extent's places; none if it reads as zeros.
    pub places: Vec<ExplainedPlace>,
    /// Whether a failed flush lost the block's last write: it reads as EIO until it is rewritten.
    pub in_doubt: bool,
    /// The policy in charge.
    pub policy: &'static str,
    /// The policy's reasons.
    pub reasons: Reasons,
}

/// One place of an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedPlace {
    /// The id of the place.
    pub id: PlaceId,
    /// The offset of the block on the device, if the place is valid for it.
    pub at: Option<DeviceOffset>,
    /// The runs of blocks that the place is valid for, ascending.
    pub blocks: Vec<BlockRange>,
    /// The age of the place, if known.
    pub age: Option<Nanos>,
    /// Whether its device is lost or absent.
    pub is_lost: bool,
}

/// The reason why there is nothing to explain. Messages have the form "problem; remedy".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// The volume does not exist.
    #[error("there is no volume {0:?}; `weir volume list` shows those there are")]
    NoVolume(String),
    /// The offset is beyond the end of the volume.
    #[error("offset {at} is beyond the end of volume {volume:?}; choose an offset below its size, {size}")]
    OutOfRange {
        /// The offset.
        at: Bytes,
        /// The volume.
        volume: String,
        /// Its size.
        size: Bytes,
    },
}

impl ExplainError {
    /// Returns the kind of the error.
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

impl Counts {
    fn explain_place(&self, core: &Core, key: ExtentKey, place: &Place, block: u16) -> ExplainedPlace {
        let id = place.at.id();
        let mut blocks = Vec::new();
        let mut from = 0;
        while let Some(run) = place.valid.next_run(from, core.map.extent().blocks()) {
            from = run.end();
            blocks.push(run);
        }
        let at = place.slot(block).map(|slot| {
            let whole = weir_map::Whole { device: id.device, extent: slot.extent };
            core.map.address(whole, u32::from(slot.block) * BLOCK as u32)
        });
        let is_lost = core.devices[id.device.index()].is_lost();
        ExplainedPlace { id, at, blocks, age: self.place_ages.age(key, id, core.now), is_lost }
    }
}

impl Engine {
    /// Explains the location of the volume's block that contains this byte. Changes nothing.
    ///
    /// # Errors
    /// Fails if the volume does not exist, or is shorter.
    pub fn explain(&self, volume: &str, at: VolumeOffset) -> Result<BlockExplanation, ExplainError> {
        let catalogue = self.data.base.core.map.catalogue();
        let found =
            catalogue.by_name(volume).and_then(|id| Some((id, self.data.base.core.map.volume(id)?.size)));
        let (id, size) = found.ok_or_else(|| ExplainError::NoVolume(volume.to_owned()))?;
        if at.0 >= size.0 {
            return Err(ExplainError::OutOfRange { at: Bytes(at.0), volume: volume.to_owned(), size });
        }
        let extent = self.data.base.core.map.extent();
        let key = ExtentKey { volume: id, index: extent.index(at) };
        let number = (u64::from(extent.within(at)) / BLOCK) as u16;
        let one = BlockRange { first: number, count: 1 };
        let record = lookup::record(&self.data.base.core.map, key);
        let places = record.iter().flat_map(|record| &record.places);
        let place_views = record.as_ref().map_or(Places::NONE, |record| places_of(record, one));
        let (policy, reasons) = self.reasons(key, number, place_views);
        Ok(BlockExplanation {
            block: VolumeOffset(at.0 / BLOCK * BLOCK),
            extent: extent.start(key.index),
            extent_size: extent.bytes(),
            number,
            places: places
                .map(|place| self.data.base.counts.explain_place(&self.data.base.core, key, place, number))
                .collect(),
            in_doubt: self.data.base.durability.doubt.losing_device(key, one).is_some(),
            policy,
            reasons,
        })
    }

    /// Returns the policy of an extent's volume, and its reasons.
    fn reasons(&self, key: ExtentKey, block: u16, places: Places) -> (&'static str, Reasons) {
        let policy_index = self.data.base.host.policies.index_of(key.volume);
        let policy = &self.data.base.host.policies.all[policy_index.0].policy;
        let names: Vec<_> =
            self.data.base.core.map.devices().iter().map(|sb| sb.device_name.clone()).collect();
        let moment = PolicyContext {
            now: self.data.base.core.now,
            devices: &self
                .data
                .base
                .core
                .views
                .filled_in(&self.data.base.core.map, &self.data.base.core.devices),
            measured: self.data.base.core.views.measured(),
            extent: self.data.base.core.map.extent(),
            map: &self.data.base.whereabouts(policy_index),
            random: &mut Rng::new(Seed(0)),
            actions: &mut Vec::new(),
            actions_max: 0,
        };
        (policy.name(), policy.explain(&moment, &Question { key, block, places, names: &names }))
    }
}

impl ExplainedPlace {
    /// Whether the place is a whole extent of its device, as opposed to slots in shared extents.
    pub fn is_whole(&self) -> bool {
        self.id.kind == PlaceKind::Whole
    }
}
