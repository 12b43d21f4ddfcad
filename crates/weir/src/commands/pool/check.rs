//! `weir pool check` verifies all metadata of a pool, and repairs it where the repair needs no guessing.

mod document;

pub use document::CheckDocument;

use crate::devices::{PoolDescription, ResizedDevice, ineffective_key_notes, without_option};
use crate::exit::check as exit;
use crate::failure::Failure;
use crate::output::{self, Table, Width};
use crate::pool::{RETRY_INTERVAL, refuse_served, retry_until_unlocked};
use crate::{progress, signals};
use document::{CheckedPart, FindingPart, PoolName, RepairedPart};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use weir_device::Devices;
use weir_map::MapError;
use weir_map::check::{Finding, Remedy, RepairSummary, Report, Severity};
use weir_map::create::read_superblock;
use weir_model::{Bytes, DeviceId, DeviceOffset, DeviceSet, ErrorKind, IoError, Store};

/// The result of a check and, if it was asked for, of the repair.
#[derive(Debug)]
pub struct CheckOutcome {
    described: PoolDescription,
    initial_report: Report,
    repaired: Option<(RepairSummary, Report)>,
    /// The reason why the repair ended early.
    obstacle: Option<String>,
    /// Devices whose size differs from the size with which they joined the pool: the device, the reason that
    /// its findings give, and the advice.
    resized: Vec<(DeviceId, String, String)>,
    /// Devices that hold the pool's only metadata: the pool cannot be opened without them.
    indispensable: DeviceSet,
    /// Absent devices that may hold something.
    absent: DeviceSet,
    /// Devices on which some reads failed.
    failing: DeviceSet,
}

/// Checks the pool, which must not be served. With `repair`, repairs what can be repaired and checks again.
///
/// # Errors
/// Fails if the devices cannot be opened, or if one fails during the repair. The failure carries the exit
/// code that fsck would use.
pub fn check(pool_file: &Path, repair: bool) -> Result<CheckOutcome, Failure> {
    let fsck = |failure: Failure| {
        let code = if failure.kind == ErrorKind::Usage { exit::USAGE } else { exit::OPERATIONAL };
        failure.with_exit_code(code)
    };
    let described = PoolDescription::read(pool_file).map_err(fsck)?;
    run(described, repair).map_err(fsck)
}

fn run(described: PoolDescription, repair: bool) -> Result<CheckOutcome, Failure> {
    let may_cancel = signals::end_with(exit::CANCELLED)?;
    let mut devices = open(&described)?;
    let sizes = sizes(&described, &devices);
    let mut failing = DeviceSet::default();
    let mut report = |devices: &mut Devices, what: &str| {
        let mut watched = ReadFailureRecorder { devices, failing: &mut failing };
        progress::during(what, || weir_map::check(&mut watched, &sizes))
    };
    let found = report(&mut devices, "checking the pool");
    let (resized, indispensable) = judge_devices(&described, &mut devices, &found);
    let (mut repaired, mut obstacle) = (None, None);
    if repair && found.is_repairable() {
        // An interrupted repair would do no harm, but nothing would report the part that was done.
        may_cancel.store(false, Ordering::SeqCst);
        let done = progress::during("repairing the pool", || weir_map::check::repair(&mut devices, &found));
        let left = report(&mut devices, "checking what was repaired");
        let done = match done {
            Ok(done) => done,
            Err(error @ MapError::Io { .. }) => return Err(described.explain(error)),
            // The report states the damage and the advice. The repair attempted nothing beyond what it
            // reports as done.
            Err(error) => {
                // The message's clause about changes ignores what was repaired before the error.
                let why = described.explain(error).message;
                obstacle = Some(why.trim_end_matches("; nothing was changed").to_owned());
                partial_repairs(&found, &left)
            }
        };
        repaired = Some((done, left));
    }
    for warning in ineffective_key_notes(&described.file, found.superblocks.iter().flatten()) {
        output::print_stderr(&format!("warning: {warning}"));
    }
    let missing = found.superblocks.iter().flatten().max_by_key(|sb| sb.generation).map(|sb| sb.missing);
    let missing = missing.unwrap_or_default();
    // The pool can do without anything that a note reports.
    let noted = found.findings.iter().filter(|finding| finding.severity == Severity::Note);
    let noted = noted.map(|finding| finding.device).collect::<DeviceSet>();
    let ids = (0u8..).map(DeviceId).take(described.file.devices.len());
    let absent = ids.filter(|id| devices.get(*id).is_none()).collect::<DeviceSet>();
    let absent = absent.without(noted.and(missing));
    Ok(CheckOutcome {
        described,
        initial_report: found,
        repaired,
        obstacle,
        resized,
        indispensable,
        absent,
        failing,
    })
}

