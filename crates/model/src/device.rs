//! Devices as the engine and the policies see them.

use std::fmt;

/// A device of the pool: its position in the pool's device table. It is stable for the device's life in the
/// pool, and never reused while anything refers to it. At most 255 devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u8);

impl DeviceId {
    /// Returns the index in a table with one row per device.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The kind of a device, declared or detected when it joins. It is used for durability decisions (where
/// metadata is mirrored), never to assume a speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceClass {
    /// Byte-addressable persistent memory.
    Nvm,
    /// Flash with a block interface.
    Ssd,
    /// A rotating disk.
    Hdd,
    /// A device reached over a network.
    Remote,
}

impl DeviceClass {
    /// Returns the lower-case name used in status and superblocks.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvm => "nvm",
            Self::Ssd => "ssd",
            Self::Hdd => "hdd",
            Self::Remote => "remote",
        }
    }
}
