//! Sets of devices.

use crate::DeviceId;
use std::fmt;

/// A set of a pool's devices, in 256 bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct DeviceSet([u64; 4]);

impl DeviceSet {
    /// The length of the stored form, in bytes.
    pub const BYTES: usize = 32;

    /// Returns the stored form: device *n* is bit *n*, bit 0 the lowest of the first byte.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (to, word) in bytes.chunks_mut(8).zip(self.0) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes the stored form.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        Self(std::array::from_fn(|i| u64::from_le_bytes(words[i])))
    }

    /// Whether the device is in the set.
    #[inline]
    pub const fn contains(&self, device: DeviceId) -> bool {
        self.0[device.index() / 64] >> (device.index() % 64) & 1 == 1
    }

    /// Adds a device.
    pub fn insert(&mut self, device: DeviceId) {
        self.0[device.index() / 64] |= 1 << (device.index() % 64);
    }

    /// Removes a device.
    pub fn remove(&mut self, device: DeviceId) {
        self.0[device.index() / 64] &= !(1 << (device.index() % 64));
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// Returns the number of devices.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Iterates over the devices, by id.
    pub fn iter(self) -> impl Iterator<Item = DeviceId> {
        (0..=u8::MAX).map(DeviceId).filter(move |device| self.contains(*device))
    }

    /// Returns the devices in both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// Returns the devices in either set.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// Returns the devices not in `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }
}

impl FromIterator<DeviceId> for DeviceSet {
    fn from_iter<T: IntoIterator<Item = DeviceId>>(devices: T) -> Self {
        let mut set = Self::default();
        devices.into_iter().for_each(|device| set.insert(device));
        set
    }
}

impl fmt::Debug for DeviceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|device| device.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_inserted_and_removed() {
        let mut set: DeviceSet = [0, 63, 64, 255].map(DeviceId).into_iter().collect();
        assert_eq!(set.iter().map(|d| d.0).collect::<Vec<_>>(), [0, 63, 64, 255]);
        assert_eq!(DeviceSet::decode(&set.encode()), set);
        assert_eq!((set.encode()[0], set.encode()[31]), (1, 128));
        set.remove(DeviceId(63));
        assert!(!set.contains(DeviceId(63)) && set.len() == 3);
        assert_eq!(set.without(set), DeviceSet::default());
    }
}
