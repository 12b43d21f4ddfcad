//! Targets of writes.

use super::super::{Access, DeviceView, Moment, WriteTo};
use super::SOONER;
use super::cost::Prices;
use super::evictor::Evictor;
use super::fast::Fast;
use super::headroom::{BRIM, Headroom};
use super::heat::{Cut, ONE};
use super::worth::{self, Worth};

/// The minimum worth of an access for a write to go to the fast device.
const LEAST: u16 = ONE / 16;

/// Returns the device, among those that are not fast, that answers writes soonest at this moment, and its
/// response.
fn slow<'d>(fast: Fast, devices: &'d [DeviceView], costs: &Prices<'_>) -> Option<(&'d DeviceView, f64)> {
    let others = fast.others(devices).filter(|d| d.usable).map(|d| (d, costs.now(d)));
    others.min_by(|(_, a), (_, b)| a.total_cmp(b))
}

/// Returns the target of a write of blocks that this fast device has.
pub(super) fn over(
    moment: &Moment<'_>,
    fast: Fast,
    worth: &mut Worth,
    access: &Access,
    holder: &DeviceView,
) -> WriteTo {
    let cut = Cut::new(moment.extent.blocks());
    let parts = cut.parts(access.blocks);
    let Some(heat) = worth.table.latest(access.key) else { return WriteTo::InPlace };
    let (whole, resident) = (heat.whole, heat.resident);
    let costs = worth.costs.prices(moment, fast, true, access.bytes);
    let Some((slow, takes)) = slow(fast, moment.devices, &costs) else {
        return WriteTo::InPlace;
    };
    if takes < SOONER * costs.now(holder) && costs.is_sooner(slow, SOONER, holder) {
        // The fast device is overloaded: blocks that would be moved off it are written elsewhere.
        if !whole {
            worth.table.set_resident(access.key, resident & !cut.within(access.blocks), false);
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
pub(super) fn anew(
    moment: &Moment<'_>,
    fast: Fast,
    (worth, headroom): (&mut Worth, &mut Headroom),
    evictor: &Evictor,
    access: &Access,
    own: Option<u16>,
) -> WriteTo {
    let cut = Cut::new(moment.extent.blocks());
    let (parts, price) = (cut.parts(access.blocks), worth.price());
    let Some(heat) = worth.table.latest(access.key).filter(|heat| !heat.whole) else {
        return WriteTo::InPlace;
    };
    let costs = worth.costs.prices(moment, fast, true, access.bytes);
    let own = own.unwrap_or_else(|| worth::worth(costs.saving(worth::share(access)), parts));
    let (of_access, resident) = (heat.most(parts).max(own), heat.resident);
    if of_access < LEAST {
        return WriteTo::InPlace;
    }
    let to = fast.with_room(moment.devices, cut, BRIM, &access.places, |d: &DeviceView| costs.now(d));
    // Merely buffered blocks are written back later, as long as the others have time for it.
    let part = if evictor.is_evicting() || to.is_none() { 1.0 } else { headroom.busy() };
    let worthy = of_access >= (part * f64::from(price)) as u16;
    if worthy && access.places.device().is_some() {
        headroom.ask(parts.count_ones());
    }
    let (Some((_, takes)), Some(to)) = (slow(fast, moment.devices, &costs), to) else {
        return WriteTo::InPlace;
    };
    if !worthy || takes < costs.now(to) {
        return WriteTo::InPlace;
    }
    worth.table.set_resident(access.key, resident | parts, false);
    WriteTo::Fine(to.id)
}
