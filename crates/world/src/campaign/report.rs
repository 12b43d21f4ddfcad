//! Describes a failure in readable form.

use super::{History, ShrunkHistory};
use std::fmt;

impl fmt::Display for ShrunkHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.failure)?;
        write!(f, "after {} attempts to leave things out:\n{}", self.attempts, self.history)
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let setup = &self.setup;
        let kib = |bytes: u64| bytes / 1024;
        writeln!(
            f,
            "  pool of seed {}: extents of {} KiB, policy {}, map {}mirrored, journal of {} pages, {} for the map, at most {} requests at once, {:?} when full",
            setup.seed,
            kib(setup.extent.bytes().0),
            setup.policy,
            if setup.mirrored { "" } else { "not " },
            setup.journal_pages,
            setup.meta_pages,
            setup.depth,
            setup.when_full
        )?;
        for (number, device) in setup.devices.iter().enumerate() {
            let cache = if device.write_cache { "volatile" } else { "no" };
            writeln!(
                f,
                "  device {number}: {} KiB, sectors of {}, {cache} cache, {:?}",
                kib(device.size.0),
                device.sector,
                device.pace
            )?;
            device.faults.iter().try_for_each(|fault| writeln!(f, "    {fault:?}"))?;
        }
        for (number, volume) in setup.volumes.iter().enumerate() {
            let (size, copies) = (kib(volume.size.0), volume.copies);
            let policy = volume.policy.map(|policy| format!(", policy {policy}")).unwrap_or_default();
            let hardening = volume.hardening;
            writeln!(f, "  volume {number}: {size} KiB, hardening {hardening:?}, copies {copies}{policy}")?;
        }
        self.steps.iter().enumerate().try_for_each(|(number, step)| writeln!(f, "  {number:5}  {step:?}"))
    }
}
