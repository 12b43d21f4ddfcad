//! Keys of the pool file that apply only when the pool is created.

use crate::pool_file::{DeviceEntry, PoolFile};
use weir_map::Superblock;
use weir_model::DeviceId;

/// Returns a sentence for each device whose metadata keys in the pool file have no effect on the existing
/// pool. Devices whose superblock is not given are skipped.
pub(crate) fn ineffective_key_notes<'a>(
    file: &PoolFile,
    superblocks: impl IntoIterator<Item = &'a Superblock>,
) -> Vec<String> {
    let mut members = vec![None; file.devices.len()];
    for superblock in superblocks {
        if let Some(is_member) = members.get_mut(superblock.device.index()) {
            *is_member = Some(superblock.is_metadata_member());
        }
    }
    ineffective_key_notes_for(file, |id| members.get(id.index()).copied().flatten())
}

/// Works as [`ineffective_key_notes`]; `is_member` returns whether a device has metadata, `None` if that is
/// unknown.
pub(crate) fn ineffective_key_notes_for(
    file: &PoolFile,
    is_member: impl Fn(DeviceId) -> Option<bool>,
) -> Vec<String> {
    let numbered = || file.devices.iter().zip((0u8..).map(DeviceId));
    let members: Vec<_> = numbered().filter(|(_, id)| is_member(*id) == Some(true)).collect();
    let members: Vec<_> = members.iter().map(|(entry, _)| entry.name.as_str()).collect();
    let sentence = |(entry, id): (&DeviceEntry, DeviceId)| {
        let key = ineffective_key(entry, is_member(id)?)?;
        Some(format!(
            "device {}: `{key}` has no effect on a pool that exists; its metadata is on {}. Leave the key \
             out, or save the volumes and make the pool anew",
            entry.name,
            members.join(" and ")
        ))
    };
    numbered().filter_map(sentence).collect()
}

/// Returns the key that contradicts where the metadata is.
fn ineffective_key(entry: &DeviceEntry, is_member: bool) -> Option<&'static str> {
    match (is_member, entry.metadata, entry.durable) {
        (false, Some(true), _) => Some("metadata = true"),
        (true, Some(false), _) => Some("metadata = false"),
        (true, None, false) => Some("durable = false"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool_file::parse;

    /// Returns the sentences for three devices with these lines. The first device has the metadata; the
    /// superblock of the last one is not given.
    fn notes(lines: [&str; 3]) -> Vec<String> {
        let mut text = "[pool]\nname = \"x\"\n".to_owned();
        for (index, line) in lines.iter().enumerate() {
            text += &format!("[[device]]\nname = \"d{index}\"\npath = \"d{index}.img\"\n{line}\n");
        }
        let file = parse(&text).expect("a good pool file");
        ineffective_key_notes_for(&file, |id| [Some(true), Some(false), None][id.index()])
    }

    #[test]
    fn ineffective_keys_of_an_existing_pool_are_reported() {
        assert_eq!(notes(["", "", ""]), Vec::<String>::new());
        assert_eq!(notes(["metadata = true", "durable = false", "metadata = true"]), Vec::<String>::new());
        for (lines, device, key) in [
            (["metadata = false", "", ""], "d0", "metadata = false"),
            (["durable = false", "", ""], "d0", "durable = false"),
            (["", "metadata = true", ""], "d1", "metadata = true"),
        ] {
            let told = notes(lines);
            assert_eq!(told.len(), 1, "{told:?}");
            let begins = format!(
                "device {device}: `{key}` has no effect on a pool that exists; its metadata is on d0."
            );
            assert!(told[0].starts_with(&begins), "{told:?}");
        }
    }
}
