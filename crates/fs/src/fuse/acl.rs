//! POSIX access control lists.
//!
//! The kernel checks accesses by them. What a new file inherits, and that list and permissions agree, is up
//! to the file system.

use crate::namespace::encode_attributes;

pub(super) use crate::namespace::ACCESS_LIST as ACCESS;
/// Attribute with the list that new files in a directory inherit.
pub(super) const DEFAULT: &[u8] = b"system.posix_acl_default";

const HEADER_BYTES: usize = 4;
const USER_OWNER: u16 = 0x01;
const GROUP_OWNER: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Returns the entries of a list; `None` if it is no list.
fn entries(list: &[u8]) -> Option<&[[u8; 8]]> {
    let (header, entries) = list.split_at_checked(HEADER_BYTES)?;
    let (entries, rest) = entries.as_chunks::<8>();
    (header == [2, 0, 0, 0] && rest.is_empty()).then_some(entries)
}

/// Returns by how much the permissions of an entry are shifted in a mode; `None` if the mode does not have
/// them.
fn shift(entry: &[u8; 8], has_mask: bool) -> Option<u32> {
    match tag(entry) {
        USER_OWNER => Some(6),
        MASK => Some(3),
        GROUP_OWNER if !has_mask => Some(3),
        OTHER => Some(0),
        _ => None,
    }
}

fn has_mask(entries: &[[u8; 8]]) -> bool {
    entries.iter().any(|entry| tag(entry) == MASK)
}

/// Returns the permissions that a list stands for, and whether it says more than they do; `None` if it is no
/// list.
pub(super) fn permissions(list: &[u8]) -> Option<(u32, bool)> {
    let entries = entries(list)?;
    let has_mask = has_mask(entries);
    let shifted = |entry: &[u8; 8]| Some(u32::from(entry[2] & 7) << shift(entry, has_mask)?);
    Some((entries.iter().filter_map(shifted).fold(0, |all, one| all | one), entries.len() > 3))
}

/// Returns a list after a change of the permissions.
pub(super) fn with_permissions(list: &[u8], permissions: u32) -> Option<Vec<u8>> {
    let entries = entries(list)?;
    let has_mask = has_mask(entries);
    let changed = entries.iter().flat_map(|entry| {
        let mut entry = *entry;
        if let Some(shift) = shift(&entry, has_mask) {
            entry[2] = (permissions >> shift & 7) as u8;
        }
        entry
    });
    Some(list[..HEADER_BYTES].iter().copied().chain(changed).collect())
}

/// Permissions and attributes (in their stored form) of a new file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Inherited {
    pub(super) permissions: u32,
    pub(super) attributes: Vec<u8>,
}

/// Returns what a new file gets: from the directory's default list, or else by the umask.
pub(super) fn inherit(default: Option<&[u8]>, permissions: u32, umask: u32, is_directory: bool) -> Inherited {
    let masked = || Inherited { permissions: permissions & !umask, attributes: Vec::new() };
    let Some(default) = default else { return masked() };
    let Some(entries) = entries(default) else { return masked() };
    let has_mask = has_mask(entries);
    let mut access = default[..HEADER_BYTES].to_vec();
    let mut result = permissions & 0o7000;
    for entry in entries {
        let mut entry = *entry;
        if let Some(shift) = shift(&entry, has_mask) {
            // The requested permissions limit the classes of the owner, the group and all others.
            entry[2] &= (permissions >> shift & 7) as u8;
            result |= u32::from(entry[2]) << shift;
        }
        access.extend(entry);
    }
    let mut attributes = Vec::new();
    // A list of three entries says no more than the permissions.
    if entries.len() > 3 {
        attributes.push((ACCESS.to_vec(), access));
    }
    if is_directory {
        attributes.push((DEFAULT.to_vec(), default.to_vec()));
    }
    Inherited { permissions: result, attributes: encode_attributes(&attributes) }
}

const fn tag(entry: &[u8; 8]) -> u16 {
    u16::from_le_bytes([entry[0], entry[1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tag: u16, permissions: u8) -> [u8; 8] {
        [tag as u8, 0, permissions, 0, 0xff, 0xff, 0xff, 0xff]
    }

    #[test]
    fn without_a_default_list_the_umask_counts() {
        assert_eq!(inherit(None, 0o4666, 0o022, false).permissions, 0o4644);
    }

    #[test]
    fn lists_and_permissions_agree() {
        let list = |entries: &[[u8; 8]]| [&[2, 0, 0, 0], entries.as_flattened()].concat();
        let plain = list(&[entry(1, 7), entry(4, 5), entry(0x20, 1)]);
        assert_eq!(permissions(&plain), Some((0o751, false)));
        let long = [entry(1, 7), entry(2, 7), entry(4, 5), entry(0x10, 6), entry(0x20, 0)];
        assert_eq!(permissions(&list(&long)), Some((0o760, true)));
        let mut expected = long;
        (expected[0][2], expected[3][2], expected[4][2]) = (5, 1, 4);
        assert_eq!(with_permissions(&list(&long), 0o514), Some(list(&expected)));
        assert_eq!(permissions(&[1, 0, 0, 0]), None);
        assert_eq!(permissions(&plain[..10]), None);
    }

    #[test]
    fn the_default_list_replaces_the_umask() {
        let list = |entries: &[[u8; 8]]| [&[2, 0, 0, 0], entries.as_flattened()].concat();
        let entries = [entry(1, 7), entry(2, 7), entry(4, 5), entry(0x10, 7), entry(0x20, 0)];
        let default = list(&entries);
        let found = inherit(Some(&default), 0o664, 0o077, false);
        assert_eq!(found.permissions, 0o660, "the mask stands for the group");
        let mut expected = entries;
        (expected[0][2], expected[3][2], expected[4][2]) = (6, 6, 0);
        assert_eq!(found.attributes, encode_attributes(&[(ACCESS.to_vec(), list(&expected))]));
        let short = list(&[entry(1, 7), entry(4, 5), entry(0x20, 5)]);
        let found = inherit(Some(&short), 0o777, 0o077, true);
        assert_eq!(found.permissions, 0o755);
        assert_eq!(found.attributes, encode_attributes(&[(DEFAULT.to_vec(), short)]));
    }
}
