//! Histories in which whole regions of a volume are read, and clients pause afterwards: `adaptive` then
//! copies blocks and regions to the fast device, and others make space for them.

use super::transforms::{between, flush, limit_volumes, power_loss};
use weir_engine::Activity;
use weir_model::{BLOCK, Bytes, DeviceOffset, Errno, Nanos, Op, Rng, Seed, VolumeOffset};
use weir_world::campaign::History;
use weir_world::driver::{Crash, HistoryStep, RequestSpec};
use weir_world::{Fault, Kinds, Pace};

/// The extents of a region, as in the policy.
const REGION_EXTENTS: u64 = 32;
/// The reads of whole extents of a region before a pause: some five of each, since few are not worth a copy.
const READS: u64 = 160;
/// The mean number of requests between two pauses.
const EVERY: u64 = 80;
/// The most volumes, and the sizes of a volume and of the fast device in extents: a few regions each, so that
/// all of the fast device's space is used.
const VOLUMES: usize = 2;
const VOLUME_EXTENTS: std::ops::RangeInclusive<u64> = 64..=160;
const FAST_EXTENTS: std::ops::RangeInclusive<u64> = 36..=128;
/// The usual time of a command on the other devices.
const SLOW: Nanos = Nanos::millis(4);
/// The time in which copies of single blocks end, less than that after which the other devices count as idle.
pub(super) const SINGLE_COPIES: Nanos = Nanos::millis(400);
/// The pages by which the metadata area is larger than in other mixes.
const METADATA_PAGES: u64 = 512;

/// Gives the pool one fast device, and inserts reads of regions with pauses. Copies crash while regions are
/// copied. With `faults`, devices fail then, too.
pub(super) fn add_idle_time(mut history: History, faults: bool) -> History {
    let mut rng = Rng::new(Seed(!history.setup.seed.0));
    let extent = history.setup.extent.bytes();
    history.setup.volumes.truncate(VOLUMES);
    let size = between(&mut rng, *VOLUME_EXTENTS.start(), *VOLUME_EXTENTS.end());
    limit_volumes(&mut history, Bytes(size * extent.0));
    set_paces(&mut rng, &mut history);
    enlarge_metadata(&mut history);
    // Copies are additional places.
    (history.setup.extra, history.setup.depth) = (None, 32);
    let idle = IdleTime { extent, size, volumes: history.setup.volumes.len() as u64, faults };
    let devices = history.setup.devices.len() as u64;
    let mut steps = Vec::with_capacity(history.steps.len() * 3);
    for step in history.steps.drain(..) {
        // Most of what is written stays, so that there are whole regions.
        let empties =
            matches!(&step, HistoryStep::Request(ask) if ask.op != Op::Write && ask.len.0 > 8 * extent.0);
        let asks = matches!(step, HistoryStep::Request(_));
        if !empties || rng.chance(0.2) {
            steps.push(step);
        }
        if asks && rng.below(EVERY) == 0 {
            idle.add(&mut rng, devices, &mut steps);
        }
    }
    history.steps = steps;
    history
}

/// Makes the last device fast and small, and the others slow. A modelled disk would answer nearly all reads
/// of so few blocks from its cache, as soon as the fast device.
fn set_paces(rng: &mut Rng, history: &mut History) {
    let extent = history.setup.extent.bytes().0;
    let size = between(rng, *FAST_EXTENTS.start(), *FAST_EXTENTS.end());
    for device in &mut history.setup.devices {
        device.pace = Pace::Random(SLOW);
    }
    let Some(fast) = history.setup.devices.last_mut() else { return };
    fast.pace = Pace::Model(["ssd-sata", "nvm"][rng.below(2) as usize].to_owned());
    fast.size = Bytes((1 + size) * extent + BLOCK);
}

/// Makes the metadata area large enough for single blocks of all extents: a full one permits no such copies.
fn enlarge_metadata(history: &mut History) {
    let members = if history.setup.mirrored { 2 } else { 1 };
    history.setup.meta_pages += METADATA_PAGES;
    history.setup.devices.iter_mut().take(members).for_each(|device| device.size.0 += METADATA_PAGES * BLOCK);
}

