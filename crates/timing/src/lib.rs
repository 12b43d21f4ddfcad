//! How long a device takes: models of disks, SSDs and persistent memory as pure event machines.
//!
//! A model is told what was submitted and when, and says when each command completes. It holds
//! no data and reads no clock, so the same model paces a live device (weir-device) and stands in
//! for one in virtual time (weir-world), at some ten million commands a second for an SSD and some
//! hundred thousand for a disk.
//! Everything is integer arithmetic on nanoseconds: the same input gives the same output.
//!
//! | model | what it is | module |
//! |---|---|---|
//! | `hdd-7200` | a large nearline SATA disk | [`disk`] |
//! | `hdd-15k` | the Seagate Cheetah 15K.5, as measured | [`disk`] |
//! | `ssd-sata` | a SATA TLC SSD with a volatile write cache | [`ssd`] |
//! | `ssd-nvme` | a data-centre NVMe SSD, its write cache protected | [`ssd`] |
//! | `nvm` | one module of byte-addressable persistent memory | [`memory`] |
//! | `remote-ssd-lan` | `ssd-nvme` behind a local network | [`network`] |
//! | `capped-200`, `capped-600` | `ssd-nvme`, let through so many commands a second | [`cap`] |
//!
//! The drives' parameters, where each is from, and more drives: [`drives`].
//! How well the model of a disk predicts real ones, and fitting it to one: [`fit`].
#![forbid(unsafe_code)]

use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos};

pub mod cap;
mod completions;
pub mod disk;
pub mod drives;
pub mod fit;
pub mod memory;
pub mod network;
mod pipe;
mod probe;
pub mod ssd;
#[cfg(test)]
mod tests;

pub use cap::Capped;
pub use disk::Disk;
pub use memory::PersistentMemory;
pub use network::Network;
pub use probe::{flush_response, occupancy};
pub use ssd::Ssd;

/// A device's timing. Give it commands with [`submit`](Timing::submit); then, as long as
/// [`next`](Timing::next) names a time that has come, call [`pop`](Timing::pop).
///
/// Every submitted command comes out of `pop` exactly once, never before its submission. Times
/// handed in never go backwards from one `submit` to the next; a driver that comes late with
/// `pop` changes nothing in the model, which goes by the times it is given.
///
/// To learn *when* a command completed although the driver is late, pop at the time `next` gave:
///
/// ```
/// use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos};
/// let mut ssd = weir_timing::model("ssd-nvme", Bytes::gib(1)).unwrap();
/// ssd.submit(Nanos(0), IoId(7), IoKind::Read, DeviceOffset(0), Bytes(4096));
/// let now = Nanos::millis(3);
/// while let Some(due) = ssd.next().filter(|due| *due <= now) {
///     if let Some(id) = ssd.pop(due) {
///         println!("{id:?} completed at {due}");
///     }
/// }
/// ```
pub trait Timing: Send {
    /// A command arrives at the device. `id` is not in flight already; `len` is zero for a
    /// flush. Ranges past the device's end are taken as its last sectors.
    fn submit(&mut self, now: Nanos, id: IoId, kind: IoKind, at: DeviceOffset, len: Bytes);

    /// The earliest time at which [`pop`](Timing::pop) may give something or must be called to
    /// let the model go on; it may be past. `None` when nothing is in flight.
    fn next(&self) -> Option<Nanos>;

    /// A command that has completed by `now`, in order of completion. `None` when no more have.
    /// At the time [`next`](Timing::next) gave, what comes out completed exactly then.
    fn pop(&mut self, now: Nanos) -> Option<IoId>;
}

/// What a device's write cache does with an acknowledged write when the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteCache {
    /// None: a write completes when it is on the media.
    None,
    /// Lost unless flushed: FLUSH and FUA wait for the media.
    Volatile,
    /// Kept (capacitors, battery): FLUSH and FUA have nothing to wait for.
    Protected,
}

/// The drives offered for pacing, one of each sort. [`model`] knows all of [`drives::all`].
pub const NAMES: [&str; 5] = ["hdd-7200", "hdd-15k", "ssd-sata", "ssd-nvme", "nvm"];

/// The named drive's timing, with the write cache the drive has. `None` for an unknown name.
///
/// A disk of another `capacity` than the real drive's keeps its zones' rates and its full arm
/// stroke, and has more or fewer tracks; the other models do not depend on capacity.
pub fn model(name: &str, capacity: Bytes) -> Option<Box<dyn Timing>> {
    model_with(name, capacity, write_cache(name)?)
}

/// As [`model`], with `cache` in place of the write cache the drive has. `nvm` has none and
/// ignores it.
pub fn model_with(name: &str, capacity: Bytes, cache: WriteCache) -> Option<Box<dyn Timing>> {
    Some(drives::drive(name)?.timing(capacity, cache))
}

/// The write cache the named drive has. `None` for an unknown name.
pub fn write_cache(name: &str) -> Option<WriteCache> {
    Some(drives::drive(name)?.cache)
}
