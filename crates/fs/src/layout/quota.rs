//! The hard limits of users and groups: the value of a hidden attribute of the root directory.

use super::fields::{Reader, Writer};
use super::superblock::checksum;
use std::collections::BTreeMap;

/// Name of the attribute; programs neither see nor change it.
pub const ATTRIBUTE: &[u8] = b"weir.limits";
/// Users and groups that can have limits at most.
pub const LIMITS_MAX: usize = 1024;
/// Largest size of the value, in bytes.
pub const BYTES_MAX: usize = HEADER_BYTES + LIMITS_MAX * ENTRY_BYTES + CHECKSUM_BYTES;

const VERSION: u32 = 1;
const HEADER_BYTES: usize = 8;
const ENTRY_BYTES: usize = 24;
const CHECKSUM_BYTES: usize = 8;
/// What stands for no limit.
const UNLIMITED: u64 = u64::MAX;

/// A user or a group, whose usage is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// A user, by its number.
    User(u32),
    /// A group, by its number.
    Group(u32),
}

impl Owner {
    const fn code(self) -> u32 {
        match self {
            Self::User(_) => 1,
            Self::Group(_) => 2,
        }
    }

    /// Returns the number of the user or group.
    pub const fn id(self) -> u32 {
        match self {
            Self::User(id) | Self::Group(id) => id,
        }
    }
}

/// Hard limits of a user or group; `None` is no limit. A limit of 2^64 - 1 cannot be stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// Bytes of files.
    pub bytes: Option<u64>,
    /// Number of inodes.
    pub inodes: Option<u64>,
}

impl Limit {
    /// Returns whether it limits nothing.
    pub const fn is_none(self) -> bool {
        self.bytes.is_none() && self.inodes.is_none()
    }
}

/// The limits of a file system. None of them limits nothing.
pub type Limits = BTreeMap<Owner, Limit>;

/// Returns the value of the attribute; `None` if there are too many limits, or one that cannot be stored.
pub fn encode(limits: &Limits) -> Option<Vec<u8>> {
    let is_possible =
        |limit: &Limit| !limit.is_none() && ![limit.bytes, limit.inodes].contains(&Some(UNLIMITED));
    if limits.len() > LIMITS_MAX || !limits.values().all(is_possible) {
        return None;
    }
    let mut bytes = vec![0; HEADER_BYTES + limits.len() * ENTRY_BYTES];
    let mut writer = Writer(&mut bytes);
    writer.u32(VERSION);
    writer.u32(limits.len() as u32);
    for (owner, limit) in limits {
        writer.u32(owner.code());
        writer.u32(owner.id());
        writer.u64(limit.bytes.unwrap_or(UNLIMITED));
        writer.u64(limit.inodes.unwrap_or(UNLIMITED));
    }
    bytes.extend(checksum(&bytes).to_le_bytes());
    Some(bytes)
}

/// Reads the value of the attribute; `None` if it is not one that [`encode`] returns.
pub fn decode(bytes: &[u8]) -> Option<Limits> {
    let (bytes, sum) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
    let (header, entries) = bytes.split_at_checked(HEADER_BYTES)?;
    let mut reader = Reader(header);
    let (version, count) = (reader.u32(), reader.u32() as usize);
    let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
    let is_whole = rest.is_empty() && entries.len() == count && count <= LIMITS_MAX;
    if version != VERSION || !is_whole || checksum(bytes).to_le_bytes() != *sum {
        return None;
    }
    let mut limits = Limits::new();
    for entry in entries {
        let mut reader = Reader(entry);
        let owner = match (reader.u32(), reader.u32()) {
            (1, id) => Owner::User(id),
            (2, id) => Owner::Group(id),
            _ => return None,
        };
        let mut number = || Some(reader.u64()).filter(|number| *number != UNLIMITED);
        let limit = Limit { bytes: number(), inodes: number() };
        let is_next = limits.last_key_value().is_none_or(|(last, _)| *last < owner);
        if limit.is_none() || !is_next {
            return None;
        }
        limits.insert(owner, limit);
    }
    Some(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        let limit = |bytes, inodes| Limit { bytes, inodes };
        Limits::from([
            (Owner::Group(100), limit(Some(1 << 40), None)),
            (Owner::User(0), limit(None, Some(0))),
            (Owner::User(1000), limit(Some(0), Some(7))),
        ])
    }

    #[test]
    fn limits_are_read_back_and_damage_is_noticed() {
        let bytes = encode(&limits()).expect("it can be stored");
        assert_eq!(decode(&bytes), Some(limits()));
        assert_eq!(decode(&encode(&Limits::new()).expect("few")), Some(Limits::new()));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert_eq!(decode(&damaged), None, "byte {at}");
            assert_eq!(decode(&bytes[..at]), None, "{at} bytes");
        }
    }

    /// Each value has one form, also with a right checksum.
    #[test]
    fn other_forms_are_refused() {
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = encode(&limits()).expect("it can be stored");
            bytes.truncate(bytes.len() - CHECKSUM_BYTES);
            change(&mut bytes);
            bytes.extend(checksum(&bytes).to_le_bytes());
            decode(&bytes)
        };
        assert_eq!(with(&|_| {}), Some(limits()));
        assert_eq!(with(&|bytes| bytes[0] = 2), None, "an unknown version");
        assert_eq!(with(&|bytes| bytes[4] = 2), None, "a wrong count");
        assert_eq!(with(&|bytes| bytes.push(0)), None, "a rest");
        assert_eq!(with(&|bytes| bytes[8] = 3), None, "an unknown kind of owner");
        assert_eq!(with(&|bytes| bytes[8..56].rotate_left(24)), None, "a wrong order");
        assert_eq!(with(&|bytes| bytes.copy_within(8..32, 32)), None, "an owner twice");
        assert_eq!(with(&|bytes| bytes[16..32].fill(255)), None, "no limit at all");
    }

    #[test]
    fn what_cannot_be_stored_is_refused() {
        let many = |count: u32| {
            (0..count).map(|id| (Owner::User(id), Limit { bytes: Some(1), inodes: None })).collect::<Limits>()
        };
        assert_eq!(encode(&many(LIMITS_MAX as u32)).map(|bytes| bytes.len()), Some(BYTES_MAX));
        assert_eq!(encode(&many(LIMITS_MAX as u32 + 1)), None);
        for limit in [Limit::default(), Limit { bytes: Some(u64::MAX), inodes: Some(1) }] {
            assert_eq!(encode(&Limits::from([(Owner::User(1), limit)])), None, "{limit:?}");
        }
    }
}
