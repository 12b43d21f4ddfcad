//! The table as bytes: soft state that may outlive the server. Unreadable bytes are discarded, and only
//! learnt state is lost by that.

use super::{BMDS, BTES, BlockTable, Bte, Entry, Flags, NONE};
use weir_model::VolumeId;

/// The first bytes of an export, the version last.
const MAGIC: [u8; 8] = *b"weirbt\0\x01";

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }
    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

impl BlockTable {
    /// Exports the table, version 1: per used region volume, number and counter; per used sub-region number
    /// and counter; per used block number, counter and flags; each list after its length, in ascending order.
    pub fn export(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let mut regions: Vec<_> = self.all_regions().collect();
        regions.sort_unstable_by_key(|(volume, region, _)| (*volume, *region));
        for (volume, region, entry) in regions {
            out.extend(volume.0.to_le_bytes());
            out.extend(region.to_le_bytes());
            out.extend(entry.counter.to_le_bytes());
            self.export_region(entry, &mut out);
        }
        out
    }

    fn export_region(&self, region: Entry, out: &mut Vec<u8>) {
        let page = &self.bmds[region.child as usize];
        let used = || page.iter().enumerate().filter(|(_, e)| e.child != NONE);
        out.extend((used().count() as u16).to_le_bytes());
        for (i, entry) in used() {
            let page = &self.btes[entry.child as usize];
            let used = || page.iter().enumerate().filter(|(_, e)| e.flags != 0);
            for word in [i as u16, entry.counter, used().count() as u16] {
                out.extend(word.to_le_bytes());
            }
            for (b, bte) in used() {
                for word in [b as u16, bte.counter, bte.flags] {
                    out.extend(word.to_le_bytes());
                }
            }
        }
    }

    /// Imports an exported table; `None` for anything else.
    pub fn import(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader(bytes);
        (r.take()? == MAGIC).then_some(())?;
        let mut table = Self::default();
        while !r.0.is_empty() {
            let (volume, region, counter) = (VolumeId(r.u32()?), r.u64()?, r.u16()?);
            let mut entry = Entry { child: table.bmds.len() as u32, counter, unique: 0 };
            table.import_region(&mut entry, &mut r)?;
            if table.regions.insert((volume, region), table.bgd.len() as u32).is_some() {
                return None;
            }
            table.bgd.push(entry);
        }
        Some(table)
    }

    fn import_region(&mut self, region: &mut Entry, r: &mut Reader<'_>) -> Option<()> {
        let mut page = Box::new([Entry::EMPTY; BMDS]);
        for _ in 0..r.u16()? {
            let (i, counter, used) = (r.u16()?, r.u16()?, r.u16()?);
            let entry = page.get_mut(usize::from(i)).filter(|e| e.child == NONE)?;
            let mut btes = Box::new([Bte { counter: 0, flags: 0 }; BTES]);
            for _ in 0..used {
                let (b, counter, flags) = (r.u16()?, r.u16()?, r.u16()?);
                let bte = btes.get_mut(usize::from(b)).filter(|e| e.flags == 0 && flags != 0)?;
                *bte = Bte { counter, flags };
            }
            let unique = btes.iter().filter(|e| e.flags & Flags::USED.0 != 0).count() as u16;
            *entry = Entry { child: self.btes.len() as u32, counter, unique };
            region.unique = region.unique.saturating_add(unique);
            let number = self.btes.len();
            for (low, _) in btes.iter().enumerate().filter(|(_, e)| e.flags & Flags::RESIDENT.0 != 0) {
                self.note_resident(number, low, true);
            }
            self.btes.push(btes);
        }
        self.bmds.push(page);
        Some(())
    }
}
