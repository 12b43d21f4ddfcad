//! `weir pool restore` writes the metadata of a dump back to the devices.

use super::dump_format::{DumpIdentity, DumpReadError, Part, Reader};
use super::{DumpError, DumpOutcome, Region, check, device_error, position, regions};
use crate::devices::{PoolDescription, has_zeroed_end};
use crate::failure::Failure;
use crate::progress;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use weir_device::Devices;
use weir_map::check::Report;
use weir_map::root::Root;
use weir_map::superblock::{JOURNAL_AT, ROOT_AT, Reading};
use weir_map::{PAGE, Superblock};
use weir_model::{Bytes, DeviceId, DeviceOffset, ErrorKind, Store as _};

/// A dump that was read completely and is intact.
struct VerifiedDump {
    identity: DumpIdentity,
    /// The superblocks that the dump holds.
    superblocks: Vec<Superblock>,
}

/// Writes the metadata of a dump back to the devices of the pool, which must not be served.
///
/// It removes the roots first, and writes them back once all other metadata except the superblocks is
/// durable. After a power loss in between, the pool does not open, and another restore completes the work.
///
/// # Errors
/// Fails if the file is not a dump, is damaged or is of another pool, or if the pool may hold later changes
/// and `accept_rollback` is not given. Nothing has changed then. Also fails if a device fails.
pub fn restore(pool_file: &Path, from: &Path, accept_rollback: bool) -> Result<DumpOutcome, Failure> {
    let described = PoolDescription::read(pool_file)?;
    let dump = progress::during("reading the dump", || verify(from))?;
    let mut devices = check::open(&described)?;
    let report = check::report(&described, &mut devices, "checking the pool");
    refuse_mismatch(&described, &dump, &devices, from)?;
    refuse_foreign(&described, &devices, &report)?;
    let other = report.superblocks.iter().flatten().find(|sb| sb.pool != dump.identity.pool);
    if let Some(other) = other {
        return Err(Failure::refused(
            format!(
                "{} is of pool {}, the devices are of pool {}",
                from.display(),
                dump.identity.pool,
                other.pool
            ),
            "name the dump of this pool, or the pool file of that one",
        ));
    }
    refuse_replaced(&described, &dump, &report, from)?;
    if !accept_rollback {
        refuse_lost_data(&described, &dump, &mut devices, &report, from)?;
        refuse_rollback(&dump, &report, from)?;
    }
    let pages = progress::during("restoring the metadata", || write(&mut devices, &dump, from))
        .map_err(|stopped| stopped.explain(&described, from))?;
    let clean = check::report(&described, &mut devices, "checking the pool").is_clean();
    Ok(DumpOutcome {
        action: "restored from",
        file: from.to_owned(),
        pool: described.file.name,
        pages,
        clean,
    })
}

/// Refuses a dump from before a device was replaced: the new device does not hold the data that the dump
/// describes.
fn refuse_replaced(
    described: &PoolDescription,
    dump: &VerifiedDump,
    report: &Report,
    from: &Path,
) -> Result<(), Failure> {
    let known = report.superblocks.iter().flatten();
    let joined =
        |of: &[Superblock], id: DeviceId| of.iter().map(|sb| sb.join_generation(id)).max().unwrap_or(0);
    let now: Vec<_> = known.cloned().collect();
    let ids = (0u8..).map(DeviceId).take(described.file.devices.len());
    match ids.into_iter().find(|id| joined(&now, *id) > joined(&dump.superblocks, *id)) {
        None => Ok(()),
        Some(id) => Err(Failure::refused(
            format!(
                "{} is older than the replacement of device {}, and describes the device before it",
                from.display(),
                described.name_and_path(id)
            ),
            "use a newer dump: the data that this one describes is not on the new device",
        )),
    }
}

/// Refuses a dump if the pool may hold later changes.
fn refuse_rollback(dump: &VerifiedDump, report: &Report, from: &Path) -> Result<(), Failure> {
    let why = match report.position {
        Some(_) if !position(report).is_newer_than(dump.identity.position) => return Ok(()),
        Some(_) => "the pool has changed since",
        None => "the pool's own metadata cannot be read, so it may have changed since",
    };
    Err(Failure::refused(
        format!("restoring {} would take the pool back to an older state: {why}", from.display()),
        "what was written since may be lost or mixed up with other volumes' data; \
         if that is accepted: weir pool restore --accept-rollback",
    ))
}