/// Returns what a failed repair did: findings that were there before it and are gone after it.
fn partial_repairs(found: &Report, left: &Report) -> RepairSummary {
    let is_left =
        |finding: &Finding| left.findings.iter().any(|f| (f.device, f.at) == (finding.device, finding.at));
    let gone = || found.findings.iter().filter(|finding| !is_left(finding));
    let superblocks = gone().filter(|finding| matches!(finding.remedy, Remedy::Superblock { .. })).count();
    let roots = gone().any(|finding| finding.what == "root" && finding.remedy == Remedy::Roots);
    RepairSummary { superblocks: superblocks as u64, roots, ..RepairSummary::default() }
}

/// Returns the devices whose size differs from the size with which they joined the pool, each with the reason
/// and the advice; and the devices without which the pool cannot be opened.
fn judge_devices(
    described: &PoolDescription,
    devices: &mut Devices,
    found: &Report,
) -> (Vec<(DeviceId, String, String)>, DeviceSet) {
    let (mut resized, mut indispensable) = (Vec::new(), DeviceSet::default());
    for (entry, id) in described.file.devices.iter().zip((0u8..).map(DeviceId)) {
        let read = devices.get(id).map(|device| (device.size(), device.is_block()));
        let superblock = match found.superblocks.get(id.index()).cloned().flatten() {
            Some(superblock) => Some(superblock),
            None => read.and_then(|(now, _)| read_superblock(devices, id, now).ok().flatten()),
        };
        let (Some(superblock), Some((now, is_block))) = (&superblock, read) else { continue };
        if without_option(superblock).is_none() {
            indispensable.insert(id);
        }
        if superblock.size != now {
            let path = described.device_path(entry);
            let device = ResizedDevice { superblock, current_size: now, path: &path, is_block };
            resized.push((id, format!("the device {}", device.describe()), device.advice()));
        }
    }
    (resized, indispensable)
}

/// Opens and locks those devices of a pool that exist. Fails if the pool is being served.
pub(super) fn open(described: &PoolDescription) -> Result<Devices, Failure> {
    retry_until_unlocked(described, |_| {
        refuse_served(described)?;
        let (devices, _) = described.open_present(DeviceSet::default(), RETRY_INTERVAL)?;
        let is_any = devices.iter().next().is_some();
        if is_any { Ok(devices) } else { Err(described.no_device_failure()) }
    })
}

/// Returns the devices' sizes by id, `None` for an absent device.
pub(super) fn sizes(described: &PoolDescription, devices: &Devices) -> Vec<Option<Bytes>> {
    let ids = (0u8..).map(DeviceId).take(described.file.devices.len());
    ids.map(|id| devices.get(id).map(|device| device.size())).collect()
}

/// Checks the pool on these devices; `what` names the step in the progress display.
pub(super) fn report(described: &PoolDescription, devices: &mut Devices, what: &str) -> Report {
    let sizes = sizes(described, devices);
    progress::during(what, || weir_map::check(devices, &sizes))
}

/// Passes reads and writes to the devices and records which devices failed to read.
struct ReadFailureRecorder<'a> {
    devices: &'a mut Devices,
    failing: &'a mut DeviceSet,
}

impl Store for ReadFailureRecorder<'_> {
    fn read(&mut self, device: DeviceId, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), IoError> {
        let result = self.devices.read(device, at, bytes);
        if result.is_err() && self.devices.get(device).is_some() {
            self.failing.insert(device);
        }
        result
    }

    fn write(&mut self, device: DeviceId, at: DeviceOffset, bytes: &[u8]) -> Result<(), IoError> {
        self.devices.write(device, at, bytes)
    }

    fn flush(&mut self, device: DeviceId) -> Result<(), IoError> {
        self.devices.flush(device)
    }
}

impl CheckOutcome {
    /// Returns the last report: the one after the repair, if there was a repair.
    fn last_report(&self) -> &Report {
        self.repaired.as_ref().map_or(&self.initial_report, |(_, report)| report)
    }

