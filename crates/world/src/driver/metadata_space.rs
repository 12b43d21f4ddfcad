//! Volumes that are refused because the metadata area is full.
//!
//! The areas of these pools are smaller than those that weir creates, so that they fill up soon, and then a
//! volume is refused. A refusal is correct only while the area is really that full. Once everything in flight
//! has ended, this is computed from the contents of each volume's map, not from the map's own counts; and
//! space that clients free by TRIM must become available to the volume.

use super::{Driver, Failure, Health, RequestSpec};
use std::collections::BTreeSet;
use weir_engine::AdminError;
use weir_map::Value;
use weir_model::{BLOCK, Bytes, Op, RequestError, VolumeOffset};

/// Payload of a metadata page.
const PAYLOAD: u64 = 4032;
/// Number of extents per map page.
const FANOUT: u64 = 504;
/// Number of records written together.
const GROUP: u64 = 128;
/// Maximum number of table pages: those that ids which are reusable only after a checkpoint can add to these
/// small maps, and one for the records.
const TABLES: u64 = 4;
/// Maximum number of versions of each object on disk: two roots', and that of a checkpoint being written.
const VERSIONS: u64 = 3;
/// Number of reserved pages.
const RESERVE: u64 = 64;

impl Driver {
    /// Reports whether a command failed because the metadata area is full, which may be correct.
    pub(super) fn is_refused_for_space(&self, failure: &Failure) -> bool {
        let error = RequestError::NoSpace;
        self.health == Health::Healthy
            && matches!(failure, Failure::Admin { error: AdminError::Failed(e), .. } if *e == error)
    }

    /// Creates a volume that was refused for lack of metadata space: retries once nothing is in flight, and
    /// then with one volume after the other trimmed, until `create` reports success.
    pub(super) fn free_metadata_space(
        &mut self,
        mut create: impl FnMut(&mut Self) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let mut is_quiescent = self.quiesce()?;
        let mut rest = self.existing_volumes();
        while !create(self)? {
            if is_quiescent {
                self.check_metadata_full()?;
            }
            let Some(volume) = rest.pop() else { return self.handle_metadata_full() };
            let len = self.volumes[volume].spec.size;
            self.submit_request(RequestSpec {
                volume,
                op: Op::Trim,
                offset: VolumeOffset(0),
                len,
                fua: true,
            })?;
            is_quiescent = self.quiesce()?;
        }
        Ok(())
    }

    /// Handles a metadata area that has no room although all volumes were trimmed. That is correct only if a
    /// TRIM has to leave something, the last partial block of a volume: its record can fill an area as small
    /// as these. The pool is then replaced.
    fn handle_metadata_full(&mut self) -> Result<(), Failure> {
        let has_tail = |volume: usize| !self.volumes[volume].spec.size.0.is_multiple_of(BLOCK);
        if self.existing_volumes().into_iter().any(has_tail) {
            self.recreate_pool()
        } else {
            Err(Failure::MetadataNeverFree)
        }
    }

    /// Returns the volumes that have not been replaced.
    fn existing_volumes(&self) -> Vec<usize> {
        let ids: BTreeSet<_> = self.engine.volumes().map(|volume| volume.id).collect();
        (0..self.volumes.len()).filter(|volume| ids.contains(&self.volumes[*volume].id)).collect()
    }

    /// Waits until every request is complete and durable, and nothing else is in flight. Returns false if a
    /// policy never stops submitting.
    fn quiesce(&mut self) -> Result<bool, Failure> {
        self.drain()?;
        for volume in self.existing_volumes() {
            let (offset, len) = (VolumeOffset(0), Bytes(0));
            self.submit_request(RequestSpec { volume, op: Op::Flush, offset, len, fua: false })?;
        }
        self.drain()?;
        self.wait_for_commands()
    }

    /// Checks, by the map's contents of each volume, that the area may have no room for one more extent.
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
        // The groups of existing records and of moves that are not durable, and another one.
        let groups = (records + map.pending_extents() as u64).min(extents / GROUP + 1) + 1;
        let bitmap = u64::from(extent.blocks()) / 8;
        let group_pages = (GROUP * (5 + 2 * (6 + bitmap) + bitmap)).div_ceil(PAYLOAD);
        let slots: u64 = map.devices().iter().map(|sb| u64::from(map.space(sb.device).slots())).sum();
        let slot_pages = (slots * (8 + bitmap)).div_ceil(PAYLOAD) + groups.min(slots);
        let objects = leaves + groups * group_pages + slot_pages + volumes / 16 + TABLES;
        let (needed, room) = (VERSIONS * objects + RESERVE, self.setup.meta_pages);
        if needed <= room { Err(Failure::MetadataSpaceLeft { needed, room }) } else { Ok(()) }
    }
}
