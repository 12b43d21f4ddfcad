//! The simulated world: virtual time, storage that loses unflushed writes, faults.
//!
//! Read [`world`] first: it contains the devices and the clock. [`storage`] is a device's contents, [`pace`]
//! its timing ([`flash_log()`]: that of its flash), [`fault`] its faults. [`oracle`] decides which data reads
//! may return, independent of everything between a client and the devices. [`driver`] runs the real engine
//! between them, checked by the oracle; [`ondisk`] reads the devices' contents independently; [`net`] runs
//! the whole server, with simulated sockets and NBD clients. [`campaign`] generates the histories.
//!
//! The crate is pure: a [`Seed`] determines everything that happens; two runs with the same seed end with the
//! same [digest](World::digest).
#![forbid(unsafe_code)]

pub mod campaign;
pub mod damaged_sectors;
pub mod device;
pub mod driver;
pub mod fault;
mod flash_log;
pub mod memory;
pub mod net;
pub mod ondisk;
pub mod oracle;
pub mod pace;
pub mod statistics;
pub mod storage;
pub mod world;

pub use campaign::History;
pub use damaged_sectors::DamagedSectors;
pub use device::{Device, Disk, StopKind};
pub use driver::Driver;
pub use fault::{Fault, Faulty, Kinds};
pub use flash_log::flash_log;
pub(crate) use memory::DAMAGE_MARK;
pub use memory::WorldMemory;
pub use oracle::{Answer, Change, Difference, Found, Oracle, Place, Ticket};
pub use pace::{Pace, RandomTiming, UnknownModel};
pub use statistics::{FaultKind, Moment, Statistics, Trait};
pub use storage::Storage;
pub use weir_model::{Mutant, Net, Planted, Rng, Seed};
pub use world::{DeviceSpec, World};