    /// Returns the exit code, which follows fsck's. Damage takes precedence over an unchecked device: an
    /// absent or failing device only means that its contents were not checked.
    pub fn exit_code(&self) -> u8 {
        if self.is_damaged_elsewhere() {
            return exit::UNREPAIRED;
        }
        if !self.unchecked().is_empty() {
            return exit::OPERATIONAL;
        }
        match (self.last_report().is_clean(), &self.repaired) {
            (false, _) => exit::UNREPAIRED,
            (true, Some(_)) => exit::REPAIRED,
            (true, None) => exit::CLEAN,
        }
    }

    /// Returns whether something is damaged on a device that could be read.
    fn is_damaged_elsewhere(&self) -> bool {
        let damage = |finding: &&Finding| finding.severity == Severity::Damage;
        let mut damaged = self.last_report().findings.iter().filter(damage);
        damaged.any(|finding| !self.failing.contains(finding.device))
    }

    /// Returns the document that `--json` prints.
    pub fn document(&self) -> CheckDocument {
        let report = self.last_report();
        let findings = |report: &Report| report.findings.iter().map(|f| self.finding(f)).collect();
        let pool = report.superblocks.iter().flatten().next();
        CheckDocument {
            pool: pool.map(|sb| PoolName { name: sb.pool_name.clone(), id: sb.pool.to_string() }),
            clean: report.is_clean(),
            unchecked: self.unchecked(),
            findings: findings(&self.initial_report),
            findings_omitted: self.initial_report.findings_omitted,
            repaired: self.repaired.as_ref().map(|(done, report)| RepairedPart {
                superblocks: done.superblocks,
                roots: done.roots,
                records: done.records,
                map_pages: done.pages,
                remaining: findings(report),
                remaining_omitted: report.findings_omitted,
                obstacle: self.obstacle.clone(),
            }),
            checked: CheckedPart::from(report.counts),
        }
    }

    fn finding(&self, finding: &Finding) -> FindingPart {
        let (name, path) = self.device(finding.device);
        FindingPart {
            severity: finding.severity.name(),
            structure: finding.what,
            device: name.to_owned(),
            path,
            offset_bytes: finding.at.0,
            reason: self.finding_reason(finding),
            impact: self.with_device_names(&finding.consequence),
            help: self.advice(finding),
            repairable: finding.remedy.is_repair() && !self.is_repair_blocked(finding),
        }
    }

    /// Returns the entry of `resized` for the finding's device, if the finding is about the device's size.
    fn resized(&self, finding: &Finding) -> Option<&(DeviceId, String, String)> {
        let is_about_it = finding.what == "superblock" && finding.severity == Severity::Damage;
        self.resized.iter().find(|(id, ..)| is_about_it && *id == finding.device)
    }

    fn finding_reason(&self, finding: &Finding) -> String {
        self.resized(finding).map_or_else(|| self.with_device_names(&finding.why), |(_, why, _)| why.clone())
    }

    /// Returns whether the repair of this finding waits for the pool to open.
    fn is_repair_blocked(&self, finding: &Finding) -> bool {
        self.obstacle.is_some() && matches!(finding.remedy, Remedy::Roots | Remedy::Free)
    }

    /// Returns the advice, with the device's name in place of `NAME`.
    fn advice(&self, finding: &Finding) -> String {
        if let Some((_, _, advice)) = self.resized(finding) {
            return advice.clone();
        }
        if self.is_repair_blocked(finding) {
            return "--repair needs a pool that opens: put its metadata back first (weir pool restore FILE)"
                .into();
        }
        let advice = finding.remedy.advice();
        if finding.is_left_truncated() && self.indispensable.contains(finding.device) {
            return "it has the pool's only metadata, so the pool cannot be opened without it; and a part of \
                    its data is on another device as well (of a volume with two copies, or moved there by a \
                    policy), for which the zeros that it now reads could be taken, so --repair leaves it \
                    alone, and so does a dump's restoration: restore the device from a backup made before \
                    it was truncated"
                .into();
        }
        if advice.contains("--without NAME") && self.indispensable.contains(finding.device) {
            return "it has the pool's only metadata, and the pool cannot be opened without it: restore it \
                    from a backup, or put the metadata back from a dump (weir pool restore FILE)"
                .into();
        }
        advice.replace("NAME", self.device(finding.device).0)
    }

    fn device(&self, id: DeviceId) -> (&str, String) {
        let entry = self.described.file.devices.get(id.index());
        entry.map_or(("?", String::new()), |entry| {
            (&entry.name, self.described.device_path(entry).display().to_string())
        })
    }

