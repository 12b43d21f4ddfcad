//! Volumes for which the metadata area has no room.
//!
//! The areas of these pools are smaller than those that weir makes, so that they are soon full, and then a
//! volume is refused. A refusal is in order only while the area is as full as that: once everything in flight
//! has ended, that is reckoned from what each volume's map holds, not from the map's own counts; and room
//! that clients give back by TRIM must be there for the volume.

use super::{Ask, Driver, Failure, Health};
use std::collections::BTreeSet;
use weir_engine::AdminError;
use weir_map::Value;
use weir_model::{BLOCK, Bytes, Op, RequestError, VolumeOffset};

/// What a page of metadata holds.
const PAYLOAD: u64 = 4032;
/// Extents that one map page names.
const FANOUT: u64 = 504;
/// Records that are written together.
const GROUP: u64 = 128;
/// Table pages at most: as many as ids that may be used again only after a checkpoint can make of these
/// small maps, and one for the records.
const TABLES: u64 = 4;
/// Of each object three versions may be on disk: two roots', and that of a checkpoint being written.
const VERSIONS: u64 = 3;
/// Pages that are kept free.
const RESERVE: u64 = 64;

impl Driver {
    /// Whether a command failed because the metadata area is full, which may be in order.
    pub(super) fn is_refused_for_room(&self, failure: &Failure) -> bool {
        let error = RequestError::NoSpace;
        self.health == Health::Whole
            && matches!(failure, Failure::Admin { error: AdminError::Failed(e), .. } if *e == error)
    }

    /// Has a volume made, which was refused for want of metadata room: tries again once nothing is in flight,
    /// and after that with one volume after the other trimmed, until `create` says that it was made.
    pub(super) fn make_metadata_room(
        &mut self,
        mut create: impl FnMut(&mut Self) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let mut is_at_rest = self.come_to_rest()?;
        let mut rest = self.volumes_there();
        while !create(self)? {
            if is_at_rest {
                self.check_metadata_full()?;
            }
            let Some(volume) = rest.pop() else { return self.never_has_room() };
            let len = self.volumes[volume].spec.size;
            self.ask(Ask { volume, op: Op::Trim, offset: VolumeOffset(0), len, fua: true })?;
            is_at_rest = self.come_to_rest()?;
        }
        Ok(())
    }

    /// All volumes were trimmed, and the metadata area has no room. That is in order only where a TRIM has to
    /// leave something, a volume's last block that is not whole: its record can fill an area as small as
    /// these. Such a pool is used no more.
    fn never_has_room(&mut self) -> Result<(), Failure> {
        let has_tail = |volume: usize| !self.volumes[volume].spec.size.0.is_multiple_of(BLOCK);
        if self.volumes_there().into_iter().any(has_tail) {
            self.begin_anew()
        } else {
            Err(Failure::MetadataNeverFree)
        }
    }

    /// Volumes that have not made way for another one.
    fn volumes_there(&self) -> Vec<usize> {
        let ids: BTreeSet<_> = self.engine.volumes().map(|volume| volume.id).collect();
        (0..self.volumes.len()).filter(|volume| ids.contains(&self.volumes[*volume].id)).collect()
    }

    /// Everything asked for ends, and is durable then; all else that is in flight as well, unless there is no
    /// end to what a policy asks for: false.
    fn come_to_rest(&mut self) -> Result<bool, Failure> {
        self.drain()?;
        for volume in self.volumes_there() {
            let (offset, len) = (VolumeOffset(0), Bytes(0));
            self.ask(Ask { volume, op: Op::Flush, offset, len, fua: false })?;
        }
        self.drain()?;
        self.let_commands_end()
    }

    /// By what the map holds of each volume, the area may have no room for one more extent.
    fn check_metadata_full(&self) -> Result<(), Failure> {
        let map = self.engine.map();
        let extent = self.setup.extent;
        let (mut leaves, mut records, mut extents, mut volumes) = (0, 0, 0, 0);
        for volume in self.engine.volumes() {
            let mut used = BTreeSet::new();
            map.for_each(volume.id, |index, value| {
                used.insert(index.0 / FANOUT);
                records += u64::from(matches!(value, Value::Record(_)));
            });
            let of_volume = extent.count(volume.size);
            let above = u64::from(of_volume > FANOUT && !used.is_empty());
            (leaves, extents, volumes) =
                (leaves + used.len() as u64 + above, extents + of_volume, volumes + 1);
        }
        // Those of records that are there, and of what moves have not made durable; and another one.
        let groups = (records + map.pending() as u64).min(extents / GROUP + 1) + 1;
        let bitmap = u64::from(extent.blocks()) / 8;
        let group_pages = (GROUP * (5 + 2 * (6 + bitmap) + bitmap)).div_ceil(PAYLOAD);
        let slots: u64 = map.devices().iter().map(|sb| u64::from(map.space(sb.device).slots())).sum();
        let slot_pages = (slots * (8 + bitmap)).div_ceil(PAYLOAD) + groups.min(slots);
        let objects = leaves + groups * group_pages + slot_pages + volumes / 16 + TABLES;
        let (needed, room) = (VERSIONS * objects + RESERVE, self.setup.meta_pages);
        if needed <= room { Err(Failure::MetadataRoomLeft { needed, room }) } else { Ok(()) }
    }
}
