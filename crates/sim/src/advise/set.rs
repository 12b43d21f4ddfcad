//! What is on sale, and the sets of it that are worth a look.

use super::{AdviseError, HEADROOM, Level, Wanted};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use weir_model::{BLOCK, Bytes, DeviceOffset, IoId, IoKind, Nanos};
use weir_timing::drives::{Drive, drive};

/// A price, in hundredths of whatever currency the list is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Cents(pub u64);

impl Cents {
    /// So many whole units, to the nearest hundredth; less than nothing is nothing.
    pub fn of(whole: f64) -> Self {
        Self((whole * 100.0).round() as u64)
    }

    /// In whole units.
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

/// A device on sale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// A short name that no other one has.
    pub name: String,
    /// Maker and model.
    pub about: String,
    /// How much it holds.
    pub size: Bytes,
    /// What it costs.
    pub price: Cents,
    /// Bytes that may be written to it; `None` if writing does not wear it out.
    pub endurance: Option<Bytes>,
    /// The modelled drive it is as fast as, one of [`weir_timing::drives::all`].
    pub model: String,
}

impl Offer {
    pub(super) fn drive(&self) -> Result<&'static Drive, AdviseError> {
        drive(&self.model)
            .ok_or_else(|| AdviseError::UnknownDrive { offer: self.name.clone(), model: self.model.clone() })
    }
}

/// Several devices of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Several {
    /// Which: an index into the list.
    pub offer: usize,
    /// How many.
    pub count: u32,
}

impl Several {
    /// What all of them hold.
    pub(super) fn size(self, offers: &[Offer]) -> Bytes {
        Bytes(offers[self.offer].size.0 * u64::from(self.count))
    }
}

/// Devices that could be bought together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceSet {
    /// The fast ones, if not all are alike.
    pub fast: Option<Several>,
    /// … and fast ones of a second kind, which is slower than that, if there are two.
    pub second: Option<Several>,
    /// Those that have room for all data.
    pub slow: Several,
}

impl DeviceSet {
    /// The kinds of it, the fastest first.
    pub fn kinds(&self) -> impl Iterator<Item = Several> {
        self.levels().map(|(_, several)| several)
    }

    /// The same, each with what it is in the set.
    pub fn levels(&self) -> impl Iterator<Item = (Level, Several)> {
        let kinds = [self.fast, self.second, Some(self.slow)];
        Level::ALL.into_iter().zip(kinds).filter_map(|(level, several)| Some((level, several?)))
    }

    /// Its kinds with room for what is hot alone.
    pub fn fast_kinds(&self) -> impl Iterator<Item = Several> {
        self.fast.into_iter().chain(self.second)
    }

    /// What all of it costs.
    pub fn price(&self, offers: &[Offer]) -> Cents {
        Cents(self.kinds().map(|several| offers[several.offer].price.0 * u64::from(several.count)).sum())
    }

    /// Its devices by name: `870-evo-1tb + 2 x exos-4tb`.
    pub fn name(&self, offers: &[Offer]) -> String {
        let kind = |Several { offer, count }| match count {
            1 => offers[offer].name.clone(),
            _ => format!("{count} x {}", offers[offer].name),
        };
        self.kinds().map(kind).collect::<Vec<_>>().join(" + ")
    }
}

/// The most devices of a kind in a set.
const MOST: u32 = 12;
/// The most fast devices, which share what is hot.
const FAST_MOST: u32 = 2;
/// A device is fast beside one that takes so many times as long for an idle read, as `adaptive` has it.
const FASTER: u64 = 4;

/// All sets with room for what is wanted: as many of each kind as it takes, or one more; alone, or with one or two of a faster
/// kind, which are smaller than the data (of which there is no use otherwise).
///
/// # Errors
/// If none has room, or an offer has a model that is not known.
pub fn sets(offers: &[Offer], wanted: &Wanted) -> Result<Vec<DeviceSet>, AdviseError> {
    let (room, reads) = (capacity_needed(wanted), IdleReads::of(offers)?);
    let mut sets = Vec::new();
    for (slow, offer) in offers.iter().enumerate() {
        let least = room.0.div_ceil(offer.size.0.max(1)).max(1);
        let Some(least) = u32::try_from(least).ok().filter(|least| *least <= MOST) else { continue };
        for count in [least, least + 1] {
            let slow = Several { offer: slow, count };
            sets.push(DeviceSet { fast: None, second: None, slow });
            let fast = reads.fast_beside(slow).filter(|fast| fast.size(offers) < room);
            sets.extend(fast.map(|fast| DeviceSet { fast: Some(fast), second: None, slow }));
        }
    }
    if sets.is_empty() {
        return Err(AdviseError::NoRoom { wanted: wanted.capacity, room, most: MOST });
    }
    Ok(sets)
}

/// Room there is to be for so much data.
pub(super) fn capacity_needed(wanted: &Wanted) -> Bytes {
    Bytes((wanted.capacity.0 as f64 * HEADROOM) as u64)
}

/// What each offer takes for an idle read.
pub(super) struct IdleReads(Vec<Nanos>);

impl IdleReads {
    /// Of these.
    ///
    /// # Errors
    /// If one has a model that is not known.
    pub(super) fn of(offers: &[Offer]) -> Result<Self, AdviseError> {
        let mut known: BTreeMap<&str, Nanos> = BTreeMap::new();
        let mut reads = Vec::new();
        for offer in offers {
            let drive = offer.drive()?;
            reads.push(*known.entry(&offer.model).or_insert_with(|| idle_read(drive)));
        }
        Ok(Self(reads))
    }

    /// One or two of each kind that is fast beside this one.
    pub(super) fn fast_beside(&self, slow: Several) -> impl Iterator<Item = Several> {
        let limit = self.0[slow.offer].0;
        let fast = self.0.iter().enumerate().filter(move |(_, read)| read.0 * FASTER < limit);
        fast.flat_map(|(offer, _)| (1..=FAST_MOST).map(move |count| Several { offer, count }))
    }

    /// Whether the one takes less than the other by a fifth at least.
    pub(super) fn is_faster(&self, one: Several, other: Several) -> bool {
        self.0[one.offer].0 * 5 <= self.0[other.offer].0 * 4
    }
}

/// How long the drive takes for a read of a block while it has nothing else to do: the mean of some.
fn idle_read(drive: &Drive) -> Nanos {
    const TRIES: u64 = 16;
    let size = Bytes::gib(1);
    let mut timing = drive.timing(size, drive.cache);
    let (mut now, mut sum) = (Nanos(0), 0);
    for number in 0..TRIES {
        // By the golden ratio, all over it.
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
