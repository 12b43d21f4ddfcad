//! Explanations of an extent's placement, in the terms of its policy.

use super::{DeviceView, Places};
use std::fmt::Display;
use weir_model::{DeviceId, ExtentKey, Nanos};

/// The block that an explanation is about.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The extent.
    pub key: ExtentKey,
    /// The block's index in it.
    pub block: u16,
    /// The places of the block.
    pub places: Places,
    /// The names of the devices, by id.
    pub names: &'a [String],
}

impl Question<'_> {
    /// Returns the name of a device.
    pub fn name(&self, device: DeviceId) -> &str {
        self.names.get(device.index()).map_or("?", String::as_str)
    }
}

/// A value on which a policy bases its decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The name of the value.
    pub name: String,
    /// The value, with its unit.
    pub value: String,
}

/// The reasons for an extent's placement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons {
    /// The current values on which the policy bases its decision.
    pub figures: Vec<Figure>,
    /// The conditions under which the extent, or the block, would move: a sentence each. Empty if there are
    /// none.
    pub moves_if: Vec<String>,
}

impl Reasons {
    /// Adds a figure.
    pub(super) fn figure(&mut self, name: impl Display, value: impl Display) {
        self.figures.push(Figure { name: name.to_string(), value: value.to_string() });
    }

    /// Adds a condition under which it would move.
    pub(super) fn moves_if(&mut self, what: impl Display) {
        self.moves_if.push(what.to_string());
    }

    /// Adds that no device is the fast one.
    pub(super) fn fast_is_unknown(&mut self) {
        self.figure("fast device", "none known: no requests yet, or one device only");
    }

    /// Adds the free space of each device.
    pub(super) fn free_space(&mut self, devices: &[DeviceView], about: &Question<'_>) {
        for device in devices {
            self.figure(format_args!("free extents on {}", about.name(device.id)), device.free);
        }
    }

    /// Adds the idle read response of each device.
    pub(super) fn idle_reads(&mut self, devices: &[DeviceView], about: &Question<'_>) {
        for device in devices {
            let idle = if device.idle_response == Nanos::MAX {
                "none".into()
            } else {
                device.idle_response.to_string()
            };
            self.figure(format_args!("answer of {} to an idle read", about.name(device.id)), idle);
        }
    }
}

/// Formats a share as a percentage.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
