//! A placement policy's view: the measured devices, and the places of extents.

use super::Action;
use crate::{Ewma, MovingDeviation};
use weir_model::{
    BLOCK, BlockRange, Bytes, DeviceId, ExtentIndex, ExtentKey, ExtentSize, Nanos, PlaceId, PlaceKind, Rng,
};

/// A class of command sizes, because a device's cost per byte depends on the size: up to 4, 16, 64, 256 KiB,
/// and larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizeClass(u8);

impl SizeClass {
    /// The number of classes.
    pub const COUNT: usize = 5;

    /// Returns the class of a command of this length.
    #[inline]
    pub const fn of(len: Bytes) -> Self {
        let pages = len.0.saturating_sub(1) >> 12;
        // Half the bits of `pages`, rounded up.
        let class = ((2 * pages) | 1).ilog2().div_ceil(2) as u8;
        Self(if class < Self::COUNT as u8 { class } else { Self::COUNT as u8 - 1 })
    }

    /// Iterates over the classes, ascending.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }

    /// Returns its index, from 0.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the maximum length of the class; `None` for the last one.
    pub const fn max_len(self) -> Option<Bytes> {
        if self.index() + 1 < Self::COUNT { Some(Bytes::kib(4 << (2 * self.0))) } else { None }
    }
}

/// The measurements of a completed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredCommand {
    /// Whether it is a write.
    pub write: bool,
    /// Its length.
    pub len: Bytes,
    /// Its size class.
    pub size: SizeClass,
    /// The queue depth when it began, itself included.
    pub depth: u32,
    /// The response time.
    pub response: Nanos,
    /// The service time: its share of the device's time, which it divided with the other commands.
    pub service_time: Nanos,
}

impl MeasuredCommand {
    /// Creates the measurements of a command of this length.
    #[inline]
    pub const fn new(write: bool, len: Bytes, depth: u32, response: Nanos, service_time: Nanos) -> Self {
        Self { write, len, size: SizeClass::of(len), depth, response, service_time }
    }
}

/// The measurements of a device in one direction since the start. Response times include queueing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Clients' commands completed.
    pub count: u64,
    /// The bytes of these commands.
    pub bytes: Bytes,
    /// The moving average of their response time; `None` before the first.
    pub response: Ewma,
    /// The moving averages of response times by size, including those of the mover's commands.
    pub by_size: [Ewma; SizeClass::COUNT],
    /// The moving averages of the queue depth when those commands began, themselves included; 0 before the
    /// first.
    pub depth: [f64; SizeClass::COUNT],
}

impl Traffic {
    /// Adds a command of a client.
    #[inline]
    fn note(&mut self, command: &MeasuredCommand) {
        self.count += 1;
        self.bytes += command.len;
        self.response.add(command.response);
        self.note_size(command);
    }

    #[inline]
    fn note_size(&mut self, command: &MeasuredCommand) {
        let (class, depth) = (command.size.index(), f64::from(command.depth));
        self.by_size[class].add(command.response);
        let mean = &mut self.depth[class];
        *mean = if *mean == 0.0 { depth } else { *mean + 0.01 * (depth - *mean) };
    }

    /// Returns the moving average of the response time to commands of about this size.
    #[inline]
    pub fn response_to(&self, len: Bytes) -> Option<Nanos> {
        self.by_size[SizeClass::of(len).index()].get()
    }

    /// Returns the moving average of the queue depth when commands of about this size began; 0 before the
    /// first.
    #[inline]
    pub fn depth_of(&self, len: Bytes) -> f64 {
        self.depth[SizeClass::of(len).index()]
    }
}

