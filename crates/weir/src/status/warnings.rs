//! Warnings of a pool: space running out, devices whose figures are invalid.

use super::{DevicePart, PoolPart, Status, removed};
use weir_model::Bytes;

impl Status {
    /// Returns all warnings: space running out, devices whose figures are invalid.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.pool.warnings();
        warnings.extend(self.unreachable());
        warnings.extend(removed::warning(&self.devices));
        warnings.extend(self.devices.iter().filter_map(DevicePart::moved_advice));
        warnings.extend(self.devices.iter().filter_map(|device| device.damage_advice(&self.devices)));
        warnings.extend(self.devices.iter().filter(|device| device.page_cache).map(|device| {
            format!(
                "device {} ({}): its file system refuses O_DIRECT, so its data goes through the page cache; a write \
                 that the system cannot carry out is reported by the next flush only; put it on a file system that \
                 has O_DIRECT (ext4, xfs, btrfs), or use a block device",
                device.name, device.path
            )
        }));
        warnings.extend(self.devices.iter().filter(|device| device.metadata_stale).map(|device| {
            format!(
                "the pool's metadata has one copy only: device {} was left behind; once it works, restarting \
                 the server writes its copy anew",
                device.name
            )
        }));
        warnings.extend(self.pool.migration_estimate.warning(&self.pool.policy));
        warnings.extend(self.volumes.iter().filter_map(|volume| {
            let policy = format!("{} of volume {}", volume.policy.as_ref()?, volume.name);
            volume.migration_estimate?.warning(&policy)
        }));
        let late = self.overrun();
        if !late.is_empty() {
            warnings.push(format!("figures invalid: {}; {OVERRUN_EXPLANATION}", late.join(", ")));
        }
        warnings
    }

    /// Says how much of which volumes only lost devices have.
    fn unreachable(&self) -> Option<String> {
        let concerned = self.volumes.iter().filter(|volume| volume.unreachable_bytes > 0);
        let volumes: Vec<_> = concerned
            .map(|volume| format!("{} of {}", Bytes(volume.unreachable_bytes), volume.name))
            .collect();
        (self.pool.unreachable_bytes > 0).then(|| {
            format!(
                "{} of data are on lost devices alone and cannot be read ({}); the server's log says where. \
                 Bring the devices back and restart the server, or write the data anew",
                Bytes(self.pool.unreachable_bytes),
                if volumes.is_empty() { "of removed volumes".to_owned() } else { volumes.join(", ") }
            )
        })
    }

    /// Returns the paced devices that were late too often, each with its share of late commands.
    pub fn overrun(&self) -> Vec<String> {
        let late = self.devices.iter().filter_map(|device| {
            let traffic = device.traffic.filter(|traffic| traffic.figures_invalid)?;
            Some(format!("{} {:.1} %", device.name, 100.0 * traffic.overruns_share))
        });
        late.collect()
    }
}

/// Explains why [`Status::overrun`] names a device.
pub const OVERRUN_EXPLANATION: &str = "the share of commands answered later than by the modelled drive \
     (more than 1 %, and by more than 5 % of its time in all): this machine is too slow or too busy, \
     or the files are not in memory";

impl PoolPart {
    pub(super) fn warnings(&self) -> Vec<String> {
        let way_out = "trim or remove volumes";
        let full = self.full.as_ref().map(|room| match room.as_str() {
            "metadata" => format!("no space for metadata is left: writes to new places fail; {way_out}"),
            _ => format!("no space is left: writes that need new space fail; {way_out}"),
        });
        let passed = |at: Option<u8>, what: &str| {
            at.filter(|_| self.full.is_none())
                .map(|at| format!("more than {at} % of the {what} is in use; {way_out} before it is full"))
        };
        let space = passed(self.warning_percent, "space for data");
        let metadata = passed(self.metadata_warning_percent, "space for metadata");
        let configuration = self.configuration_warnings.iter().cloned();
        [full, space, metadata].into_iter().flatten().chain(configuration).collect()
    }
}
