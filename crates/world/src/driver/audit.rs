//! Audits the devices' contents at quiet moments with an independent reader of the format.
//!
//! The audit does not ask the engine where anything is: [`ondisk`] reads superblocks, roots, journal and
//! pages from the raw bytes. Then the oracle judges every copy of every block, both copies of each superblock
//! must be equal, and each root of each metadata member must lead to the same pool.

use super::{Driver, Failure, Health, RequestSpec, Setup, Volume};
use crate::ondisk::{self, DeviceReader, Extent, PAGE, Pool};
use crate::{Answer, DamagedSectors, Place, World};
use std::collections::BTreeSet;
use weir_engine::{DeviceState, DeviceStatus};
use weir_map::Hardening;
use weir_model::{Bytes, DeviceId, DeviceOffset, Nanos, Op, SECTOR, VolumeId, VolumeOffset};
use weir_policy::harm::MoveControl;

/// Time within which every block of a volume with two copies is in two locations again, with idle clients,
/// healthy devices and free space. The engine retries every five seconds if it could not proceed, and copies
/// two extents at a time, which takes a second on the slowest device; the pools here have a few dozen.
pub(super) const RESTORE_TIMEOUT: Nanos = Nanos::secs(60);

/// Interval of the checks meanwhile.
const CHECK_INTERVAL: Nanos = Nanos::millis(500);

/// One in this many checks of a history reads the devices; with volumes of two copies, which could differ
/// unnoticed, each one.
const AUDITED: u64 = 2;

/// In so many checks of copies that crashed, the roots are audited once.
const ROOTS_AUDITED: u64 = 8;

/// Number of extents of a volume whose first block is written to see where it is buffered.
const PROBES: u64 = 4;

/// The live bytes of a world's devices, including their caches.
struct LiveBytes<'a>(&'a mut World);

impl DeviceReader for LiveBytes<'_> {
    fn read(&mut self, device: u8, at: u64, bytes: &mut [u8]) {
        if let Some(storage) = self.0.storage(DeviceId(device)) {
            storage.read(DeviceOffset(at), bytes);
        }
    }
}

/// Reports whether any superblock says that the pool has continued without a device.
pub(crate) fn has_continued_without_device(world: &mut World, setup: &Setup) -> bool {
    let raw = &mut LiveBytes(world);
    let sizes = (0..).zip(&setup.devices).map(|(device, spec)| (device, spec.size.0));
    let mut copies = sizes.flat_map(|(device, size)| ondisk::superblocks(raw, device, size));
    copies.any(|copy| copy.is_ok_and(|superblock| !superblock.missing.is_empty()))
}

impl Driver {
    /// Waits until nothing is in flight and everything is durable, and checks that redundancy is complete, or
    /// soon is: also after devices have failed for a while, since no restart may be needed for that. Does
    /// nothing while devices fail, or have damaged their contents.
    pub(super) fn audit(&mut self) -> Result<(), Failure> {
        self.drain()?;
        // After a failure, a flush of each volume may fail to report the loss.
        let is_durable = self.flush_all()? || self.flush_all()?;
        let until = self.world.now() + RESTORE_TIMEOUT;
        while self.may_audit(is_durable) {
            // What fails meanwhile is recorded by then: a member of the metadata may be left behind.
            if !self.wait_for_commands()? || !self.may_audit(is_durable) {
                return Ok(());
            }
            let Some(pool) = self.read_pool()? else { return Ok(()) };
            let lacking = self.find_single_copy(&pool);
            let lacking = lacking.map(|lacking| Failure::NotRedundant { lacking, within: RESTORE_TIMEOUT });
            let Some(problem) = lacking.or_else(|| self.find_misreported(&pool)) else {
                self.statistics.audits += 1;
                self.judge(&pool)?;
                return if self.is_auditable() { self.judge_buffered(&pool) } else { Ok(()) };
            };
            if self.world.now() >= until {
                return Err(problem);
            }
            self.statistics.restored += 1;
            self.advance_by(CHECK_INTERVAL)?;
        }
        Ok(())
    }

