//! Check of one metadata member, or of two that mirror each other taken as one: roots, the structures they
//! reach, journal; and the state that opening would use.

use super::area::MetadataArea;
use super::image::{Fault, Image, contradicts};
use super::report::{CheckCounts, Finding, Position, Remedy, Severity};
use crate::format::root::Root;
use crate::format::superblock::{JOURNAL_AT, ROOT_AT, Superblock};
use crate::log::journal::{self, Frame, ReplayEnd};
use weir_model::{DeviceId, DeviceOffset, Planted, Store};

const DEVICE_FAILS: &str = "copy the device to a good one with ddrescue and use that in its place";
const RESTORE: &str = "weir pool restore, from a dump made before";
const REPORT_BUG: &str = "save everything (weir pool dump) and report it: weir must not write this";

/// The result of the check.
#[derive(Debug)]
pub(super) struct Member {
    /// The (first) member.
    pub(super) device: DeviceId,
    /// The map as opening would recover it from here; `None` if it would refuse.
    pub(super) state: Option<Image>,
    /// Its position.
    pub(super) position: Position,
    /// The sequences of its valid roots.
    pub(super) roots: Vec<u64>,
    pub(super) findings: Vec<Finding>,
}

/// The end of a journal read from some root.
struct Replayed {
    frames: u64,
    end: ReplayEnd,
    /// The sequence expected next, and its offset.
    next: u64,
    offset: u64,
    /// The CRC of the frame before `stop`, if it was reached.
    chain: Option<u32>,
}

fn position(replayed: &Replayed, root: &Root) -> Position {
    Position { frame: replayed.next, root: root.sequence }
}

struct MemberCheck<'a, 'b> {
    area: MetadataArea<'a>,
    rings: Vec<Vec<u8>>,
    roots: Vec<u64>,
    findings: Vec<Finding>,
    checked: &'b mut CheckCounts,
}

/// Verifies the metadata of these members together, of which `sb` is the first: a page that one of them lacks
/// is taken from the other.
pub(super) fn check(
    store: &mut dyn Store,
    sb: &Superblock,
    members: &[DeviceId],
    checked: &mut CheckCounts,
) -> Member {
    let mut area = MetadataArea::new(store, sb, members);
    let (rings, unread) = area.rings();
    let mut checking = MemberCheck { area, rings, roots: Vec::new(), findings: Vec::new(), checked };
    let (state, position) = checking.run(!unread.is_empty());
    let (roots, mut findings) = (checking.roots, checking.findings);
    checking.checked.bytes_read += checking.area.bytes_read;
    for (at, why) in unread {
        findings.push(Finding {
            severity: Severity::Damage,
            what: "journal",
            device: sb.device,
            at,
            why,
            consequence: "changes acknowledged last may be in it; the pool does not open".into(),
            remedy: Remedy::Manual(DEVICE_FAILS),
        });
    }
    Member { device: sb.device, state, position, roots, findings }
}

impl MemberCheck<'_, '_> {
    fn add_finding(
        &mut self,
        severity: Severity,
        what: &'static str,
        at: DeviceOffset,
        why: impl Into<String>,
        consequence: impl Into<String>,
        remedy: Remedy,
    ) {
        let (device, why, matters) = (self.area.device(), why.into(), consequence.into());
        self.findings.push(Finding { severity, what, device, at, why, consequence: matters, remedy });
    }

