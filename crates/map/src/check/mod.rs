//! Offline verification of a whole pool: everything weir stores, not only what opening it needs.
//!
//! [`check`] reads superblocks (both copies of each device), roots (both), all pages each root
//! reaches, the journal, and then looks at what the recovered map says: volumes, records, intents,
//! and that every piece of space has one owner. It changes nothing, and knows what a pool looks like
//! after a power cut: a journal not yet replayed, a torn frame at its end, and pages of the older
//! root that a recovery cut short had begun to overwrite are no damage. [`repair`] does what can be
//! done without guessing.

mod area;
mod contents;
mod image;
mod member;
mod repair;
mod report;
mod superblocks;

pub use repair::{Repaired, repair};
pub use report::{Checked, FINDINGS_MAX, Finding, Remedy, Report, Severity};

use member::Member;
use weir_model::{Bytes, Store};

/// Verifies the pool on the devices of these sizes, by device id; `None` for one that is absent.
/// Reads all metadata once or twice, and no user data; takes as much memory as opening the pool
/// twice.
pub fn check(store: &mut dyn Store, sizes: &[Option<Bytes>]) -> Report {
    let mut report = Report::default();
    let superblocks = superblocks::check(store, sizes, &mut report);
    let members = superblocks.iter().flatten().filter(|sb| sb.is_metadata_member());
    let mut found: Vec<Member> = members.map(|sb| member::check(store, sb, &mut report.checked)).collect();
    let usable = found.iter().any(|member| member.state.is_some());
    for member in &mut found {
        for finding in member.findings.drain(..) {
            report.add(if usable && member.state.is_none() { mirrored(finding) } else { finding });
        }
    }
    let best = found.iter().filter(|member| member.state.is_some()).max_by_key(|member| member.position);
    if let Some(Member { device, state: Some(image), .. }) = best
        && let Some(sb) = &superblocks[device.index()]
    {
        contents::check(image, &superblocks, sb, &mut report);
    }
    report.superblocks = superblocks;
    report
}

/// A finding on a member whose mirror has everything.
fn mirrored(mut finding: Finding) -> Finding {
    if finding.severity == Severity::Damage {
        finding.severity = Severity::Spare;
        finding.matters = "the other metadata member has everything".into();
        finding.remedy = Remedy::Roots;
    }
    finding
}
