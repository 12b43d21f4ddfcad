//! What a placement policy sees: the devices as measured, and where extents are.

use super::Action;
use crate::Ewma;
use weir_model::{BLOCK, Bytes, DeviceId, ExtentKey, ExtentSize, Nanos, PlaceId, PlaceKind, Rng};

/// Sizes of commands told apart, since a device's cost per byte depends on it: to 4, 16, 64, 256 KiB,
/// and larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizeClass(u8);

impl SizeClass {
    /// How many there are.
    pub const COUNT: usize = 5;

    /// The class of a command of this length.
    #[inline]
    pub const fn of(len: Bytes) -> Self {
        let pages = len.0.saturating_sub(1) >> 12;
        // Half the bits of `pages`, rounded up.
        let class = ((2 * pages) | 1).ilog2().div_ceil(2) as u8;
        Self(if class < Self::COUNT as u8 { class } else { Self::COUNT as u8 - 1 })
    }

    /// All of them, ascending.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }

    /// Its number, from 0.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The longest command of the class; `None` for the last one.
    pub const fn most(self) -> Option<Bytes> {
        if self.index() + 1 < Self::COUNT { Some(Bytes::kib(4 << (2 * self.0))) } else { None }
    }
}

/// A command that has ended, as it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredCommand {
    /// A write, not a read.
    pub write: bool,
    /// Its bytes.
    pub len: Bytes,
    /// About how many those are.
    pub size: SizeClass,
    /// Commands at the device when it began, itself included.
    pub depth: u32,
    /// From its submission to its end.
    pub response: Nanos,
    /// What it took of the device's time, which it shared with the others there.
    pub took: Nanos,
}

impl MeasuredCommand {
    /// A command of this length.
    #[inline]
    pub const fn new(write: bool, len: Bytes, depth: u32, response: Nanos, took: Nanos) -> Self {
        Self { write, len, size: SizeClass::of(len), depth, response, took }
    }
}

/// A device in one direction, as measured from the start: from a command's submission to its end,
/// queueing included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Clients' commands completed.
    pub count: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Their mean response; `None` before the first.
    pub response: Ewma,
    /// Mean responses by size, of the mover's commands too.
    pub by_size: [Ewma; SizeClass::COUNT],
    /// Commands the device had when those began, themselves included: means that forget as the responses do;
    /// 0 before the first.
    pub depth: [f64; SizeClass::COUNT],
}

impl Traffic {
    /// Notes a command of a client.
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

    /// The mean response to commands of about this size.
    #[inline]
    pub fn response_to(&self, len: Bytes) -> Option<Nanos> {
        self.by_size[SizeClass::of(len).index()].get()
    }

    /// Commands the device had, on average, when those of about this size began; 0 before the first.
    #[inline]
    pub fn depth_of(&self, len: Bytes) -> f64 {
        self.depth[SizeClass::of(len).index()]
    }
}

/// A device as a placement policy sees it. How fast it is is measured, never assumed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceView {
    /// The device.
    pub id: DeviceId,
    /// Extents it can still take; 0 also while it accepts none (failed, being emptied).
    pub free: u32,
    /// Blocks it can still take in extents that are cut into slots already, which `free` does not count.
    pub slots: u32,
    /// Extents it has.
    pub extents: u32,
    /// It is there and takes data. Others are not to be copied to.
    pub usable: bool,
    /// Response to a 4 KiB read as measured when the device was idle; `Nanos::MAX` if it gave none.
    pub idle: Nanos,
    /// The first and the third quartile of the reads that `idle` is the median of; `None` if the spread is not known.
    pub idle_quartiles: Option<[Nanos; 2]>,
    /// Commands in flight, whoever gave them.
    pub in_flight: u32,
    /// Mean response to clients' commands in both directions; `None` before the first.
    pub response: Ewma,
    /// Reads.
    pub reads: Traffic,
    /// Writes.
    pub writes: Traffic,
    /// Mean response to flushes: what has been written waits for it to be durable; `None` before the first.
    pub flush: Ewma,
    /// Flushes completed. A device with nothing to flush is not flushed.
    pub flushes: u64,
}

/// Of a device's extents, one in so many is not taken for copies: it is left to new data.
pub const RESERVE: u32 = 16;