/// A placement policy's view of a device. Its speed is measured, never assumed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceView {
    /// The device.
    pub id: DeviceId,
    /// Extents available for allocation; 0 also while it accepts none (failed, being emptied).
    pub free: u32,
    /// Free blocks in extents that are divided into slots already; `free` does not count them.
    pub slots: u32,
    /// All its extents.
    pub extents: u32,
    /// Whether it is present and takes data. Copies to other devices are pointless.
    pub is_usable: bool,
    /// The response time of a 4 KiB read, measured when the device was idle; `Nanos::MAX` if it gave none.
    pub idle_response: Nanos,
    /// The first and the third quartile of the reads of which `idle` is the median; `None` if unknown.
    pub idle_quartiles: Option<[Nanos; 2]>,
    /// Commands in flight, of any origin.
    pub in_flight: u32,
    /// The moving average of the response time to clients' commands in both directions; `None` before the
    /// first.
    pub response: Ewma,
    /// The moving mean and deviation of the same responses.
    pub response_spread: MovingDeviation,
    /// The sum of the response times of all clients' commands since the start.
    pub total_response: Nanos,
    /// The moving mean and deviation of the round-trip time of the network in front of it, if the driver
    /// measures it ([`Self::is_remote`]).
    pub round_trip: MovingDeviation,
    /// Reads.
    pub reads: Traffic,
    /// Writes.
    pub writes: Traffic,
    /// The moving average of the response time to flushes, which written data needs to be durable; `None`
    /// before the first.
    pub flush: Ewma,
    /// Flushes completed. A device with nothing to flush is not flushed.
    pub flushes: u64,
}

/// One in this many of a device's extents is reserved for new data, not available to copies.
pub const RESERVE: u32 = 16;

impl DeviceView {
    /// Returns the view of a device without measurements.
    pub const fn new(id: DeviceId, extents: u32) -> Self {
        let none = Ewma::NONE;
        let traffic = Traffic {
            count: 0,
            bytes: Bytes(0),
            response: none,
            by_size: [none; SizeClass::COUNT],
            depth: [0.0; SizeClass::COUNT],
        };
        Self {
            id,
            free: extents,
            slots: 0,
            extents,
            is_usable: true,
            idle_response: Nanos::MAX,
            idle_quartiles: None,
            in_flight: 0,
            response: none,
            response_spread: MovingDeviation::NONE,
            total_response: Nanos(0),
            round_trip: MovingDeviation::NONE,
            reads: traffic,
            writes: traffic,
            flush: none,
            flushes: 0,
        }
    }

    /// Returns the service time of a 4 KiB read, as far as known: the idle response or, where a longer time
    /// was measured, the response divided by the mean queue depth. A cloud volume answers at once until its
    /// allowance is used up.
    pub fn service(&self) -> Nanos {
        let len = Bytes(BLOCK);
        let each = |response: Nanos| Nanos((response.0 as f64 / self.reads.depth_of(len).max(1.0)) as u64);
        self.reads
            .response_to(len)
            .map_or(self.idle_response, |response| self.idle_response.max(each(response)))
    }

    /// Returns the moving average of clients' read response time; the idle response before the first read.
    #[inline]
    pub fn read_response(&self) -> Nanos {
        self.reads.response.get().unwrap_or(self.idle_response)
    }

    /// Returns the moving average of clients' write response time; that of reads before the first write.
    #[inline]
    pub fn write_response(&self) -> Nanos {
        self.writes.response.get().unwrap_or(self.read_response())
    }

    /// Returns the moving average of clients' response time; the idle response before the first command.
    #[inline]
    pub fn mean_response(&self) -> Nanos {
        self.response.get().unwrap_or(self.idle_response)
    }

    /// Whether a network in front of it has a measured round-trip time.
    #[inline]
    pub fn is_remote(&self) -> bool {
        self.round_trip.mean().is_some()
    }

    /// Whether copies, not only new data, may take space on it.
    #[inline]
    pub const fn has_space(&self) -> bool {
        self.is_usable && self.free > self.extents / RESERVE
    }

    /// Whether copies of single blocks may take space on it.
    #[inline]
    pub const fn has_slots(&self) -> bool {
        self.is_usable && (self.slots > 0 || self.has_space())
    }

    #[inline]
    fn traffic(&mut self, write: bool) -> &mut Traffic {
        if write { &mut self.writes } else { &mut self.reads }
    }

