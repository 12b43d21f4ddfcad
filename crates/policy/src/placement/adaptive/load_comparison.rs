//! Comparison, under load, of devices that are alike when idle.
//!
//! Rule: a device is faster than another if the service time of its reads is below [`SERVICE_RATIO_MAX`] of
//! the other's; if the difference exceeds the spread of the measurements (two standard deviations); and if it
//! was measured with no more commands in flight than the other. The last condition is needed because the
//! service time of a read falls as the queue grows: a device with a short queue looks slow beside one with a
//! long queue, and never the other way round. The difference must last.
//!
//! Of a device without such load count the idle reads or clients' few reads, whichever certainly take less
//! time: idle reads are measured once, a handful of them, perhaps while the machine was busy.
//!
//! The last measurements are remembered, so that a device whose load has moved elsewhere does not look fast
//! because of that.

use super::super::DeviceView;
use super::fast::FastDevices;
use weir_model::{BLOCK, Bytes, Nanos};

/// The maximum service time of a faster device's read, as a fraction of a slower one's.
const SERVICE_RATIO_MAX: f64 = 0.7;
/// The minimum difference in standard deviations.
const DEVIATIONS: f64 = 2.0;
/// The ratio of queue depths up to which two devices count as measured alike.
const DEPTH_RATIO_MAX: f64 = 1.25;
/// The mean queue depth of a device under load.
const LOADED_DEPTH: f64 = 2.0;
/// The weight of a round in the remembered measurements: five seconds.
const ROUND_WEIGHT: f64 = 0.02;
/// The time that a device must have been faster.
const SUSTAINED_MIN: Nanos = Nanos::secs(10);

/// The service time of reads under load: the mean of its logarithm, in seconds, and the variance.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Service {
    mean: f64,
    variance: f64,
    /// The mean queue depth.
    depth: f64,
}

impl Service {
    /// Returns that of an idle device.
    fn idle(device: &DeviceView) -> Self {
        let ln = |time: Nanos| (time.0.max(1) as f64).ln();
        // The quartiles of a normal distribution are 1.349 standard deviations apart.
        let deviation = device.idle_quartiles.map_or(0.0, |[first, third]| (ln(third) - ln(first)) / 1.349);
        Self { mean: ln(device.idle_response), variance: deviation * deviation, depth: 1.0 }
    }

    fn of(device: &DeviceView, depth: f64) -> Self {
        Self { mean: (device.service().0.max(1) as f64).ln(), variance: 0.0, depth }
    }

    /// Returns that of clients' reads, however few are in flight; `None` before the first.
    fn of_few_reads(device: &DeviceView, depth: f64) -> Option<Self> {
        let response = device.reads.response_to(Bytes(BLOCK))?;
        let depth = depth.max(1.0);
        Some(Self { mean: (response.0.max(1) as f64 / depth).ln(), variance: 0.0, depth })
    }

    fn note(&mut self, now: Self) {
        let off = now.mean - self.mean;
        self.mean += ROUND_WEIGHT * off;
        self.variance = (1.0 - ROUND_WEIGHT) * (self.variance + ROUND_WEIGHT * off * off);
        self.depth += ROUND_WEIGHT * (now.depth - self.depth);
    }

    /// Returns what it hardly exceeds.
    fn upper_bound(&self) -> f64 {
        self.mean + DEVIATIONS * self.variance.sqrt()
    }

    /// Whether this one is faster.
    fn is_faster_than(&self, other: &Self) -> bool {
        let apart = (DEVIATIONS * (self.variance + other.variance).sqrt()).max(-SERVICE_RATIO_MAX.ln());
        other.mean - self.mean > apart && self.depth <= DEPTH_RATIO_MAX * other.depth
    }

    /// Whether neither is faster, and both were measured with about the same queue depth.
    fn is_like(&self, other: &Self) -> bool {
        let depths = self.depth.max(other.depth) / self.depth.min(other.depth);
        (self.mean - other.mean).abs() < -SERVICE_RATIO_MAX.ln() && depths <= 2.0
    }
}

