//! Placement: on which device an extent's data goes.

mod action;
mod chaos;
mod hierarchy;
mod sequential;
mod stripe;

pub use action::{Access, Action, WriteTo};
pub use chaos::Chaos;
pub use hierarchy::Hierarchy;
pub use sequential::Sequential;
pub use stripe::Stripe;

use crate::Random;
use std::fmt;
use weir_model::{DeviceId, ExtentKey, Nanos};

/// A device as a placement policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceView {
    /// The device.
    pub id: DeviceId,
    /// Extents it can still take; 0 also while it accepts none (failed, being emptied).
    pub free: u32,
    /// Extents it has.
    pub extents: u32,
    /// Response to a 4 KiB read as measured when the device was idle.
    pub idle: Nanos,
}

/// Decides where data goes: that of new extents, and, if it wants, what becomes of it later.
pub trait Placement: fmt::Debug + Send {
    /// The name in the pool file.
    fn name(&self) -> &'static str;

    /// The device a first write to `key` is allocated on: one of `devices` (all of the pool's, in
    /// order of id) with free space; `None` only if there is none.
    fn allocate(&mut self, devices: &[DeviceView], key: ExtentKey) -> Option<DeviceId>;

    /// Whether [`Self::accessed`] and [`Self::write_to`] are to be called at all: a policy that does
    /// not care costs requests nothing. Asked once.
    fn watches(&self) -> bool {
        false
    }

    /// Blocks were asked for. Must be cheap: it is on every request's way.
    fn accessed(&mut self, access: &Access) {
        let _ = access;
    }

    /// Where a write to blocks of one extent goes. Fine slots that cannot be had (none free, the
    /// device lost) are a write in place instead.
    fn write_to(&mut self, devices: &[DeviceView], access: &Access, random: &mut Random) -> WriteTo {
        let _ = (devices, access, random);
        WriteTo::InPlace
    }

    /// How often there is to be a round; never, by default. Asked once.
    fn round_every(&self) -> Option<Nanos> {
        None
    }

    /// A round: appends what is to be done. Requests have precedence; what the mover has no room to
    /// take is dropped.
    fn round(&mut self, devices: &[DeviceView], random: &mut Random, actions: &mut Vec<Action>) {
        let _ = (devices, random, actions);
    }
}

type Make = fn() -> Box<dyn Placement>;

/// Every placement policy: name and constructor. A new policy is a file and a line here.
pub const ALL: &[(&str, Make)] = &[
    ("hierarchy", || Box::new(Hierarchy)),
    ("sequential", || Box::new(Sequential)),
    ("stripe", || Box::new(Stripe::default())),
];

/// The policy for tests of that name, which no pool file can name.
pub fn for_tests(name: &str) -> Option<Box<dyn Placement>> {
    if name == "chaos" { Some(Box::new(Chaos::default())) } else { by_name(name) }
}

/// The policy of that name.
pub fn by_name(name: &str) -> Option<Box<dyn Placement>> {
    ALL.iter().find(|(n, _)| *n == name).map(|(_, make)| make())
}

#[cfg(test)]
mod tests;