    /// Adds a command of a client.
    #[inline]
    pub fn note(&mut self, command: &MeasuredCommand) {
        self.response.add(command.response);
        self.response_spread.add(command.response);
        self.total_response += command.response;
        self.traffic(command.write).note(command);
    }

    /// Adds a command of the mover: it counts only in the averages by size.
    #[inline]
    pub fn note_move(&mut self, command: &MeasuredCommand) {
        self.traffic(command.write).note_size(command);
    }

    /// Adds a flush.
    #[inline]
    pub fn note_flush(&mut self, response: Nanos) {
        self.flush.add(response);
        self.flushes += 1;
    }

    /// Adds a round trip over the network in front of it.
    pub fn note_round_trip(&mut self, time: Nanos) {
        self.round_trip.add(time);
    }

    /// Returns the number of clients' commands completed in both directions.
    #[inline]
    pub const fn completed(&self) -> u64 {
        self.reads.count + self.writes.count
    }
}

/// The view of one of an extent's places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceView {
    /// The id of the place.
    pub id: PlaceId,
    /// The number of blocks, among those asked about, that it is valid for.
    pub blocks: u16,
    /// The number of the extent's blocks that it is valid for.
    pub of_extent: u16,
    /// Those of them that no other place is valid for: they would be lost with it.
    pub sole: u16,
    /// Those of them that no whole place is valid for: they still have to be written back.
    pub dirty: u16,
}

/// An extent's places, none to four.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    count: u8,
    places: [PlaceView; Self::MAX],
}

impl Places {
    /// The maximum number of places of an extent.
    pub const MAX: usize = 4;
    /// The empty list.
    pub const NONE: Self = {
        let nowhere = PlaceId { device: DeviceId(0), kind: PlaceKind::Whole };
        Self {
            count: 0,
            places: [PlaceView { id: nowhere, blocks: 0, of_extent: 0, sole: 0, dirty: 0 }; Self::MAX],
        }
    };

    /// Returns a list of one place.
    #[inline]
    pub const fn one(place: PlaceView) -> Self {
        let mut places = Self::NONE;
        places.places[0] = place;
        places.count = 1;
        places
    }

    /// Adds a place; beyond [`Self::MAX`] it is dropped.
    #[inline(always)]
    pub fn push(&mut self, place: PlaceView) {
        if let Some(free) = self.places.get_mut(usize::from(self.count)) {
            *free = place;
            self.count += 1;
        }
    }

    /// Returns the places.
    #[inline]
    pub fn as_slice(&self) -> &[PlaceView] {
        &self.places[..usize::from(self.count)]
    }

    /// Returns the place with this id.
    pub fn place(&self, id: PlaceId) -> Option<PlaceView> {
        self.as_slice().iter().find(|p| p.id == id).copied()
    }

    /// Returns the whole place, among the `wanted` devices, that is valid for the most of the extent's
    /// blocks; of several the first.
    pub fn whole(&self, wanted: impl Fn(DeviceId) -> bool) -> Option<PlaceView> {
        let wholes = self.as_slice().iter().rev().filter(|p| p.id.kind == PlaceKind::Whole);
        wholes.filter(|p| wanted(p.id.device)).max_by_key(|p| p.of_extent).copied()
    }

    /// Returns the device that is valid for the most of the blocks asked about; of several the first. `None`
    /// if there is none.
    #[inline]
    pub fn device(&self) -> Option<DeviceId> {
        let holding = self.as_slice().iter().rev().filter(|p| p.blocks > 0);
        holding.max_by_key(|p| p.blocks).map(|p| p.id.device)
    }

    /// Whether a place on the device is valid for some of the blocks asked about.
    pub fn is_on(&self, device: DeviceId) -> bool {
        self.as_slice().iter().any(|p| p.id.device == device && p.blocks > 0)
    }
}

impl FromIterator<PlaceView> for Places {
    fn from_iter<T: IntoIterator<Item = PlaceView>>(all: T) -> Self {
        let mut places = Self::NONE;
        all.into_iter().for_each(|place| places.push(place));
        places
    }
}

impl PartialEq for Places {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}
impl Eq for Places {}