/// Refuses devices that do not hold the data that the dump describes: one without a second superblock, which
/// is blank or was truncated, and one older than the dump. The restore would write new superblocks over that
/// evidence, and zeros or old data would count as the volumes' data.
fn refuse_lost_data(
    described: &PoolDescription,
    dump: &VerifiedDump,
    devices: &mut Devices,
    report: &Report,
    from: &Path,
) -> Result<(), Failure> {
    for saved in &dump.superblocks {
        let is_blank = has_zeroed_end(devices, saved);
        let is_older = is_older(devices, dump, saved, report);
        let (device, dump) = (described.name_and_path(saved.device), from.display());
        let (message, data) = match (is_blank, is_older) {
            (true, _) => (
                format!(
                    "device {device} has zeros where its second superblock was: it is blank, or was \
                     truncated, and data that {dump} describes is not on it"
                ),
                "zeros",
            ),
            (_, true) => (
                format!("device {device} is older than {dump}, and has older data than that describes"),
                "old data",
            ),
            (false, false) => continue,
        };
        let help = format!(
            "bring the right device back; or replace it by a blank one, if other devices have copies of its \
             data: weir pool replace {}; to restore all the same, with {data} in place of what is lost: \
             weir pool restore --accept-rollback",
            saved.device_name
        );
        return Err(Failure::refused(message, help));
    }
    Ok(())
}

/// Reports whether a device is from before the dump, by its superblock, or by its roots. One root alone may
/// be that of an interrupted restore.
fn is_older(devices: &mut Devices, dump: &VerifiedDump, saved: &Superblock, report: &Report) -> bool {
    let at_hand = report.superblocks.get(saved.device.index()).and_then(Option::as_ref);
    if at_hand.is_some_and(|sb| sb.generation < saved.generation) {
        return true;
    }
    let was_left_behind = dump.superblocks.iter().any(|sb| sb.missing.contains(saved.device));
    if !saved.is_metadata_member() || was_left_behind {
        return false;
    }
    let mut root = |at: DeviceOffset| {
        let mut page = vec![0; PAGE];
        devices.read(saved.device, at, &mut page).ok()?;
        Root::decode(&page, saved.pool).map(|root| root.sequence)
    };
    let roots: Vec<u64> = ROOT_AT.into_iter().filter_map(&mut root).collect();
    roots.len() == ROOT_AT.len() && roots.into_iter().all(|root| root < dump.identity.position.root)
}

fn open(from: &Path) -> Result<Reader<BufReader<File>>, Failure> {
    let file = File::open(from).map_err(|error| Failure::os("read", from, &error))?;
    Ok(Reader::new(BufReader::new(file)))
}

fn unreadable_dump_failure(from: &Path, why: DumpReadError) -> Failure {
    match why {
        DumpReadError::Io(error) => Failure::os("read", from, &error),
        DumpReadError::Damaged(why) => Failure::new(
            ErrorKind::Corrupt,
            format!("{} cannot be restored: {why}; nothing was changed", from.display()),
            "use another dump",
        ),
    }
}

/// Reads the whole file and verifies that it is a complete dump which holds nothing but metadata.
fn verify(from: &Path) -> Result<VerifiedDump, Failure> {
    let mut reader = open(from)?;
    let damaged = |why: &str| unreadable_dump_failure(from, DumpReadError::Damaged(why.into()));
    let Part::Pool(saved) = reader.read_part().map_err(|why| unreadable_dump_failure(from, why))? else {
        return Err(damaged("it does not begin with a pool"));
    };
    let mut superblocks: Vec<Superblock> = Vec::new();
    let mut runs = Vec::new();
    loop {
        match reader.read_part().map_err(|why| unreadable_dump_failure(from, why))? {
            Part::Pool(_) => return Err(damaged("it speaks of two pools")),
            Part::End => break,
            Part::Pages { device, at, bytes } => {
                if let Reading::Good(sb) = Superblock::decode(&bytes[..PAGE])
                    && sb.device == device
                    && (at.0 == 0 || at == Superblock::second_at(sb.size))
                    && superblocks.iter().all(|other| other.device != device)
                {
                    superblocks.push(*sb);
                }
                runs.push(Region { device, at, len: Bytes(bytes.len() as u64) });
            }
        }
    }
    let foreign = superblocks
        .iter()
        .any(|sb| sb.pool != saved.pool || saved.sizes.get(sb.device.index()) != Some(&sb.size));
    let allowed: Vec<_> = superblocks.iter().flat_map(regions).collect();
    let is_metadata = |run: &Region| {
        let end = |region: &Region| region.at.0.saturating_add(region.len.0);
        allowed.iter().any(|it| it.device == run.device && it.at <= run.at && end(run) <= end(it))
    };
    if foreign || superblocks.is_empty() || !runs.iter().all(is_metadata) {
        return Err(damaged("its superblocks do not account for what it holds"));
    }
    Ok(VerifiedDump { identity: saved, superblocks })
}

