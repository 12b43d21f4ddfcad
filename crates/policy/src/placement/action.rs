//! What a placement policy may ask for besides a device for new data.

use super::Places;
use weir_model::{BlockRange, Bytes, DeviceId, ExtentKey, Hint, Op, PlaceId};

/// Something to be done with blocks of an extent. A wish: what cannot be done (blocks being
/// written, no space, nothing there) is left out, and nothing is lost by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// They are to be in this place too.
    Copy {
        /// The extent.
        key: ExtentKey,
        /// The blocks.
        blocks: BlockRange,
        /// Where.
        to: PlaceId,
    },
    /// They are to be in this place alone.
    Move {
        /// The extent.
        key: ExtentKey,
        /// The blocks.
        blocks: BlockRange,
        /// Where.
        to: PlaceId,
    },
    /// They are not to be in this place, as far as another one holds them: if it is one in slots, a whole one. What two
    /// places in slots hold alone stays in both until it is brought home.
    Drop {
        /// The extent.
        key: ExtentKey,
        /// The blocks.
        blocks: BlockRange,
        /// Where not.
        from: PlaceId,
    },
    /// Each whole place the extent has is to hold every block that some place holds.
    Refresh {
        /// The extent.
        key: ExtentKey,
    },
}

impl Action {
    /// The extent it is about.
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
    /// What is done to them.
    pub op: Op,
    /// Bytes of the extent it is about.
    pub bytes: Bytes,
    /// Bytes of the whole request, of which this may be a part; and, for a policy that asked for it
    /// ([`super::Watches::runs`]), of those before that it continues.
    pub run: Bytes,
    /// What the client knows of the data.
    pub hint: Hint,
    /// Where the blocks are now; before the first write nowhere.
    pub places: Places,
}

/// Where a write goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteTo {
    /// Where its blocks are, or to the extent's whole place.
    #[default]
    InPlace,
    /// To slots of this device, for exactly the blocks it carries.
    Fine(DeviceId),
    /// To slots of both of these devices, two different ones, for exactly the blocks it carries: acknowledged when both
    /// have it. An overwrite of what slots of two devices hold, and no whole place, goes to both again whatever
    /// the policy says, as long as there are slots.
    FineDuplexed([DeviceId; 2]),
    /// To the extent's whole place on this device, which it gets if it has none, for exactly the blocks it
    /// carries. Other places keep what they hold of the rest. An extent's first write goes where it is
    /// allocated.
    Whole(DeviceId),
}

impl WriteTo {
    /// The device it names; of two the first.
    #[inline]
    pub const fn device(self) -> Option<DeviceId> {
        match self {
            Self::InPlace => None,
            Self::Fine(device) | Self::Whole(device) | Self::FineDuplexed([device, _]) => Some(device),
        }
    }
}
