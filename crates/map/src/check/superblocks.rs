//! Check of superblocks: both copies of every device, and whether the devices belong together.

use super::report::{Finding, Remedy, Report, Severity};
use crate::format::superblock::{Reading, Superblock};
use crate::open::members::Assembly;
use crate::{MapError, OpenOptions, PAGE, PoolId};
use std::collections::BTreeMap;
use weir_model::{Bytes, DeviceId, DeviceOffset, DeviceSet, Store};

const WRONG_DEVICE_REMEDY: &str = "put the pool's own device back, or correct the pool file";
const ALL_DEVICES_REMEDY: &str = "bring all devices of the pool, in the pool file's order; \
     docs/guide/devices.md says how to go on without one";
const RETURN_DEVICE_REMEDY: &str = "bring the device back; opening deals with what it missed";
const NEWER_VERSION_REMEDY: &str = "use the weir that wrote it, or a newer one";
const SIZE_CHANGED_REMEDY: &str = "put the pool's own device back, restore it from a backup, or go on \
     without it (weir serve --without NAME: data that it alone held reads as EIO)";
const ZEROS: &str = "there is none, the page is zeros, as in a file that was truncated and has grown again";
const DEVICE_ABSENT: &str = "the device is absent";
const TRUNCATED_CONSEQUENCE: &str = "weir serve refuses the device: what was cut off it reads as zeros";
const TRUNCATED_REMEDY: &str = "serve without it (weir serve --without NAME; if that is refused, \
     it says what else it takes); --repair leaves it alone: its zeros would be taken for the second \
     copy of what was written";
const OUTDATED_REMEDY: &str = "put its current file back; without it, opening makes its copies anew where \
     other devices have its data, and is refused where they have not (weir serve --without NAME, or \
     --accept-rollback)";
const DEVICE_LOST_REMEDY: &str = "bring the right device back, or, if it is gone for good and this is a \
     blank one, have it take its place (weir pool replace NAME); a pool created over it cannot be \
     restored by weir";

/// The devices' superblocks, and the metadata members.
pub(super) struct Devices {
    /// The good superblocks of the pool, by device id.
    pub(super) superblocks: Vec<Option<Superblock>>,
    /// The members with the newest metadata.
    pub(super) members: Vec<DeviceId>,
}

/// Reads and checks the superblocks.
pub(super) fn check(store: &mut dyn Store, sizes: &[Option<Bytes>], report: &mut Report) -> Devices {
    let mut superblocks: Vec<Option<Superblock>> = Vec::new();
    for (size, id) in sizes.iter().zip(0u8..) {
        superblocks.push(size.and_then(|size| check_device(store, DeviceId(id), size, report)));
    }
    if let Some(pool) = most_frequent_pool(&superblocks) {
        drop_foreign_superblocks(&mut superblocks, pool, report);
    }
    let members = check_consistency(&superblocks, sizes, report);
    Devices { superblocks, members }
}

impl Finding {
    /// Whether the device was truncated and data that it held is elsewhere as well, by two copies or by a
    /// policy: [`repair`](super::repair()) leaves it alone, because its zeros could be taken for that data.
    #[must_use]
    pub fn is_left_truncated(&self) -> bool {
        self.remedy == Remedy::Manual(TRUNCATED_REMEDY)
    }
}

/// Changes the remedy of findings on truncated devices: such a device must not come back as a copy, zeros
/// included, of data that is elsewhere as well. Applies to the devices in `copied`, or to all if that is
/// unknown.
pub(super) fn forbid_truncated_repair(report: &mut Report, copied: Option<DeviceSet>) {
    let is_copy = |device| copied.is_none_or(|copied| copied.contains(device));
    let cut_off =
        |finding: &&mut Finding| finding.consequence == TRUNCATED_CONSEQUENCE && is_copy(finding.device);
    for finding in report.findings.iter_mut().filter(cut_off) {
        finding.remedy = Remedy::Manual(TRUNCATED_REMEDY);
    }
}

/// Adjusts the findings on absent devices, whose content was not checked: a device that contains nothing, as
/// far as `used` says, is only worth a note.
pub(super) fn grade_absent_devices(report: &mut Report, used: Option<DeviceSet>) {
    let is_used = |device| used.is_none_or(|used| used.contains(device));
    let absent =
        |finding: &&mut Finding| finding.severity == Severity::Unchecked && finding.why == DEVICE_ABSENT;
    for finding in report.findings.iter_mut().filter(absent).filter(|finding| !is_used(finding.device)) {
        finding.severity = Severity::Note;
        finding.consequence = "no extent has anything on it".into();
    }
}

