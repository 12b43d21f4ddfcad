//! What an access costs on a device, as measured.

use super::super::{DeviceView, Moment, SizeClass, Traffic};
use super::fast::Fast;
use weir_model::{Bytes, Nanos};

/// What a write costs a device at least, in idle reads of it: a write that is answered from a cache
/// takes the device's time later.
const LATER: f64 = 0.5;

/// Of the writes and flushes that are counted, what still counts a round later.
const STILL: f64 = 0.98;

/// Weight of a round in the commands a device has in the long run: five seconds. Over a hundred accesses, which are a
/// tenth of a second of some devices, the queues of two that share a load are longer in turn, and what would be moved for
/// that would soon come back.
const LONG: f64 = 0.02;

/// Prices by direction and size.
const ROWS: usize = 2 * SizeClass::COUNT;

/// What is known of the devices besides what they show.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs {
    devices: Vec<Costed>,
    /// Writes of late to all devices, and flushes, those side by side counted once.
    writes: f64,
    flushes: f64,
    /// A write's part of a flush, by these.
    flush_each: f64,
    /// Which rows of prices have been worked out since the last measurement, and which one that was.
    made: u16,
    measured: u64,
}

/// … of one of them.
#[derive(Clone, Copy, Debug, Default)]
struct Costed {
    /// It is one of the fast ones.
    fast: bool,
    /// Commands it has under way on average, of late and in the long run.
    usual: f64,
    long: f64,
    /// What a read takes of its time, in seconds.
    service: f64,
    /// Writes and flushes it had completed at the last round.
    seen: [u64; 2],
    /// By direction and size.
    prices: [Price; ROWS],
}

/// What was measured of a device with accesses of one size in one direction, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Price {
    /// The response for each command the device has, …
    each: f64,
    /// … and what it is at least.
    least: f64,
    /// A write's part of the flush it makes necessary.
    flush: f64,
}

impl Price {
    /// The expected response behind so many commands, flush not counted. One that was measured with more or fewer
    /// scales with them, so that it does not grow old once a device is asked for nothing.
    #[inline]
    fn behind(self, commands: f64) -> f64 {
        let response = self.each * (commands + 1.0);
        if response < self.least { self.least } else { response }
    }
}

/// What accesses of one size in one direction are expected to take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prices<'a> {
    devices: &'a [DeviceView],
    costed: &'a [Costed],
    row: usize,
}

/// The mean response to commands of about this size, or of the nearest size there is one of, and how many
/// commands the device had then.
fn by_size(traffic: &Traffic, len: Bytes) -> Option<(f64, f64)> {
    let class = SizeClass::of(len).index();
    if let Some(mean) = traffic.by_size[class].seconds() {
        return Some((mean, traffic.depth[class]));
    }
    let known = traffic.by_size.iter().enumerate().filter_map(|(i, mean)| Some((i, mean.seconds()?)));
    known.min_by_key(|(i, _)| i.abs_diff(class)).map(|(i, mean)| (mean, traffic.depth[i]))
}

/// What a read takes of a device's time, in seconds.
fn service(device: &DeviceView) -> f64 {
    if device.idle == Nanos::MAX { idle(device) } else { device.service().as_secs_f64() }
}

/// What a read takes of an idle device, in seconds; of one that has not said, as long as a disk.
fn idle(device: &DeviceView) -> f64 {
    if device.idle == Nanos::MAX { 0.01 } else { device.idle.as_secs_f64() }
}

impl Costs {
    /// An access comes: commands under way are averaged over these. What it saves, as [`Prices::saving`].
    #[inline]
    pub(super) fn note(
        &mut self,
        moment: &Moment<'_>,
        fast: Fast,
        write: bool,
        len: Bytes,
        part: f64,
    ) -> f64 {
        let row = self.row(moment, fast, write, len);
        let mut saving = Saving::default();
        for (costed, device) in self.devices.iter_mut().zip(moment.devices) {
            costed.usual += 0.01 * (f64::from(device.in_flight) - costed.usual);
            saving.see(device, costed, row, part);
        }
        saving.get()
    }