/// What reads and pauses need of the pool.
struct IdleTime {
    extent: Bytes,
    /// The size of a volume, in extents.
    size: u64,
    volumes: u64,
    faults: bool,
}

impl IdleTime {
    /// Returns a request for all of an extent of a region.
    fn whole(&self, volume: usize, index: u64, op: Op) -> HistoryStep {
        let offset = VolumeOffset((index % self.size) * self.extent.0);
        HistoryStep::Request(RequestSpec { volume, op, offset, len: self.extent, fua: false })
    }

    /// Returns a change of a block of a region.
    fn change(&self, rng: &mut Rng, volume: usize, first: u64) -> HistoryStep {
        let (index, block) = (first + rng.below(REGION_EXTENTS), rng.below(self.extent.0 / BLOCK));
        let offset = VolumeOffset((index % self.size) * self.extent.0 + block * BLOCK);
        let op = [Op::Write, Op::Trim][rng.below(2) as usize];
        HistoryStep::Request(RequestSpec { volume, op, offset, len: Bytes(BLOCK), fua: false })
    }

    /// Reads a region, pauses, and crashes copies meanwhile.
    fn add(&self, rng: &mut Rng, devices: u64, steps: &mut Vec<HistoryStep>) {
        let volume = rng.below(self.volumes) as usize;
        let first = rng.below(self.size.div_ceil(REGION_EXTENTS)) * REGION_EXTENTS;
        if rng.chance(0.8) {
            // Blocks that were never written are not copied.
            steps.extend((first..first + REGION_EXTENTS).map(|index| self.whole(volume, index, Op::Write)));
            steps.push(flush(volume));
        }
        for _ in 0..READS {
            let index = first + rng.below(REGION_EXTENTS);
            steps.extend([self.whole(volume, index, Op::Read), HistoryStep::Wait(usize::MAX)]);
        }
        if self.faults && rng.chance(0.2) {
            steps.push(HistoryStep::Break(rng.below(devices) as usize, fault(rng)));
        }
        // Copies of single blocks end before the disk counts as idle: then regions are copied.
        steps.push(HistoryStep::Pass(SINGLE_COPIES));
        for _ in 0..between(rng, 1, 3) {
            steps.push(HistoryStep::CrashCopyDuring(Activity::Moving, Crash::power_loss_now()));
        }
        steps.push(HistoryStep::CrashCopy(power_loss(between(rng, 1, 200))));
        steps.push(HistoryStep::Pass(Nanos::millis(between(rng, 1500, 4000))));
        // A write to what is being copied, or has just been.
        for _ in 0..rng.below(3) {
            steps.push(self.change(rng, volume, first));
            steps.push(HistoryStep::CrashCopy(power_loss(rng.below(20))));
        }
        steps.push(HistoryStep::Pass(Nanos::millis(between(rng, 100, 2000))));
        steps.extend((0..8).map(|index| self.whole(volume, first + index, Op::Read)));
    }
}

/// Draws a failure in the middle of copies: a few errors, or a device that hangs or is slow for a while.
fn fault(rng: &mut Rng) -> Fault {
    let (from, lasts) = (rng.below(3_000_000_000), rng.below(3_000_000_000));
    let during = Nanos(from)..Nanos(from + lasts);
    match rng.below(4) {
        0 => Fault::Hang { during },
        1 => Fault::Slow { factor: between(rng, 2, 100), during },
        _ => Fault::Errors {
            kinds: Kinds { reads: rng.chance(0.5), writes: rng.chance(0.5), ..Kinds::default() },
            range: DeviceOffset(0)..DeviceOffset(u64::MAX),
            chance: [0.05, 1.0][rng.below(2) as usize],
            times: between(rng, 1, 6),
            error: Errno::EIO,
        },
    }
}
