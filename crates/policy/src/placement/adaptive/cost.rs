//! The measured cost of an access on a device.

use super::super::{DeviceView, PolicyContext, SizeClass, Traffic};
use super::fast::FastDevices;
use weir_model::{Bytes, Nanos};

/// The minimum cost of a write on a device, in idle reads of it: a write answered from a cache takes the
/// device's time later.
const WRITE_COST_MIN: f64 = 0.5;

/// The factor by which the counts of writes and flushes decay per round.
const COUNT_DECAY: f64 = 0.98;

/// The weight of a round in the long-term queue depth: five seconds. Over a hundred accesses, which take a
/// tenth of a second on some devices, two devices that share a load have the longer queue in turn, and data
/// moved because of that would soon move back.
const LONG_TERM_WEIGHT: f64 = 0.02;

/// The number of rows of prices, by direction and size.
const ROWS: usize = 2 * SizeClass::COUNT;

/// State of the devices that goes beyond their views.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs {
    devices: Vec<DeviceCost>,
    /// Recent writes to all devices, and flushes; parallel flushes count once.
    writes: f64,
    flushes: f64,
    /// A write's share of a flush, computed from these.
    flush_each: f64,
    /// The rows of prices computed since the last measurement, and the number of that measurement.
    valid_rows: u16,
    measurement: u64,
}

/// State of one device.
#[derive(Clone, Copy, Debug, Default)]
struct DeviceCost {
    /// Whether it is a fast one.
    fast: bool,
    /// The mean of its commands in flight, recent and long-term.
    mean_in_flight: f64,
    long_term_in_flight: f64,
    /// The service time of a read, in seconds.
    service: f64,
    /// The writes and flushes completed at the last round.
    last_completed: [u64; 2],
    /// Prices by direction and size.
    prices: [Price; ROWS],
}

/// The measured cost of accesses of one size in one direction on a device, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Price {
    /// The response time per command in the queue.
    per_command: f64,
    /// The minimum response time.
    minimum: f64,
    /// A write's share of the flush it makes necessary.
    flush: f64,
}

impl Price {
    /// Returns the expected response time behind this many commands, without the flush. A response measured
    /// with more or fewer commands is scaled to them, so that it does not become stale when a device gets no
    /// more requests.
    #[inline]
    fn response_behind(self, commands: f64) -> f64 {
        let response = self.per_command * (commands + 1.0);
        if response < self.minimum { self.minimum } else { response }
    }
}

/// The expected responses of accesses of one size in one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prices<'a> {
    devices: &'a [DeviceView],
    costs: &'a [DeviceCost],
    row: usize,
}

/// Returns the mean response time to commands of about this size, or of the nearest measured size, and the
/// queue depth at that time.
fn by_size(traffic: &Traffic, len: Bytes) -> Option<(f64, f64)> {
    let class = SizeClass::of(len).index();
    if let Some(mean) = traffic.by_size[class].seconds() {
        return Some((mean, traffic.depth[class]));
    }
    let known = traffic.by_size.iter().enumerate().filter_map(|(i, mean)| Some((i, mean.seconds()?)));
    known.min_by_key(|(i, _)| i.abs_diff(class)).map(|(i, mean)| (mean, traffic.depth[i]))
}

/// Returns the service time of a read, in seconds.
fn service(device: &DeviceView) -> f64 {
    if device.idle_response == Nanos::MAX { idle(device) } else { device.service().as_secs_f64() }
}

/// Returns the idle read response in seconds; that of a disk if it is unknown.
fn idle(device: &DeviceView) -> f64 {
    if device.idle_response == Nanos::MAX { 0.01 } else { device.idle_response.as_secs_f64() }
}

impl Costs {
    /// Notes an access, which is the unit over which queue depths are averaged. Returns its saving, as
    /// [`Prices::saving`].
    #[inline]
    pub(super) fn note(
        &mut self,
        context: &PolicyContext<'_>,
        fast: FastDevices,
        write: bool,
        len: Bytes,
        part: f64,
    ) -> f64 {
        let row = self.row(context, fast, write, len);
        let mut saving = Saving::default();
        for (costed, device) in self.devices.iter_mut().zip(context.devices) {
            costed.mean_in_flight += 0.01 * (f64::from(device.in_flight) - costed.mean_in_flight);
            saving.add_device(device, costed, row, part);
        }
        saving.get()
    }

