//! The engine's environment on a real machine: devices, sockets and timers, on one thread with one io_uring.
//!
//! - [`Arena`]: the pool's buffer memory, shared with the kernel.
//! - [`Device`]: an open, locked file or block device; [`Devices`]: all devices of a pool, with blocking
//!   access for the time before and after serving.
//! - [`Reactor`]: starts device commands, receives and sends, and waits for their completion, on io_uring, or
//!   on `poll` and a few threads where io_uring is refused.
//! - Layers over a device: `forget` (loses unflushed writes), `pace` (a modelled drive's timing).
//!
//! All `unsafe` code of the block path is in this crate: in `arena` (slices of memory that the kernel also
//! uses), `reactor` (system calls on that memory), `mapped` (files in memory) and `tail` (a file's last
//! page).

mod arena;
mod contents;
mod error;
mod fault_injection;
mod file;
mod in_use;
mod last_page;
pub mod limits;
mod location;
mod lock;
mod log_structured;
mod lossy;
mod mapped;
mod open;
pub mod pace;
pub mod reactor;
mod rescue;
mod store;

pub use arena::Arena;
pub use contents::Contents;
pub use error::DeviceError;
pub use location::kernel_folder;
pub use log_structured::{LogStructured, file_system_magic};
pub use lossy::LossyOptions;
pub use open::{Device, DeviceOptions, FileChange};
pub use pace::{LATENESS_MAX, OVERRUNS_MAX, PaceStats};
pub use reactor::{
    CpuLatency, Event, Listen, ListenerId, Poll, Reactor, ReactorOptions, Ring, SocketAccess, Waker,
    peer_process,
};
pub use rescue::{Moved, RemovedFile, save_removed};
pub use store::Devices;
