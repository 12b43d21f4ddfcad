//! Actions that a placement policy may request besides the allocation of new data.

use super::Places;
use weir_model::{BlockRange, Bytes, DeviceId, ExtentKey, Hint, Op, PlaceId};

/// An action on blocks of an extent. It is best effort: the impossible part (blocks being written, no space,
/// nothing there) is skipped, and no data is lost by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Makes this place valid for the blocks too.
    Copy {
        /// The extent.
        key: ExtentKey,
        /// The blocks.
        blocks: BlockRange,
        /// The destination.
        to: PlaceId,
    },
    /// Makes this place the only valid one for the blocks.
    Move {
        /// The extent.
        key: ExtentKey,
        /// The blocks.
        blocks: BlockRange,
        /// The destination.
        to: PlaceId,
    },
    /// Makes this place invalid for the blocks, as far as another one is valid for them: a whole one, if this
    /// one is in slots. Duplexed blocks in slots of two devices stay in both until they are written back.
    Drop {
        /// The extent.
        key: ExtentKey,
        /// The blocks.
        blocks: BlockRange,
        /// The place.
        from: PlaceId,
    },
    /// Makes each whole place of the extent valid for every block that some place is valid for.
    Refresh {
        /// The extent.
        key: ExtentKey,
    },
}

impl Action {
    /// Returns its extent.
    pub const fn key(&self) -> ExtentKey {
        match self {
            Self::Copy { key, .. }
            | Self::Move { key, .. }
            | Self::Drop { key, .. }
            | Self::Refresh { key } => *key,
        }
    }
}

/// An access to blocks of one extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The extent.
    pub key: ExtentKey,
    /// The blocks touched.
    pub blocks: BlockRange,
    /// The operation.
    pub op: Op,
    /// The bytes accessed in the extent.
    pub bytes: Bytes,
    /// The bytes of the whole request, of which this may be a part; for a policy that subscribes to runs
    /// ([`super::Subscriptions::runs`]), including the preceding requests that it continues.
    pub run: Bytes,
    /// The hint for the data.
    pub hint: Hint,
    /// The present places of the blocks; none before the first write.
    pub places: Places,
}

/// The target of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteTo {
    /// The blocks' present place, or the extent's whole place.
    #[default]
    InPlace,
    /// Slots of this device, for exactly the blocks written.
    Fine(DeviceId),
    /// Slots of both of these two different devices, for exactly the blocks written: acknowledged when both
    /// have them. An overwrite of blocks that are in slots of two devices, and in no whole place, goes to
    /// both again whatever the policy decides, as long as there are slots.
    FineDuplexed([DeviceId; 2]),
    /// The extent's whole place on this device, allocated if it has none, for exactly the blocks written.
    /// Other places stay valid for the other blocks. An extent's first write goes where it is allocated.
    Whole(DeviceId),
}

impl WriteTo {
    /// Returns the device; of two the first.
    #[inline]
    pub const fn device(self) -> Option<DeviceId> {
        match self {
            Self::InPlace => None,
            Self::Fine(device) | Self::Whole(device) | Self::FineDuplexed([device, _]) => Some(device),
        }
    }
}
