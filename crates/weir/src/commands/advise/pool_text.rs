//! Formats the pool file of a set.

use super::device_list::decimal_size;
use super::report::Advice;
use std::fmt::Write as _;
use weir_sim::advise::{DeviceGroup, device_name};

impl Advice {
    /// Returns the text of a pool file for the picked set. The user fills in the paths of the devices.
    pub(super) fn pool_text(&self) -> String {
        let set = self.rows[self.pick].set;
        let mut text = format!(
            "# {} for {} {}, as advised for {}.\n\
             # Put in where each device is (ls -l /dev/disk/by-id), then: weir pool create\n\
             # To try it before it is bought: take the # from the lines with size and pace, run weir sim place TRACE,\n\
             # and put the # back: with a size, weir pool create wants a disk of exactly that many bytes.\n\
             # Name disks or partitions: a file on F2FS, Btrfs, NILFS2 or ZFS is a log on an SSD's log:\n\
             # everything is written several times (weir sim logs computes how often).\n\n\
             [pool]\nname = \"advised\"\npolicy = \"{}\"\n",
            set.name(&self.list.offers),
            self.rows[self.pick].forecast.figures.price,
            self.list.currency,
            one_line(&self.trace),
            self.policy
        );
        for (level, DeviceGroup { offer, count }) in set.levels() {
            let offer = &self.list.offers[offer];
            for number in 1..=count {
                let name = device_name(level, number);
                let _ = write!(
                    text,
                    "\n[[device]]           # {}, {}\nname = \"{name}\"\npath = \"/dev/disk/by-id/PUT-IN-{name}\"\n\
                     # size = \"{}B\"\n# pace = \"{}\"\n",
                    one_line(&offer.about),
                    decimal_size(offer.size),
                    offer.size.0,
                    offer.model
                );
            }
        }
        text
    }
}

/// Replaces control characters by spaces, so that the text cannot leave its comment.
fn one_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}
