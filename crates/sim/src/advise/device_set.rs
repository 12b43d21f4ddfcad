//! Device offers, and the sets of devices worth considering.

use super::{AdviseError, HEADROOM, Level, RequiredCapacity};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use weir_model::{BLOCK, Bytes, DeviceOffset, IoId, IoKind, Nanos};
use weir_timing::drives::{Drive, drive};
use weir_world::flash_log;

/// A price, in hundredths of the list's currency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Cents(pub u64);

impl Cents {
    /// Converts whole units, rounded to the nearest hundredth; negative amounts become zero.
    pub fn of(whole: f64) -> Self {
        Self((whole * 100.0).round() as u64)
    }

    /// Returns the price in whole units.
    pub fn whole(self) -> f64 {
        self.0 as f64 / 100.0
    }
}

impl fmt::Display for Cents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = if self.0.is_multiple_of(100) { 0 } else { 2 };
        write!(f, "{:.digits$}", self.whole())
    }
}

/// A device offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Short unique name.
    pub name: String,
    /// Maker and model.
    pub about: String,
    /// Capacity.
    pub size: Bytes,
    /// Price.
    pub price: Cents,
    /// Endurance in bytes written; `None` if writes do not wear the device.
    pub endurance: Option<Bytes>,
    /// Modelled drive with the same performance, one of [`weir_timing::drives::all`].
    pub model: String,
}

impl Offer {
    pub(super) fn drive(&self) -> Result<&'static Drive, AdviseError> {
        drive(&self.model)
            .ok_or_else(|| AdviseError::UnknownDrive { offer: self.name.clone(), model: self.model.clone() })
    }
}

/// Several devices of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceGroup {
    /// Index into the list of offers.
    pub offer: usize,
    /// Number of devices.
    pub count: u32,
}

impl DeviceGroup {
    /// Returns their total capacity.
    pub(super) fn size(self, offers: &[Offer]) -> Bytes {
        Bytes(offers[self.offer].size.0 * u64::from(self.count))
    }
}

/// Devices that could be bought together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceSet {
    /// The fast devices, if there is more than one kind.
    pub fast: Option<DeviceGroup>,
    /// Fast devices of a second kind, slower than `fast`, if there are any.
    pub second: Option<DeviceGroup>,
    /// The devices with room for all data.
    pub slow: DeviceGroup,
}

impl DeviceSet {
    /// Returns its kinds, the fastest first.
    pub fn kinds(&self) -> impl Iterator<Item = DeviceGroup> {
        self.levels().map(|(_, several)| several)
    }

    /// Returns its kinds with their levels.
    pub fn levels(&self) -> impl Iterator<Item = (Level, DeviceGroup)> {
        let kinds = [self.fast, self.second, Some(self.slow)];
        Level::ALL.into_iter().zip(kinds).filter_map(|(level, several)| Some((level, several?)))
    }

    /// Returns its fast kinds, which have room for hot data only.
    pub fn fast_kinds(&self) -> impl Iterator<Item = DeviceGroup> {
        self.fast.into_iter().chain(self.second)
    }

    /// Returns the total price.
    pub fn price(&self, offers: &[Offer]) -> Cents {
        Cents(self.kinds().map(|several| offers[several.offer].price.0 * u64::from(several.count)).sum())
    }

    /// Returns its devices by name: `870-evo-1tb + 2 x exos-4tb`.
    pub fn name(&self, offers: &[Offer]) -> String {
        let kind = |DeviceGroup { offer, count }| match count {
            1 => offers[offer].name.clone(),
            _ => format!("{count} x {}", offers[offer].name),
        };
        self.kinds().map(kind).collect::<Vec<_>>().join(" + ")
    }
}

/// Maximum number of devices of one kind in a set.
const COUNT_MAX: u32 = 12;
/// Maximum number of fast devices, which share the hot data.
const FAST_COUNT_MAX: u32 = 2;
/// A device is fast relative to another if its idle read is this many times as fast, as in `adaptive`.
const FAST_RATIO_MIN: u64 = 4;

