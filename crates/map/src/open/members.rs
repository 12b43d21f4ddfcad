//! The devices with the newest metadata, and whether the pool may be opened with those present. See
//! `docs/reference/format.md`, Members and generations.

use crate::{MapError, Superblock};
use smallvec::SmallVec;
use weir_model::{Bytes, DeviceClass, DeviceId, DeviceOffset, DeviceSet, Mutant, Planted};

/// The options for opening an incomplete pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Whether to open with one metadata member although the other, which is absent, may know of newer
    /// commits; and with an older file of a device although only it has some of the data.
    pub accept_rollback: bool,
    /// Devices that may be absent: requests for their data give I/O errors.
    pub without: DeviceSet,
    /// For mutation testing.
    pub planted: Planted,
}

/// The present devices of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Assembly {
    /// The superblocks of the present devices, as found.
    pub(crate) found: Vec<Superblock>,
    /// Superblocks by device id, of one generation; stand-ins for absent devices.
    pub(crate) superblocks: Vec<Superblock>,
    pub(crate) present: DeviceSet,
    /// Members with the newest metadata.
    pub(crate) members: SmallVec<[DeviceId; 2]>,
    /// Members that are present without it.
    pub(crate) stale: SmallVec<[DeviceId; 2]>,
    /// Devices that are present as older files than the pool has used: the map is wrong about their data.
    pub(crate) outdated: DeviceSet,
    /// Whether the superblocks contain changes that must be written before anything else is.
    pub(crate) unwritten: bool,
    pub(crate) accept_rollback: bool,
    pub(crate) planted: Planted,
}

impl Assembly {
    /// Assembles the present devices.
    ///
    /// # Errors
    /// Fails if they do not belong together, or must not be opened without the absent ones.
    pub(crate) fn new(found: &[Superblock], options: &OpenOptions) -> Result<Self, MapError> {
        Self::with_older(found, options, DeviceSet::default())
    }

    /// Like `new`, where the files of the devices `older` are known to be older, whatever superblocks say.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn with_older(
        found: &[Superblock],
        options: &OpenOptions,
        older: DeviceSet,
    ) -> Result<Self, MapError> {
        check_one_pool(found)?;
        let joined = refuse_replaced(found)?;
        let newest = newest(found)?;
        let ids = || (0..newest.devices).map(DeviceId);
        let present: DeviceSet = found.iter().map(|sb| sb.device).collect();
        let declared = declared_members(found, newest)?;
        let trusted = options.planted.is(Mutant::StaleMirrorOpened);
        let current = if trusted { declared } else { declared.without(newest.missing) };
        refuse_split(found, newest, current)?;
        let at_hand = current.and(present);
        if at_hand.is_empty() {
            let newer = current.iter().next().unwrap_or_default();
            return Err(MapError::Stale {
                knows: newest.device,
                newest: newer,
                generation: newest.generation,
            });
        }
        let outdated: DeviceSet =
            found.iter().filter(|sb| sb.is_outdated(newest)).map(|sb| sb.device).collect();
        let outdated = outdated.or(older);
        let at_hand = refuse_outdated(at_hand, outdated, options)?;
        let absent = ids().collect::<DeviceSet>().without(present);
        let rolls_back = refuse_absent(absent.without(newest.missing), current, options)?;
        let stale = declared.without(at_hand).and(present);
        // Devices that are present and up to date are no longer damaged.
        let damaged = newest.damaged.without(present.without(outdated)).or(older);
        // The superblocks written next record older files, and count from then on.
        let damaged_since = if older.is_empty() { newest.damaged_since } else { newest.generation + 1 };
        let missing = absent.or(stale);
        let abandoned =
            newest.abandoned.without(present).or(if rolls_back { absent } else { DeviceSet::default() });
        let mut unwritten = false;
        let superblock = |device: DeviceId| {
            let mut sb = match found.iter().find(|sb| sb.device == device) {
                Some(sb) => sb.clone(),
                None => {
                    let joined = joined.clone();
                    return Superblock {
                        missing,
                        abandoned,
                        damaged,
                        join_generations: joined,
                        ..placeholder_superblock(newest, device)
                    };
                }
            };
            // The device comes back; a stale member does so only once it is synchronized.
            sb.incarnation += u32::from(newest.missing.contains(device) && !stale.contains(device));
            let says = (sb.generation, sb.missing, sb.abandoned, sb.damaged, &sb.join_generations);
            unwritten |= says != (newest.generation, missing, abandoned, damaged, &joined);
            (sb.generation, sb.missing, sb.abandoned) = (newest.generation, missing, abandoned);
            (sb.damaged, sb.damaged_since) = (damaged, damaged_since);
            sb.join_generations.clone_from(&joined);
            sb
        };
        let mut assembly = Self {
            found: found.to_vec(),
            superblocks: ids().map(superblock).collect(),
            present,
            members: at_hand.iter().collect(),
            stale: stale.iter().collect(),
            outdated,
            unwritten: false,
            accept_rollback: options.accept_rollback,
            planted: options.planted,
        };
        if unwritten {
            increment_generation(&mut assembly.superblocks);
            assembly.unwritten = true;
        }
        Ok(assembly)
    }

    /// Returns the devices that are outdated because they have just replaced others.
    pub(crate) fn blank(&self) -> DeviceSet {
        let blank = self.found.iter().filter(|sb| sb.is_blank() && self.outdated.contains(sb.device));
        blank.map(|sb| sb.device).collect()
    }
}

/// Increments the generation.
pub(crate) fn increment_generation(superblocks: &mut [Superblock]) {
    superblocks.iter_mut().for_each(|sb| sb.generation += 1);
}