/// A look-up of the places of extents. Cost: one map look-up per call.
pub trait PlaceLookup {
    /// Returns the extent's places.
    fn places(&self, key: ExtentKey) -> Places;

    /// Whether blocks of the extent are valid in that place. Cost: less than [`Self::places`], because no
    /// blocks are counted.
    fn has_place(&self, key: ExtentKey, place: PlaceId) -> bool {
        self.places(key).place(place).is_some_and(|place| place.of_extent > 0)
    }

    /// Returns which of these extents have blocks valid in that place: of the 64 extents from `first` on,
    /// those whose bits are set. Cost: less than [`Self::has_place`] for each of them.
    fn have_place(&self, first: ExtentKey, extents: u64, place: PlaceId) -> u64 {
        let key = |nth| ExtentKey { index: ExtentIndex(first.index.0 + nth), ..first };
        let has_place = |nth: &u64| extents >> nth & 1 != 0 && self.has_place(key(*nth), place);
        (0..64).filter(has_place).map(|nth| 1 << nth).sum()
    }

    /// Calls `visit` with each of the extent's places. Cost: less than [`Self::places`], because no blocks
    /// are counted.
    fn visit_place_ids(&self, key: ExtentKey, visit: &mut dyn FnMut(PlaceId)) {
        self.places(key).as_slice().iter().for_each(|place| visit(place.id));
    }

    /// Whether the memory cache has all blocks of the extent but these.
    fn is_in_memory_besides(&self, key: ExtentKey, blocks: BlockRange) -> bool {
        let _ = (key, blocks);
        false
    }

    /// Returns the first extent with places at or after `from`, in order of volume and index.
    fn next(&self, from: ExtentKey) -> Option<ExtentKey>;
}

/// The context of every call of a policy.
pub struct PolicyContext<'a> {
    /// The time.
    pub now: Nanos,
    /// All devices of the pool, in order of id.
    pub devices: &'a [DeviceView],
    /// A counter of measurements: as long as it is the same, nothing of the devices has changed except free
    /// space and commands in flight.
    pub measured: u64,
    /// The pool's extent size.
    pub extent: ExtentSize,
    /// The places of extents.
    pub map: &'a dyn PlaceLookup,
    /// The random numbers that the policy may use.
    pub random: &'a mut Rng,
    /// The actions requested; the policy appends to them. Requests have precedence.
    pub actions: &'a mut Vec<Action>,
    /// The maximum number of actions; more are dropped.
    pub actions_max: usize,
}

impl PolicyContext<'_> {
    /// Returns the device with this id, if it exists.
    #[inline]
    pub fn device(&self, id: DeviceId) -> Option<&DeviceView> {
        self.devices.get(id.index())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_grow_fourfold() {
        let class = |kib: u64| SizeClass::of(Bytes::kib(kib)).index();
        assert_eq!([1, 4, 8, 16, 64, 128, 256, 512, 1 << 20].map(class), [0, 0, 1, 1, 2, 3, 3, 4, 4]);
        assert_eq!(SizeClass::of(Bytes(4097)).index(), 1);
        for class in SizeClass::all() {
            let Some(most) = class.max_len() else { continue };
            assert_eq!(
                (SizeClass::of(most), SizeClass::of(Bytes(most.0 + 1)).index()),
                (class, class.index() + 1)
            );
        }
    }

    #[test]
    fn device_has_most_blocks() {
        let place = |device, blocks| PlaceView {
            id: PlaceId { device: DeviceId(device), kind: PlaceKind::Whole },
            blocks,
            of_extent: 32,
            sole: 0,
            dirty: 0,
        };
        let mut places = Places::NONE;
        assert_eq!(places.device(), None);
        for (device, blocks) in [(3, 1), (1, 4), (2, 4), (0, 2), (5, 9)] {
            places.push(place(device, blocks));
        }
        assert_eq!(places.as_slice().len(), Places::MAX, "the fifth is not added");
        assert_eq!(places.device(), Some(DeviceId(1)), "the first of those with most");
        assert!(places.is_on(DeviceId(0)) && !places.is_on(DeviceId(5)));
    }
}
