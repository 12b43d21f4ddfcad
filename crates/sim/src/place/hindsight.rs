//! Offline bounds: the least that a load could have cost a policy that knew all requests in advance.
//!
//! All bounds use one cost model ([`mod@cost`]), in which every command costs its own service time: neither
//! shorter seeks in address order nor queueing count. [`DeviceCost::of_commands`] computes the cost of a
//! policy's commands, including its migrations, under this model.
//!
//! - [`Hindsight::static_cost`]: the least cost of a placement of whole extents that never changes
//!   ([`static_placement`]). [`Hindsight::static_policy`] returns that placement as a policy, to be simulated
//!   with seeks and queueing.
//! - [`Hindsight::dynamic_bound`]: a lower bound on the cost of any policy ([`dynamic_bound`]).

mod assigned_placement;
pub mod cost;
mod dynamic_bound;
mod events;
mod static_placement;
#[cfg(test)]
mod tests;

use super::outcome::Outcome;
use super::pool::{Layout, PoolSpec};
use crate::{Arrival, SimError, VolumeData};
use assigned_placement::AssignedPlacement;
use cost::DeviceCost;
use dynamic_bound::{DEVICES_MAX, Effort, Tier};
use events::{Events, FilledBlocks};
use std::collections::BTreeMap;
use weir_model::{Bytes, DeviceId, ExtentIndex};
use weir_policy::placement::Placement;

/// Effort of the search for the dynamic bound.
const EFFORT: Effort = Effort { periods: 48, rounds: 40 };

/// Picoseconds per second.
const PICOSECONDS: f64 = 1e12;

/// The bounds for one load on one pool, in seconds of device time.
#[derive(Clone, Debug)]
pub struct Hindsight {
    /// The cost of the best static placement: each extent stays on one device.
    pub static_cost: f64,
    /// A lower bound on the cost of any policy; `None` with more than four devices.
    pub dynamic_bound: Option<f64>,
    placement: BTreeMap<(usize, ExtentIndex), DeviceId>,
}

impl Hindsight {
    /// Computes the bounds for these requests to a pool with these volumes.
    ///
    /// # Errors
    /// Fails if the pool is invalid or too small.
    pub fn of(pool: &PoolSpec, spaces: &[VolumeData], arrivals: &[Arrival]) -> Result<Self, SimError> {
        let layout = pool.layout(spaces)?;
        let events = Events::of(arrivals, pool.extent);
        let filled = FilledBlocks { spaces, extent: pool.extent, block: events.block };
        let extents = filled.extents_with(&events);
        let tiers = tiers(&layout, extents.len() as u64, pool.extent.bytes().0 / events.block.0);
        let costs = extent_costs(&events, &filled, &tiers, &extents);
        let capacities: Vec<u64> = layout.superblocks.iter().map(|s| u64::from(s.data_extents)).collect();
        let size = |extents: u64| Bytes(extents * pool.extent.bytes().0);
        let too_small =
            SimError::TooSmall { data: size(extents.len() as u64), room: size(capacities.iter().sum()) };
        let at = static_placement::best(&costs, &capacities).ok_or(too_small)?;
        let each =
            at.iter().zip(costs.by_extent.chunks(tiers.len())).map(|(at, costs)| costs[usize::from(*at)]);
        let static_cost = each.sum::<i64>() as f64 / PICOSECONDS;
        let dynamic_bound =
            (tiers.len() <= DEVICES_MAX).then(|| dynamic_bound::bound(&events, &filled, &tiers, EFFORT));
        let placement = extents.into_iter().zip(at.into_iter().map(DeviceId)).collect();
        Ok(Self { static_cost, dynamic_bound, placement })
    }

    /// Returns the best static placement as a policy, to be simulated.
    pub fn static_policy(&self) -> Box<dyn Placement> {
        Box::new(AssignedPlacement::new(&self.placement))
    }
}

/// Returns the device time, in seconds, of a policy's data commands, including migrations.
///
/// # Errors
/// Fails if the pool is invalid for these volumes.
pub fn cost(pool: &PoolSpec, spaces: &[VolumeData], outcome: &Outcome) -> Result<f64, SimError> {
    let layout = pool.layout(spaces)?;
    Ok(device_costs(&layout).zip(&outcome.commands).map(|(cost, commands)| cost.of_commands(commands)).sum())
}

fn device_costs(layout: &Layout) -> impl Iterator<Item = DeviceCost> {
    let drives = layout.drives.iter().zip(&layout.superblocks);
    drives.map(|(drive, superblock)| DeviceCost::of(drive, superblock.size))
}

/// Returns the devices' costs and capacities, for `extents` extents of `blocks` blocks each.
fn tiers(layout: &Layout, extents: u64, blocks: u64) -> Vec<Tier> {
    let tier = |(cost, superblock): (DeviceCost, &weir_map::Superblock)| {
        let data = u64::from(superblock.data_extents);
        Tier { cost, capacity: (data < extents).then_some(data * blocks) }
    };
    device_costs(layout).zip(&layout.superblocks).map(tier).collect()
}

/// Returns the cost of each extent on each device.
fn extent_costs(
    events: &Events,
    filled: &FilledBlocks<'_>,
    tiers: &[Tier],
    extents: &[(usize, ExtentIndex)],
) -> static_placement::Costs {
    let mut of = vec![0.0; extents.len() * tiers.len()];
    for block in events.by_block() {
        let key = block.first().map(|event| filled.extent_of(event.id));
        // An extent that never holds data is on no device.
        let Some(number) = key.and_then(|key| extents.binary_search(&key).ok()) else { continue };
        let costs = &mut of[number * tiers.len()..][..tiers.len()];
        for event in filled.device_events(block) {
            costs.iter_mut().zip(tiers).for_each(|(cost, tier)| *cost += tier.share(event));
        }
    }
    let of = of.into_iter().map(|cost| (cost * PICOSECONDS).round() as i64).collect();
    static_placement::Costs { devices: tiers.len(), by_extent: of }
}
