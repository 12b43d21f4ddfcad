//! A processor's caches, TLBs and memory bus in virtual time: what file systems in memory cost.
//!
//! **The machine.** Cores run programs in turn, each by its own clock ([`Machine::begin`], [`Machine::end`]).
//! A core reads and writes memory by lines of 64 bytes. Cores share caches, and all of them the bus: a line
//! that no cache has takes a transfer, and so does a changed line that leaves a cache. Prefetching hides the
//! latency of all but the first missing line of a page. Each core has a TLB for pages of 4 KiB and one for
//! pages of 2 MiB; a miss reads an entry of a page table, which takes its place in the cache.
//!
//! An operation takes the time of its work, of its stalls (latencies, page walks, fences), and of its lines:
//! the longer of passing them and transferring them. If several cores need the bus, one operation's transfers
//! follow another's.
//!
//! **File systems.** Whoever has a file system of its own drives the machine by [`Machine::read`],
//! [`Machine::write`], [`Machine::copy`], [`Machine::flush`] and [`Machine::fence`]. [`LinuxFs`] is a model
//! of the comparators: ramfs, tmpfs, and ext2 on a ramdisk.
//!
//! Not modelled: the first-level cache, fetching of instructions, colours of pages (an address is taken for a
//! physical one), coherence between caches.

mod linux;
mod machine;
mod sets;
#[cfg(test)]
mod tests;

pub use linux::{LinuxCosts, LinuxFs, LinuxKind, Vfs, VfsCosts};
pub use machine::{Counts, Machine, MachineSpec, TlbSpec};

/// Bytes of a cache line.
pub const LINE_BYTES: u64 = 64;
/// Bytes of a small page.
pub const SMALL_PAGE_BYTES: u64 = 4096;
/// Bytes of a large page.
pub const LARGE_PAGE_BYTES: u64 = 2 << 20;

/// A time in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Picos(pub u64);

impl Picos {
    /// Returns the time in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-12
    }
}

impl std::ops::Add for Picos {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl std::ops::AddAssign for Picos {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl std::ops::Mul<u64> for Picos {
    type Output = Self;

    fn mul(self, count: u64) -> Self {
        Self(self.0 * count)
    }
}

/// Work of a core, in its cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cycles(pub u64);

/// A virtual address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address(pub u64);

impl Address {
    /// Returns the address so many bytes further on.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

/// The size of the pages by which a part of the address space is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PageSize {
    /// Pages of 4 KiB.
    Small,
    /// Pages of 2 MiB.
    Large,
}

/// An address in a part of the address space with pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address.
    pub at: Address,
    /// How it is mapped.
    pub pages: PageSize,
}

impl Place {
    /// Returns the place so many bytes further on.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self { at: self.at.plus(bytes), pages: self.pages }
    }
}
