//! Why an extent is where it is, in the terms of the policy that decides.

use super::{DeviceView, Places};
use std::fmt::Display;
use weir_model::{DeviceId, ExtentKey, Nanos};

/// What somebody wants to know about.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The extent.
    pub key: ExtentKey,
    /// The block of it.
    pub block: u16,
    /// Where the block is.
    pub places: Places,
    /// What the devices are called, by id.
    pub names: &'a [String],
}

impl Question<'_> {
    /// What a device is called.
    pub fn name(&self, device: DeviceId) -> &str {
        self.names.get(device.index()).map_or("?", String::as_str)
    }
}

/// A value a policy decides by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// Its value, with its unit.
    pub value: String,
}

/// Why an extent is where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons {
    /// What the policy decides by, as it stands.
    pub figures: Vec<Figure>,
    /// What would make the extent, or the block, move: a sentence each. Empty: nothing would.
    pub moves_if: Vec<String>,
}

impl Reasons {
    /// Adds a figure.
    pub(super) fn figure(&mut self, name: impl Display, value: impl Display) {
        self.figures.push(Figure { name: name.to_string(), value: value.to_string() });
    }

    /// Adds what would make it move.
    pub(super) fn moves_if(&mut self, what: impl Display) {
        self.moves_if.push(what.to_string());
    }

    /// Adds that no device is the fast one.
    pub(super) fn fast_is_unknown(&mut self) {
        self.figure("fast device", "none: there is one device only, or nothing was asked of the pool yet");
    }

    /// Adds how much free space each device has.
    pub(super) fn free_space(&mut self, devices: &[DeviceView], about: &Question<'_>) {
        for device in devices {
            self.figure(format_args!("free extents on {}", about.name(device.id)), device.free);
        }
    }

    /// Adds what each device answers an idle read in.
    pub(super) fn idle_reads(&mut self, devices: &[DeviceView], about: &Question<'_>) {
        for device in devices {
            let idle = if device.idle == Nanos::MAX { "none".into() } else { device.idle.to_string() };
            self.figure(format_args!("answer of {} to an idle read", about.name(device.id)), idle);
        }
    }
}

/// A share, as a percentage.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
