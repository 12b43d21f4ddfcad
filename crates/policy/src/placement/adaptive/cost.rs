//! What an access costs on a device, as measured.

use super::super::{DeviceView, SizeClass, Traffic};
use super::fast::Fast;
use weir_model::{Bytes, Nanos};

/// What a write costs a device at least, in idle reads of it: a write that is answered from a cache
/// takes the device's time later.
const LATER: f64 = 0.5;

/// Of the writes and flushes that are counted, what still counts a round later.
const STILL: f64 = 0.98;

/// How often a price is used until what it is at least, and whether there is a figure for that size, is looked at again; a
/// round ends that, too. What was measured is looked at each time: while commands wait it changes within a few.
const USES: u8 = 16;
/// Prices by direction and size.
const ROWS: usize = 2 * SizeClass::COUNT;

/// What is known of the devices besides what they show.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs {
    /// Commands each device has under way on average.
    depth: Vec<f64>,
    /// Writes of late to all devices, and flushes, those side by side counted once.
    writes: f64,
    flushes: f64,
    /// A write's part of a flush, by these.
    flush_each: f64,
    /// How many there had been by device at the last round.
    seen: Vec<[u64; 2]>,
    /// Rows by direction and size, of a price for each device, and how often each row may still be used.
    prices: Vec<Price>,
    uses: [u8; ROWS],
}

/// What was measured of a device with accesses of one size in one direction, in seconds.
#[derive(Clone, Copy, Debug, Default)]
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
        (self.each * (commands + 1.0)).max(self.least)
    }
}

/// What accesses of one size in one direction are expected to take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prices<'a> {
    fast: Fast,
    devices: &'a [DeviceView],
    prices: &'a [Price],
    /// Commands each device has under way on average.
    usual: &'a [f64],
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
    /// An access comes: commands under way are averaged over these.
    #[inline]
    pub(super) fn note(&mut self, devices: &[DeviceView]) {
        self.know(devices);
        for (depth, device) in self.depth.iter_mut().zip(devices) {
            *depth += 0.01 * (f64::from(device.in_flight) - *depth);
        }
    }

    /// There are these devices.
    #[inline(always)]
    fn know(&mut self, devices: &[DeviceView]) {
        if self.depth.len() != devices.len() {
            self.know_others(devices.len());
        }
    }

    #[inline(never)]
    fn know_others(&mut self, devices: usize) {
        self.depth.resize(devices, 0.0);
        self.prices = vec![Price::default(); ROWS * devices];
        self.forget();
    }

    /// What was measured a moment ago does not hold any more.
    fn forget(&mut self) {
        self.uses = [0; ROWS];
    }

    /// What accesses of this length take, where these devices are fast. Cost: a division for each device.
    #[inline]
    pub(super) fn prices<'a>(
        &'a mut self,
        devices: &'a [DeviceView],
        fast: Fast,
        write: bool,
        len: Bytes,
    ) -> Prices<'a> {
        self.know(devices);
        let class = SizeClass::of(len).index();
        let row = class + if write { SizeClass::COUNT } else { 0 };
        if self.uses[row] == 0 {
            self.look(devices, row, write, len);
        }
        self.uses[row] -= 1;
        let prices = &mut self.prices[row * devices.len()..][..devices.len()];
        for (price, device) in prices.iter_mut().zip(devices) {
            let traffic = if write { &device.writes } else { &device.reads };
            if let Some(mean) = traffic.by_size[class].seconds() {
                price.each = mean / traffic.depth[class].max(1.0);
            }
            if write {
                price.flush = self.flush_each * device.flush.seconds().unwrap_or(0.0);
            }
        }
        Prices { fast, devices, prices, usual: &self.depth }
    }

    /// A row is made anew.
    #[inline(never)]
    fn look(&mut self, devices: &[DeviceView], row: usize, write: bool, len: Bytes) {
        self.uses[row] = USES;
        for (at, device) in devices.iter().enumerate() {
            self.prices[row * devices.len() + at] = self.price(device, write, len);
        }
    }

    /// A round: how many writes a flush follows is counted.
    pub(super) fn round(&mut self, devices: &[DeviceView]) {
        self.seen.resize(devices.len(), [0; 2]);
        let (mut writes, mut flushes) = (0, 0);
        for (seen, device) in self.seen.iter_mut().zip(devices) {
            let now = [device.writes.count, device.flushes];
            writes += now[0] - seen[0];
            flushes = flushes.max(now[1] - seen[1]);
            *seen = now;
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

    /// The expected response in seconds, as it usually is, a write's with its part of a flush: as measured at this
    /// moment.
    pub(super) fn response(&self, device: &DeviceView, write: bool, len: Bytes) -> f64 {
        let usual = self.depth.get(device.id.index()).copied().unwrap_or(0.0);
        let price = self.price(device, write, len);
        price.behind(usual) + price.flush
    }
}

impl Prices<'_> {
    /// The expected response in seconds, as it usually is; a write's with its part of a flush.
    #[inline]
    pub(super) fn response(&self, device: &DeviceView) -> f64 {
        let (price, usual) = (self.prices[device.id.index()], self.usual[device.id.index()]);
        price.behind(usual) + price.flush
    }

    /// … with what is under way at this moment.
    #[inline]
    pub(super) fn now(&self, device: &DeviceView) -> f64 {
        let price = self.prices[device.id.index()];
        price.behind(f64::from(device.in_flight)) + price.flush
    }

    /// Whether a device that is not fast would answer within this part of what this fast one takes.
    #[inline]
    pub(super) fn is_sooner_elsewhere(&self, holder: &DeviceView, part: f64) -> bool {
        let limit = part * self.response(holder);
        self.fast.others(self.devices).any(|d| d.has_room() && self.response(d) < limit)
    }

    /// What the best of the fast devices saves over the best of the others, in idle reads of that one, with an access
    /// whose response counts by this part. Below zero if it costs more.
    #[inline]
    pub(super) fn saving(&self, part: f64) -> f64 {
        // Every write counts wholly for the flush.
        let cost = |(price, usual): (&Price, &f64)| part * price.behind(*usual) + price.flush;
        let (mut best, mut slow) = (f64::INFINITY, None);
        for (device, of) in self.devices.iter().zip(self.prices.iter().zip(self.usual)) {
            if self.fast.has(device.id) {
                best = best.min(cost(of));
            } else if device.usable && slow.is_none_or(|(least, _)| cost(of) < least) {
                slow = Some((cost(of), device));
            }
        }
        slow.map_or(0.0, |(cost, device)| (cost - best) / service(device).max(1e-9))
    }
}
