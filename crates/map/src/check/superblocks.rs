//! Superblocks: both copies of every device, and whether the devices belong together.

use super::report::{Finding, Remedy, Report, Severity};
use crate::superblock::{Reading, Superblock};
use crate::{PAGE, PoolId};
use std::collections::BTreeMap;
use weir_model::{Bytes, DeviceId, DeviceOffset, Store};

const OTHER_DEVICE: &str = "put the pool's own device back, or correct the pool file";
const NEWER: &str = "use the weir that wrote it, or a newer one";
const GONE: &str = "bring the right device back; a pool created over it cannot be restored by weir";

/// Reads and judges the superblocks; the good ones of one pool, by device id.
pub(super) fn check(
    store: &mut dyn Store,
    sizes: &[Option<Bytes>],
    report: &mut Report,
) -> Vec<Option<Superblock>> {
    let mut found: Vec<Option<Superblock>> = Vec::new();
    for (size, id) in sizes.iter().zip(0u8..) {
        found.push(size.and_then(|size| device(store, DeviceId(id), size, report)));
    }
    let Some(pool) = most_frequent(&found) else { return found };
    let expected = found.iter().flatten().find(|sb| sb.pool == pool).cloned();
    for (sb, id) in found.iter_mut().zip(0u8..) {
        let Some(expected) = &expected else { break };
        let Some(why) = sb.as_ref().and_then(|sb| mismatch(sb, expected, DeviceId(id), sizes.len())) else {
            continue;
        };
        report.add(Finding {
            severity: Severity::Damage,
            what: "superblock",
            device: DeviceId(id),
            at: DeviceOffset(0),
            why,
            matters: "the device is not the one the pool expects here; the pool does not open".into(),
            remedy: Remedy::ByHand(OTHER_DEVICE),
        });
        *sb = None;
    }
    found
}

/// The pool most of the devices belong to.
fn most_frequent(found: &[Option<Superblock>]) -> Option<PoolId> {
    let mut counts = BTreeMap::new();
    for sb in found.iter().flatten() {
        *counts.entry(sb.pool.0).or_insert(0) += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(pool, _)| PoolId(pool))
}

fn mismatch(sb: &Superblock, expected: &Superblock, id: DeviceId, devices: usize) -> Option<String> {
    if sb.pool != expected.pool {
        return Some(format!("it is of pool {} ({}), not of {}", sb.pool_name, sb.pool, expected.pool));
    }
    if sb.device != id {
        return Some(format!("it is of device {} of the pool, found as {id}", sb.device));
    }
    if usize::from(sb.devices) != devices {
        return Some(format!("it speaks of {} devices, there are {devices}", sb.devices));
    }
    let same = (sb.extent, &sb.pool_name) == (expected.extent, &expected.pool_name);
    (!same).then(|| "it contradicts the other devices' about the pool's name or extent size".into())
}

/// A copy as it was read.
struct Copy {
    second: bool,
    at: DeviceOffset,
    reading: Result<Reading, String>,
}

fn device(store: &mut dyn Store, id: DeviceId, size: Bytes, report: &mut Report) -> Option<Superblock> {
    let finding = |severity, at, why: String, matters: &str, remedy| Finding {
        severity,
        what: "superblock",
        device: id,
        at,
        why,
        matters: matters.into(),
        remedy,
    };
    let unusable = "the device cannot be told to be the pool's; the pool does not open";
    if size.0 < 2 * PAGE as u64 {
        let why = format!("the device has {size}, too little for any superblock");
        report.add(finding(Severity::Damage, DeviceOffset(0), why, unusable, Remedy::ByHand(GONE)));
        return None;
    }
    let mut read = |second: bool, at: DeviceOffset| {
        let mut page = vec![0; PAGE];
        report.checked.superblocks += 1;
        report.checked.read += Bytes(PAGE as u64);
        let reading = store.read(id, at, &mut page).map(|()| Superblock::decode(&page));
        Copy { second, at, reading: reading.map_err(|error| format!("it cannot be read: {error}")) }
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
                report.add(finding(Severity::Damage, copy.at, why, matters, Remedy::ByHand(NEWER)));
                return None;
            }
            Ok(Reading::Damaged) => bad.push((copy, "its checksum or layout is wrong".into())),
            Ok(Reading::Absent) => bad.push((copy, "there is none".into())),
            Err(why) => bad.push((copy, why.clone())),
        }
    }
    let chosen = match good[..] {
        [] => {
            for (copy, why) in bad {
                report.add(finding(Severity::Damage, copy.at, why, unusable, Remedy::ByHand(GONE)));
            }
            return None;
        }
        [(_, only)] => only,
        [(_, first), (_, second), ..] if first.pool != second.pool => {
            let why = format!("the device's copies are of two pools ({} and {})", first.pool, second.pool);
            let remedy = Remedy::ByHand(OTHER_DEVICE);
            report.add(finding(Severity::Damage, copies[1].at, why, unusable, remedy));
            return None;
        }
        [(a, first), (b, second), ..] => {
            let (newer, older, stale) =
                if first.generation >= second.generation { (first, second, b) } else { (second, first, a) };
            if newer.generation != older.generation {
                let why = format!("of generation {}, the other of {}", older.generation, newer.generation);
                let matters = "a change of the pool was interrupted; the newer copy counts";
                let remedy = Remedy::Superblock { second: stale.second };
                report.add(finding(Severity::Note, stale.at, why, matters, remedy));
            } else if newer != older {
                let why = format!("the two copies of generation {} differ", newer.generation);
                let matters = "weir goes by the first; it cannot be told which is right";
                let remedy = Remedy::ByHand("compare both copies with docs/format.md");
                report.add(finding(Severity::Damage, stale.at, why, matters, remedy));
            }
            newer
        }
    };
    for (copy, why) in bad {
        let matters = "the other copy is good; if that is damaged too, the device is lost to the pool";
        let remedy = Remedy::Superblock { second: copy.second };
        report.add(finding(Severity::Spare, copy.at, why, matters, remedy));
    }
    if chosen.size != size {
        let why = format!("the device has {size}, but had {} when it joined the pool", chosen.size);
        let matters = "the device shrank, grew or is another; the pool does not open";
        report.add(finding(Severity::Damage, DeviceOffset(0), why, matters, Remedy::ByHand(OTHER_DEVICE)));
        return None;
    }
    Some(chosen.clone())
}