    /// Adjusts the state to the number of devices.
    #[inline(always)]
    fn resize(&mut self, devices: &[DeviceView]) {
        if self.devices.len() != devices.len() {
            self.devices.resize(devices.len(), DeviceCost::default());
            self.forget();
        }
    }

    /// Invalidates the rows computed from measurements.
    pub(super) fn forget(&mut self) {
        self.valid_rows = 0;
    }

    /// Returns the prices of accesses of this length, given the fast devices. Cost: a comparison, except for
    /// the first call after a measurement.
    #[inline]
    pub(super) fn prices<'a>(
        &'a mut self,
        context: &PolicyContext<'a>,
        fast: FastDevices,
        write: bool,
        len: Bytes,
    ) -> Prices<'a> {
        let row = self.row(context, fast, write, len);
        Prices { devices: context.devices, costs: &self.devices, row }
    }

    /// Returns the row of accesses of this length, computing it if it is out of date.
    #[inline]
    fn row(&mut self, context: &PolicyContext<'_>, fast: FastDevices, write: bool, len: Bytes) -> usize {
        self.resize(context.devices);
        let row = SizeClass::of(len).index() + if write { SizeClass::COUNT } else { 0 };
        if self.measurement != context.measured {
            (self.measurement, self.valid_rows) = (context.measured, 0);
        }
        if self.valid_rows >> row & 1 == 0 {
            self.compute_row(context.devices, fast, row, write, len);
        }
        debug_assert!(
            self.is_row_current(context.devices, row, write, len),
            "prices of an earlier measurement"
        );
        row
    }

    /// Computes a row.
    #[inline(never)]
    fn compute_row(
        &mut self,
        devices: &[DeviceView],
        fast: FastDevices,
        row: usize,
        write: bool,
        len: Bytes,
    ) {
        self.valid_rows |= 1 << row;
        for (at, device) in devices.iter().enumerate() {
            let price = self.price(device, write, len);
            let costed = &mut self.devices[at];
            (costed.fast, costed.service) = (fast.contains(device.id), service(device).max(1e-9));
            costed.prices[row] = price;
        }
    }

    /// Whether recomputing a row would not change it.
    fn is_row_current(&self, devices: &[DeviceView], row: usize, write: bool, len: Bytes) -> bool {
        let mut all = self.devices.iter().zip(devices);
        all.all(|(costed, device)| costed.prices[row] == self.price(device, write, len))
    }

    /// Updates the counts, once per round: the writes per flush, and the queue depths. The latter are
    /// averaged over the accesses since the last round if these are [noted](Self::note), else taken at this
    /// moment.
    pub(super) fn round(&mut self, devices: &[DeviceView], are_noted: bool) {
        self.resize(devices);
        let (mut writes, mut flushes) = (0, 0);
        for (costed, device) in self.devices.iter_mut().zip(devices) {
            let now = [device.writes.count, device.flushes];
            writes += now[0] - costed.last_completed[0];
            flushes = flushes.max(now[1] - costed.last_completed[1]);
            costed.last_completed = now;
            let commands = if are_noted { costed.mean_in_flight } else { f64::from(device.in_flight) };
            costed.long_term_in_flight += LONG_TERM_WEIGHT * (commands - costed.long_term_in_flight);
        }
        self.writes = COUNT_DECAY * self.writes + writes as f64;
        self.flushes = COUNT_DECAY * self.flushes + flushes as f64;
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
            Price { per_command: each, minimum: least.max(WRITE_COST_MIN * idle), flush }
        } else {
            Price { per_command: each, minimum: least, flush: 0.0 }
        }
    }

    /// Returns the long-term mean of the device's commands in flight.
    pub(super) fn in_flight_for_long(&self, device: &DeviceView) -> f64 {
        self.devices.get(device.id.index()).map_or(0.0, |costed| costed.long_term_in_flight)
    }

    /// Returns the usual expected response time in seconds, including a write's share of a flush, from the
    /// measurements of this moment.
    pub(super) fn response(&self, device: &DeviceView, write: bool, len: Bytes) -> f64 {
        let usual = self.devices.get(device.id.index()).map_or(0.0, |costed| costed.mean_in_flight);
        let price = self.price(device, write, len);
        price.response_behind(usual) + price.flush
    }
}