    /// Reports whether redundancy must be complete on the devices, or soon. `is_durable`: everything is.
    fn may_audit(&mut self, is_durable: bool) -> bool {
        self.is_auditable() || (is_durable && self.has_recovered())
    }

    /// Flushes every volume; returns whether all succeeded. Nothing may be in flight.
    fn flush_all(&mut self) -> Result<bool, Failure> {
        let errors = self.statistics.errors;
        for volume in 0..self.volumes.len() {
            self.submit_request(RequestSpec {
                volume,
                op: Op::Flush,
                offset: VolumeOffset(0),
                len: Bytes(0),
                fua: false,
            })?;
        }
        self.drain()?;
        Ok(self.statistics.errors == errors)
    }

    /// Audits the devices after some of the checks in which all volumes were read and flushed. Changes
    /// nothing.
    pub(super) fn audit_sometimes(&mut self) -> Result<(), Failure> {
        self.checks += 1;
        let has_copies = self.setup.volumes.iter().any(|volume| volume.copies > 1);
        if !self.checks.is_multiple_of(if has_copies { 1 } else { AUDITED }) || !self.is_auditable() {
            return Ok(());
        }
        let Some(pool) = self.read_pool()? else { return Ok(()) };
        self.statistics.audits += 1;
        self.judge(&pool)
    }

    /// Reports whether the devices are healthy and hold what was written.
    pub(super) fn is_auditable(&mut self) -> bool {
        self.replacing.is_none() && self.is_auditable_ignoring_commands()
    }

    /// Does the same, while commands may be in flight.
    pub(super) fn is_auditable_ignoring_commands(&mut self) -> bool {
        self.health == Health::Healthy
            && !self.may_misdirect
            && self.truncated.is_empty()
            && self.damaged_metadata().is_empty()
    }

    /// Reports whether devices have failed, none of them fails any more, the engine uses all of them, and no
    /// block is in doubt.
    fn has_recovered(&mut self) -> bool {
        let is_whole = self.health == Health::Broken
            && self.replacing.is_none()
            && !self.may_fail()
            && self.damaged_metadata().is_empty()
            && !has_continued_without_device(&mut self.world, &self.setup);
        let status = is_whole.then(|| self.engine.status());
        status.is_some_and(|status| {
            let is_well = |device: &DeviceStatus| {
                matches!(device.state, DeviceState::InUse) && !device.removed && device.doubtful == 0
            };
            !status.read_only && status.devices.iter().all(is_well)
        })
    }

    /// Checks the roots of a crashed copy before some of its openings.
    pub(super) fn audit_roots_sometimes(&mut self) -> Result<(), Failure> {
        let is_turn = self.checks % ROOTS_AUDITED == ROOTS_AUDITED / 2;
        if self.has_sound_roots && is_turn { self.audit_roots() } else { Ok(()) }
    }

    /// Checks that every metadata member has a root, and that each root that verifies leads, with the journal
    /// since, to the same pool: everything reachable from the older one stays intact as long as it may be
    /// needed.
    pub(super) fn audit_roots(&mut self) -> Result<(), Failure> {
        let sizes: Vec<_> = (0..).zip(&self.setup.devices).map(|(id, spec)| (id, spec.size.0)).collect();
        let raw = &mut LiveBytes(&mut self.world);
        let mut devices = Vec::new();
        for (device, size) in sizes {
            let [first, second] = ondisk::superblocks(raw, device, size);
            devices.push(first.or(second)?);
        }
        if devices.iter().any(|sb| !sb.missing.is_empty()) {
            return Ok(());
        }
        for member in devices.iter().filter(|sb| sb.is_member) {
            let roots = ondisk::roots(raw, member).into_iter().flatten();
            let pools = roots.map(|root| ondisk::read(raw, &devices, member.device, &root));
            let pools = pools.collect::<Result<Vec<_>, _>>()?;
            let what = match &pools[..] {
                [] => "that device {} has no root",
                [one, other] if !one.is_equivalent(other) => "the pools that the roots of device {} lead to",
                _ => continue,
            };
            return Err(Failure::StateMismatch(what.replace("{}", &member.device.to_string())));
        }
        self.statistics.audits += 1;
        Ok(())
    }

