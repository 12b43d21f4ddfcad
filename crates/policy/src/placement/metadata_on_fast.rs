//! `metadata_on_fast`: a file system's metadata on the fast device, everything else on the others.
//!
//! Source: the allocation "metadata-on-flash, without its migration" of measurement-driven migration (the
//! dissertation behind it, chapter II); [`crate::ext`] finds the metadata blocks where clients give no hint.
//!
//! Rule: blocks that clients call metadata, or that the volume's own ext2/3/4 superblock says are
//! ([`crate::ext`]), are written to the fastest device, and move there when they are used. Nothing else
//! moves. New extents go to the slowest device with space, or with `rest = "stripe"` to all devices in turn.
//!
//! The authors chose by address: what a file system writes when it is made is on the flash drive, and the
//! rest is striped. With `metadata_range`, extents in that range of addresses, or in each of the ranges
//! that are `metadata_every` apart, are allocated on the fastest device.
//!
//! Constants: none.
//!
//! When not: if most requests are for data, or if the volume has another file system.

use super::allocation::{METADATA_EVERY, METADATA_RANGE, MetadataRanges, fastest, is_metadata, slowest};
use super::{
    Access, Action, DeviceView, KeptPlaces, Key, Placement, PolicyContext, Settings, Stripe, Subscriptions,
    WriteTo,
};
use weir_model::{DeviceId, Op, PlaceId, PlaceKind};

const REST: Key = Key::choice(
    "rest",
    &["slowest", "stripe"],
    "where other new extents go: to the slowest device with room, to all devices in turn",
);
/// The value of the key `rest` for all devices in turn.
const STRIPE: usize = 1;

/// The tunable constants.
pub(super) const KEYS: &[Key] = &[REST, METADATA_RANGE, METADATA_EVERY];

/// The state of the policy.
#[derive(Clone, Copy, Debug)]
pub struct MetadataOnFast {
    ranges: MetadataRanges,
    /// The next device of the rest, if it is striped.
    stripe: Option<Stripe>,
}

impl MetadataOnFast {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            ranges: MetadataRanges::new(settings),
            stripe: (settings.choice(&REST) == STRIPE).then(Stripe::default),
        }
    }
}

/// Returns the fastest device, if there is another and it has space.
fn fast(devices: &[DeviceView]) -> Option<DeviceId> {
    let fast = fastest(devices).filter(|_| devices.len() > 1)?;
    devices.get(fast.index()).filter(|d| d.has_space()).map(|d| d.id)
}

impl Placement for MetadataOnFast {
    fn name(&self) -> &'static str {
        "metadata_on_fast"
    }

    fn allocate(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> Option<DeviceId> {
        if self.ranges.touches(access.key, context.extent)
            && let Some(fast) = fast(context.devices)
        {
            return Some(fast);
        }
        match &mut self.stripe {
            Some(stripe) => stripe.allocate(context, access),
            None => slowest(context.devices),
        }
    }

    fn kept_places(&self) -> KeptPlaces {
        KeptPlaces::All
    }

    fn subscriptions(&self) -> Subscriptions {
        Subscriptions { accesses: true, writes: true, metadata: true, ..Subscriptions::default() }
    }

    fn accessed(&mut self, context: &mut PolicyContext<'_>, access: &Access) {
        if access.op != Op::Read || !is_metadata(access) {
            return;
        }
        let Some(fast) = fast(context.devices) else { return };
        let elsewhere = access.places.device().is_some_and(|device| device != fast);
        if elsewhere {
            let to = PlaceId { device: fast, kind: PlaceKind::Fine };
            context.actions.push(Action::Move { key: access.key, blocks: access.blocks, to });
        }
    }

    fn write_to(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> WriteTo {
        match fast(context.devices) {
            Some(fast) if is_metadata(access) => WriteTo::Fine(fast),
            _ => WriteTo::InPlace,
        }
    }
}

#[cfg(test)]
mod tests;
