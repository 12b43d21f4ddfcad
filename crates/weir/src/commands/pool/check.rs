//! `weir pool check`: everything the pool stores about itself is verified, and repaired where that
//! takes no guessing.

use crate::devices::Described;
use crate::exit::check as exit;
use crate::failure::Failure;
use crate::output::{Table, Width};
use crate::pool::{PAUSE, refuse_served, until_free};
use crate::progress;
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_device::Devices;
use weir_map::check::{Finding, Repaired, Report, Severity};
use weir_model::{Bytes, DeviceId, DeviceOffset, DeviceSet, ErrorKind, IoError, Store};

/// What a check found and did.
#[derive(Debug)]
pub struct Outcome {
    described: Described,
    found: Report,
    repaired: Option<(Repaired, Report)>,
    /// Devices that are not there, and something may be on them.
    absent: DeviceSet,
    /// Devices that could not be read everywhere.
    failing: DeviceSet,
}

/// Checks the pool, which must not be served; with `repair`, repairs what can be, and checks again.
///
/// # Errors
/// If its devices cannot be had, or one fails while it is repaired. The failure carries fsck's exit
/// code.
pub fn check(pool_file: &Path, repair: bool) -> Result<Outcome, Failure> {
    let fsck = |failure: Failure| {
        let code = if failure.kind == ErrorKind::Usage { exit::USAGE } else { exit::OPERATIONAL };
        failure.with_exit_code(code)
    };
    let described = Described::read(pool_file).map_err(fsck)?;
    run(described, repair).map_err(fsck)
}

fn run(described: Described, repair: bool) -> Result<Outcome, Failure> {
    let may_cancel = cancel_on_signals()?;
    let mut devices = open(&described)?;
    let sizes = sizes(&described, &devices);
    let mut failing = DeviceSet::default();
    let mut report = |devices: &mut Devices, what: &str| {
        let mut watched = Watched { devices, failing: &mut failing };
        progress::during(what, || weir_map::check(&mut watched, &sizes))
    };
    let found = report(&mut devices, "checking the pool");
    let mut repaired = None;
    if repair && found.is_repairable() {
        // Ending in the middle would harm nothing, but leave unsaid what was done.
        may_cancel.store(false, Ordering::SeqCst);
        let done = progress::during("repairing the pool", || weir_map::check::repair(&mut devices, &found))
            .map_err(|error| described.explain(error))?;
        repaired = Some((done, report(&mut devices, "checking what was repaired")));
    }
    let missing = found.superblocks.iter().flatten().max_by_key(|sb| sb.generation).map(|sb| sb.missing);
    let missing = missing.unwrap_or_default();
    // What a note is about can be done without.
    let noted = found.findings.iter().filter(|finding| finding.severity == Severity::Note);
    let noted = noted.map(|finding| finding.device).collect::<DeviceSet>();
    let ids = (0u8..).map(DeviceId).take(described.file.devices.len());
    let absent = ids.filter(|id| devices.get(*id).is_none()).collect::<DeviceSet>();
    let absent = absent.without(noted.and(missing));
    Ok(Outcome { described, found, repaired, absent, failing })
}

/// Opens and locks the devices of a pool that is not being served, as far as they are there.
pub(super) fn open(described: &Described) -> Result<Devices, Failure> {
    until_free(described, |_| {
        refuse_served(described)?;
        let (devices, _) = described.open_present(DeviceSet::default(), PAUSE)?;
        let is_any = devices.iter().next().is_some();
        if is_any { Ok(devices) } else { Err(described.none_exists()) }
    })
}

/// The devices' sizes, by id; none where a device is absent.
pub(super) fn sizes(described: &Described, devices: &Devices) -> Vec<Option<Bytes>> {
    let ids = (0u8..).map(DeviceId).take(described.file.devices.len());
    ids.map(|id| devices.get(id).map(|device| device.size())).collect()
}

/// Checks the pool on these devices.
pub(super) fn report(described: &Described, devices: &mut Devices, what: &str) -> Report {
    let sizes = sizes(described, devices);
    progress::during(what, || weir_map::check(devices, &sizes))
}

/// Devices, and which of them failed to read.
struct Watched<'a> {
    devices: &'a mut Devices,
    failing: &'a mut DeviceSet,
}

impl Store for Watched<'_> {
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

/// As long as the flag is set, a signal ends the process with fsck's exit code for that.
fn cancel_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(true));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, exit::CANCELLED.into(), Arc::clone(&flag))
            .map_err(|error| Failure::environment(format!("cannot wait for signals: {error}"), ""))?;
    }
    Ok(flag)
}

impl Outcome {
    /// The pool as it is: as it was found, or as it was left.
    fn last(&self) -> &Report {
        self.repaired.as_ref().map_or(&self.found, |(_, report)| report)
    }

    /// As fsck's. What is on a device that is absent or fails was not checked, which matters less than damage
    /// elsewhere.
    pub fn exit_code(&self) -> u8 {
        if self.is_damaged_elsewhere() {
            return exit::LEFT;
        }
        if !self.unchecked().is_empty() {
            return exit::OPERATIONAL;
        }
        match (self.last().is_clean(), &self.repaired) {
            (false, _) => exit::LEFT,
            (true, Some(_)) => exit::REPAIRED,
            (true, None) => exit::CLEAN,
        }
    }

