//! Repairs that need no guess.

use super::report::{Finding, Remedy, Report};
use crate::format::value::{RecordId, Word};
use crate::state::records::GROUP;
use crate::{Map, MapError, OpenOptions, Superblock, create, open};
use rustc_hash::FxHashSet;
use weir_model::{DeviceId, DeviceOffset, Store};

/// The result of [`repair`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairSummary {
    /// Superblock copies rewritten.
    pub superblocks: u64,
    /// Whether both roots were rewritten, by opening the pool.
    pub roots: bool,
    /// Records that no extent named, freed.
    pub records: u64,
    /// Map pages that no volume named, freed.
    pub pages: u64,
}

/// Makes the repairs that a check's report lists. Superblock copies come first, each from the other copy of
/// its device. Then, if roots, pages or records need it and the pool opens, it is opened, which rewrites both
/// roots without unreferenced structures. A power loss during the repair leaves the pool as good as it was,
/// or better. The report must match the current pool; [check](super::check) again to see what is left.
///
/// # Errors
/// Fails if a device fails, or if the pool does not open.
pub fn repair(store: &mut dyn Store, report: &Report) -> Result<RepairSummary, MapError> {
    let mut repaired = RepairSummary::default();
    for finding in &report.findings {
        let sb = report.superblocks.get(finding.device.index()).and_then(Option::as_ref);
        if let (Remedy::Superblock { second }, Some(sb)) = (finding.remedy, sb) {
            write_copy(store, sb, second)?;
            repaired.superblocks += 1;
        }
    }
    let superblocks: Vec<Superblock> = report.superblocks.iter().flatten().cloned().collect();
    // Opening would take a truncated device into the pool again.
    let may_open = !report.findings.iter().any(Finding::is_left_truncated);
    let opening = report.findings.iter().any(|f| matches!(f.remedy, Remedy::Roots | Remedy::Free));
    if opening && may_open {
        let (_, _, waste) =
            open::open_with(store, &superblocks, &OpenOptions::default(), |map| Ok(map.free_unreferenced()))?;
        (repaired.records, repaired.pages) = waste;
        repaired.roots = true;
    }
    Ok(repaired)
}

/// Writes one copy only: the other is the good one, and stays so if the power fails.
fn write_copy(store: &mut dyn Store, sb: &Superblock, second: bool) -> Result<(), MapError> {
    let at = if second { Superblock::second_at(sb.size) } else { DeviceOffset(0) };
    let device: DeviceId = sb.device;
    create::write(store, device, at, &sb.encode()[..])?;
    create::flush(store, device)
}

impl Map {
    /// Drops unreferenced records and map pages from the durable map. Returns the number of each.
    fn free_unreferenced(&mut self) -> (u64, u64) {
        let mut named = FxHashSet::default();
        for volume in self.catalogue.volumes.values() {
            self.pages.for_each(volume.tree, &mut |_, word| {
                if let Some(Word::Record(id)) = Word::decode(word) {
                    named.insert(id);
                }
            });
        }
        let ids = (0..(self.records.group_count() * GROUP) as u32).map(RecordId);
        let unnamed: Vec<_> =
            ids.filter(|id| !named.contains(id) && self.records.get(*id).is_some()).collect();
        unnamed.iter().for_each(|id| self.records.drop_record(*id, &mut self.store));
        let trees: Vec<_> = self.catalogue.volumes.values().map(|volume| volume.tree).collect();
        let pages = self.pages.remove_unreachable(&trees);
        let count = pages.len() as u64;
        self.store.dropped_pages.extend(pages);
        (unnamed.len() as u64, count)
    }
}