impl Prices<'_> {
    /// Returns the usual expected response time in seconds, including a write's share of a flush.
    #[inline]
    pub(super) fn response(&self, device: &DeviceView) -> f64 {
        self.response_behind(device, self.costs[device.id.index()].mean_in_flight)
    }

    /// Returns the expected response time with the present commands in flight.
    #[inline]
    pub(super) fn current_response(&self, device: &DeviceView) -> f64 {
        self.response_behind(device, f64::from(device.in_flight))
    }

    /// Returns the expected response time with the long-term queue.
    #[inline]
    fn long_term_response(&self, device: &DeviceView) -> f64 {
        self.response_behind(device, self.costs[device.id.index()].long_term_in_flight)
    }

    /// Returns the expected response time behind this many commands.
    #[inline]
    fn response_behind(&self, device: &DeviceView, commands: f64) -> f64 {
        let price = self.costs[device.id.index()].prices[self.row];
        price.response_behind(commands) + price.flush
    }

    /// Whether this device's long-term response is below this fraction of the other one's.
    #[inline]
    pub(super) fn is_sooner(&self, device: &DeviceView, part: f64, other: &DeviceView) -> bool {
        self.long_term_response(device) < part * self.long_term_response(other)
    }

    /// Whether the long-term response of some device that is not fast is below this fraction of that of this
    /// fast one.
    #[inline]
    pub(super) fn is_sooner_elsewhere(&self, holder: &DeviceView, part: f64) -> bool {
        let limit = part * self.long_term_response(holder);
        let mut all = self.devices.iter().zip(self.costs);
        all.any(|(d, costed)| !costed.fast && d.has_space() && self.long_term_response(d) < limit)
    }

    /// Whether the long-term response of a fast device is below this fraction of that of all others.
    #[inline]
    pub(super) fn is_sooner_on_fast(&self, part: f64) -> bool {
        let (mut fast, mut slow) = (f64::INFINITY, f64::INFINITY);
        for (device, costed) in self.devices.iter().zip(self.costs) {
            let takes = self.long_term_response(device);
            if costed.fast {
                fast = fast.min(takes);
            } else if device.is_usable {
                slow = slow.min(takes);
            }
        }
        fast < part * slow
    }

    /// Returns the saving of the best fast device over the best of the others, in idle reads of the latter,
    /// for an access whose response has the weight `part`. It is negative if the access costs more.
    #[inline]
    pub(super) fn saving(&self, part: f64) -> f64 {
        let mut saving = Saving::default();
        for (device, costed) in self.devices.iter().zip(self.costs) {
            saving.add_device(device, costed, self.row, part);
        }
        saving.get()
    }
}

/// The cost on the best of the fast devices and on the best of the others, and the latter's service time of a
/// read.
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
    fn add_device(&mut self, device: &DeviceView, costed: &DeviceCost, row: usize, part: f64) {
        let price = costed.prices[row];
        // Every write counts fully for the flush.
        let cost = part * price.response_behind(costed.mean_in_flight) + price.flush;
        if costed.fast {
            self.fast = if cost < self.fast { cost } else { self.fast };
        } else if device.is_usable && cost < self.slow {
            (self.slow, self.service) = (cost, costed.service);
        }
    }

    /// Returns the saving in reads of the other device; 0 if there is none.
    #[inline(always)]
    fn get(self) -> f64 {
        if self.slow == f64::INFINITY { 0.0 } else { (self.slow - self.fast) / self.service }
    }
}
