//! What a load could have cost, had it been known beforehand: bounds to judge policies by.
//!
//! All are under one model ([`cost`]) in which commands cost what they take of a device's time, each by
//! itself: neither seeks that are shorter in order nor queues count. [`DeviceCost::of_commands`] gives what a
//! policy came to under it, its moves included.
//!
//! - [`Hindsight::fixed`]: the least that a placement of whole extents costs that never changes ([`fixed`]).
//!   [`Hindsight::replayed`] is that placement as a policy, to be run, so that seeks and queues count.
//! - [`Hindsight::dynamic`]: what no policy can cost less than ([`dynamic`]).

mod assigned;
pub mod cost;
mod dynamic;
mod events;
mod fixed;
#[cfg(test)]
mod tests;

use super::outcome::Outcome;
use super::pool::{Layout, PoolSpec};
use crate::{Arrival, SimError, Space};
use assigned::Assigned;
use cost::DeviceCost;
use dynamic::{DEVICES_MAX, Effort, Room};
use events::{Events, Filled};
use std::collections::BTreeMap;
use weir_model::{Bytes, DeviceId, ExtentIndex};
use weir_policy::placement::Placement;

/// How closely the dynamic bound is sought.
const EFFORT: Effort = Effort { periods: 48, rounds: 40 };

/// In a second.
const PICOSECONDS: f64 = 1e12;

/// The bounds of one load on one pool, in seconds of devices' time.
#[derive(Clone, Debug)]
pub struct Hindsight {
    /// The least that a placement costs that never changes.
    pub fixed: f64,
    /// What no policy can cost less than; `None` with more than four devices.
    pub dynamic: Option<f64>,
    placement: BTreeMap<(usize, ExtentIndex), DeviceId>,
}

impl Hindsight {
    /// Of what was asked of a pool for these volumes.
    ///
    /// # Errors
    /// If the pool is not possible, or too small.
    pub fn of(pool: &PoolSpec, spaces: &[Space], asked: &[Arrival]) -> Result<Self, SimError> {
        let layout = pool.lay_out(spaces)?;
        let events = Events::of(asked, pool.extent);
        let filled = Filled { spaces, extent: pool.extent, block: events.block };
        let extents = filled.extents_with(&events);
        let rooms = rooms(&layout, extents.len() as u64, pool.extent.bytes().0 / events.block.0);
        let costs = extent_costs(&events, &filled, &rooms, &extents);
        let room: Vec<u64> = layout.superblocks.iter().map(|s| u64::from(s.data_extents)).collect();
        let size = |extents: u64| Bytes(extents * pool.extent.bytes().0);
        let too_small =
            SimError::TooSmall { data: size(extents.len() as u64), room: size(room.iter().sum()) };
        let at = fixed::best(&costs, &room).ok_or(too_small)?;
        let each = at.iter().zip(costs.of.chunks(rooms.len())).map(|(at, costs)| costs[usize::from(*at)]);
        let cost = each.sum::<i64>() as f64 / PICOSECONDS;
        let dynamic = (rooms.len() <= DEVICES_MAX).then(|| dynamic::bound(&events, &filled, &rooms, EFFORT));
        let placement = extents.into_iter().zip(at.into_iter().map(DeviceId)).collect();
        Ok(Self { fixed: cost, dynamic, placement })
    }

    /// The best placement that never changes, as a policy.
    pub fn replayed(&self) -> Box<dyn Placement> {
        Box::new(Assigned::new(&self.placement))
    }
}

/// What a policy's commands for data came to, moves included, in seconds of devices' time.
///
/// # Errors
/// If the pool is not possible for these volumes.
pub fn cost(pool: &PoolSpec, spaces: &[Space], outcome: &Outcome) -> Result<f64, SimError> {
    let layout = pool.lay_out(spaces)?;
    Ok(device_costs(&layout).zip(&outcome.commands).map(|(cost, commands)| cost.of_commands(commands)).sum())
}

fn device_costs(layout: &Layout) -> impl Iterator<Item = DeviceCost> {
    let drives = layout.drives.iter().zip(&layout.superblocks);
    drives.map(|(drive, superblock)| DeviceCost::of(drive, superblock.size))
}

/// What there is for so many extents of so many blocks.
fn rooms(layout: &Layout, extents: u64, blocks: u64) -> Vec<Room> {
    let room = |(cost, superblock): (DeviceCost, &weir_map::Superblock)| {
        let data = u64::from(superblock.data_extents);
        Room { cost, blocks: (data < extents).then_some(data * blocks) }
    };
    device_costs(layout).zip(&layout.superblocks).map(room).collect()
}

/// What each extent would cost on each device.
fn extent_costs(
    events: &Events,
    filled: &Filled<'_>,
    rooms: &[Room],
    extents: &[(usize, ExtentIndex)],
) -> fixed::Costs {
    let mut of = vec![0.0; extents.len() * rooms.len()];
    for block in events.by_block() {
        let key = block.first().map(|event| filled.extent_of(event.id));
        // What never holds anything is on no device.
        let Some(number) = key.and_then(|key| extents.binary_search(&key).ok()) else { continue };
        let costs = &mut of[number * rooms.len()..][..rooms.len()];
        for event in filled.that_reach_devices(block) {
            costs.iter_mut().zip(rooms).for_each(|(cost, room)| *cost += room.share(event));
        }
    }
    let of = of.into_iter().map(|cost| (cost * PICOSECONDS).round() as i64).collect();
    fixed::Costs { devices: rooms.len(), of }
}