/// Verifies that the number and the sizes of the devices match the dump.
fn refuse_mismatch(
    described: &PoolDescription,
    dump: &VerifiedDump,
    devices: &Devices,
    from: &Path,
) -> Result<(), Failure> {
    let ids = (0u8..).map(DeviceId).zip(&dump.identity.sizes);
    let mut absent = ids.filter(|(id, saved)| saved.0 != 0 && devices.get(*id).is_none());
    if let Some((id, _)) = absent.find(|(id, _)| id.index() < described.file.devices.len()) {
        return Err(Failure::refused(
            format!(
                "device {} is absent, and {} has its metadata",
                described.name_and_path(id),
                from.display()
            ),
            "bring it back, or correct its path; if it is lost, and other devices have copies of its data: \
             weir pool replace NAME",
        ));
    }
    let sizes: Vec<Bytes> =
        check::sizes(described, devices).into_iter().map(Option::unwrap_or_default).collect();
    // The dump holds nothing of a device that was absent.
    let fits = |(saved, size): (&Bytes, &Bytes)| saved.0 == 0 || saved == size;
    if sizes.len() == dump.identity.sizes.len() && dump.identity.sizes.iter().zip(&sizes).all(fits) {
        return Ok(());
    }
    let list = |sizes: &[Bytes]| sizes.iter().map(Bytes::to_string).collect::<Vec<_>>().join(", ");
    Err(Failure::refused(
        format!(
            "{} is of devices of {}; {} names devices of {}",
            from.display(),
            list(&dump.identity.sizes),
            described.path.display(),
            list(&sizes)
        ),
        "name the pool's devices in the order in which it was created",
    ))
}

/// Refuses devices that hold a known format and no superblock of a pool: the path probably names the wrong
/// device.
fn refuse_foreign(described: &PoolDescription, devices: &Devices, report: &Report) -> Result<(), Failure> {
    for (id, device) in devices.iter() {
        if report.superblocks.get(id.index()).is_some_and(Option::is_some) {
            continue;
        }
        if let Some(holds) = device.known_contents()? {
            let (name, path) = (&described.file.devices[id.index()].name, device.path().display());
            return Err(Failure::refused(
                format!("device {name:?}: {path} holds {holds}, and no part of a pool"),
                format!(
                    "correct its path in the pool file; if that is on the pool's device by mistake: wipefs -a {path}"
                ),
            ));
        }
    }
    Ok(())
}

/// The order of the writes: roots and superblocks come last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Other,
    Roots,
    SecondSuperblocks,
    FirstSuperblocks,
}

impl Stage {
    fn of(sb: &Superblock, at: DeviceOffset) -> Self {
        match at {
            DeviceOffset(0) => Self::FirstSuperblocks,
            at if at == Superblock::second_at(sb.size) => Self::SecondSuperblocks,
            at if sb.is_metadata_member() && ROOT_AT.contains(&at) => Self::Roots,
            _ => Self::Other,
        }
    }
}

fn write(devices: &mut Devices, dump: &VerifiedDump, from: &Path) -> Result<u64, DumpError> {
    let members: Vec<_> = dump.superblocks.iter().filter(|sb| sb.is_metadata_member()).collect();
    for sb in &members {
        for at in ROOT_AT {
            zero(devices, sb.device, at, 1)?;
        }
        flush(devices, sb.device)?;
        // A journal that was begun after the dump and one that is begun after the restore carry the same id.
        // Without the zeros, frames of the former could pass for frames of the latter.
        zero(devices, sb.device, JOURNAL_AT, sb.journal_pages)?;
    }
    let mut pages = 0;
    for stage in [Stage::Other, Stage::Roots, Stage::SecondSuperblocks, Stage::FirstSuperblocks] {
        let mut reader =
            open(from).map_err(|failure| DumpError::File(std::io::Error::other(failure.message)))?;
        loop {
            let part = reader.read_part().map_err(|why| match why {
                DumpReadError::Io(error) => DumpError::File(error),
                DumpReadError::Damaged(why) => DumpError::File(std::io::Error::other(why)),
            })?;
            let (device, at, bytes) = match part {
                Part::Pool(_) => continue,
                Part::Pages { device, at, bytes } => (device, at, bytes),
                Part::End => break,
            };
            let Some(sb) = dump.superblocks.iter().find(|sb| sb.device == device) else { continue };
            if Stage::of(sb, at) == stage {
                let region = Region { device, at, len: Bytes(bytes.len() as u64) };
                devices.write(device, at, &bytes).map_err(device_error(region, "write"))?;
                pages += (bytes.len() / PAGE) as u64;
            }
        }
        for sb in &dump.superblocks {
            flush(devices, sb.device)?;
        }
    }
    Ok(pages)
}

fn zero(devices: &mut Devices, device: DeviceId, at: DeviceOffset, pages: u64) -> Result<(), DumpError> {
    static ZEROS: [u8; 64 * PAGE] = [0; 64 * PAGE];
    let end = at.0 + pages * PAGE as u64;
    for start in (at.0..end).step_by(ZEROS.len()) {
        let len = (end - start).min(ZEROS.len() as u64);
        let region = Region { device, at: DeviceOffset(start), len: Bytes(len) };
        devices.write(device, region.at, &ZEROS[..len as usize]).map_err(device_error(region, "write"))?;
    }
    Ok(())
}

fn flush(devices: &mut Devices, device: DeviceId) -> Result<(), DumpError> {
    let region = Region { device, at: DeviceOffset(0), len: Bytes(0) };
    devices.flush(device).map_err(device_error(region, "flush"))
}
