//! The simulated world: virtual time, storage that loses what was not flushed, faults.
//!
//! Read [`world`] first: it holds the devices and the clock. [`storage`] is what a device remembers, [`pace`]
//! how long it takes, [`fault`] what may be wrong with it. [`oracle`] knows what reads may answer, whatever
//! stands between a client and the devices. [`driver`] runs the real engine between them, beside the oracle;
//! [`ondisk`] reads what it leaves on the devices; [`net`] runs the whole server, with simulated sockets, and
//! clients that speak NBD. [`campaign`] makes up what they have to go through.
//!
//! Pure: everything that happens follows from a [`Seed`]; two runs of the same seed end with the
//! same [digest](World::digest).
#![forbid(unsafe_code)]

pub mod campaign;
pub mod device;
pub mod driver;
pub mod fault;
pub mod memory;
pub mod net;
pub mod ondisk;
pub mod oracle;
pub mod pace;
pub mod spoilt;
pub mod statistics;
pub mod storage;
pub mod world;

pub use campaign::History;
pub use device::{Device, Disk, Stop};
pub use driver::Driver;
pub use fault::{Fault, Faulty, Kinds};
pub(crate) use memory::SPOILT;
pub use memory::WorldMemory;
pub use oracle::{Answer, Change, Difference, Found, Oracle, Place, Ticket};
pub use pace::{Pace, RandomTiming, UnknownModel};
pub use spoilt::Spoilt;
pub use statistics::{Moment, Statistics, Strike, Trait};
pub use storage::Storage;
pub use weir_model::{Mutant, Net, Planted, Rng, Seed};
pub use world::{DeviceSpec, World};
