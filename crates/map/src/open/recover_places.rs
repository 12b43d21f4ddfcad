//! Write intents at recovery: where a write to several places may have reached only some of them, one copy is
//! selected, and the others become invalid. A block in only one place has an intent too, if it is in doubt
//! since a flush failed.
//!
//! Any copy will do: each of its sectors is either the old data or that of a later write. But a block must
//! not read one way now and another way later. So the selected copy is rewritten as it is read: data that was
//! cached when an earlier server's flush failed can still be read, but no later flush makes it durable, and a
//! copy of it would differ from it after a power loss. Recovery flushes all devices and ends with
//! checkpoints, so all this is durable before anything is served.

use crate::MapError;
use crate::format::value::{Place, Record, RecordId, Released, Slot, Value, Whole, Word};
use crate::log::delta::Delta;
use crate::map::Map;
use crate::open::members::Assembly;
use weir_model::{BLOCK, BlockRange, Bytes, ExtentKey, Mutant, PlaceId, Store};

impl Map {
    /// Settles the places in recovery, before free space is rebuilt: outdated devices, then write intents.
    /// Returns the bytes rewritten.
    ///
    /// # Errors
    /// As [`Map::exclude_outdated`].
    pub(crate) fn recover_places(
        &mut self,
        store: &mut dyn Store,
        assembly: &Assembly,
    ) -> Result<Bytes, MapError> {
        self.exclude_outdated(assembly.outdated, assembly.accept_rollback)?;
        Ok(self.resolve_intents(store))
    }

    /// Settles every write intent, rewriting the selected copies in place. Returns the bytes rewritten.
    fn resolve_intents(&mut self, store: &mut dyn Store) -> Bytes {
        let mut intended: Vec<(ExtentKey, RecordId, Record)> = Vec::new();
        for (volume, v) in &self.catalogue.volumes {
            self.pages.for_each(v.tree, &mut |index, word| {
                if let Some(Word::Record(id)) = Word::decode(word)
                    && let Some(record) = self.records.get(id).filter(|r| r.intent.is_some())
                {
                    intended.push((ExtentKey { volume: *volume, index }, id, record.into_owned()));
                }
            });
        }
        let mut settler = IntentResolver { map: self, store, bytes: Vec::new(), written: Bytes(0) };
        for (_, _, record) in &mut intended {
            settler.resolve(record);
        }
        let written = settler.written;
        for (key, id, record) in intended {
            self.set_recovered_record(key, id, record);
        }
        written
    }

    /// Sets the map's value of an extent with a record, in recovery, to the simplest value equivalent to this
    /// record.
    pub(crate) fn set_recovered_record(&mut self, key: ExtentKey, id: RecordId, record: Record) {
        let word = match Value::from(record).canonical(self.blocks) {
            Value::Record(record) => return self.apply(Delta::Record { id, record }),
            Value::Direct(whole) => Word::Direct(whole),
            Value::Empty => Word::Empty,
        };
        self.apply(Delta::Entry { key, word });
        self.apply(Delta::DropRecord { id });
    }
}

/// Selects copies, and rewrites them.
struct IntentResolver<'a> {
    map: &'a Map,
    store: &'a mut dyn Store,
    bytes: Vec<u8>,
    written: Bytes,
}

impl IntentResolver<'_> {
    /// Selects, for the intended blocks, the first valid place on a present device that accepts the rewrite,
    /// if there is one; all other places become invalid. Where there is none, the intent stays.
    fn resolve(&mut self, record: &mut Record) {
        let Some(intent) = record.intent.take() else { return };
        if self.map.planted.is(Mutant::IntentNotSettled) {
            return;
        }
        // Space is rebuilt from the remaining places.
        let mut released = Released::new();
        let mut at = 0;
        while let Some(run) = intent.next_run(at, self.map.blocks) {
            let part = same_places_prefix(record, run);
            at = part.end();
            if let Some(place) = self.first_writable_place(record, part) {
                record.invalidate_others(place, part, &mut released);
                continue;
            }
            // One unreadable sector does not decide for the whole run.
            for first in part.first..part.end() {
                let block = BlockRange { first, count: 1 };
                let affirmed = self.first_writable_place(record, block);
                if let Some(place) = affirmed.or_else(|| self.any_readable_place(record, first)) {
                    record.invalidate_others(place, block, &mut released);
                    if affirmed.is_none() {
                        record.open_intent(block, self.map.blocks);
                    }
                }
            }
        }
    }

    /// Returns the first place valid for the blocks on a present device that accepts the rewrite.
    fn first_writable_place(&mut self, record: &Record, blocks: BlockRange) -> Option<PlaceId> {
        let mut holders = record.places.iter().filter(|p| p.valid.contains(blocks.first));
        holders.find(|place| self.rewrite_blocks(place, blocks)).map(|place| place.at.id())
    }

    /// Returns the place of a block that none accepts: on a present device, if there is one.
    fn any_readable_place(&self, record: &Record, block: u16) -> Option<PlaceId> {
        let holders = || record.places.iter().filter(|p| p.valid.contains(block));
        let present = holders().find(|place| self.map.present.contains(place.device()));
        present.or_else(|| holders().next()).map(|place| place.at.id())
    }

    /// Rewrites the blocks as they are read there. Returns whether that succeeded.
    fn rewrite_blocks(&mut self, place: &Place, blocks: BlockRange) -> bool {
        let device = place.device();
        let mut done = self.map.present.contains(device);
        let mut first = blocks.first;
        while done && first < blocks.end() {
            let Some(slot) = place.slot(first) else { return false };
            let next = |b: u16| Some(Slot { block: slot.block + (b - first), ..slot });
            let count = (first..blocks.end()).take_while(|b| place.slot(*b) == next(*b)).count() as u16;
            let at =
                self.map.address(Whole { device, extent: slot.extent }, u32::from(slot.block) * BLOCK as u32);
            self.bytes.resize(usize::from(count) * BLOCK as usize, 0);
            done = self.store.read(device, at, &mut self.bytes).is_ok()
                && (self.map.planted.is(Mutant::SettledCopyNotRewritten)
                    || self.store.write(device, at, &self.bytes).is_ok());
            self.written += Bytes(self.bytes.len() as u64);
            first += count;
        }
        done
    }
}

/// Returns the longest prefix of the run for which the same places are valid.
fn same_places_prefix(record: &Record, run: BlockRange) -> BlockRange {
    let alike = |b: u16| record.places.iter().all(|p| p.valid.contains(b) == p.valid.contains(run.first));
    let count = (run.first..run.end()).take_while(|b| alike(*b)).count() as u16;
    BlockRange { first: run.first, count }
}
