//! Histories in which devices lose writes again and again, while clients access a few blocks.

use super::transforms::{between, flush, limit_volumes, power_loss};
use weir_engine::Activity;
use weir_model::{BLOCK, Bytes, Errno, Nanos, Op, Rng, Seed, VolumeOffset};
use weir_world::campaign::History;
use weir_world::driver::{Crash, HistoryStep, RequestSpec};
use weir_world::{Fault, Kinds, Pace, StopKind};

/// Makes flushes and writes fail again and again on devices with caches, mostly on those that do not hold the
/// map: the others would be given up at once.
pub(super) fn add_repeated_failures(mut history: History) -> History {
    let mut rng = Rng::new(Seed(!history.setup.seed.0));
    // The rest of the history does not depend on these draws.
    let mut apart = Rng::new(Seed(history.setup.seed.0.rotate_left(24) ^ 1));
    let losses = Losses::draw(&mut rng, &history);
    slow_flushes_down(&mut apart, &mut history);
    if apart.chance(0.4) {
        history.setup.extent_cache = Bytes(2 * history.setup.extent.bytes().0);
    }
    history.setup.devices.iter_mut().for_each(|device| device.write_cache = true);
    history.setup.depth = [8, 16, 32][rng.below(3) as usize];
    let extent = history.setup.extent.bytes().0;
    history.setup.volumes.truncate(losses.volumes);
    limit_volumes(&mut history, Bytes(losses.hot_range.0 * extent));
    let volumes = history.setup.volumes.len() as u64;
    let mut steps = Vec::with_capacity(history.steps.len() * 2);
    let mut recent: Vec<RequestSpec> = Vec::new();
    for step in history.steps.drain(..) {
        match step {
            HistoryStep::Request(ask) => {
                let ask = losses.redirect(ask, extent, volumes, &mut rng);
                if ask.op != Op::Flush {
                    recent.push(ask);
                    let old = recent.len().saturating_sub(16);
                    recent.drain(..old);
                }
                steps.push(HistoryStep::Request(ask));
                if !recent.is_empty() && rng.below(losses.every) == 0 {
                    let after_durable = HistoryStep::CrashCopyAfterDurable(Crash::power_loss_now());
                    steps.extend(std::iter::repeat_n(after_durable, between(&mut apart, 0, 3) as usize));
                    losses.add_failure(&mut rng, &recent, &mut steps);
                }
            }
            HistoryStep::Break(..) | HistoryStep::CrashCopy(_) | HistoryStep::Tune(_) => {}
            other => steps.push(other),
        }
    }
    history.steps = steps;
    history
}

/// Makes the flushes of some devices slow, in half of the histories.
fn slow_flushes_down(rng: &mut Rng, history: &mut History) {
    let chance = [0.0, 0.0, 0.5, 1.0][rng.below(4) as usize];
    for device in &mut history.setup.devices {
        if rng.chance(chance) {
            device.pace = Pace::SlowFlushes(Nanos::micros(between(rng, 20, 500)));
        }
    }
}

/// Parameters of a history of [`add_repeated_failures`]: few features, at high rates.
struct Losses {
    /// Mean number of requests between two failures.
    every: u64,
    /// Target of requests: this many extents of each volume, and this many blocks of each.
    hot_range: (u64, u64),
    /// Number of volumes.
    volumes: usize,
    /// Probability that a change must be durable.
    fua: f64,
    kinds: Vec<Kinds>,
    /// The devices that fail.
    devices: std::ops::Range<usize>,
    /// Probability that all of them fail at the same time.
    all_devices: f64,
    /// Probabilities that clients are idle for seconds, of an audit, of a kill and of a power loss.
    idle: f64,
    audit: f64,
    kill: f64,
    power_loss: f64,
    reads: u64,
}

impl Losses {
    fn draw(rng: &mut Rng, history: &History) -> Self {
        let members = if history.setup.mirrored { 2 } else { 1 };
        let devices = history.setup.devices.len();
        let flushes = Kinds { flushes: true, ..Kinds::default() };
        let writes = Kinds { writes: true, ..Kinds::default() };
        let both = Kinds { flushes: true, writes: true, ..Kinds::default() };
        let kinds = [vec![flushes], vec![flushes], vec![flushes, writes], vec![both, flushes], vec![writes]];
        let spared = rng.chance(0.8) && devices > members;
        Self {
            every: between(rng, 8, 40),
            fua: [0.0, 0.1, 0.5][rng.below(3) as usize],
            hot_range: if rng.chance(0.5) {
                (1, between(rng, 1, 3))
            } else {
                (between(rng, 1, 4), between(rng, 1, 16))
            },
            volumes: 1 + rng.below(2) as usize,
            kinds: kinds[rng.below(5) as usize].clone(),
            devices: if spared { members..devices } else { 0..devices },
            all_devices: [0.0, 0.3, 0.8][rng.below(3) as usize],
            idle: [0.0, 0.0, 0.3][rng.below(3) as usize],
            audit: [0.0, 0.1, 0.5][rng.below(3) as usize],
            kill: [0.1, 0.1, 0.4][rng.below(3) as usize],
            power_loss: [0.0, 0.1][rng.below(2) as usize],
            reads: between(rng, 0, 4),
        }
    }

    /// Redirects a request to the few hot blocks.
    fn redirect(&self, mut ask: RequestSpec, extent: u64, volumes: u64, rng: &mut Rng) -> RequestSpec {
        let (extents, blocks) = self.hot_range;
        ask.volume %= volumes as usize;
        ask.fua = rng.chance(self.fua);
        let index = ask.offset.0 / extent % extents;
        let within = ask.offset.0 % extent % (blocks * BLOCK);
        ask.offset = VolumeOffset(index * extent + within);
        if ask.op != Op::Trim || ask.len.0 < extent {
            ask.len = Bytes(ask.len.0.min(8 * BLOCK));
        }
        ask
    }