    /// Reads the pool from the devices: it must be the same from every member and root. Returns `None` if
    /// commands may stay in flight indefinitely: their writes are not on the devices yet.
    pub(super) fn read_pool(&mut self) -> Result<Option<Pool>, Failure> {
        if !self.wait_for_commands()? {
            return Ok(None);
        }
        let sizes: Vec<_> = (0..).zip(&self.setup.devices).map(|(id, spec)| (id, spec.size.0)).collect();
        let raw = &mut LiveBytes(&mut self.world);
        let mut devices = Vec::new();
        for (device, size) in sizes {
            let [first, second] = ondisk::superblocks(raw, device, size);
            let (first, second) = (first?, second?);
            if first != second {
                return Err(Failure::StateMismatch(format!("the superblocks of device {device}")));
            }
            devices.push(first);
        }
        let says = |sb: &ondisk::Superblock| (sb.generation, sb.missing.clone(), sb.abandoned.clone());
        if devices.iter().any(|sb| says(sb) != says(&devices[0]) || !sb.missing.is_empty()) {
            return Err(Failure::StateMismatch("what superblocks say of missing devices".to_owned()));
        }
        let mut pools: Vec<Pool> = Vec::new();
        for member in devices.iter().filter(|sb| sb.is_member) {
            for root in ondisk::roots(raw, member) {
                pools.push(ondisk::read(raw, &devices, member.device, &root?)?);
            }
        }
        let newest =
            pools.pop().ok_or_else(|| Failure::StateMismatch("no device has metadata".to_owned()))?;
        match pools.iter().find(|pool| !pool.is_equivalent(&newest)) {
            Some(_) => Err(Failure::StateMismatch("the pools that roots and members lead to".to_owned())),
            None => Ok(Some(newest)),
        }
    }

    /// Checks every copy of every block against the oracle.
    fn judge(&mut self, pool: &Pool) -> Result<(), Failure> {
        let mut known: BTreeSet<u32> = pool.removing.iter().copied().collect();
        for number in 0..self.volumes.len() {
            known.insert(self.volumes[number].id.0);
            self.judge_volume(number, pool)?;
        }
        match pool.volumes.iter().find(|(id, _)| !known.contains(id)) {
            Some((id, volume)) => {
                Err(Failure::StateMismatch(format!("the volumes: {id}, {:?}, is nobody's", volume.name)))
            }
            None => Ok(()),
        }
    }

    fn judge_volume(&mut self, number: usize, pool: &Pool) -> Result<(), Failure> {
        let Volume { id, name, spec } = &self.volumes[number];
        let found = find_volume(pool, *id)?;
        let says = (&found.name, found.size, found.copies, found.hardened);
        if says != (name, spec.size.0, spec.copies, spec.hardening == Hardening::Write) {
            return Err(Failure::StateMismatch(format!(
                "volume {name:?}, of which the devices say {says:?}"
            )));
        }
        let (size, extent) = (spec.size.0, self.setup.extent.bytes().0);
        let nothing = Extent::default();
        for (index, start) in (0..).zip((0..size).step_by(extent as usize)) {
            let stored = found.extents.get(&index).unwrap_or(&nothing);
            let len = Bytes(extent.min(size - start));
            self.judge_extent(Place { volume: number, offset: VolumeOffset(start), len }, stored)?;
        }
        Ok(())
    }