    /// There are these devices.
    #[inline(always)]
    fn know(&mut self, devices: &[DeviceView]) {
        if self.devices.len() != devices.len() {
            self.devices.resize(devices.len(), Costed::default());
            self.forget();
        }
    }

    /// What was worked out of what was measured does not hold any more.
    pub(super) fn forget(&mut self) {
        self.made = 0;
    }

    /// What accesses of this length take, where these devices are fast. Cost: a comparison, but for the first one after a
    /// measurement.
    #[inline]
    pub(super) fn prices<'a>(
        &'a mut self,
        moment: &Moment<'a>,
        fast: Fast,
        write: bool,
        len: Bytes,
    ) -> Prices<'a> {
        let row = self.row(moment, fast, write, len);
        Prices { devices: moment.devices, costed: &self.devices, row }
    }

    /// The row of what accesses of this length take, which holds as of this moment.
    #[inline]
    fn row(&mut self, moment: &Moment<'_>, fast: Fast, write: bool, len: Bytes) -> usize {
        self.know(moment.devices);
        let row = SizeClass::of(len).index() + if write { SizeClass::COUNT } else { 0 };
        if self.measured != moment.measured {
            (self.measured, self.made) = (moment.measured, 0);
        }
        if self.made >> row & 1 == 0 {
            self.look(moment.devices, fast, row, write, len);
        }
        debug_assert!(
            self.is_as_measured(moment.devices, row, write, len),
            "prices of an earlier measurement"
        );
        row
    }

    /// A row is worked out.
    #[inline(never)]
    fn look(&mut self, devices: &[DeviceView], fast: Fast, row: usize, write: bool, len: Bytes) {
        self.made |= 1 << row;
        for (at, device) in devices.iter().enumerate() {
            let price = self.price(device, write, len);
            let costed = &mut self.devices[at];
            (costed.fast, costed.service) = (fast.has(device.id), service(device).max(1e-9));
            costed.prices[row] = price;
        }
    }

    /// Whether a row is what it would be if it were worked out now.
    fn is_as_measured(&self, devices: &[DeviceView], row: usize, write: bool, len: Bytes) -> bool {
        let mut all = self.devices.iter().zip(devices);
        all.all(|(costed, device)| costed.prices[row] == self.price(device, write, len))
    }

    /// A round: how many writes a flush follows is counted, and how many commands devices have: on average since the last
    /// round if accesses are [noted](Self::note), else at this moment.
    pub(super) fn round(&mut self, devices: &[DeviceView], are_noted: bool) {
        self.know(devices);
        let (mut writes, mut flushes) = (0, 0);
        for (costed, device) in self.devices.iter_mut().zip(devices) {
            let now = [device.writes.count, device.flushes];
            writes += now[0] - costed.seen[0];
            flushes = flushes.max(now[1] - costed.seen[1]);
            costed.seen = now;
            let commands = if are_noted { costed.usual } else { f64::from(device.in_flight) };
            costed.long += LONG * (commands - costed.long);
        }
        self.writes = STILL * self.writes + writes as f64;
        self.flushes = STILL * self.flushes + flushes as f64;
        self.flush_each = self.flushes / self.writes.max(self.flushes).max(1.0);
        self.forget();
    }

    fn price(&self, device: &DeviceView, write: bool, len: Bytes) -> Price {
        let idle = idle(device);
        let traffic = if write { &device.writes } else { &device.reads };
        let (each, least) =
            by_size(traffic, len).map_or((0.0, idle), |(mean, depth)| (mean / depth.max(1.0), 0.0));
        if write {
            let flush = self.flush_each * device.flush.seconds().unwrap_or(0.0);
            Price { each, least: least.max(LATER * idle), flush }
        } else {
            Price { each, least, flush: 0.0 }
        }
    }

    /// Commands the device has in flight in the long run.
    pub(super) fn in_flight_for_long(&self, device: &DeviceView) -> f64 {
        self.devices.get(device.id.index()).map_or(0.0, |costed| costed.long)
    }

    /// The expected response in seconds, as it usually is, a write's with its part of a flush: as measured at this
    /// moment.
    pub(super) fn response(&self, device: &DeviceView, write: bool, len: Bytes) -> f64 {
        let usual = self.devices.get(device.id.index()).map_or(0.0, |costed| costed.usual);
        let price = self.price(device, write, len);
        price.behind(usual) + price.flush
    }
}