    fn run(&mut self, unread: bool) -> (Option<Image>, Position) {
        let (roots, bad) = self.read_roots();
        self.roots = roots.iter().map(|root| root.sequence).collect();
        let Some(newest) = roots.first().cloned() else {
            for (slot, why) in bad {
                let matters = "nothing says where the map is; the pool does not open";
                self.add_finding(
                    Severity::Damage,
                    "root",
                    ROOT_AT[slot],
                    why,
                    matters,
                    Remedy::Manual(RESTORE),
                );
            }
            return (None, Position::default());
        };
        for (slot, why) in bad {
            let matters = "the other root is good; if that is damaged too, the pool does not open";
            self.add_finding(Severity::CopyDamaged, "root", ROOT_AT[slot], why, matters, Remedy::Roots);
        }
        let mut image = self.load(&newest);
        let older = roots.get(1).cloned();
        let mut older_image = older.as_ref().map(|root| self.load(root));
        let mut leads_on = false;
        if let (Some(root), Some(older_image)) = (&older, &mut older_image) {
            leads_on = self.check_older_root(root, older_image, &newest, &image);
        }
        let is_whole = image.is_complete();
        let newest_end = self.replay(&newest, u64::MAX, |frame, extent| {
            if is_whole {
                frame.deltas.into_iter().for_each(|delta| image.apply(delta, extent));
            }
        });
        self.checked.frames += newest_end.frames;
        if let Some((offset, why)) = newest_end.end.fault() {
            let matters = "it and all changes after it cannot be had from here; the pool does not open";
            let at = DeviceOffset(JOURNAL_AT.0 + offset);
            self.add_finding(Severity::Damage, "journal", at, why, matters, Remedy::Manual(RESTORE));
            self.report_faults(&image.faults, Severity::Damage);
            return (None, position(&newest_end, &newest));
        }
        self.report_torn_tail(&newest, &newest_end);
        if image.is_complete() {
            if let Some(older_image) = older_image {
                self.report_faults(&older_image.faults, Severity::Note);
            }
            return ((!unread).then_some(image), position(&newest_end, &newest));
        }
        // The newest root cannot be used. The one before can if its journal leads to the newest one's
        // position.
        let older_works = leads_on && older_image.as_ref().is_some_and(Image::is_complete);
        self.report_faults(&image.faults, if older_works { Severity::CopyDamaged } else { Severity::Damage });
        if let Some(older_image) = older_image.filter(|_| !older_works) {
            self.report_faults(&older_image.faults, Severity::Damage);
        }
        let Some(root) = older.filter(|_| older_works) else {
            return (None, position(&newest_end, &newest));
        };
        let mut image = self.load(&root);
        let end = self.replay(&root, u64::MAX, |frame, extent| {
            frame.deltas.into_iter().for_each(|delta| image.apply(delta, extent));
        });
        ((!unread).then_some(image), position(&end, &root))
    }

    /// Returns the valid roots, newest first, and the slots without one.
    fn read_roots(&mut self) -> (Vec<Root>, Vec<(usize, String)>) {
        let (mut roots, mut bad) = (Vec::new(), Vec::new());
        let sb = self.area.sb;
        for slot in 0..ROOT_AT.len() {
            for page in self.area.roots(slot) {
                match page.and_then(|page| decode_root(&page, slot, sb)) {
                    Ok(root) => roots.push(root),
                    Err(why) => bad.push((slot, why)),
                }
            }
        }
        roots.sort_by_key(|root| std::cmp::Reverse(root.sequence));
        roots.dedup();
        (roots, bad)
    }

    fn load(&mut self, root: &Root) -> Image {
        let image = Image::load(&mut self.area, root);
        self.checked.roots += 1;
        self.checked.pages += image.pages_verified;
        image
    }

    /// Reads the journal from a root on, passing each frame to `apply`.
    fn replay(
        &self,
        root: &Root,
        stop: u64,
        mut apply: impl FnMut(Frame, weir_model::ExtentSize),
    ) -> Replayed {
        let sb = self.area.sb;
        let (mut frames, mut chain) = (0, (root.journal.sequence == stop).then_some(root.journal.chain));
        let (at, end) =
            journal::replay(&self.rings, root.journal, sb.pool, sb.extent.blocks(), Planted::NONE, |frame| {
                frames += 1;
                if frame.sequence + 1 == stop {
                    chain = Some(frame.crc);
                }
                if frame.sequence < stop {
                    apply(frame, sb.extent);
                }
            });
        Replayed { frames, end, next: at.sequence, offset: at.offset, chain }
    }

    /// Checks whether the older root and the journal after it lead to the state of the newest root; applies
    /// the frames in between to `older`. Returns `true` if the older root could replace the newest one.
    fn check_older_root(&mut self, root: &Root, older: &mut Image, newest: &Root, image: &Image) -> bool {
        if root.journal.journal != newest.journal.journal {
            // A recovery was interrupted: the newest root contains the state that this one's journal leads
            // to, and no frame has followed.
            let replayed = self.replay(root, u64::MAX, |_, _| ());
            return matches!(replayed.end, ReplayEnd::Tail) && replayed.next >= newest.journal.sequence;
        }
        let stop = newest.journal.sequence;
        let is_whole = older.is_complete();
        let replayed = self.replay(root, stop, |frame, extent| {
            if is_whole {
                frame.deltas.into_iter().for_each(|delta| older.apply(delta, extent));
            }
        });
        if replayed.chain != Some(newest.journal.chain) {
            let at = DeviceOffset(JOURNAL_AT.0 + replayed.offset);
            let why = format!(
                "frame {} does not verify; the newest root stands at frame {stop}",
                replayed.next.min(stop)
            );
            let matters = "the older root could not take the newest one's place";
            self.add_finding(Severity::CopyDamaged, "journal", at, why, matters, Remedy::Roots);
            return false;
        }
        if is_whole
            && image.is_complete()
            && let Some(difference) = difference(older, image)
        {
            let why = format!(
                "with the journal since, root {} says otherwise than root {}: {difference}",
                root.sequence, newest.sequence
            );
            let matters = "one of them is wrong; which cannot be told";
            self.add_finding(
                Severity::Damage,
                "root",
                ROOT_AT[newest.slot()],
                why,
                matters,
                Remedy::Manual(REPORT_BUG),
            );
        }
        true
    }