/// Returns all sets with enough room: as few devices of a kind as suffice, or one more; alone, or with one or
/// two of a faster kind whose capacity is smaller than the data (larger ones would be of no use).
///
/// # Errors
/// Fails if no set has enough room, or an offer's model is unknown.
pub fn sets(offers: &[Offer], wanted: &RequiredCapacity) -> Result<Vec<DeviceSet>, AdviseError> {
    let (room, reads) = (capacity_needed(wanted), IdleReads::of(offers)?);
    let mut sets = Vec::new();
    for (slow, offer) in offers.iter().enumerate() {
        let least = room.0.div_ceil(offer.size.0.max(1)).max(1);
        let Some(least) = u32::try_from(least).ok().filter(|least| *least <= COUNT_MAX) else { continue };
        for count in [least, least + 1] {
            let slow = DeviceGroup { offer: slow, count };
            sets.push(DeviceSet { fast: None, second: None, slow });
            let fast = reads.fast_candidates(slow).filter(|fast| fast.size(offers) < room);
            sets.extend(fast.map(|fast| DeviceSet { fast: Some(fast), second: None, slow }));
        }
    }
    if sets.is_empty() {
        return Err(AdviseError::InsufficientCapacity { wanted: wanted.capacity, room, most: COUNT_MAX });
    }
    Ok(sets)
}

/// Returns the capacity needed for the data.
pub(super) fn capacity_needed(wanted: &RequiredCapacity) -> Bytes {
    Bytes((wanted.capacity.0 as f64 * HEADROOM) as u64)
}

/// Idle read time of each offer.
pub(super) struct IdleReads(Vec<Nanos>);

impl IdleReads {
    /// Measures these offers.
    ///
    /// # Errors
    /// Fails if an offer's model is unknown.
    pub(super) fn of(offers: &[Offer]) -> Result<Self, AdviseError> {
        let mut known: BTreeMap<&str, Nanos> = BTreeMap::new();
        let mut reads = Vec::new();
        for offer in offers {
            let drive = offer.drive()?;
            reads.push(*known.entry(&offer.model).or_insert_with(|| idle_read(drive)));
        }
        Ok(Self(reads))
    }

    /// Returns one or two devices of each kind that is fast relative to this one.
    pub(super) fn fast_candidates(&self, slow: DeviceGroup) -> impl Iterator<Item = DeviceGroup> {
        let limit = self.0[slow.offer].0;
        let fast = self.0.iter().enumerate().filter(move |(_, read)| read.0 * FAST_RATIO_MIN < limit);
        fast.flat_map(|(offer, _)| (1..=FAST_COUNT_MAX).map(move |count| DeviceGroup { offer, count }))
    }

    /// Reports whether the first is faster than the second by at least a fifth.
    pub(super) fn is_faster(&self, one: DeviceGroup, other: DeviceGroup) -> bool {
        self.0[one.offer].0 * 5 <= self.0[other.offer].0 * 4
    }
}

/// Returns the drive's mean response time for a one-block read when idle.
fn idle_read(drive: &Drive) -> Nanos {
    const TRIES: u64 = 16;
    let size = Bytes::gib(1);
    let mut timing = drive.timing(size, drive.cache, flash_log);
    let (mut now, mut sum) = (Nanos(0), 0);
    for number in 0..TRIES {
        // Spread over the drive by the golden ratio.
        let at = DeviceOffset(number * 618_033_989 % size.0 / BLOCK * BLOCK);
        timing.submit(now, IoId(number), IoKind::Read, at, Bytes(BLOCK));
        let came = now;
        while let Some(due) = timing.next() {
            now = now.max(due);
            timing.pop(due);
        }
        sum += (now - came).0;
        now += Nanos::millis(100);
    }
    Nanos(sum / TRIES)
}