    /// Whether something is damaged on a device that could be read.
    fn is_damaged_elsewhere(&self) -> bool {
        let damage = |finding: &&Finding| finding.severity == Severity::Damage;
        let mut damaged = self.last().findings.iter().filter(damage);
        damaged.any(|finding| !self.failing.contains(finding.device))
    }

    /// The document printed with `--json`.
    pub fn to_json(&self) -> Value {
        let report = self.last();
        let findings = |report: &Report| report.findings.iter().map(|f| self.finding(f)).collect::<Vec<_>>();
        let pool = report.superblocks.iter().flatten().next();
        let checked = report.checked;
        json!({
            "pool": pool.map(|sb| json!({ "name": sb.pool_name, "id": sb.pool.to_string() })),
            "clean": report.is_clean(),
            "unchecked": self.unchecked(),
            "found": findings(&self.found),
            "found_more": self.found.left_out,
            "repaired": self.repaired.as_ref().map(|(done, report)| json!({
                "superblocks": done.superblocks,
                "roots": done.roots,
                "records": done.records,
                "map_pages": done.pages,
                "left": findings(report),
                "left_more": report.left_out,
            })),
            "checked": {
                "superblocks": checked.superblocks,
                "roots": checked.roots,
                "frames": checked.frames,
                "pages": checked.pages,
                "volumes": checked.volumes,
                "extents": checked.extents,
                "records": checked.records,
                "read_bytes": checked.read.get(),
            },
        })
    }

    fn finding(&self, finding: &Finding) -> Value {
        let (name, path) = self.device(finding.device);
        json!({
            "severity": finding.severity.name(),
            "what": finding.what,
            "device": name,
            "path": path,
            "at_bytes": finding.at.0,
            "why": self.named(&finding.why),
            "matters": self.named(&finding.matters),
            "help": finding.remedy.advice(),
            "repairable": finding.remedy.is_repair(),
        })
    }

    fn device(&self, id: DeviceId) -> (&str, String) {
        let entry = self.described.file.devices.get(id.index());
        entry.map_or(("?", String::new()), |entry| {
            (&entry.name, self.described.device_path(entry).display().to_string())
        })
    }

    /// A text with devices' names in place of their numbers.
    fn named(&self, text: &str) -> String {
        let mut text = text.to_owned();
        // From the highest on: #1 begins #10 as well.
        for (id, entry) in self.described.file.devices.iter().enumerate().rev() {
            text = text.replace(&format!("device {}", DeviceId(id as u8)), &format!("device {}", entry.name));
        }
        text
    }

    /// For people.
    pub fn human(&self, width: Width) -> String {
        let mut text = String::new();
        self.describe(&self.found, &mut text, width);
        if let Some((done, left)) = &self.repaired {
            let _ = writeln!(text, "repaired: {}", repairs(done));
            if !left.findings.is_empty() {
                let _ = writeln!(text, "\nleft:");
                self.describe(left, &mut text, width);
            }
        }
        text + &self.verdict()
    }

    fn describe(&self, report: &Report, text: &mut String, width: Width) {
        let checked = report.checked;
        if let Some(sb) = report.superblocks.iter().flatten().next() {
            let _ = writeln!(text, "pool {} ({})", sb.pool_name, sb.pool);
        }
        let _ = writeln!(
            text,
            "checked {} superblocks, {} roots, {} journal frames, {} metadata pages ({} read)",
            checked.superblocks, checked.roots, checked.frames, checked.pages, checked.read
        );
        let _ = writeln!(
            text,
            "found {} volumes, {} extents with data, {} records\n",
            checked.volumes, checked.extents, checked.records
        );
        let rows = report.findings.iter().map(|finding| {
            let (name, _) = self.device(finding.device);
            let what = format!(
                "{}\n  {}\n  {}",
                self.named(&finding.why),
                self.named(&finding.matters),
                finding.remedy.advice()
            );
            [finding.severity.name().into(), finding.what.into(), format!("{name} at {}", finding.at), what]
        });
        if !report.findings.is_empty() {
            let help = "why, what it means, what helps";
            text.push_str(&Table::new(["", "what", "where", help], rows).prose(help).text(width));
            text.push('\n');
        }
        if report.left_out > 0 {
            let _ = writeln!(text, "... and {} more\n", report.left_out);
        }
    }

    /// The devices of which not everything could be checked, and why.
    fn unchecked(&self) -> Vec<String> {
        let say = |why: &'static str| move |id| format!("device {} {why}", self.described.named(id));
        let absent = self.absent.iter().map(say("does not exist"));
        absent.chain(self.failing.iter().map(say("cannot be read everywhere"))).collect()
    }

    fn verdict(&self) -> String {
        let unchecked = self.unchecked();
        if !unchecked.is_empty() {
            let found = match (self.is_damaged_elsewhere(), self.last().is_clean()) {
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
            exit::CLEAN if self.found.findings.is_empty() => "clean",
            exit::CLEAN => "clean: what is noted, opening the pool deals with",
            exit::REPAIRED => "clean after the repair",
            _ if self.repaired.is_none() && self.found.is_repairable() => {
                "not clean: weir pool check --repair repairs what takes no guessing"
            }
            _ => "not clean",
        }
    }
}

fn repairs(done: &Repaired) -> String {
    let mut parts = Vec::new();
    if done.superblocks > 0 {
        parts.push(format!("{} superblock copies written anew", done.superblocks));
    }
    if done.roots {
        parts.push("both roots written anew".into());
    }
    if done.records + done.pages > 0 {
        parts.push(format!("{} records and {} map pages given back", done.records, done.pages));
    }
    parts.join(", ")
}