    fn report_faults(&mut self, faults: &[Fault], severity: Severity) {
        for fault in faults {
            let at = fault.number.map_or(self.area.sb.pages_at(), |number| self.area.address(number));
            let (matters, remedy) = match severity {
                Severity::Damage => (fault.consequence.clone(), Remedy::Manual(RESTORE)),
                Severity::Note if fault.overwritten => (
                    "only the older root reaches it; a recovery that was cut short has used its place".into(),
                    Remedy::Reopen,
                ),
                Severity::Note => (
                    "only the older root reaches it, which is not needed: damage, or a recovery that was \
                     cut short had begun to use its place"
                        .into(),
                    Remedy::Reopen,
                ),
                _ => (
                    "only the newest root reaches it; the one before and the journal have everything".into(),
                    Remedy::Roots,
                ),
            };
            self.add_finding(severity, fault.what, at, fault.why.clone(), matters, remedy);
        }
    }

    /// Reports a frame at the journal's end that was begun and is incomplete.
    fn report_torn_tail(&mut self, root: &Root, end: &Replayed) {
        let pool = self.area.sb.pool;
        let expected = (root.journal.journal, end.next);
        let begun = [end.offset, 0].into_iter().find(|offset| {
            let claims = |ring: &Vec<u8>| journal::parse_identity(ring.get(*offset as usize..)?, pool);
            self.rings.iter().any(|ring| claims(ring) == Some(expected))
        });
        if let Some(offset) = begun {
            let why = format!("frame {} at its end is not whole", end.next);
            let matters = "a write that was cut short, never acknowledged; damage to the last frame of a \
                           journal without a mirror looks the same";
            let at = DeviceOffset(JOURNAL_AT.0 + offset);
            self.add_finding(Severity::Note, "journal", at, why, matters, Remedy::Reopen);
        }
    }
}

fn decode_root(page: &[u8], slot: usize, sb: &Superblock) -> Result<Root, String> {
    match Root::decode(page, sb.pool) {
        None => Err("it is no root of this pool, or its checksum is wrong".into()),
        Some(root) if root.slot() != slot => Err(format!("root {} belongs in the other slot", root.sequence)),
        Some(root) if contradicts(&root, sb) => Err("its fields contradict the superblock".into()),
        Some(root) => Ok(root),
    }
}

/// Returns the difference between two maps, if there is one. Ids of map pages do not count.
fn difference(a: &Image, b: &Image) -> Option<String> {
    if a.catalogue.next_volume != b.catalogue.next_volume {
        let (a, b) = (a.catalogue.next_volume, b.catalogue.next_volume);
        return Some(format!("the next volume's id is {a} or {b}"));
    }
    if a.catalogue.intents != b.catalogue.intents {
        return Some("there are other intents".into());
    }
    let ids = a.catalogue.volumes.keys().chain(b.catalogue.volumes.keys());
    for id in ids {
        let (Some(x), Some(y)) = (a.catalogue.volumes.get(id), b.catalogue.volumes.get(id)) else {
            return Some(format!("volume {} is there or not", id.0));
        };
        let same = (&x.name, x.size, x.hardening, x.copies) == (&y.name, y.size, y.hardening, y.copies);
        if !same || a.pages.mapped(x.tree) != b.pages.mapped(y.tree) {
            return Some(format!("volume {} ({}) has other properties or extents", x.name, id.0));
        }
    }
    let mut found = None;
    a.for_each_word(|id, index, word| {
        let other = b.catalogue.volumes.get(&id).map_or(0, |v| b.pages.word(v.tree, index));
        if other != word && found.is_none() {
            found = Some(format!("extent {} of volume {} is {word:#x} or {other:#x}", index.0, id.0));
        }
    });
    if found.is_none() && a.records.live() != b.records.live() {
        found = Some(format!("there are {} or {} records", a.records.live(), b.records.live()));
    }
    found.or_else(|| {
        let mut others = a.records().filter(|(id, record)| b.records.get(*id).as_deref() != Some(record));
        others.next().map(|(id, _)| format!("record {} is another", id.0))
    })
}