/// Drops superblocks of another pool, or of another of its devices.
fn drop_foreign_superblocks(superblocks: &mut [Option<Superblock>], pool: PoolId, report: &mut Report) {
    for (sb, id) in superblocks.iter_mut().zip(0u8..) {
        let Some(found) = sb else { continue };
        let why = if found.pool != pool {
            format!("it is of pool {} ({}), not of {pool}", found.pool_name, found.pool)
        } else if found.device != DeviceId(id) {
            format!("it is of device {} of the pool, found as {}", found.device, DeviceId(id))
        } else {
            continue;
        };
        report.add(Finding {
            severity: Severity::Damage,
            what: "superblock",
            device: DeviceId(id),
            at: DeviceOffset(0),
            why,
            consequence: "the device is not the one the pool expects here; the pool does not open".into(),
            remedy: Remedy::Manual(WRONG_DEVICE_REMEDY),
        });
        *sb = None;
    }
}

/// Returns the pool that most of the devices belong to.
fn most_frequent_pool(found: &[Option<Superblock>]) -> Option<PoolId> {
    let mut counts = BTreeMap::new();
    for sb in found.iter().flatten() {
        *counts.entry(sb.pool.0).or_insert(0) += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(pool, _)| PoolId(pool))
}

/// Checks whether the devices belong together. Returns the members with the newest metadata.
fn check_consistency(
    superblocks: &[Option<Superblock>],
    sizes: &[Option<Bytes>],
    report: &mut Report,
) -> Vec<DeviceId> {
    let found: Vec<Superblock> = superblocks.iter().flatten().cloned().collect();
    let Some(first) = found.first() else { return Vec::new() };
    let mut add = |severity, device, why: String, consequence: &str, remedy| {
        let (at, matters) = (DeviceOffset(0), consequence.into());
        report.add(Finding { severity, what: "pool", device, at, why, consequence: matters, remedy });
    };
    let assembly = match Assembly::new(&found, &OpenOptions::default()) {
        Ok(assembly) => assembly,
        Err(error) => {
            // An absent device was not checked, which is no damage. A device whose superblocks are damaged is
            // present, and is reported already.
            let (is_listed, severity) = match error {
                MapError::Absent { device } | MapError::MirrorAbsent { device } => {
                    (sizes.get(device.index()).is_some_and(Option::is_some), Severity::Unchecked)
                }
                MapError::MetadataAbsent { .. } => (false, Severity::Unchecked),
                _ => (false, Severity::Damage),
            };
            if !is_listed {
                let matters = "the pool does not open as it is";
                add(severity, first.device, error.to_string(), matters, Remedy::Manual(ALL_DEVICES_REMEDY));
            }
            let without = (0..first.devices).map(DeviceId).collect();
            match Assembly::new(
                &found,
                &OpenOptions { accept_rollback: true, without, ..OpenOptions::default() },
            ) {
                Ok(assembly) => assembly,
                Err(_) => return Vec::new(),
            }
        }
    };
    let newest = found.iter().map(|sb| sb.generation).max().unwrap_or(0);
    for sb in found.iter().filter(|sb| sb.generation < newest) {
        let why = format!("its superblock is of generation {}, the newest of {newest}", sb.generation);
        let matters = "a change of the pool was interrupted, or the device was away meanwhile";
        add(Severity::Note, sb.device, why, matters, Remedy::Reopen);
    }
    let given = u8::try_from(superblocks.len()).unwrap_or(u8::MAX);
    for device in (0..first.devices.min(given)).map(DeviceId) {
        // A device whose superblock is reported already is not absent.
        if superblocks[device.index()].is_none() && sizes[device.index()].is_none() {
            let matters = "its contents were not checked; data that it alone holds reads as EIO";
            add(
                Severity::Unchecked,
                device,
                DEVICE_ABSENT.into(),
                matters,
                Remedy::Manual(RETURN_DEVICE_REMEDY),
            );
        }
    }
    for device in assembly.blank().iter() {
        let why = "it has taken the place of a device that is gone, and nothing is on it yet";
        let matters = "what is in one place only is safe again once the pool has been served";
        add(Severity::Note, device, why.into(), matters, Remedy::Reopen);
    }
    for device in assembly.outdated.without(assembly.blank()).iter() {
        let why = "it is older than what the pool has used: its file was truncated, removed or replaced \
                   while the pool was served";
        let matters = "what it holds is from before that";
        add(Severity::Damage, device, why.into(), matters, Remedy::Manual(OUTDATED_REMEDY));
    }
    for device in &assembly.stale {
        let why = "its metadata was left behind; it was not checked".into();
        let matters = "the other metadata member has everything";
        add(Severity::Note, *device, why, matters, Remedy::Reopen);
    }
    assembly.members.to_vec()
}

/// Reports that the metadata member is an older file, judged by its roots.
pub(super) fn report_older_file(report: &mut Report, device: DeviceId) {
    report.add(Finding {
        severity: Severity::Damage,
        what: "pool",
        device,
        at: DeviceOffset(0),
        why:
            "it is older than what the pool has used: its roots are from before those of the other metadata \
              member, as after another file took its place"
                .into(),
        consequence: "what it holds is from before that".into(),
        remedy: Remedy::Manual(OUTDATED_REMEDY),
    });
}

/// A copy as it was read.
struct Copy {
    second: bool,
    /// Whether the page is zeros.
    blank: bool,
    at: DeviceOffset,
    reading: Result<Reading, String>,
}

