//! Which places a record has, beside its other fields.

use crate::format::value::Record;
use weir_model::{DeviceId, PlaceId, PlaceKind};

/// The places of a record on the first devices: the record itself is in other cache lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// By kind: devices with a place in the lower half, those with valid blocks there in the upper half.
    places: [u64; 2],
}

impl Summary {
    /// The number of devices that a summary includes.
    const DEVICES: u8 = 32;

    /// Returns the summary of a record, if it has no place on another device.
    pub(crate) fn of(record: &Record) -> Option<Self> {
        let mut summary = Self::default();
        for place in &record.places {
            let PlaceId { device, kind } = place.at.id();
            if device.0 >= Self::DEVICES {
                return None;
            }
            let has_blocks = u64::from(!place.valid.is_empty()) << Self::DEVICES;
            summary.places[Self::index(kind)] |= (1 | has_blocks) << device.0;
        }
        Some(summary)
    }

    #[inline]
    pub(crate) fn from_words(places: [u64; 2]) -> Self {
        Self { places }
    }

    pub(crate) fn words(self) -> [u64; 2] {
        self.places
    }

    #[inline]
    fn index(kind: PlaceKind) -> usize {
        usize::from(kind == PlaceKind::Fine)
    }

    /// Whether blocks are valid in that place.
    #[inline]
    pub(crate) fn has_blocks(self, id: PlaceId) -> bool {
        let has_blocks = self.places[Self::index(id.kind)] >> Self::DEVICES;
        has_blocks.checked_shr(id.device.0.into()).is_some_and(|bits| bits & 1 != 0)
    }

    /// Iterates over the places.
    #[inline]
    pub(crate) fn ids(self) -> impl Iterator<Item = PlaceId> {
        [PlaceKind::Whole, PlaceKind::Fine].into_iter().flat_map(move |kind| {
            let places = self.places[Self::index(kind)] as u32;
            let first = |bits: u32| (bits != 0).then_some(bits);
            std::iter::successors(first(places), move |bits| first(bits & (bits - 1)))
                .map(move |bits| PlaceId { device: DeviceId(bits.trailing_zeros() as u8), kind })
        })
    }
}
