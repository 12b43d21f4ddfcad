//! Timing models of hard disks, SSDs and persistent memory, as pure event machines.
//!
//! A model gets the submissions with their times, and returns when each command completes. It keeps no data
//! and reads no clock, so the same model paces a live device (weir-device) and simulates one in virtual time
//! (weir-world), at about ten million commands per second for an SSD and a hundred thousand for a disk. All
//! arithmetic is on integer nanoseconds: the same input gives the same output.
//!
//! | model | drive | module |
//! |---|---|---|
//! | `hdd-7200` | a large nearline SATA disk | [`disk`] |
//! | `hdd-15k` | the Seagate Cheetah 15K.5, as measured | [`disk`] |
//! | `ssd-sata` | a SATA TLC SSD with a volatile write cache | [`ssd`] |
//! | `ssd-nvme` | a data-centre NVMe SSD with a protected write cache | [`ssd`] |
//! | `nvm` | one module of byte-addressable persistent memory | [`memory`] |
//! | `remote-ssd-lan` | `ssd-nvme` behind a local network | [`network`] |
//! | `capped-200`, `capped-600` | `ssd-nvme` limited to this many commands per second | [`cap`] |
//!
//! [`drives`] has the parameters with their sources, and more drives. [`fit`] validates disk models against
//! measurements, and fits them.
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
pub use network::{Network, RoundTrips};
pub use probe::{flush_response, occupancy};
pub use ssd::{NewFlashLog, Ssd};

/// Timing of a device. Submit commands with [`submit`](Timing::submit); then call [`pop`](Timing::pop) as
/// long as [`next`](Timing::next) returns a time that has come.
///
/// `pop` returns every submitted command exactly once, never before its submission. The times of consecutive
/// `submit` calls must not decrease. A driver that calls `pop` late does not change the model, which depends
/// only on the times it is given.
///
/// To learn *when* a command completed although the driver is late, pop at the time that `next` returned:
///
/// ```
/// use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos};
/// # use weir_timing::ssd::without_collection;
/// let mut ssd = weir_timing::model("ssd-nvme", Bytes::gib(1), without_collection).unwrap();
/// ssd.submit(Nanos(0), IoId(7), IoKind::Read, DeviceOffset(0), Bytes(4096));
/// let now = Nanos::millis(3);
/// while let Some(due) = ssd.next().filter(|due| *due <= now) {
///     if let Some(id) = ssd.pop(due) {
///         println!("{id:?} completed at {due}");
///     }
/// }
/// ```
pub trait Timing: Send {
    /// Submits a command. `id` must not be in flight already; `len` is zero for a flush. Ranges beyond the
    /// device's end are treated as its last sectors.
    fn submit(&mut self, now: Nanos, id: IoId, kind: IoKind, at: DeviceOffset, len: Bytes);

    /// Returns the earliest time at which [`pop`](Timing::pop) may return a command or must be called to
    /// advance the model; this may be in the past. `None` if nothing is in flight.
    fn next(&self) -> Option<Nanos>;

    /// Returns a command that has completed by `now`, in order of completion; `None` if there are no more. At
    /// the time that [`next`](Timing::next) returned, the command completed exactly then.
    fn pop(&mut self, now: Nanos) -> Option<IoId>;
}

/// Behaviour of a device's write cache at a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteCache {
    /// No cache: a write completes when it is on the media.
    None,
    /// Lost unless flushed: FLUSH and FUA wait for the media.
    Volatile,
    /// It survives a power loss (capacitors, battery): FLUSH and FUA have nothing to wait for.
    Protected,
}

/// The drives offered for pacing, one of each kind. [`model`] knows all of [`drives::all`].
pub const NAMES: [&str; 5] = ["hdd-7200", "hdd-15k", "ssd-sata", "ssd-nvme", "nvm"];

/// Returns the timing of the named drive with its own write cache; `None` if the name is unknown.
///
/// A disk with a `capacity` other than the real drive's keeps the rates of its zones and its full arm stroke,
/// and has more or fewer tracks; the other models do not depend on capacity. `new_log` creates the log of an
/// SSD whose garbage collection follows from the state of its flash.
pub fn model(name: &str, capacity: Bytes, new_log: NewFlashLog) -> Option<Box<dyn Timing>> {
    model_with(name, capacity, write_cache(name)?, new_log)
}

/// Like [`model`], with `cache` in place of the drive's own write cache. `nvm` has none and ignores it.
pub fn model_with(
    name: &str,
    capacity: Bytes,
    cache: WriteCache,
    new_log: NewFlashLog,
) -> Option<Box<dyn Timing>> {
    Some(drives::drive(name)?.timing(capacity, cache, new_log))
}

/// Returns the kind of the named drive's write cache; `None` if the name is unknown.
pub fn write_cache(name: &str) -> Option<WriteCache> {
    Some(drives::drive(name)?.cache)
}