impl Copy {
    /// Returns the consequence of its damage while the other copy is good.
    fn damage_consequence(&self) -> &'static str {
        // Zeros at the end, as in a file that was truncated and has grown again.
        if self.second && self.blank && matches!(self.reading, Ok(Reading::Absent)) {
            TRUNCATED_CONSEQUENCE
        } else {
            "the other copy is good; if that is damaged too, the device is lost to the pool"
        }
    }
}

fn check_device(store: &mut dyn Store, id: DeviceId, size: Bytes, report: &mut Report) -> Option<Superblock> {
    let finding = |severity, at, why: String, consequence: &str, remedy| Finding {
        severity,
        what: "superblock",
        device: id,
        at,
        why,
        consequence: consequence.into(),
        remedy,
    };
    let damage = |at, why, consequence, remedy| {
        finding(Severity::Damage, at, why, consequence, Remedy::Manual(remedy))
    };
    let unusable = "the device cannot be told to be the pool's; the pool does not open";
    if size.0 < 2 * PAGE as u64 {
        let why = format!("the device has {size}, too little for any superblock");
        report.add(damage(DeviceOffset(0), why, unusable, DEVICE_LOST_REMEDY));
        return None;
    }
    let mut read = |second: bool, at: DeviceOffset| {
        let mut page = vec![0; PAGE];
        report.counts.superblocks += 1;
        report.counts.bytes_read += Bytes(PAGE as u64);
        let reading = store.read(id, at, &mut page).map(|()| Superblock::decode(&page));
        let blank = page.iter().all(|byte| *byte == 0);
        Copy { second, at, blank, reading: reading.map_err(|error| format!("it cannot be read: {error}")) }
    };
    let copies = [read(false, DeviceOffset(0)), read(true, Superblock::second_at(size))];

    let mut good: Vec<(&Copy, &Superblock)> = Vec::new();
    let mut bad: Vec<(&Copy, String)> = Vec::new();
    for copy in &copies {
        match &copy.reading {
            Ok(Reading::Good(sb)) => good.push((copy, sb)),
            Ok(Reading::Unknown { what, found, known }) => {
                let why = format!("{what} {found:#x} is not known to this version (it knows {known:#x})");
                let matters = "the pool is of a newer weir, and nothing more of it was checked";
                report.add(damage(copy.at, why, matters, NEWER_VERSION_REMEDY));
                return None;
            }
            Ok(Reading::Damaged) => bad.push((copy, "its checksum or layout is wrong".into())),
            Ok(Reading::Absent) if copy.blank => bad.push((copy, ZEROS.into())),
            Ok(Reading::Absent) => bad.push((copy, "there is none".into())),
            Err(why) => bad.push((copy, why.clone())),
        }
    }
    let chosen = match good[..] {
        [] => {
            for (copy, why) in bad {
                report.add(damage(copy.at, why, unusable, DEVICE_LOST_REMEDY));
            }
            return None;
        }
        [(_, only)] => only,
        [(_, first), (_, second), ..] if first.pool != second.pool => {
            let why = format!("the device's copies are of two pools ({} and {})", first.pool, second.pool);
            report.add(damage(copies[1].at, why, unusable, WRONG_DEVICE_REMEDY));
            return None;
        }
        [(a, first), (b, second), ..] => {
            let (newer, older, stale) =
                if first.generation >= second.generation { (first, second, b) } else { (second, first, a) };
            report_difference(newer, older, stale, &finding, report);
            newer
        }
    };
    if chosen.size != size {
        let why = format!("the device has {size}, but had {} when it joined the pool", chosen.size);
        let matters = "the device shrank, grew or is another; the pool does not open with it";
        report.add(damage(DeviceOffset(0), why, matters, SIZE_CHANGED_REMEDY));
        return None;
    }
    for (copy, why) in bad {
        let remedy = Remedy::Superblock { second: copy.second };
        report.add(finding(Severity::CopyDamaged, copy.at, why, copy.damage_consequence(), remedy));
    }
    Some(chosen.clone())
}

/// Reports how the two good copies of a superblock differ, if they do.
fn report_difference(
    newer: &Superblock,
    older: &Superblock,
    stale: &Copy,
    finding: &impl Fn(Severity, DeviceOffset, String, &str, Remedy) -> Finding,
    report: &mut Report,
) {
    if newer.generation != older.generation {
        let why = format!("of generation {}, the other of {}", older.generation, newer.generation);
        let matters = "a change of the pool was interrupted; the newer copy counts";
        let remedy = Remedy::Superblock { second: stale.second };
        report.add(finding(Severity::Note, stale.at, why, matters, remedy));
    } else if newer != older {
        let why = format!("the two copies of generation {} differ", newer.generation);
        let matters = "weir goes by the first; it cannot be told which is right";
        let remedy = "compare both copies with docs/reference/format.md";
        report.add(finding(Severity::Damage, stale.at, why, matters, Remedy::Manual(remedy)));
    }
}
