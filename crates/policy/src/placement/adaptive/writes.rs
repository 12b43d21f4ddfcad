//! Targets of writes.

use super::super::{Access, DeviceView, PolicyContext, WriteTo};
use super::SOONER_FRACTION;
use super::cost::Prices;
use super::evictor::Evictor;
use super::fast::FastDevices;
use super::headroom::{FILL_LIMIT, Headroom};
use super::heat::{PartLayout, UNIT_WORTH};
use super::worth::{self, Worth};
use weir_model::Nanos;

/// The minimum worth of an access for a write to go to the fast device.
const REDIRECT_WORTH_MIN: u16 = UNIT_WORTH / 16;
/// A queue of the other devices is long if a write would be answered this much sooner by a fast device. Then
/// any write goes there that finds space above the headroom: a large one saves little time by itself, but the
/// reads behind it wait for it, and it is written back once the queue is gone.
const LONG_QUEUE: Nanos = Nanos::millis(100);

/// Returns the device, among those that are not fast, that answers writes soonest at this moment, and its
/// response.
fn soonest_slow_device<'d>(
    fast: FastDevices,
    devices: &'d [DeviceView],
    costs: &Prices<'_>,
) -> Option<(&'d DeviceView, f64)> {
    let others = fast.other_devices(devices).filter(|d| d.is_usable).map(|d| (d, costs.current_response(d)));
    others.min_by(|(_, a), (_, b)| a.total_cmp(b))
}

/// Returns the target of a write of blocks that this fast device has.
pub(super) fn overwrite_target(
    context: &PolicyContext<'_>,
    fast: FastDevices,
    worth: &mut Worth,
    access: &Access,
    holder: &DeviceView,
) -> WriteTo {
    let cut = PartLayout::new(context.extent.blocks());
    let parts = cut.parts(access.blocks);
    let Some(heat) = worth.table.latest(access.key) else { return WriteTo::InPlace };
    let (whole, resident) = (heat.whole, heat.resident);
    let costs = worth.costs.prices(context, fast, true, access.bytes);
    let Some((slow, takes)) = soonest_slow_device(fast, context.devices, &costs) else {
        return WriteTo::InPlace;
    };
    if takes < SOONER_FRACTION * costs.current_response(holder)
        && costs.is_sooner(slow, SOONER_FRACTION, holder)
    {
        // The fast device is overloaded: blocks that would be moved off it are written elsewhere.
        if !whole {
            worth.table.set_resident(access.key, resident & !cut.parts_within(access.blocks), false);
        }
        return WriteTo::Whole(slow.id);
    }
    if whole {
        return WriteTo::InPlace;
    }
    if parts & !resident != 0 {
        worth.table.set_resident(access.key, resident | parts, false);
    }
    WriteTo::Fine(holder.id)
}

/// Returns the target of a write of blocks that no fast device has. `own` is its worth, if known.
pub(super) fn new_write_target(
    context: &PolicyContext<'_>,
    fast: FastDevices,
    (worth, headroom): (&mut Worth, &mut Headroom),
    evictor: &Evictor,
    access: &Access,
    own: Option<u16>,
) -> WriteTo {
    let cut = PartLayout::new(context.extent.blocks());
    let (parts, price) = (cut.parts(access.blocks), worth.price());
    let Some(heat) = worth.table.latest(access.key).filter(|heat| !heat.whole) else {
        return WriteTo::InPlace;
    };
    let costs = worth.costs.prices(context, fast, true, access.bytes);
    let own = own.unwrap_or_else(|| worth::worth(costs.saving(worth::run_share(access)), parts));
    let (of_access, resident) = (heat.max_worth(parts).max(own), heat.resident);
    let to = fast.with_space(context.devices, cut, FILL_LIMIT, &access.places, |d: &DeviceView| {
        costs.current_response(d)
    });
    let soonest = soonest_slow_device(fast, context.devices, &costs);
    let relieves = match (soonest, to) {
        (Some((_, takes)), Some(to)) => {
            takes - costs.current_response(to) > LONG_QUEUE.as_secs_f64()
                && fast.fill(context.devices, cut) < headroom.eviction_stop()
        }
        _ => false,
    };
    if of_access < REDIRECT_WORTH_MIN && !relieves {
        return WriteTo::InPlace;
    }
    // Merely buffered blocks are written back later, as long as the others have time for it.
    let part = if evictor.is_evicting() || to.is_none() { 1.0 } else { headroom.utilization() };
    let worthy = relieves || of_access >= (part * f64::from(price)) as u16;
    if worthy && access.places.device().is_some() {
        headroom.request_parts(parts.count_ones());
    }
    let (Some((_, takes)), Some(to)) = (soonest, to) else {
        return WriteTo::InPlace;
    };
    if !worthy || takes < costs.current_response(to) {
        return WriteTo::InPlace;
    }
    worth.table.set_resident(access.key, resident | parts, false);
    WriteTo::Fine(to.id)
}
