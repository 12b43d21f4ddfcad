//! Writes in flight to several places ([`crate::write::copies`], [`crate::write::duplex`]), and the blocks
//! they write.

use crate::ids::PieceId;
use crate::lookup::Address;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use weir_map::Needs;
use weir_model::{BlockRange, DeviceId, ExtentKey, RequestError};

/// One of the places of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leg {
    pub(crate) address: Address,
    /// The number of device commands in flight.
    pub(crate) in_flight: u32,
    /// Whether a command failed: the place's content is unknown.
    pub(crate) failed: bool,
    pub(crate) needs: Option<Needs>,
}

impl Leg {
    pub(crate) fn device(&self) -> DeviceId {
        self.address.place().device
    }
}

/// A write to several places.
#[derive(Clone, Debug, Default)]
pub(crate) struct MirroredWrite {
    pub(crate) legs: SmallVec<[Leg; 2]>,
    pub(crate) error: Option<RequestError>,
    /// Whether the write is durable where it succeeds.
    pub(crate) fua: bool,
}

impl MirroredWrite {
    /// Creates a write to these addresses that has not begun.
    pub(crate) fn for_addresses(addresses: impl IntoIterator<Item = Address>) -> Box<Self> {
        let leg = |address| Leg { address, in_flight: 0, failed: false, needs: None };
        Box::new(Self { legs: addresses.into_iter().map(leg).collect(), ..Self::default() })
    }

    /// Marks the leg on the device as failed, because a flush of it failed: a write in flight proves nothing
    /// by completing.
    pub(crate) fn fail(&mut self, device: DeviceId) {
        for leg in self.legs.iter_mut().filter(|leg| leg.device() == device) {
            leg.failed = true;
            self.error.get_or_insert(RequestError::FlushFailed(device));
        }
    }
}

/// The blocks being written to several places.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    /// The writes, by extent.
    writes: FxHashMap<ExtentKey, SmallVec<[(PieceId, BlockRange); 2]>>,
}

impl Mirror {
    /// Whether some of the blocks are being written.
    #[inline]
    pub(crate) fn is_writing(&self, key: ExtentKey, range: BlockRange) -> bool {
        let writes = if self.writes.is_empty() { None } else { self.writes.get(&key) };
        writes.is_some_and(|writes| writes.iter().any(|(_, written)| written.overlaps(range)))
    }

    /// Notes that the piece begins to write these blocks.
    pub(crate) fn begin(&mut self, id: PieceId, key: ExtentKey, range: BlockRange) {
        self.writes.entry(key).or_default().push((id, range));
    }

    /// Notes that the write has ended, successfully or not.
    pub(crate) fn end(&mut self, id: PieceId, key: ExtentKey) {
        if let Some(writes) = self.writes.get_mut(&key) {
            writes.retain(|(piece, _)| *piece != id);
            if writes.is_empty() {
                self.writes.remove(&key);
            }
        }
    }
}