    fn fault(&self, rng: &mut Rng) -> Fault {
        let kinds = self.kinds[rng.below(self.kinds.len() as u64) as usize];
        // A flush is never tried again; a write is, twice, and then its failure counts.
        let times = if kinds.writes { [1, 3, 6, 6, 24] } else { [1, 1, 1, 2, 6] };
        Fault::Errors {
            kinds,
            range: weir_model::DeviceOffset(0)..weir_model::DeviceOffset(u64::MAX),
            chance: 1.0,
            times: times[rng.below(5) as usize],
            error: [Errno::EIO, Errno::EIO, Errno::EIO, Errno::ENOSPC][rng.below(4) as usize],
        }
    }

    /// Makes clients idle long enough that write intents are closed, possibly with a write in flight.
    fn add_idle_period(device: usize, ask: RequestSpec, rng: &mut Rng, steps: &mut Vec<HistoryStep>) {
        if rng.chance(0.3) {
            steps.push(HistoryStep::Break(device, Fault::Hang { during: Nanos(0)..Nanos::millis(2950) }));
            (0..3).for_each(|_| steps.push(HistoryStep::Request(RequestSpec { op: Op::Write, ..ask })));
        }
        let time = Nanos::millis(between(rng, 2000, 4200));
        steps.push(if rng.chance(0.2) {
            HistoryStep::Jump { after: 0, time }
        } else {
            HistoryStep::Pass(time)
        });
    }

    fn add_reads(&self, rng: &mut Rng, recent: &[RequestSpec], steps: &mut Vec<HistoryStep>) {
        for _ in 0..self.reads {
            let ask = recent[rng.below(recent.len() as u64) as usize];
            steps.push(HistoryStep::Request(RequestSpec { op: Op::Read, fua: false, ..ask }));
        }
    }

    /// Makes one device fail, or two at once, while requests of its volumes are in flight; then everything is
    /// flushed and read, and copies, or the pool itself, crash.
    fn add_failure(&self, rng: &mut Rng, recent: &[RequestSpec], steps: &mut Vec<HistoryStep>) {
        let any = |rng: &mut Rng| recent[rng.below(recent.len() as u64) as usize];
        let device = |rng: &mut Rng| {
            let Self { devices, .. } = self;
            devices.start + rng.below(devices.len() as u64) as usize
        };
        let (first, fault) = (device(rng), self.fault(rng));
        steps.push(HistoryStep::Break(first, fault.clone()));
        if rng.chance(self.all_devices) {
            let is_same = rng.chance(0.5);
            for device in self.devices.clone().filter(|device| *device != first) {
                let fault = if is_same { fault.clone() } else { self.fault(rng) };
                steps.push(HistoryStep::Break(device, fault));
            }
        }
        // As soon as the failure shows, and soon after.
        for _ in 0..between(rng, 1, 2) {
            steps.push(HistoryStep::CrashCopy(power_loss(between(rng, 2, 24))));
        }
        let during = [Activity::InDoubt, Activity::Frame, Activity::Moving][rng.below(3) as usize];
        steps.push(HistoryStep::CrashCopyDuring(during, Crash::power_loss_now()));
        for _ in 0..between(rng, 0, 6) {
            steps.push(HistoryStep::Request(any(rng)));
        }
        steps.push(flush(any(rng).volume));
        if rng.chance(0.5) {
            // While the flush fails.
            self.add_reads(rng, recent, steps);
        }
        match rng.below(4) {
            0 => {}
            1 => steps.push(HistoryStep::Pass(Nanos::micros(between(rng, 1, 6000)))),
            2 => steps.push(HistoryStep::Wait(between(rng, 1, 8) as usize)),
            _ => (0..between(rng, 1, 6)).for_each(|_| steps.push(HistoryStep::Request(any(rng)))),
        }
        if rng.chance(self.idle) {
            Self::add_idle_period(device(rng), any(rng), rng, steps);
        }
        self.add_reads(rng, recent, steps);
        if rng.chance(0.6) {
            steps.push(flush(any(rng).volume));
        }
        steps.push(HistoryStep::CrashCopy(power_loss(rng.below(40))));
        if rng.chance(0.1) {
            steps.push(HistoryStep::Check);
        }
        if rng.chance(self.audit) {
            // What is lacking then must not have been made good by an opening.
            steps.push(HistoryStep::Audit);
        }
        if rng.chance(self.kill) {
            if rng.chance(0.5) {
                // Longer than the interval of commits: data in doubt has durable write intents then.
                steps.push(HistoryStep::Pass(Nanos::secs(between(rng, 6, 12))));
            }
            let after = if rng.chance(0.5) {
                // Also then, and the server is killed while nothing else waits to become durable.
                steps.extend([flush(any(rng).volume), HistoryStep::Wait(usize::MAX)]);
                0
            } else {
                rng.below(60)
            };
            steps.push(HistoryStep::Crash(Crash { kind: StopKind::Kill, ..power_loss(after) }));
            if rng.chance(0.7) {
                // What the next server finds is durable, whether or not clients read it.
                steps.push(HistoryStep::Wait(usize::MAX));
                self.add_reads(rng, recent, steps);
                steps.push(HistoryStep::CrashCopy(power_loss(rng.below(20))));
            }
        }
        if rng.chance(self.power_loss) {
            steps.push(HistoryStep::Crash(power_loss(rng.below(60))));
            steps.push(HistoryStep::Check);
        }
    }
}
