//! `chaos`: for tests. Requests random actions of every kind that the engine supports.
//!
//! Rule: allocates anywhere. Each round requests a few copies, moves, drops and refreshes, of whole extents
//! and of parts, to whole places and to fine slots, of recently accessed extents. One in four reads is also
//! copied or moved. One write in four goes to fine slots, one in eight to those of two devices, and one in
//! four to the whole place on any device. All of it is legal, so every answer must be the same as with any
//! other policy; the crash campaign checks that.
//!
//! When not: whenever the data matters. Pool files cannot name it.

use super::{Access, Action, DeviceView, KeptPlaces, Placement, PolicyContext, Subscriptions, WriteTo};
use weir_model::{BlockRange, DeviceId, ExtentKey, Nanos, Op, PlaceId, PlaceKind, Rng, Seed};

/// The number of extents remembered.
const EXTENTS: usize = 32;
/// The maximum number of actions per round.
const ACTIONS: u64 = 4;
/// One in this many of a device's extents is reserved for required data.
const RESERVE: u32 = 4;

/// The state of the policy.
#[derive(Clone, Debug, Default)]
pub struct Chaos {
    recent: Vec<ExtentKey>,
    /// The number of accesses so far; it determines which remembered extent the next one replaces.
    accesses: usize,
    /// The blocks of an extent, as far as seen.
    blocks: u16,
}

impl Placement for Chaos {
    fn name(&self) -> &'static str {
        "chaos"
    }

    fn allocate(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> Option<DeviceId> {
        let free: Vec<_> = context.devices.iter().filter(|d| d.free > 0).map(|d| d.id).collect();
        let turn = Rng::new(Seed(access.key.index.0 ^ self.accesses as u64)).word() as usize;
        free.get(turn % free.len().max(1)).copied()
    }

    fn kept_places(&self) -> KeptPlaces {
        KeptPlaces::All
    }

    fn subscriptions(&self) -> Subscriptions {
        Subscriptions { accesses: true, writes: true, runs: true, ..Subscriptions::default() }
    }

    fn accessed(&mut self, context: &mut PolicyContext<'_>, access: &Access) {
        self.piggyback_action(context, access);
        self.blocks = self.blocks.max(access.blocks.end());
        self.accesses += 1;
        if self.recent.contains(&access.key) {
            return;
        }
        if self.recent.len() < EXTENTS {
            self.recent.push(access.key);
        } else {
            self.recent[self.accesses % EXTENTS] = access.key;
        }
    }

    fn write_to(&mut self, context: &mut PolicyContext<'_>, _: &Access) -> WriteTo {
        let device = &context.devices[context.random.below(context.devices.len() as u64) as usize];
        match context.random.below(8) {
            0..=1 if has_reserve(device) => WriteTo::Fine(device.id),
            4 => {
                let other = &context.devices[context.random.below(context.devices.len() as u64) as usize];
                let both = device.id != other.id && has_reserve(device) && has_reserve(other);
                if both { WriteTo::FineDuplexed([device.id, other.id]) } else { WriteTo::InPlace }
            }
            2..=3 if has_reserve(device) => WriteTo::Whole(device.id),
            _ => WriteTo::InPlace,
        }
    }

    fn round_interval(&self) -> Option<Nanos> {
        Some(Nanos::millis(1))
    }

    fn round(&mut self, context: &mut PolicyContext<'_>) {
        let PolicyContext { devices, random, actions, .. } = context;
        for _ in 0..random.below(ACTIONS + 1) {
            let Some(key) = random.pick(&self.recent) else { return };
            let device = &devices[random.below(devices.len() as u64) as usize];
            let kind = if random.below(2) == 0 { PlaceKind::Whole } else { PlaceKind::Fine };
            let place = PlaceId { device: device.id, kind };
            let blocks = self.some_blocks(random);
            let what = random.below(8);
            if what < 5 && !has_reserve(device) {
                continue;
            }
            actions.push(match what {
                0..=1 => Action::Copy { key, blocks, to: place },
                2..=3 => Action::Move { key, blocks, to: place },
                4 => Action::Refresh { key },
                _ => Action::Drop { key, blocks, from: place },
            });
        }
    }
}

impl Chaos {
    /// Occasionally requests an action for blocks that are being read.
    fn piggyback_action(&self, context: &mut PolicyContext<'_>, access: &Access) {
        let PolicyContext { devices, random, actions, .. } = context;
        if access.op != Op::Read || random.below(4) != 0 {
            return;
        }
        let device = &devices[random.below(devices.len() as u64) as usize];
        let kind = if random.below(2) == 0 { PlaceKind::Whole } else { PlaceKind::Fine };
        let (key, blocks, to) = (access.key, access.blocks, PlaceId { device: device.id, kind });
        if has_reserve(device) {
            let alone = random.below(2) == 0;
            actions.push(if alone {
                Action::Move { key, blocks, to }
            } else {
                Action::Copy { key, blocks, to }
            });
        }
    }

    /// Returns all blocks half of the time, else a random run.
    fn some_blocks(&self, random: &mut Rng) -> BlockRange {
        let all = self.blocks.max(1);
        if random.below(2) == 0 {
            return BlockRange { first: 0, count: all };
        }
        let first = random.below(all.into()) as u16;
        BlockRange { first, count: 1 + random.below((all - first).into()) as u16 }
    }
}

fn has_reserve(device: &DeviceView) -> bool {
    device.free > device.extents / RESERVE
}
