//! Offline verification of a whole pool: everything weir stores, not only the parts that opening needs.
//!
//! [`check`] reads superblocks (both copies of each device), roots (both), all pages each root reaches, and
//! the journal. It then checks the recovered map: volumes, records, intents, and that every piece of space
//! has one owner. It changes nothing. States that a power loss leaves are no damage: a journal not yet
//! replayed, a torn frame at its end, and pages of the older root that an interrupted recovery had begun to
//! overwrite. [`repair()`] repairs everything that needs no guess.

mod area;
mod contents;
mod image;
mod member;
mod repair;
mod report;
mod superblocks;

pub use repair::{RepairSummary, repair};
pub use report::{CheckCounts, FINDINGS_MAX, Finding, Position, Remedy, Report, Severity};

use member::Member;
use superblocks::Devices;
use weir_model::{Bytes, Store};

/// Verifies the pool on the devices of these sizes, by device id; `None` for an absent one. Cost: reads all
/// metadata once or twice, and no user data; takes twice as much memory as opening the pool.
pub fn check(store: &mut dyn Store, sizes: &[Option<Bytes>]) -> Report {
    let mut report = Report::default();
    let Devices { superblocks, members } = superblocks::check(store, sizes, &mut report);
    let mut layouts: Vec<_> = members.iter().filter_map(|id| superblocks[id.index()].as_ref()).collect();
    let mut alone = Vec::new();
    for sb in &layouts {
        alone.push(member::check(store, sb, &[sb.device], &mut report.counts));
    }
    let roots: Vec<_> = alone.iter().map(|member| (member.device, member.roots.clone())).collect();
    let older = crate::open::older_members(&roots);
    older.iter().for_each(|device| superblocks::report_older_file(&mut report, device));
    alone.retain(|member| !older.contains(member.device));
    layouts.retain(|sb| !older.contains(sb.device));
    let members: Vec<_> = members.into_iter().filter(|device| !older.contains(*device)).collect();
    // Each of two members may have pages that the other lacks: opening takes them from either.
    let together = match layouts[..] {
        [first, _, ..] => Some(member::check(store, first, &members, &mut CheckCounts::default())),
        _ => None,
    };
    let mirrored = together.as_ref().is_some_and(|all| all.state.is_some());
    for member in &mut alone {
        let lacks = mirrored && member.state.is_none();
        for finding in member.findings.drain(..) {
            report.add(if lacks { downgrade_mirrored(finding) } else { finding });
        }
    }
    let mut uses = None;
    if let Some(Member { device, state: Some(image), position, .. }) = together.or_else(|| alone.pop())
        && let Some(sb) = &superblocks[device.index()]
    {
        report.position = Some(position);
        contents::check(&image, &superblocks, sb, &mut report);
        uses = Some(contents::devices_in_use(&image));
    }
    superblocks::forbid_truncated_repair(&mut report, uses.map(|uses| uses.with_copies));
    superblocks::grade_absent_devices(&mut report, uses.map(|uses| uses.with_data));
    report.superblocks = superblocks;
    report
}

/// Downgrades a finding on a member whose mirror has the missing part.
fn downgrade_mirrored(mut finding: Finding) -> Finding {
    if finding.severity == Severity::Damage {
        finding.severity = Severity::CopyDamaged;
        finding.consequence = "the other metadata member has everything".into();
        finding.remedy = Remedy::Roots;
    }
    finding
}
