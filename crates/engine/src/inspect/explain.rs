//! Where a block is, since when and why: for people who ask.

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
use weir_policy::placement::{Moment, Places, Question, Reasons};

/// Where a block is, since when and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// Where the block begins in its volume.
    pub block: VolumeOffset,
    /// Where its extent begins, and the size of an extent.
    pub extent: VolumeOffset,
    /// See `extent`.
    pub extent_size: Bytes,
    /// Which of the extent's blocks it is.
    pub number: u16,
    /// The extent's places; none if it reads as zeros.
    pub places: Vec<ExplainedPlace>,
    /// The block's last write was lost with a failed flush: it reads as EIO until it is rewritten.
    pub in_doubt: bool,
    /// The policy that decides.
    pub policy: &'static str,
    /// Its reasons.
    pub reasons: Reasons,
}

/// One place of an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedPlace {
    /// Which.
    pub id: PlaceId,
    /// Where the block is there, if the place holds it.
    pub at: Option<DeviceOffset>,
    /// The runs of the extent's blocks it holds, ascending.
    pub blocks: Vec<BlockRange>,
    /// For how long the extent has had the place, if that is known.
    pub age: Option<Nanos>,
}

/// Why there is nothing to explain. Messages have the form "what is wrong; the way out".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// There is no such volume.
    #[error("there is no volume {0:?}; `weir volume list` shows those there are")]
    NoVolume(String),
    /// The volume is not that long.
    #[error("offset {at} is beyond the end of volume {volume:?}; choose an offset below its size, {size}")]
    Beyond {
        /// The offset.
        at: Bytes,
        /// The volume.
        volume: String,
        /// Its size.
        size: Bytes,
    },
}

impl ExplainError {
    /// What the caller must do.
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
        ExplainedPlace { id, at, blocks, age: self.since.age(key, id, core.now) }
    }
}

impl Engine {
    /// Where the block of a volume is that holds this byte, since when and why. Changes nothing.
    ///
    /// # Errors
    /// If there is no such volume, or it ends before.
    pub fn explain(&self, volume: &str, at: VolumeOffset) -> Result<Explained, ExplainError> {
        let catalogue = self.data.base.core.map.catalogue();
        let found =
            catalogue.by_name(volume).and_then(|id| Some((id, self.data.base.core.map.volume(id)?.size)));
        let (id, size) = found.ok_or_else(|| ExplainError::NoVolume(volume.to_owned()))?;
        if at.0 >= size.0 {
            return Err(ExplainError::Beyond { at: Bytes(at.0), volume: volume.to_owned(), size });
        }
        let extent = self.data.base.core.map.extent();
        let key = ExtentKey { volume: id, index: extent.index(at) };
        let number = (u64::from(extent.within(at)) / BLOCK) as u16;
        let one = BlockRange { first: number, count: 1 };
        let record = lookup::record(&self.data.base.core.map, key);
        let places = record.iter().flat_map(|record| &record.places);
        let place_views = record.as_ref().map_or(Places::NONE, |record| places_of(record, one));
        let (policy, reasons) = self.reasons(key, number, place_views);
        Ok(Explained {
            block: VolumeOffset(at.0 / BLOCK * BLOCK),
            extent: extent.start(key.index),
            extent_size: extent.bytes(),
            number,
            places: places
                .map(|place| self.data.base.counts.explain_place(&self.data.base.core, key, place, number))
                .collect(),
            in_doubt: self.data.base.durability.doubt.about(key, one).is_some(),
            policy,
            reasons,
        })
    }

    /// The policy of an extent's volume, and what it has to say.
    fn reasons(&self, key: ExtentKey, block: u16, places: Places) -> (&'static str, Reasons) {
        let which = self.data.base.host.policies.of(key.volume);
        let policy = &self.data.base.host.policies.all[which.0].policy;
        let names: Vec<_> =
            self.data.base.core.map.devices().iter().map(|sb| sb.device_name.clone()).collect();
        let moment = Moment {
            now: self.data.base.core.now,
            devices: &self
                .data
                .base
                .core
                .views
                .filled_in(&self.data.base.core.map, &self.data.base.core.devices),
            measured: self.data.base.core.views.measured(),
            extent: self.data.base.core.map.extent(),
            map: &self.data.base.whereabouts(which),
            random: &mut Rng::new(Seed(0)),
            actions: &mut Vec::new(),
            actions_max: 0,
        };
        (policy.name(), policy.explain(&moment, &Question { key, block, places, names: &names }))
    }
}

impl ExplainedPlace {
    /// It has an extent of its device for itself; else slots in extents shared with others.
    pub fn is_whole(&self) -> bool {
        self.id.kind == PlaceKind::Whole
    }
}
