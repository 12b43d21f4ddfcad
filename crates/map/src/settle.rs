//! Write intents at recovery: where a write to several places may have reached only some of them,
//! one copy is chosen, and the others no longer count.
//!
//! Any copy will do: each of its sectors is what was there before or what some write since put
//! there. What must not be is that a block reads one way now and another way later. Recovery ends
//! with checkpoints, so the choice is durable before anything is served; the device's cache was
//! flushed by then, so what is read is durable too.

use crate::delta::Delta;
use crate::map::Map;
use crate::value::{Place, Record, RecordId, Released, Value, Word};
use weir_model::{BlockRange, DeviceSet, ExtentKey};

impl Map {
    /// Settles every write intent. In recovery, before free space is rebuilt.
    pub(crate) fn settle_intents(&mut self) {
        let mut intended: Vec<(ExtentKey, RecordId, Record)> = Vec::new();
        for (volume, v) in &self.catalogue.volumes {
            self.pages.for_each(v.tree, &mut |index, word| {
                if let Some(Word::Record(id)) = Word::decode(word)
                    && let Some(record) = self.records.get(id).filter(|r| r.intent.is_some())
                {
                    intended.push((ExtentKey { volume: *volume, index }, id, record));
                }
            });
        }
        for (key, id, mut record) in intended {
            record.choose(self.present);
            match Value::Record(record).canonical(self.blocks) {
                Value::Record(record) => self.apply(Delta::Record { id, record }),
                Value::Direct(whole) => {
                    self.apply(Delta::Entry { key, word: Word::Direct(whole) });
                    self.apply(Delta::DropRecord { id });
                }
                Value::Empty => {
                    self.apply(Delta::Entry { key, word: Word::Empty });
                    self.apply(Delta::DropRecord { id });
                }
            }
        }
    }
}

impl Record {
    /// Of the intended blocks, the first place that holds one keeps it, one that is `present` if there is
    /// such a place; the others do not. No intent is left.
    fn choose(&mut self, present: DeviceSet) {
        let Some(intent) = self.intent.take() else { return };
        // Space is rebuilt from what is left.
        let mut released = Released::new();
        for block in intent.iter() {
            let holds = |p: &&Place| p.valid.contains(block);
            let there = self.places.iter().filter(holds).find(|p| present.contains(p.at.id().device));
            let chosen = there.or_else(|| self.places.iter().find(holds)).map(|p| p.at.id());
            if let Some(id) = chosen {
                self.narrow(id, BlockRange { first: block, count: 1 }, &mut released);
            }
        }
    }
}