    /// Checks that the oracle admits the first copy, and that every other one is equal.
    fn judge_extent(&mut self, place: Place, stored: &Extent) -> Result<(), Failure> {
        let mut bytes = vec![0; place.len.0.next_multiple_of(PAGE) as usize];
        let mut spoilt = DamagedSectors::default();
        for block in stored.stored_blocks() {
            let start = u64::from(block) * PAGE;
            let here = start as usize..(start + PAGE) as usize;
            if here.end > bytes.len() {
                return Err(Failure::StateMismatch(format!(
                    "volume {}, which holds blocks behind its end",
                    place.volume
                )));
            }
            let mut first = None;
            for (holder, at) in stored.holders(block) {
                let Some(storage) = self.world.storage(DeviceId(holder.device)) else { continue };
                let at = DeviceOffset(at);
                let marks = storage.damaged_sectors(at, Bytes(PAGE));
                match first {
                    None => {
                        storage.read(at, &mut bytes[here.clone()]);
                        spoilt.put(start / SECTOR..(start + PAGE) / SECTOR, &marks);
                        first = Some(holder.device);
                    }
                    Some(first) if marks.is_empty() && spoilt.is_empty() => {
                        let mut other = [0; PAGE as usize];
                        storage.read(at, &mut other);
                        if other[..] != bytes[here.clone()] {
                            let offset = place.offset + Bytes(start);
                            let copies = [first, holder.device].map(DeviceId);
                            return Err(Failure::CopiesDiffer { volume: place.volume, offset, copies });
                        }
                    }
                    Some(_) => {}
                }
            }
        }
        let ticket = self.oracle.read(place);
        let answer = Answer::Bytes(&bytes[..place.len.0 as usize]);
        let same = self.oracle.read_done_except(ticket, answer, &spoilt);
        let ask = RequestSpec {
            volume: place.volume,
            op: Op::Read,
            offset: place.offset,
            len: place.len,
            fua: false,
        };
        same.map_err(|difference| Failure::Stored { ask, difference })
    }

    /// Returns an extent of a volume with two copies with a block in one location only, although there is
    /// space for another one.
    fn find_single_copy(&self, pool: &Pool) -> Option<String> {
        let used = used(pool);
        let has_space = |device: &weir_map::Superblock| {
            let of_device = used.iter().filter(|(on, _)| *on == device.device.0).count();
            (of_device as u64) < device.data_extents.into()
        };
        let has_room = self.engine.map().has_metadata_space();
        for Volume { id, name, .. } in self.volumes.iter().filter(|volume| volume.spec.copies > 1) {
            let Some(found) = pool.volumes.get(&id.0) else { continue };
            for (index, extent) in found.extents.iter().filter(|(_, extent)| !is_redundant(extent)) {
                let wholes: Vec<_> = extent.places.iter().filter(|p| p.whole).map(|p| p.device).collect();
                let mut others = self.layout.iter().filter(|device| !wholes.contains(&device.device.0));
                if wholes.len() > 1 || (has_room && others.any(has_space)) {
                    return Some(format!("extent {index} of volume {name:?} (whole on {wholes:?})"));
                }
            }
        }
        None
    }

    /// Returns a volume of which the status is wrong about whether any block lacks a copy.
    fn find_misreported(&self, pool: &Pool) -> Option<Failure> {
        let infos: Vec<_> = self.engine.volumes().collect();
        let mirrored = self.volumes.iter().zip(self.redundant(pool)).filter(|(v, _)| v.spec.copies > 1);
        let misreported = mirrored.filter_map(|(volume, is_redundant)| {
            let info = infos.iter().find(|info| info.id == volume.id)?;
            let said = match (info.scan_in_progress, info.degraded) {
                (true, _) => "an amount not known yet".to_owned(),
                (false, degraded) if (degraded > Bytes(0)) == is_redundant => degraded.to_string(),
                (false, _) => return None,
            };
            Some(Failure::Misreported { volume: volume.name.clone(), said })
        });
        { misreported }.next()
    }

    /// Returns for each volume whether it has two copies, and each block is in two locations.
    pub(super) fn redundant(&self, pool: &Pool) -> Vec<bool> {
        let is_complete = |volume: &Volume| {
            let found = pool.volumes.get(&volume.id.0);
            volume.spec.copies > 1 && found.is_some_and(|found| found.extents.values().all(is_redundant))
        };
        self.volumes.iter().map(is_complete).collect()
    }