impl Prices<'_> {
    /// The expected response in seconds, as it usually is; a write's with its part of a flush.
    #[inline]
    pub(super) fn response(&self, device: &DeviceView) -> f64 {
        self.behind(device, self.costed[device.id.index()].usual)
    }

    /// … with what is under way at this moment.
    #[inline]
    pub(super) fn now(&self, device: &DeviceView) -> f64 {
        self.behind(device, f64::from(device.in_flight))
    }

    /// … in the long run.
    #[inline]
    fn long(&self, device: &DeviceView) -> f64 {
        self.behind(device, self.costed[device.id.index()].long)
    }

    /// … behind so many commands.
    #[inline]
    fn behind(&self, device: &DeviceView, commands: f64) -> f64 {
        let price = self.costed[device.id.index()].prices[self.row];
        price.behind(commands) + price.flush
    }

    /// Whether this device, in the long run, would answer within this part of what the other one takes.
    #[inline]
    pub(super) fn is_sooner(&self, device: &DeviceView, part: f64, other: &DeviceView) -> bool {
        self.long(device) < part * self.long(other)
    }

    /// Whether a device that is not fast would, in the long run, answer within this part of what this fast one takes.
    #[inline]
    pub(super) fn is_sooner_elsewhere(&self, holder: &DeviceView, part: f64) -> bool {
        let limit = part * self.long(holder);
        let mut all = self.devices.iter().zip(self.costed);
        all.any(|(d, costed)| !costed.fast && d.has_room() && self.long(d) < limit)
    }

    /// Whether a fast device would, in the long run, answer within this part of what any other one takes.
    #[inline]
    pub(super) fn is_sooner_on_fast(&self, part: f64) -> bool {
        let (mut fast, mut slow) = (f64::INFINITY, f64::INFINITY);
        for (device, costed) in self.devices.iter().zip(self.costed) {
            let takes = self.long(device);
            if costed.fast {
                fast = fast.min(takes);
            } else if device.usable {
                slow = slow.min(takes);
            }
        }
        fast < part * slow
    }

    /// What the best of the fast devices saves over the best of the others, in idle reads of that one, with an access
    /// whose response counts by this part. Below zero if it costs more.
    #[inline]
    pub(super) fn saving(&self, part: f64) -> f64 {
        let mut saving = Saving::default();
        for (device, costed) in self.devices.iter().zip(self.costed) {
            saving.see(device, costed, self.row, part);
        }
        saving.get()
    }
}

/// What the best of the fast devices takes, and the best of the others, and what a read takes of that one's time.
#[derive(Clone, Copy, Debug)]
struct Saving {
    fast: f64,
    slow: f64,
    service: f64,
}

impl Default for Saving {
    fn default() -> Self {
        Self { fast: f64::INFINITY, slow: f64::INFINITY, service: 1.0 }
    }
}

impl Saving {
    #[inline(always)]
    fn see(&mut self, device: &DeviceView, costed: &Costed, row: usize, part: f64) {
        let price = costed.prices[row];
        // Every write counts wholly for the flush.
        let cost = part * price.behind(costed.usual) + price.flush;
        if costed.fast {
            self.fast = if cost < self.fast { cost } else { self.fast };
        } else if device.usable && cost < self.slow {
            (self.slow, self.service) = (cost, costed.service);
        }
    }

    /// In reads of the other device; nothing if there is none.
    #[inline(always)]
    fn get(self) -> f64 {
        if self.slow == f64::INFINITY { 0.0 } else { (self.slow - self.fast) / self.service }
    }
}