/// The comparison of devices under load.
#[derive(Clone, Debug)]
pub(super) struct LoadComparison {
    loaded: Vec<Option<Service>>,
    /// The measurements with few reads in flight, and the number of reads at the last one.
    few_reads: Vec<(Option<Service>, u64)>,
    /// The devices that have been faster (empty if all have been alike), and the time since which they have
    /// been.
    candidate: Option<(FastDevices, Nanos)>,
    /// The time that the difference must last; it doubles after each change.
    sustain_time: Nanos,
}

impl Default for LoadComparison {
    fn default() -> Self {
        Self { loaded: Vec::new(), few_reads: Vec::new(), candidate: None, sustain_time: SUSTAINED_MIN }
    }
}

impl LoadComparison {
    /// Updates the measurements, once per round. Returns the new set of fast devices if others, or none, have
    /// been faster for long enough.
    pub(super) fn round(
        &mut self,
        now: Nanos,
        devices: &[DeviceView],
        fast_devices: FastDevices,
    ) -> Option<FastDevices> {
        self.measure(devices);
        let others = self.faster(devices).filter(|fast| *fast != fast_devices);
        let since = self.candidate.filter(|(fast, _)| Some(*fast) == others).map_or(now, |(_, since)| since);
        self.candidate = others.map(|fast| (fast, since));
        let changes = others.filter(|_| now.since(since) >= self.sustain_time);
        if changes.is_some() {
            self.sustain_time = Nanos(self.sustain_time.0.saturating_mul(2));
        }
        changes
    }

    fn measure(&mut self, devices: &[DeviceView]) {
        self.loaded.resize(devices.len(), None);
        self.few_reads.resize(devices.len(), (None, 0));
        for ((loaded, few_reads), device) in self.loaded.iter_mut().zip(&mut self.few_reads).zip(devices) {
            let depth = device.reads.depth_of(Bytes(BLOCK));
            let (few_reads, count) = few_reads;
            let is_read = std::mem::replace(count, device.reads.count) != device.reads.count;
            if depth >= LOADED_DEPTH {
                if device.in_flight > 0 {
                    let now = Service::of(device, depth);
                    loaded.get_or_insert(now).note(now);
                }
            } else if is_read && let Some(now) = Service::of_few_reads(device, depth) {
                few_reads.get_or_insert(now).note(now);
            }
        }
    }

    /// Returns the service time of a device under load, or else without.
    fn service(&self, device: &DeviceView) -> Service {
        let at = device.id.index();
        let idle = Service::idle(device);
        let few_reads =
            || self.few_reads[at].0.filter(|few_reads| few_reads.upper_bound() < idle.upper_bound());
        self.loaded[at].or_else(few_reads).unwrap_or(idle)
    }

