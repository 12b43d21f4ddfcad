//! The explanation of a block's placement: its worth, and the price of space.

use super::super::explain::percent;
use super::super::{DeviceView, PolicyContext, Question, Reasons};
use super::heat::{PartLayout, UNIT_WORTH};
use super::promoter::copy_cost;
use super::{Adaptive, SOONER_FRACTION};
use weir_model::{BLOCK, BlockRange, Bytes, Nanos};

/// Formats a worth in reads of the slow device saved.
fn saved(worth: u16) -> String {
    format!("{:.2} reads of the slow device saved", f64::from(worth) / f64::from(UNIT_WORTH))
}

impl Adaptive {
    pub(super) fn reasons(&self, context: &PolicyContext<'_>, about: &Question<'_>) -> Reasons {
        let mut reasons = Reasons::default();
        if self.tiers.fast().is_empty() {
            match context.devices.len() {
                1 => reasons.fast_is_unknown(),
                _ => {
                    reasons.figure("fast device", "none: no device is clearly faster than another one");
                    reasons.moves_if("a device turns out to be clearly faster than the one that holds it");
                }
            }
            reasons.idle_reads(context.devices, about);
            return reasons;
        }
        let cut = PartLayout::new(context.extent.blocks());
        let parts = cut.parts(BlockRange { first: about.block, count: 1 });
        let heat = self.worth.table.peek(about.key).unwrap_or_default();
        reasons.figure("recent worth of the block", saved(heat.max_worth(parts)));
        reasons.figure("worth of a block of the extent, on average", saved(heat.mean_worth()));
        let names: Vec<_> =
            self.tiers.fast().fast_devices(context.devices).map(|d| about.name(d.id)).collect();
        let name = names.join(" and ");
        reasons.figure(format_args!("price of space on {name}"), saved(self.worth.price()));
        reasons.figure(
            format_args!("space taken on {name}"),
            percent(self.tiers.fast().fill(context.devices, cut)),
        );
        self.explain_responses(&mut reasons, context.devices, about);
        self.explain_moves(&mut reasons, context.devices, about, &name);
        reasons
    }

    /// Adds the response time of a request for a block on each device.
    fn explain_responses(&self, reasons: &mut Reasons, devices: &[DeviceView], about: &Question<'_>) {
        for device in devices {
            let name = about.name(device.id);
            for (what, write) in [("read", false), ("write", true)] {
                let response = Nanos::from_secs_f64(self.worth.costs.response(device, write, Bytes(BLOCK)));
                reasons.figure(format_args!("a {what} of a block on {name}"), response);
            }
        }
    }

    fn explain_moves(&self, reasons: &mut Reasons, devices: &[DeviceView], about: &Question<'_>, name: &str) {
        if self.tiers.fast().holder(devices, &about.places).is_some() {
            reasons.moves_if(format_args!(
                "it leaves {name} when more than {:.0} % of the space there are taken and it is worth no more than the \
                 price",
                100.0 * self.headroom.eviction_start()
            ));
            reasons.moves_if(format_args!(
                "it leaves {name} when it is asked for and would be answered in less than {:.0} % of the time elsewhere",
                100.0 * SOONER_FRACTION
            ));
        } else {
            reasons.moves_if(format_args!(
                "a read copies it to {name} once it is worth more than {}, the price and what the copy costs",
                saved(self.worth.price().saturating_add(copy_cost(&self.worth, &self.headroom)))
            ));
            reasons.moves_if(format_args!(
                "a write to it goes to {name} if that saves anything, it answers sooner at that moment and has room"
            ));
        }
    }
}
