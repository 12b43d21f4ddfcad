//! Page maps: where each address is.

use rustc_hash::FxHashMap;

/// Page of the flash, as an index into all segments' pages; each segment begins at a multiple of a power of
/// two.
pub(crate) type RawPlace = u32;

/// Maps addresses to pages of the flash.
///
/// Sealed: the log's own places are the values.
pub trait AddressMap: sealed::Sealed {
    /// An address as it is stored with each page of the flash.
    type Stored: Copy + Default + std::fmt::Debug;

    /// Number of addresses, from 0; `u64::MAX` if all are possible.
    fn addresses(&self) -> u64;

    #[doc(hidden)]
    fn get(&self, address: u64) -> Option<RawPlace>;

    /// Sets the place of an address below [`addresses`](Self::addresses) and returns the previous one.
    #[doc(hidden)]
    fn insert(&mut self, address: u64, place: RawPlace) -> Option<RawPlace>;

    #[doc(hidden)]
    fn remove(&mut self, address: u64) -> Option<RawPlace>;

    #[doc(hidden)]
    fn store(address: u64) -> Self::Stored;

    #[doc(hidden)]
    fn load(stored: Self::Stored) -> u64;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::DenseMap {}
    impl Sealed for super::SparseMap {}
}

/// Map of the addresses 0 to n - 1 as an array: four bytes each, in use once they are near a mapped address.
#[derive(Debug)]
pub struct DenseMap(Vec<Entry>);

/// A place plus one, so that zeroed memory, which costs nothing until it is written, is an empty map.
type Entry = u32;

#[inline]
const fn decode(entry: Entry) -> Option<RawPlace> {
    entry.checked_sub(1)
}

impl DenseMap {
    /// Creates the empty map of this many addresses.
    pub fn new(addresses: u32) -> Self {
        Self(vec![0; addresses as usize])
    }
}

impl AddressMap for DenseMap {
    type Stored = u32;

    #[inline]
    fn addresses(&self) -> u64 {
        self.0.len() as u64
    }
    #[inline]
    fn get(&self, address: u64) -> Option<RawPlace> {
        decode(*self.0.get(usize::try_from(address).ok()?)?)
    }
    #[inline]
    fn insert(&mut self, address: u64, place: RawPlace) -> Option<RawPlace> {
        decode(std::mem::replace(&mut self.0[address as usize], place + 1))
    }
    #[inline]
    fn remove(&mut self, address: u64) -> Option<RawPlace> {
        decode(std::mem::take(self.0.get_mut(usize::try_from(address).ok()?)?))
    }
    #[inline]
    fn store(address: u64) -> u32 {
        address as u32
    }
    #[inline]
    fn load(stored: u32) -> u64 {
        stored.into()
    }
}

/// Map of any 64-bit addresses as a hash table: about 20 bytes per mapped address.
#[derive(Debug, Default)]
pub struct SparseMap(FxHashMap<u64, RawPlace>);

impl AddressMap for SparseMap {
    type Stored = u64;

    #[inline]
    fn addresses(&self) -> u64 {
        u64::MAX
    }
    #[inline]
    fn get(&self, address: u64) -> Option<RawPlace> {
        self.0.get(&address).copied()
    }
    #[inline]
    fn insert(&mut self, address: u64, place: RawPlace) -> Option<RawPlace> {
        self.0.insert(address, place)
    }
    #[inline]
    fn remove(&mut self, address: u64) -> Option<RawPlace> {
        self.0.remove(&address)
    }
    #[inline]
    fn store(address: u64) -> u64 {
        address
    }
    #[inline]
    fn load(stored: u64) -> u64 {
        stored
    }
}