    /// Returns the faster among devices that are alike when idle, by service time under load, or without
    /// where there was none. The set is empty if all are alike; `None` if idle reads distinguish them, or
    /// load cannot.
    fn faster(&self, devices: &[DeviceView]) -> Option<FastDevices> {
        if self.loaded.iter().all(Option::is_none) || !FastDevices::are_alike_when_idle(devices) {
            return None;
        }
        let usable = devices.iter().filter(|d| d.is_usable);
        let mut all: Vec<_> = usable.map(|d| (d.id, self.service(d))).collect();
        all.sort_by(|(_, a), (_, b)| a.mean.total_cmp(&b.mean));
        // The split is at the widest gap.
        let gap = |at: &usize| all[*at].1.mean - all[*at - 1].1.mean;
        let at = (1..all.len()).max_by(|a, b| gap(a).total_cmp(&gap(b)))?;
        let (faster, slower) = all.split_at(at);
        if faster.iter().all(|(_, a)| slower.iter().all(|(_, b)| a.is_faster_than(b))) {
            let mut fast = FastDevices::default();
            faster.iter().for_each(|(id, _)| fast.insert(*id));
            return Some(fast);
        }
        let are_loaded = all.iter().all(|(id, _)| self.loaded[id.index()].is_some());
        let (first, last) = (all.first()?.1, all.last()?.1);
        (are_loaded && first.is_like(&last)).then(FastDevices::default)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::MeasuredCommand;
    use super::super::super::testing::device;
    use super::*;
    use weir_model::{DeviceId, Rng, Seed};

    /// Returns a device that has answered reads with this queue depth, in this many microseconds each.
    fn loaded(id: u8, idle: u64, depth: u32, each: u64) -> DeviceView {
        let mut view = DeviceView { in_flight: depth, ..device(id, 64, idle) };
        let response = Nanos::micros(u64::from(depth) * each);
        let command = MeasuredCommand::new(false, Bytes::kib(4), depth, response, Nanos(0));
        (0..1000).for_each(|_| view.note(&command));
        view
    }

    /// Returns the fast devices after this many seconds.
    fn after(seconds: u64, views: &[DeviceView]) -> Vec<u8> {
        let (mut fast, mut load) = (FastDevices::select(views), LoadComparison::default());
        for tenth in 0..seconds * 10 {
            fast = load.round(Nanos::millis(tenth * 100), views, fast).unwrap_or(fast);
        }
        fast.fast_devices(views).map(|d| d.id.0).collect()
    }

    /// Returns the fast ones among devices given by their idle read and, for 16 reads at a time, the time of
    /// each, in microseconds.
    fn fast_after(seconds: u64, devices: &[(u64, u64)]) -> Vec<u8> {
        let views = (0..).zip(devices).map(|(id, (idle, each))| loaded(id, *idle, 16, *each));
        after(seconds, &views.collect::<Vec<_>>())
    }

    #[test]
    fn load_distinguishes_where_idle_does_not() {
        let capped = [(900, 5000), (1000, 1700)];
        assert_eq!(fast_after(9, &capped), [0u8; 0], "not at once");
        assert_eq!(fast_after(12, &capped), [1]);
        assert_eq!(fast_after(1000, &[(900, 5000), (1000, 4000)]), [0u8; 0], "not for so little");
        assert_eq!(fast_after(12, &[(900, 5000), (1000, 1700), (800, 1600)]), [1, 2]);
        assert_eq!(fast_after(1000, &[(100, 9000), (5000, 5000)]), [0], "overloaded, and fast all the same");
    }

    /// Among equal SSDs, the one with more data has the longer queue, and a shorter service time per read.
    #[test]
    fn longer_queue_is_not_faster() {
        let uneven = [loaded(0, 80, 24, 8), loaded(1, 80, 4, 27), loaded(2, 80, 4, 27)];
        assert_eq!(after(1000, &uneven), [0u8; 0]);
        let unused = [loaded(0, 80, 24, 8), device(1, 64, 80)];
        assert_eq!(after(1000, &unused), [0u8; 0], "nor does one that nobody asks");
    }

    /// Idle reads took long because the machine was busy; the few reads of the device without load do not.
    #[test]
    fn few_reads_distinguish_where_idle_reads_were_slow() {
        let run = |each: u64, is_read: bool| {
            let mut views = [loaded(0, 4000, 16, 5000), device(1, 64, 4000)];
            let (mut fast, mut load) = (FastDevices::select(&views), LoadComparison::default());
            for tenth in 0..300 {
                if is_read {
                    let response = Nanos::micros(each);
                    views[1].note(&MeasuredCommand::new(false, Bytes::kib(4), 1, response, response));
                }
                fast = load.round(Nanos::millis(tenth * 100), &views, fast).unwrap_or(fast);
            }
            fast.fast_devices(&views).map(|d| d.id.0).collect::<Vec<_>>()
        };
        assert_eq!(run(2000, true), [1]);
        assert_eq!(run(2000, false), [0u8; 0], "without a read, nothing is known of it");
        assert_eq!(run(4500, true), [0u8; 0], "not for so little");
    }

    /// A handful of idle reads differed by a factor of ten; thousands of clients' few reads do not.
    #[test]
    fn few_reads_distinguish_where_idle_reads_varied() {
        let run = |is_read: bool| {
            let spread =
                |view| DeviceView { idle_quartiles: Some([Nanos::micros(200), Nanos::micros(2000)]), ..view };
            let mut views = [spread(loaded(0, 490, 16, 5000)), spread(device(1, 64, 490))];
            let (mut fast, mut load) = (FastDevices::select(&views), LoadComparison::default());
            for tenth in 0..300 {
                if is_read {
                    let response = Nanos::micros(800 + tenth % 10 * 20);
                    views[1].note(&MeasuredCommand::new(false, Bytes::kib(4), 1, response, response));
                }
                fast = load.round(Nanos::millis(tenth * 100), &views, fast).unwrap_or(fast);
            }
            fast.fast_devices(&views).map(|d| d.id.0).collect::<Vec<_>>()
        };
        assert_eq!(run(true), [1]);
        assert_eq!(run(false), [0u8; 0], "the idle reads alone could be chance");
    }

    /// Two devices take the load of reads in turn, depending on which one is fast: the other one is idle.
    #[test]
    fn equal_devices_do_not_flap() {
        let mut views = [device(0, 64, 900), device(1, 64, 900)];
        let (mut fast, mut load, mut changes) = (FastDevices::select(&views), LoadComparison::default(), 0);
        for tenth in 0..36_000 {
            let busy = usize::from(fast.contains(DeviceId(1)));
            let command = MeasuredCommand::new(false, Bytes::kib(4), 16, Nanos::micros(16 * 1670), Nanos(0));
            (0..60).for_each(|_| views[busy].note(&command));
            (views[busy].in_flight, views[1 - busy].in_flight) = (16, 0);
            if let Some(other) = load.round(Nanos::millis(tenth * 100), &views, fast) {
                (fast, changes) = (other, changes + 1);
            }
        }
        // A device without requests looks fast until it gets as many.
        assert!(changes <= 2 && fast.is_empty(), "{changes} changes in an hour, {fast:?}");
    }

    /// An hour of equal devices whose responses vary by a factor of two within seconds, one of them slower by
    /// a fifth for minutes at a time.
    #[test]
    fn noise_does_not_change_selection() {
        for seed in 0..8 {
            let mut random = Rng::new(Seed(seed));
            let mut views = [0, 1, 2].map(|id| device(id, 64, 80));
            let (mut fast, mut load) = (FastDevices::select(&views), LoadComparison::default());
            let mut noise = [100; 3];
            for tenth in 0..36_000u64 {
                if tenth % 10 == 0 {
                    noise = [0, 1, 2].map(|_| 70 + random.below(70));
                    noise[(tenth / 1200 % 3) as usize] += 20;
                }
                for (view, noise) in views.iter_mut().zip(noise) {
                    let response = Nanos(16 * 10 * noise);
                    let command =
                        MeasuredCommand::new(false, Bytes::kib(4), 16, Nanos(100 * response.0), Nanos(0));
                    view.in_flight = 16;
                    (0..40).for_each(|_| view.note(&command));
                }
                fast = load.round(Nanos::millis(tenth * 100), &views, fast).unwrap_or(fast);
                assert!(fast.is_empty(), "seed {seed}: {fast:?} after {tenth} tenths of a second");
            }
        }
    }

    #[test]
    fn devices_become_equal_again() {
        let (mut fast, mut load) = (FastDevices::default(), LoadComparison::default());
        let mut now = Nanos(0);
        let mut run = |views: &[DeviceView], seconds: u64, fast: &mut FastDevices| {
            for _ in 0..seconds * 10 {
                now += Nanos::millis(100);
                *fast = load.round(now, views, *fast).unwrap_or(*fast);
            }
        };
        run(&[loaded(0, 900, 16, 5000), loaded(1, 900, 16, 1700)], 12, &mut fast);
        assert!(fast.contains(DeviceId(1)));
        run(&[loaded(0, 900, 16, 1700), loaded(1, 900, 16, 1700)], 60, &mut fast);
        assert!(fast.is_empty());
    }
}
