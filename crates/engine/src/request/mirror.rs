//! Writes to several places under way ([`crate::write::copies`], [`crate::write::duplex`]).

use crate::ids::PieceId;
use crate::lookup::Address;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use weir_map::Needs;
use weir_model::{BlockRange, DeviceId, ExtentKey, RequestError};

/// One of the places a write goes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leg {
    pub(crate) address: Address,
    /// Device commands still to end.
    pub(crate) left: u32,
    /// What it holds is not known.
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
    /// Where it succeeds, it is durable.
    pub(crate) fua: bool,
}

/// Writes to several places under way.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    pub(crate) writes: FxHashMap<PieceId, MirroredWrite>,
    /// The blocks being written, by extent.
    busy: FxHashMap<ExtentKey, SmallVec<[(PieceId, BlockRange); 2]>>,
}

impl Mirror {
    /// Whether some of the blocks are being written.
    #[inline]
    pub(crate) fn is_writing(&self, key: ExtentKey, range: BlockRange) -> bool {
        let writes = if self.busy.is_empty() { None } else { self.busy.get(&key) };
        writes.is_some_and(|writes| writes.iter().any(|(_, written)| written.overlaps(range)))
    }

    /// What is on its way to a device proves nothing by arriving there.
    pub(crate) fn fail(&mut self, device: DeviceId) {
        for write in self.writes.values_mut() {
            for leg in write.legs.iter_mut().filter(|leg| leg.device() == device) {
                leg.failed = true;
                write.error.get_or_insert(RequestError::FlushFailed(device));
            }
        }
    }

    /// The piece is to be written to these addresses.
    pub(crate) fn prepare(&mut self, id: PieceId, addresses: impl IntoIterator<Item = Address>) {
        let leg = |address| Leg { address, left: 0, failed: false, needs: None };
        let write =
            MirroredWrite { legs: addresses.into_iter().map(leg).collect(), ..MirroredWrite::default() };
        self.writes.insert(id, write);
    }

    /// Whether the piece is to be written to several addresses.
    #[inline]
    pub(crate) fn has(&self, id: PieceId) -> bool {
        !self.writes.is_empty() && self.writes.contains_key(&id)
    }

    /// The second address of a piece that is to be written to two, which it no longer is.
    #[inline]
    pub(crate) fn take_second(&mut self, id: PieceId) -> Option<Address> {
        let write = if self.writes.is_empty() { None } else { self.writes.remove(&id) };
        write.and_then(|write| write.legs.get(1).map(|leg| leg.address))
    }

    pub(crate) fn begin(&mut self, id: PieceId, key: ExtentKey, range: BlockRange) {
        self.busy.entry(key).or_default().push((id, range));
    }

    /// The write has ended, whatever became of it.
    pub(crate) fn end(&mut self, id: PieceId, key: ExtentKey) -> MirroredWrite {
        if let Some(writes) = self.busy.get_mut(&key) {
            writes.retain(|(piece, _)| *piece != id);
            if writes.is_empty() {
                self.busy.remove(&key);
            }
        }
        self.writes.remove(&id).unwrap_or_default()
    }
}
