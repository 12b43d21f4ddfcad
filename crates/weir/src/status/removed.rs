//! Advice for devices that were removed, moved or truncated while they are served.

use super::DevicePart;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use weir_device::{Moved, RemovedFile, save_removed};
use weir_model::Bytes;

/// Where a device is whose path no longer leads to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Moved")]
pub struct MovedPart {
    /// Something else is at its path.
    pub replaced: bool,
    /// Where it is now; `null` if the system does not say.
    pub found_at: Option<PathBuf>,
    /// The command that puts it back while it is served; `null` if there is none.
    pub restore_command: Option<String>,
}

impl From<Moved> for MovedPart {
    fn from(Moved { replaced, found_at, restore_command: put_back }: Moved) -> Self {
        Self { replaced, found_at, restore_command: put_back }
    }
}

/// Returns a warning that says what happened to removed devices and gives the command that saves their data.
pub(super) fn warning(devices: &[DevicePart]) -> Option<String> {
    let open = |device: &DevicePart| {
        let is_cut = device.current_size_bytes.is_some_and(|now| now < device.size_bytes);
        device.open_file.clone().filter(|_| device.removed).map(|open| RemovedFile {
            path: device.path.clone(),
            open,
            is_truncated: is_cut || device.damaged,
        })
    };
    let removed: Vec<_> = devices.iter().filter_map(|device| Some((device, open(device)?))).collect();
    let names: Vec<_> =
        removed.iter().map(|(device, _)| format!("{} ({})", device.name, device.path)).collect();
    let save = save_removed(&removed.into_iter().map(|(_, removed)| removed).collect::<Vec<_>>())?;
    Some(format!(
        "device {}: the file was removed, or another took its place. The server still has it open, and all that is \
         on it is gone when the server ends; until then every FLUSH of a volume with one copy fails: {save}",
        names.join(", device "),
    ))
}

impl DevicePart {
    /// Returns what to do if the next start will not find the device; `None` if it will.
    pub(super) fn moved_advice(&self) -> Option<String> {
        let MovedPart { replaced, found_at, restore_command: put_back } = self.moved.clone()?;
        let moved = Moved { replaced, found_at, restore_command: put_back };
        Some(format!("device {}: {}", self.name, moved.advice(Path::new(&self.path))))
    }

    /// Returns what happened to durable data on the device and what to do; `None` if no data are damaged.
    pub(super) fn damage_advice(&self, devices: &[Self]) -> Option<String> {
        let why = self.lost_reason.as_ref().filter(|_| self.damaged)?;
        let now = self.current_size_bytes.map_or_else(|| "unknown".to_owned(), |now| Bytes(now).to_string());
        let (name, path) = (&self.name, &self.path);
        let restore = format!(
            "restore {path} from a backup (beside the other copy an older one would be taken for current)"
        );
        let way_out = match devices.iter().any(|other| other.metadata && other.name != *name) {
            true => format!(
                "then serve without it (weir serve --without {name}: data that it alone held reads as EIO), \
                 or, if no volume has two copies, {restore}"
            ),
            false => format!(
                "it has the pool's only metadata: if no volume has two copies, {restore}, or put the \
                 metadata back: weir pool restore FILE"
            ),
        };
        Some(format!(
            "device {name} ({path}): {why}; it should have {size}, and has {now} now. Data that was durable is \
             gone, so every FLUSH of a volume with one copy fails, and what clients have read since may be \
             zeros. Stop the server; {way_out}",
            size = Bytes(self.size_bytes),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn save_commands_cover_removed_devices_and_note_truncation() {
        let device = |name: &str, removed, now| DevicePart {
            name: name.into(),
            path: format!("/{name}"),
            removed,
            size_bytes: 10,
            current_size_bytes: Some(now),
            open_file: Some(format!("/proc/77/fd/{}", name.len())),
            ..DevicePart::default()
        };
        assert_eq!(warning(&[device("a", false, 10)]), None);
        let mut devices = [device("a", true, 10), device("bb", false, 10), device("ccc", true, 10)];
        let said = warning(&devices).expect("a warning");
        assert!(said.contains("'/proc/77/fd/1' '/a' && cp"), "{said}");
        assert!(
            said.contains("'/proc/77/fd/3' '/ccc' && sync") && said.contains("nothing is missing"),
            "{said}"
        );
        devices[2].current_size_bytes = Some(9);
        let said = warning(&devices).expect("a warning");
        assert!(said.contains("what was cut off is missing"), "{said}");
    }

    #[test]
    fn damaged_device_is_excluded_only_if_metadata_is_elsewhere() {
        let device = |name: &str, metadata, damaged| DevicePart {
            name: name.into(),
            path: format!("/{name}"),
            lost_reason: Some("it is truncated".into()),
            metadata,
            damaged,
            ..DevicePart::default()
        };
        let alone = [device("a", true, true), device("b", false, false)];
        let said = alone[0].damage_advice(&alone).expect("it is damaged");
        assert!(!said.contains("--without") && said.contains("weir pool restore"), "{said}");
        assert_eq!(alone[1].damage_advice(&alone), None);
        let mirrored = [device("a", true, true), device("b", true, false)];
        let said = mirrored[0].damage_advice(&mirrored).expect("it is damaged");
        assert!(said.contains("weir serve --without a"), "{said}");
    }
}