impl DeviceView {
    /// A device nothing is known of.
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
            usable: true,
            idle: Nanos::MAX,
            idle_quartiles: None,
            in_flight: 0,
            response: none,
            reads: traffic,
            writes: traffic,
            flush: none,
            flushes: 0,
        }
    }

    /// What a read of 4 KiB takes of the device's time, as far as is known: what it takes when idle, or, where that was
    /// measured to be more, for each of those it had at a time. A volume of a cloud answers at once until it has used up
    /// what it is allowed.
    pub fn service(&self) -> Nanos {
        let len = Bytes(BLOCK);
        let each = |response: Nanos| Nanos((response.0 as f64 / self.reads.depth_of(len).max(1.0)) as u64);
        self.reads.response_to(len).map_or(self.idle, |response| self.idle.max(each(response)))
    }

    /// Mean response to clients' reads; what an idle one takes before the first.
    #[inline]
    pub fn read_response(&self) -> Nanos {
        self.reads.response.get().unwrap_or(self.idle)
    }

    /// Mean response to clients' writes; of reads before the first.
    #[inline]
    pub fn write_response(&self) -> Nanos {
        self.writes.response.get().unwrap_or(self.read_response())
    }

    /// Mean response to clients' commands; what an idle device takes before the first.
    #[inline]
    pub fn mean_response(&self) -> Nanos {
        self.response.get().unwrap_or(self.idle)
    }

    /// Whether copies may take space on it, not only new data.
    #[inline]
    pub const fn has_room(&self) -> bool {
        self.usable && self.free > self.extents / RESERVE
    }

    /// Whether copies of single blocks may take space on it.
    #[inline]
    pub const fn has_slots(&self) -> bool {
        self.usable && (self.slots > 0 || self.has_room())
    }

    #[inline]
    fn traffic(&mut self, write: bool) -> &mut Traffic {
        if write { &mut self.writes } else { &mut self.reads }
    }

    /// Notes a command of a client.
    #[inline]
    pub fn note(&mut self, command: &MeasuredCommand) {
        self.response.add(command.response);
        self.traffic(command.write).note(command);
    }

    /// Notes a command of the mover: it counts among those of its size alone.
    #[inline]
    pub fn note_move(&mut self, command: &MeasuredCommand) {
        self.traffic(command.write).note_size(command);
    }

    /// Notes a flush.
    #[inline]
    pub fn note_flush(&mut self, response: Nanos) {
        self.flush.add(response);
        self.flushes += 1;
    }

    /// Clients' commands completed in both directions.
    #[inline]
    pub const fn completed(&self) -> u64 {
        self.reads.count + self.writes.count
    }
}

/// One of an extent's places, as far as it holds blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceView {
    /// Which.
    pub id: PlaceId,
    /// How many of the blocks asked about it holds.
    pub blocks: u16,
    /// How many of the extent's blocks it holds.
    pub of_extent: u16,
    /// Of these, how many no other place holds: what would be lost with it.
    pub alone: u16,
    /// Of these, how many no whole place holds: what has still to be brought home.
    pub dirty: u16,
}

/// An extent's places, none to four.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    count: u8,
    places: [PlaceView; Self::MAX],
}

impl Places {
    /// Most places an extent can have.
    pub const MAX: usize = 4;
    /// Nothing.
    pub const NONE: Self = {
        let nowhere = PlaceId { device: DeviceId(0), kind: PlaceKind::Whole };
        Self {
            count: 0,
            places: [PlaceView { id: nowhere, blocks: 0, of_extent: 0, alone: 0, dirty: 0 }; Self::MAX],
        }
    };

    /// One.
    #[inline]
    pub const fn one(place: PlaceView) -> Self {
        let mut places = Self::NONE;
        places.places[0] = place;
        places.count = 1;
        places
    }

    /// Adds one; beyond [`Self::MAX`] none is added.
    #[inline(always)]
    pub fn push(&mut self, place: PlaceView) {
        if let Some(free) = self.places.get_mut(usize::from(self.count)) {
            *free = place;
            self.count += 1;
        }
    }

    /// They.
    #[inline]
    pub fn as_slice(&self) -> &[PlaceView] {
        &self.places[..usize::from(self.count)]
    }

    /// The place of this name.
    pub fn place(&self, id: PlaceId) -> Option<PlaceView> {
        self.as_slice().iter().find(|p| p.id == id).copied()
    }

    /// The whole place that holds most of the extent's blocks, of those `wanted`; of several the first.
    pub fn whole(&self, wanted: impl Fn(DeviceId) -> bool) -> Option<PlaceView> {
        let wholes = self.as_slice().iter().rev().filter(|p| p.id.kind == PlaceKind::Whole);
        wholes.filter(|p| wanted(p.id.device)).max_by_key(|p| p.of_extent).copied()
    }

    /// The device that holds most of the blocks asked about; of several the first. `None` if none
    /// holds any.
    #[inline]
    pub fn device(&self) -> Option<DeviceId> {
        let holding = self.as_slice().iter().rev().filter(|p| p.blocks > 0);
        holding.max_by_key(|p| p.blocks).map(|p| p.id.device)
    }

    /// Whether a place on the device holds some of the blocks asked about.
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

/// Tells where extents are. Cost: a look-up each.
pub trait Whereabouts {
    /// The extent's places.
    fn places(&self, key: ExtentKey) -> Places;

    /// The first extent in order of volume and index, `from` or later, that has places.
    fn next(&self, from: ExtentKey) -> Option<ExtentKey>;
}

/// What a policy is given whenever it is asked or told something.
pub struct Moment<'a> {
    /// The time.
    pub now: Nanos,
    /// All devices of the pool, in order of id.
    pub devices: &'a [DeviceView],
    /// Another number after each measurement: as long as it is the same, nothing of the devices has changed but what is free
    /// and in flight.
    pub measured: u64,
    /// The pool's extent size.
    pub extent: ExtentSize,
    /// Where extents are.
    pub map: &'a dyn Whereabouts,
    /// The chance it may use.
    pub random: &'a mut Rng,
    /// What is to be done is appended here. Requests have precedence.
    pub actions: &'a mut Vec<Action>,
    /// How many actions will be taken; more are dropped.
    pub actions_max: usize,
}

impl Moment<'_> {
    /// The device, if there is one of that number.
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
            let Some(most) = class.most() else { continue };
            assert_eq!(
                (SizeClass::of(most), SizeClass::of(Bytes(most.0 + 1)).index()),
                (class, class.index() + 1)
            );
        }
    }

    #[test]
    fn an_extent_is_where_most_of_it_is() {
        let place = |device, blocks| PlaceView {
            id: PlaceId { device: DeviceId(device), kind: PlaceKind::Whole },
            blocks,
            of_extent: 32,
            alone: 0,
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
