//! Explains why a pool's devices cannot be opened: by name and path, and with a way out.

use super::{PoolDescription, rounded_and_exact};
use crate::failure::{self, Failure};
use weir_map::MapError;
use weir_model::{DeviceId, DeviceSet, Errno, IoError};

impl PoolDescription {
    /// Returns the failure for an error of the map, with the name and path of the device in place of its id.
    pub fn explain(&self, error: MapError) -> Failure {
        let kind = error.kind();
        if let MapError::MetadataAbsent { absent, present } = error {
            return self.metadata_absent_failure(absent, present);
        }
        let is_absence = matches!(
            error,
            MapError::Absent { .. }
                | MapError::MirrorAbsent { .. }
                | MapError::Stale { .. }
                | MapError::Diverged { .. }
        );
        let mut message = error.to_string();
        for (entry, id) in self.file.devices.iter().zip(0u8..) {
            let name = format!("{} ({})", entry.name, self.device_path(entry).display());
            message = message.replace(&format!("device {} ", DeviceId(id)), &format!("device {name} "));
            message = message.replace(&format!("device {}:", DeviceId(id)), &format!("device {name}:"));
        }
        // The message has a placeholder for the name of the device; the options apply to this device.
        if let MapError::Absent { device }
        | MapError::Replaced { device }
        | MapError::OnlyCopy { device, .. } = error
        {
            for command in ["--without", "weir pool replace"] {
                let named = format!("{command} {}", self.name(device));
                message = message.replace(&format!("{command} NAME"), &named);
            }
        }
        if let MapError::Diverged { one, other } = error {
            let either = format!("--without {} or --without {}", self.name(one), self.name(other));
            message = message.replace("--without NAME", &either);
        }
        match error {
            _ if is_absence => Failure::from_message(kind, &message),
            MapError::Io { device, error, .. } => {
                Failure::new(kind, message, self.failing_device_help(device, error))
            }
            // Opening tolerates everything that a repair can rewrite. If opening fails, a repair is not
            // enough.
            MapError::Damaged { .. } => Failure::new(
                kind,
                message,
                "weir pool check shows all that is damaged; its --repair cannot bring this back: put the \
                 metadata back from a dump (weir pool restore FILE), or restore the device from a backup",
            ),
            MapError::TooSmall { device, size, least } => Failure::new(
                kind,
                format!(
                    "device {} has {}, too little: it needs at least {}",
                    self.name_and_path(device),
                    rounded_and_exact(size),
                    rounded_and_exact(least)
                ),
                "raise its size, or use a larger device",
            ),
            MapError::Outdated { device, .. } => Failure::new(
                kind,
                message,
                format!(
                    "put its current file back, or go on without it: --without {} (data that it alone held reads \
                     as EIO), or accept its older data for good: --accept-rollback",
                    self.name(device)
                ),
            ),
            MapError::OutdatedMetadata { .. } => Failure::new(
                kind,
                message,
                "put its current file back, or accept the older state for good: --accept-rollback (the \
                 volumes are then as its metadata says, and blocks written since may hold other data)",
            ),
            MapError::Mismatch(_) => Failure::new(
                kind,
                message,
                "list exactly the devices of one pool, in the order in which it was created; weir pool check \
                 says what it finds on each",
            ),
            _ => Failure::from_message(kind, &message),
        }
    }

    /// Returns the failure for a pool none of whose present devices has the metadata.
    pub(super) fn metadata_absent_failure(&self, absent: DeviceSet, present: DeviceSet) -> Failure {
        let is_left_out = |device: &DeviceId| self.exists(*device);
        let each = absent.iter().map(|device| match is_left_out(&device) {
            true => format!("device {} is left out", self.name_and_path(device)),
            false => format!("device {} does not exist", self.name_and_path(device)),
        });
        let each = each.collect::<Vec<_>>().join(", ");
        let it = if absent.len() == 1 { "it" } else { "one of them" };
        let found = match present.is_empty() {
            true => String::new(),
            false => {
                let named = present.iter().map(|device| self.name_and_path(device)).collect::<Vec<_>>();
                let (were, hold) = if named.len() == 1 { ("was", "holds") } else { ("were", "hold") };
                format!("; found {were} device {}, which {hold} data only", named.join(", device "))
            }
        };
        let left_out: Vec<_> = absent
            .iter()
            .filter(is_left_out)
            .map(|device| format!("--without {}", self.name(device)))
            .collect();
        let help = match left_out.is_empty() {
            false => format!(
                "leave {} out; weir pool check says what is wrong with a device, and weir pool restore puts \
                 its metadata back from a dump",
                left_out.join(" and ")
            ),
            true => "bring it back, or correct its path in the pool file; without it nothing can be read, \
                     and neither --without nor --accept-rollback helps. If it is lost for good, so is what \
                     the pool held: make the pool anew with metadata = true for two devices, and restore \
                     the volumes from a backup"
                .into(),
        };
        let message = format!(
            "{each}, and {it} has the pool's only metadata; the pool cannot be opened without it{found}"
        );
        Failure::refused(message, help)
    }

    /// Returns the help for a device that fails while the pool is opened.
    pub(super) fn failing_device_help(&self, device: DeviceId, error: IoError) -> String {
        if error == IoError::Os(Errno::EFBIG) {
            return failure::RAISE_FILE_SIZE.to_owned();
        }
        let name = self.name(device);
        let mut help =
            "what the kernel's log says of it (dmesg) may help; try again once it works".to_owned();
        if self.file.devices.len() > 1 {
            help += &format!(
                ", or go on without it, unless it has the pool's only metadata: --without {name} (data that \
                 it alone holds then reads as EIO)"
            );
        }
        help
    }
}