    /// Writes some blocks of volumes whose policy buffers in two locations, and checks that none of them is
    /// in slots of one device alone, unless it was before and had no alternative.
    fn judge_buffered(&mut self, before: &Pool) -> Result<(), Failure> {
        let extent = self.setup.extent.bytes().0;
        let twice = |volume: &Volume| volume.spec.policy.unwrap_or(&self.setup.policy) == "hystor-twice";
        let volumes: Vec<_> =
            (0..self.volumes.len()).filter(|number| twice(&self.volumes[*number])).collect();
        let is_full = |pool: &Pool, device: &weir_map::Superblock| {
            let of_device = used(pool).iter().filter(|(on, _)| *on == device.device.0).count();
            of_device as u64 >= device.data_extents.into()
        };
        let any_is_full = |layout: &[weir_map::Superblock], pool| layout.iter().any(|sb| is_full(pool, sb));
        // One copy may be all there is if one of the two devices has no slots left, or if other policies,
        // including those of other volumes, have given an extent its maximum number of locations. The same
        // holds while moves may be stopped: then writes are in place, wherever that is, as
        // docs/policies/moves.md says.
        let free = matches!(self.setup.moves, MoveControl::NeverPaused(_));
        let alone = volumes.len() == self.volumes.len();
        if volumes.is_empty() || !alone || !free || self.has_moved || any_is_full(&self.layout, before) {
            return Ok(());
        }
        // Policies report what they lack after one of their rounds.
        self.advance_by(Nanos::secs(1))?;
        if self.lacks_second_device() {
            return Ok(());
        }
        for volume in &volumes {
            for index in 0..PROBES {
                let (offset, len) = (VolumeOffset(index * extent), Bytes(PAGE));
                self.submit_request(RequestSpec { volume: *volume, op: Op::Write, offset, len, fua: true })?;
            }
        }
        self.drain()?;
        if !self.is_auditable() || self.lacks_second_device() {
            return Ok(());
        }
        let Some(after) = self.read_pool()? else { return Ok(()) };
        if any_is_full(&self.layout, &after) {
            return Ok(());
        }
        for volume in volumes.into_iter().map(|number| &self.volumes[number]) {
            let (before, after) = (find_volume(before, volume.id)?, find_volume(&after, volume.id)?);
            let single =
                |volume: &ondisk::Volume, index| volume.extents.get(&index).is_some_and(is_buffered_once);
            if let Some(extent) = (0..PROBES).find(|index| single(after, *index) && !single(before, *index)) {
                return Err(Failure::BufferedOnce { volume: volume.name.clone(), extent });
            }
        }
        Ok(())
    }

    /// Reports whether the policy says that there is no second device to buffer on.
    fn lacks_second_device(&self) -> bool {
        self.engine.status().remarks.iter().any(|remark| remark.text.contains("buffer_copies"))
    }
}

/// Reports whether the first block is in one slot, and nowhere else.
fn is_buffered_once(extent: &Extent) -> bool {
    let holders: Vec<_> = extent.holders(0).map(|(place, _)| place).collect();
    holders.len() == 1 && !holders[0].whole
}

fn find_volume(pool: &Pool, id: VolumeId) -> Result<&ondisk::Volume, Failure> {
    pool.volumes
        .get(&id.0)
        .ok_or_else(|| Failure::StateMismatch(format!("the volumes: {} is not there", id.0)))
}

/// Reports whether each block is in whole locations of two devices.
fn is_redundant(extent: &Extent) -> bool {
    let held = extent.stored_blocks();
    let complete = |place: &&ondisk::Place| place.whole && place.blocks.keys().eq(&held);
    let on: BTreeSet<u8> = extent.places.iter().filter(complete).map(|place| place.device).collect();
    held.is_empty() || on.len() > 1
}

/// Returns the device extents in use, including empty ones that are kept.
fn used(pool: &Pool) -> BTreeSet<(u8, u32)> {
    let extents = pool.volumes.values().flat_map(|volume| volume.extents.values());
    let places = extents.flat_map(|extent| &extent.places);
    places.flat_map(|place| place.extents.iter().map(|extent| (place.device, *extent))).collect()
}

#[cfg(test)]
mod tests;