    /// Returns the text with devices' names in place of their numbers.
    fn with_device_names(&self, text: &str) -> String {
        let mut text = text.to_owned();
        // The highest number comes first, because #1 is a prefix of #10.
        for (id, entry) in self.described.file.devices.iter().enumerate().rev() {
            // A text about one device has the form of an error of opening the pool.
            if text.starts_with(&format!("device {} ", DeviceId(id as u8))) && !text.contains("one of them") {
                text = text.replace(" NAME", &format!(" {}", entry.name));
            }
            text = text.replace(&format!("device {}", DeviceId(id as u8)), &format!("device {}", entry.name));
        }
        text
    }

    /// Returns the text that is printed without `--json`.
    pub fn human(&self, width: Width) -> String {
        let mut text = String::new();
        self.describe(&self.initial_report, &mut text, width);
        if let Some((done, left)) = &self.repaired {
            let _ = writeln!(text, "repaired: {}", repairs(done));
            if !left.findings.is_empty() {
                let _ = writeln!(text, "\nleft:");
                self.describe(left, &mut text, width);
            }
        }
        if let Some(obstacle) = &self.obstacle {
            let _ = writeln!(text, "not repaired: the pool does not open: {obstacle}");
        }
        text + &self.verdict()
    }

    fn describe(&self, report: &Report, text: &mut String, width: Width) {
        let checked = report.counts;
        if let Some(sb) = report.superblocks.iter().flatten().next() {
            let _ = writeln!(text, "pool {} ({})", sb.pool_name, sb.pool);
        }
        let _ = writeln!(
            text,
            "checked {} superblocks, {} roots, {} journal frames, {} metadata pages ({} read)",
            checked.superblocks, checked.roots, checked.frames, checked.pages, checked.bytes_read
        );
        let _ = writeln!(
            text,
            "volumes: {}, extents with data: {}, records: {}\n",
            checked.volumes, checked.extents, checked.records
        );
        let rows = report.findings.iter().map(|finding| {
            let (name, _) = self.device(finding.device);
            let what = format!(
                "{}\n  {}\n  {}",
                self.finding_reason(finding),
                self.with_device_names(&finding.consequence),
                self.advice(finding)
            );
            [finding.severity.name().into(), finding.what.into(), format!("{name} at {}", finding.at), what]
        });
        if !report.findings.is_empty() {
            let help = "why, what it means, what helps";
            text.push_str(&Table::new(["", "what", "where", help], rows).prose(help).text(width));
            text.push('\n');
        }
        if report.findings_omitted > 0 {
            let _ = writeln!(text, "... and {} more\n", report.findings_omitted);
        }
    }

    /// Returns the devices that could not be checked completely, each with the reason.
    fn unchecked(&self) -> Vec<String> {
        let say = |why: &'static str| move |id| format!("device {} {why}", self.described.name_and_path(id));
        let absent = self.absent.iter().map(say("does not exist"));
        absent.chain(self.failing.iter().map(say("cannot be read everywhere"))).collect()
    }

    fn verdict(&self) -> String {
        let unchecked = self.unchecked();
        if !unchecked.is_empty() {
            let found = match (self.is_damaged_elsewhere(), self.last_report().is_clean()) {
                (true, _) => "and something is damaged elsewhere",
                (false, false) => "the findings above",
                (false, true) => "nothing wrong elsewhere",
            };
            return format!(
                "not all of it could be checked: {}; {found}. Bring back what is missing and check again",
                unchecked.join(", ")
            );
        }
        self.complete_verdict().into()
    }

    fn complete_verdict(&self) -> &'static str {
        match self.exit_code() {
            exit::CLEAN if self.initial_report.findings.is_empty() => "clean",
            exit::CLEAN => "clean: what is noted, opening the pool deals with",
            exit::REPAIRED => "clean after the repair",
            _ if self.repaired.is_none() && self.initial_report.is_repairable() => {
                "not clean: weir pool check --repair repairs what takes no guessing"
            }
            _ if self.obstacle.is_some() => {
                "not clean: the pool does not open, and weir cannot mend what is left; put its metadata back \
                 from a dump (weir pool restore FILE), or restore its devices from a backup"
            }
            _ => "not clean",
        }
    }
}

fn repairs(done: &RepairSummary) -> String {
    if *done == RepairSummary::default() {
        return "nothing; nothing was changed".into();
    }
    let mut parts = Vec::new();
    if done.superblocks > 0 {
        parts.push(format!("{} superblock copies rewritten", done.superblocks));
    }
    if done.roots {
        parts.push("both roots rewritten".into());
    }
    if done.records + done.pages > 0 {
        parts.push(format!("{} records and {} map pages freed", done.records, done.pages));
    }
    parts.join(", ")
}
