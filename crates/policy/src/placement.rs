//! Placement: on which device an extent's data goes.

mod hierarchy;
mod sequential;
mod stripe;

pub use hierarchy::Hierarchy;
pub use sequential::Sequential;
pub use stripe::Stripe;

use std::fmt;
use weir_model::{DeviceId, ExtentKey, Nanos};

/// A device as a placement policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceView {
    /// The device.
    pub id: DeviceId,
    /// Extents it can still take; 0 also while it accepts none (failed, being emptied).
    pub free: u32,
    /// Response to a 4 KiB read as measured when the device was idle.
    pub idle: Nanos,
}

/// Decides where new extents go.
pub trait Placement: fmt::Debug + Send {
    /// The name in the pool file.
    fn name(&self) -> &'static str;

    /// The device a first write to `key` is allocated on: one of `devices` (all of the pool's, in
    /// order of id) with free space; `None` only if there is none.
    fn allocate(&mut self, devices: &[DeviceView], key: ExtentKey) -> Option<DeviceId>;
}

type Make = fn() -> Box<dyn Placement>;

/// Every placement policy: name and constructor. A new policy is a file and a line here.
pub const ALL: &[(&str, Make)] = &[
    ("hierarchy", || Box::new(Hierarchy)),
    ("sequential", || Box::new(Sequential)),
    ("stripe", || Box::new(Stripe::default())),
];

/// The policy of that name.
pub fn by_name(name: &str) -> Option<Box<dyn Placement>> {
    ALL.iter().find(|(n, _)| *n == name).map(|(_, make)| make())
}

#[cfg(test)]
mod tests;