fn check_one_pool(found: &[Superblock]) -> Result<(), MapError> {
    let mismatch = |why: String| Err(MapError::Mismatch(why));
    let Some(first) = found.first() else { return mismatch("there are none".into()) };
    let mut seen = DeviceSet::default();
    for sb in found {
        if sb.pool != first.pool {
            return mismatch(format!(
                "device {:?} is of pool {} ({:?}), device {:?} of pool {} ({:?})",
                sb.device_name, sb.pool, sb.pool_name, first.device_name, first.pool, first.pool_name
            ));
        }
        if sb.extent != first.extent || sb.devices != first.devices || seen.contains(sb.device) {
            return mismatch(format!(
                "device {:?} is number {} of {} of the pool, and another says otherwise",
                sb.device_name, sb.device.0, sb.devices
            ));
        }
        seen.insert(sb.device);
    }
    Ok(())
}

/// Refuses devices that others have replaced, whatever happened to them since. Returns when each replacement
/// joined.
fn refuse_replaced(found: &[Superblock]) -> Result<Vec<u64>, MapError> {
    let devices = found.iter().map(|sb| sb.join_generations.len()).max().unwrap_or(0);
    let latest = |device: DeviceId| found.iter().map(|sb| sb.join_generation(device)).max().unwrap_or(0);
    let joined: Vec<u64> = (0u8..).map(DeviceId).take(devices).map(latest).collect();
    match found.iter().find(|sb| sb.join_generation(sb.device) < latest(sb.device)) {
        Some(old) => Err(MapError::Replaced { device: old.device }),
        None => Ok(joined),
    }
}

/// Returns the superblock of the highest generation. All superblocks of one generation must agree.
fn newest(found: &[Superblock]) -> Result<&Superblock, MapError> {
    let newest = found.iter().max_by_key(|sb| sb.generation);
    let newest = newest.ok_or_else(|| MapError::Mismatch("there are none".into()))?;
    let says = |sb: &Superblock| (sb.members, sb.missing, sb.abandoned, sb.damaged, sb.damaged_since);
    let other = found.iter().find(|sb| sb.generation == newest.generation && says(sb) != says(newest));
    match other {
        Some(other) => Err(MapError::Diverged { one: newest.device, other: other.device }),
        None => Ok(newest),
    }
}

/// Returns the metadata members, current or not.
fn declared_members(found: &[Superblock], newest: &Superblock) -> Result<DeviceSet, MapError> {
    let flagged: DeviceSet = found.iter().filter(|sb| sb.is_metadata_member()).map(|sb| sb.device).collect();
    let mismatch = |why: String| Err(MapError::Mismatch(why));
    if newest.members.is_empty() {
        return match flagged.len() {
            1 => Ok(flagged),
            0 => {
                let present: DeviceSet = found.iter().map(|sb| sb.device).collect();
                let all: DeviceSet = (0..newest.devices).map(DeviceId).collect();
                Err(MapError::MetadataAbsent { absent: all.without(present), present })
            }
            n => mismatch(format!("{n} devices carry metadata, one is expected")),
        };
    }
    let layout = |sb: &&Superblock| (sb.journal_pages, sb.meta_pages);
    let mut layouts = found.iter().filter(|sb| sb.is_metadata_member());
    let first = layouts.next().map(|sb| layout(&sb));
    if newest.members.len() != 2 || !flagged.without(newest.members).is_empty() {
        return mismatch("they disagree on which of them carry the pool's metadata".into());
    }
    if layouts.any(|sb| Some(layout(&sb)) != first) {
        return mismatch("the metadata areas of the two members differ in size".into());
    }
    Ok(newest.members)
}

/// Refuses devices that continued without those that have the newest metadata now: their content belongs to
/// another history.
fn refuse_split(found: &[Superblock], newest: &Superblock, current: DeviceSet) -> Result<(), MapError> {
    for sb in found {
        let left_behind = sb.missing.and(current).iter().next();
        let of_another = newest.missing.contains(sb.device) && sb.is_metadata_member()
            || newest.abandoned.contains(sb.device);
        if let (Some(other), true) = (left_behind, of_another) {
            return Err(MapError::Diverged { one: sb.device, other });
        }
    }
    Ok(())
}

/// Refuses the absence of devices that the pool has not continued without before, unless accepted. Returns
/// whether the pool may roll back.
fn refuse_absent(absent: DeviceSet, current: DeviceSet, options: &OpenOptions) -> Result<bool, MapError> {
    let mut rolls_back = false;
    for device in absent.iter() {
        if current.contains(device) {
            if !options.accept_rollback {
                return Err(MapError::MirrorAbsent { device });
            }
            rolls_back = true;
        } else if !options.without.contains(device) {
            return Err(MapError::Absent { device });
        }
    }
    Ok(rolls_back)
}

/// Returns the current members whose metadata can be used: not that of an older file, unless there is no
/// other and it is accepted.
fn refuse_outdated(
    at_hand: DeviceSet,
    outdated: DeviceSet,
    options: &OpenOptions,
) -> Result<DeviceSet, MapError> {
    let usable = at_hand.without(outdated);
    match at_hand.iter().next() {
        Some(device) if usable.is_empty() && !options.accept_rollback => {
            Err(MapError::OutdatedMetadata { device })
        }
        _ if usable.is_empty() => Ok(at_hand),
        _ => Ok(usable),
    }
}

/// Returns a stand-in for the superblock of an absent device. It is never written.
fn placeholder_superblock(newest: &Superblock, device: DeviceId) -> Superblock {
    Superblock {
        device,
        size: Bytes(0),
        class: DeviceClass::Remote,
        journal_pages: 0,
        meta_pages: 0,
        data_at: DeviceOffset(0),
        data_extents: 0,
        device_name: format!("number {}", device.0),
        ..newest.clone()
    }
}
